"""backup, restore and verify, as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from modelkeeper.cli import main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.files.blobs import WEIGHTS
from tests.helpers import zoos


def call(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result


def told(*arguments: str, code: int = 0) -> Any:
    return json.loads(call(*arguments, "--json", code=code).stdout)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of two models in the current folder."""
    monkeypatch.chdir(tmp_path)
    coordinator = LocalCoordinator(Settings(home="zoo"))
    zoos.register(coordinator, zoos.net(4), "one")
    tensors = zoos.weights(zoos.net(8))
    coordinator.register(zoos.net(8), zoos.told("two"), tensors.items(), program=b"{}")
    coordinator.close()
    return tmp_path / "zoo"


def names(zoo: str) -> set[str]:
    return {record["name"] for record in told("models", "--zoo", zoo)}


def test_from_a_backup_to_a_zoo(home: Path) -> None:
    first = told("backup", "copies", "--zoo", "zoo")
    assert (first["models"], first["left_out"]) == (2, {})
    call("remove", "one", "--zoo", "zoo")
    said = call("backup", "copies", "--zoo", "zoo", "--verify").output
    assert "models" in said
    assert "left out" in said
    assert told("restore", "copies", "--list")[0] == first["snapshot"]
    assert first["snapshot"] in call("restore", "copies", "--list").output
    assert told("restore", "copies", "--zoo", "newest")["models"] == 1
    assert "2 (" in call("restore", "copies", "--zoo", "before", "--at", first["snapshot"]).output
    assert (names("newest"), names("before")) == ({"two"}, {"one", "two"})
    assert told("backup", "copies", "--zoo", "zoo", "--keep", "1")["pruned"] > 0
    assert len(told("restore", "copies", "--list")) == 1
    assert "holds models already" in call("restore", "copies", "--zoo", "zoo", code=1).stderr


def test_what_is_whole_and_what_is_not(home: Path) -> None:
    report = told("verify", "--zoo", "zoo")
    counted = {key: report[key] for key in ("records", "graphs", "weights", "programs", "whole")}
    assert counted == {"records": 2, "graphs": 2, "weights": 2, "programs": 1, "whole": True}
    assert "all is what was registered" in call("verify", "--zoo", "zoo").output
    path = next((home / "models").glob(f"*/{WEIGHTS}"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert told("verify", "--quick", "--zoo", "zoo")["whole"]
    assert list(told("verify", "--zoo", "zoo", code=1)["damaged_weights"]) == [path.parent.name]
    assert path.parent.name in call("verify", "--zoo", "zoo", code=1).output
    assert list(told("backup", "copies", "--zoo", "zoo", code=1)["left_out"]) == [path.parent.name]
    assert told("restore", "copies", "--zoo", "again", code=1)["missing"] == [path.parent.name]


@pytest.mark.parametrize("command", [("verify",), ("backup", "copies"), ("restore", "copies")])
def test_where_the_files_are_not_they_say_so(tmp_path: Path, command: tuple[str, ...]) -> None:
    said = call(*command, "--zoo", "keeper.example.org:7433", code=2).stderr
    assert "run it where they are" in said
    if command != ("restore", "copies"):
        assert "there is no zoo" in call(*command, "--zoo", str(tmp_path / "typo"), code=1).stderr
        assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("command", ["backup", "restore", "verify"])
def test_help_shows_how_it_is_called(command: str) -> None:
    assert f"modelkeeper {command}" in call(command, "--help").output
