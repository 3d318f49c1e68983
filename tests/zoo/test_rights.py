"""Who besides their owner may see what a zoo writes?"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkeeper.zoo.rights import as_its_folder, make_folder, make_home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o022, 0o002, 0o077], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the umask is."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def written(path: Path) -> int:
    with open(path, "wb", opener=as_its_folder) as file:
        file.write(b"x")
    return mode(path)


def test_a_new_home_is_its_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "zoo"
    make_home(home)
    make_home(home)
    make_folder(home / "models")
    make_folder(home / "models", exist_ok=True)
    assert (mode(home), mode(home / "models"), written(home / "models" / "file")) == (0o700, 0o700, 0o600)
    with pytest.raises(FileExistsError):
        make_folder(home / "models")
    with pytest.raises(NotADirectoryError):
        make_home(home / "models" / "file")


@pytest.mark.parametrize(
    ("of_home", "folder", "file"),
    [
        (0o755, 0o700, 0o600),  # what mkdir makes says nothing
        (0o775, 0o770, 0o660),  # a group may write to it
        (0o2770, 0o2770, 0o660),
        (0o2750, 0o2750, 0o640),  # a group may read
        (0o1777, 0o777, 0o666),
    ],
)
def test_a_shared_home_stays_shared(tmp_path: Path, of_home: int, folder: int, file: int) -> None:
    home = tmp_path / "zoo"
    home.mkdir()
    home.chmod(of_home)
    make_home(home)
    make_folder(home / "models")
    make_folder(home / "models" / "deeper")
    assert mode(home) == of_home
    assert mode(home / "models" / "deeper") & 0o3777 == folder
    assert written(home / "models" / "file") == file
    assert written(home / "models" / "file") == file
