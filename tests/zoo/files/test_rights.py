"""Who besides their owner may see what a zoo writes?"""

import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import Spool
from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.meta import Query
from modelkeeper.server.upload_store import FolderUploads
from modelkeeper.settings import Settings
from modelkeeper.zoo.care.backup import backup
from modelkeeper.zoo.files import verified
from modelkeeper.zoo.files.rights import as_its_folder, make_folder, make_home
from modelkeeper.zoo.index import index_sync
from tests.helpers import zoos
from tests.helpers.forked import in_child

GRAPH = zoos.net(4)


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


def everything(folder: Path) -> dict[str, int]:
    """The rights of a folder and all that is in it."""
    return {str(path.relative_to(folder)): mode(path) for path in (folder, *folder.rglob("*"))}


def use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a zoo write all that it ever writes; a backup of it, in a folder of its own, is nobody else's."""
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 0)
    monkeypatch.setattr(verified, "SETTLED", -1.0)
    coordinator = LocalCoordinator(Settings(home=str(home)))
    coordinator.register(GRAPH, zoos.told(), zoos.weights(GRAPH).items(), program=b"{}")
    other = LocalCoordinator(Settings(home=str(home)))
    assert not other.query(GRAPH, Query(task=zoos.TASK)).answer.cold
    request = UploadRequest(
        id="0" * 16, graph=msgspec.Raw(b"{}"), registration=zoos.told(), size=8, checksum=""
    )
    FolderUploads(coordinator.upload_folder()).begin("ada", request)
    backup(coordinator.zoo, home.parent / "backup")
    assert {rights & 0o077 for rights in everything(home.parent / "backup").values()} == {0}
    names = set(everything(home))
    assert {"catalog.db", "catalog.db-wal", "catalog.db-shm", "reserve", "verified", "index"} <= names
    for each in (coordinator, other):
        each.close()


def test_what_a_zoo_writes_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "new" / "zoo"
    use(home, monkeypatch)
    assert {name: oct(rights) for name, rights in everything(home).items() if rights & 0o077} == {}


def test_what_a_shared_zoo_writes_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "zoo"
    home.mkdir()
    home.chmod(0o2770)
    use(home, monkeypatch)
    shared = {
        name: oct(rights)
        for name, rights in everything(home).items()
        if rights & 0o7077 != (0o2070 if (home / name).is_dir() else 0o060)
    }
    assert shared == {}


def test_what_waits_to_be_sent_is_its_owners_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new" / "spool")
    spool.keep("http://localhost:1", GRAPH, zoos.told(), zoos.weights(GRAPH).items(), "", "")
    assert {rights & 0o077 for rights in everything(spool.folder).values()} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_somebody_else_of_the_group_registers_into_a_shared_zoo(tmp_path: Path) -> None:
    """Two users of one group, whose umask keeps everything to themselves."""
    home = tmp_path / "zoo"
    home.mkdir()
    os.chown(home, 65001, 65000)
    home.chmod(0o2770)
    for above in tmp_path.parents:
        if above.owner() == "root" and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    for user, models in ((65001, 1), (65002, 2), (65001, 3)):
        assert in_child(partial(register_as, user, home), seconds=60) == models
    with pytest.raises(AssertionError, match="ZooUnusable"):
        in_child(partial(register_as, 65003, home, group=65003), seconds=60)


def register_as(user: int, home: Path, group: int = 65000) -> int:
    """Register a model as another user. How many are there then?"""
    os.setgroups([])
    os.setgid(group)
    os.setuid(user)
    os.umask(0o077)
    coordinator = LocalCoordinator(Settings(home=str(home)))
    zoos.register(coordinator, GRAPH, f"of {user}")
    assert not coordinator.query(GRAPH, Query(task=zoos.TASK)).answer.cold
    coordinator.gc(verify=True)
    return coordinator.count()
