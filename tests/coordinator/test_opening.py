"""One way to open a zoo: a folder, memory or an address, as arguments, variables and defaults say."""

from pathlib import Path
from typing import Any

import pytest

from modelkeeper import coordinator
from modelkeeper.coordinator.base import Coordinator, ServedCoordinator
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import InvalidSetting, ZooUnusable


def test_a_folder_and_memory_are_opened_in_this_process(tmp_path: Path) -> None:
    for uri in (tmp_path / "zoo", str(tmp_path / "zoo"), ":memory:"):
        opened: Coordinator = coordinator.open(uri, capacity="1MB")
        assert isinstance(opened, LocalCoordinator)
        served: ServedCoordinator = opened
        assert served.settings.capacity == 10**6
        assert opened.count() == 0
        opened.close()


def test_an_address_is_called_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKEEPER_TOKEN", "mk_from_the_environment")
    for uri in ("10.0.0.7", "keeper:7433", "https://keeper.example.org"):
        opened: Coordinator = coordinator.open(uri, timeout=3.0, spool=str(tmp_path))
        assert isinstance(opened, RemoteCoordinator)
        assert opened.spool.folder == tmp_path
        opened.close()
    assert coordinator.target("10.0.0.7").token == "mk_from_the_environment"
    assert coordinator.target("10.0.0.7", token="mk_given").token == "mk_given"
    assert "mk_given" not in repr(coordinator.target("10.0.0.7", token="mk_given"))


def test_what_is_not_said_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKEEPER_URI", str(tmp_path / "zoo"))
    assert coordinator.target().settings.home == str(tmp_path / "zoo")
    monkeypatch.setenv("MODELKEEPER_URI", "http://10.0.0.7:7000")
    assert coordinator.target().url == "http://10.0.0.7:7000"
    monkeypatch.setenv("MODELKEEPER_HOME", str(tmp_path / "served"))
    local = coordinator.open_local()  # a service is made of a folder, wherever its clients go
    assert local.settings.home == str(tmp_path / "served")
    local.close()


def test_a_typo_is_no_empty_zoo(tmp_path: Path) -> None:
    with pytest.raises(ZooUnusable, match="there is no zoo"):
        coordinator.open(tmp_path / "zooo", make=False)
    with pytest.raises(ZooUnusable, match="there is no zoo"):
        coordinator.open_local(str(tmp_path / "zooo"), make=False)
    assert not (tmp_path / "zooo").exists()
    coordinator.open(tmp_path / "zoo").close()
    coordinator.open(tmp_path / "zoo", make=False).close()


def test_a_folder_that_cannot_be_looked_into_is_an_error_of_ours(tmp_path: Path) -> None:
    """As /root/zoo is for others. Whoever runs the tests may be root, so the system refuses another thing."""
    with pytest.raises(ZooUnusable, match="File name too long"):
        coordinator.open(tmp_path / ("z" * 300), make=False)


def test_a_folder_whose_name_is_no_text_here_is_an_error_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "Zoo f\udcfcr"
    folder.mkdir()
    (folder / "catalog.db").touch()
    for make in (True, False):
        with pytest.raises(ZooUnusable, match="its name has letters that cannot be read here") as caught:
            coordinator.open(folder, make=make)
        assert str(caught.value).isascii()


@pytest.mark.parametrize(
    ("uri", "settings", "problem"),
    [
        ("zoo", {"capacty": "1GB"}, "capacty"),
        ("zoo", {"home": "elsewhere"}, "home"),
        ("zoo", {"timeout": -1.0}, "timeout"),
        ("10.0.0.7", {"capacity": "1GB"}, "has its own"),
        ("http://user:secret@host", {}, "A token goes apart"),
        ("host:99999", {}, "a port is a number"),
    ],
)
def test_what_cannot_be_opened_is_said_before_anything_is(
    uri: str, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        coordinator.target(uri, **settings)
