"""`modelkeeper doctor`: what it finds where all is well, and where it is not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from modelkeeper.cli import doctor_installed, main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from tests.helpers import zoos
from tests.helpers.service import team


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without frameworks, which take their time, and away from what waits in the user's own spool."""
    monkeypatch.setattr(doctor_installed, "_DEVICES", {})
    monkeypatch.setenv("MODELKEEPER_SPOOL", str(tmp_path / "spool"))


def told(*arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
    """What was found, by check."""
    result = CliRunner().invoke(main, ["doctor", "--json", *arguments], env=environment)
    assert result.exit_code == code, result.output
    answer = json.loads(result.stdout)
    assert answer["ok"] is (code == 0)
    return {row["check"]: row for row in answer["checks"]}


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A zoo with a model."""
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    zoos.register(coordinator, zoos.net(8), "one")
    coordinator.close()
    return str(tmp_path / "zoo")


def events(zoo: str) -> list[str]:
    result = CliRunner().invoke(main, ["log", "--json", "--zoo", zoo])
    return [event["action"] for event in json.loads(result.stdout)]


def test_where_all_is_well_nothing_is_changed(home: str) -> None:
    found = told("--zoo", home)
    states = {check: row["state"] for check, row in found.items() if check != "versions"}
    assert states.pop("frameworks") == "warn"  # the fixture took them away
    assert set(states.values()) == {"ok"}
    assert "1 model in" in found["zoo"]["found"]
    assert "zoo" in found["extras"]["found"]
    assert "compared and removed" in found["round trip"]["found"]
    assert events(home) == ["registered"]


def test_a_round_trip_through_the_zoo_itself_is_asked_for(home: str) -> None:
    assert told("--zoo", home, "--write")["round trip in the zoo"]["state"] == "ok"
    assert events(home) == ["removed", "lent", "registered", "registered"]


def test_a_zoo_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    found = told("--zoo", str(tmp_path / "none"))
    assert (found["zoo"]["state"], found["writing"]["state"]) == ("warn", "ok")
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_looked_into_is_a_failure(tmp_path: Path) -> None:
    found = told("--zoo", str(tmp_path / ("z" * 300)), code=1)
    assert (found["zoo"]["state"], found["writing"]["state"]) == ("fail", "ok")
    assert "File name too long" in found["zoo"]["found"]
    assert not found["zoo"]["advice"].endswith(".")  # the table ends the sentence


def test_a_damaged_catalog_is_a_failure_with_advice(home: str) -> None:
    for path in Path(home).glob("catalog.db*"):
        path.write_bytes(b"no database at all" * 100)
    row = told("--zoo", home, code=1)["zoo"]
    assert row["state"] == "fail"
    assert "modelkeeper verify" in row["advice"]


def test_an_older_catalog_is_left_as_it_is(home: str) -> None:
    import sqlite3

    with sqlite3.connect(Path(home) / "catalog.db") as connection:
        connection.execute("update alembic_version set version_num = '0003'")
    connection.close()
    row = told("--zoo", home)["zoo"]
    assert row["state"] == "warn"
    assert "0003" in row["found"]
    assert "Back it up" in row["advice"]


def test_a_service_says_who_we_are(tmp_path: Path) -> None:
    with team(tmp_path / "served") as service:
        found = told("--zoo", service.url, "--write", MODELKEEPER_TOKEN=service.token("ada"))
        shown = {
            check: row["state"] for check, row in found.items() if check not in ("frameworks", "versions")
        }
        assert set(shown.values()) == {"ok"}, found
        assert "ada, scope write" in found["token"]["found"]
        assert found["clock"]["found"] == "that of the service is right within 2 s"
        reader = told("--zoo", service.url, MODELKEEPER_TOKEN=service.token("bob", "read"))
        assert (reader["token"]["state"], reader["service"]["state"]) == ("warn", "ok")
        refused = told("--zoo", service.url, code=1, MODELKEEPER_TOKEN="")
        assert refused["token"]["state"] == "fail"
        assert refused["token"]["advice"]
        url = service.url
    gone = told("--zoo", url, code=1)
    assert gone["service"]["state"] == "fail"
    assert "token" not in gone


def test_a_table_says_the_same(home: str) -> None:
    said = CliRunner().invoke(main, ["doctor", "--zoo", home], env={"COLUMNS": "160"}).stdout
    assert "round trip" in said
    assert "Install one: pip install 'modelkeeper[torch]'" in said


def test_it_works_where_no_framework_is(home: str) -> None:
    """In a process that cannot find any: the command itself needs none."""
    code = """
import importlib.abc, sys
from importlib import metadata

NONE = {"torch", "keras", "tensorflow", "jax", "onnx"}
kept = metadata.version

def version(name):
    if name.removesuffix("-cpu") in NONE:
        raise metadata.PackageNotFoundError(name)
    return kept(name)

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in NONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

metadata.version = version
sys.meta_path.insert(0, Missing())
from modelkeeper.__main__ import main
main()
"""
    command = [sys.executable, "-c", code, "doctor", "--json", "--zoo", home]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert found["frameworks"]["found"] == "none is installed"
    assert found["round trip"]["state"] == "ok"
