"""`modelkeeper key` and `modelkeeper audit`."""

import json
import os
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from modelkeeper.cli import main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.signing import PublicKey
from modelkeeper.zoo.database.schema import ledger
from tests.helpers.zoos import net, register


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MODELKEEPER_KEY", raising=False)
    monkeypatch.setenv("MODELKEEPER_URI", str(tmp_path / "zoo"))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def test_a_key_is_made_once_and_shown(home: Path) -> None:
    made = run("key", "new", "work")
    assert made.exit_code == 0
    line = made.stdout.strip()
    assert os.stat(home / ".modelkeeper" / "keys" / "work.pem").st_mode & 0o777 == 0o600
    assert run("key", "show", "work").stdout.strip() == line
    assert PublicKey.read(line)[1]
    again = run("key", "new", "work")
    assert again.exit_code == 1
    assert "already" in again.stderr
    assert run("key", "show", "other").exit_code == 1


@pytest.mark.parametrize("where", [(), ("--mine",)])
def test_keys_are_trusted_listed_and_revoked(where: tuple[str, ...]) -> None:
    line = run("key", "new").stdout.strip()
    public, _ = PublicKey.read(line)
    if where:  # a key of one's own is not yet one that counts
        assert "No key is trusted here" in run("key", "list", *where).stdout
    assert run("key", "trust", line, "--name", "Ada", *where).exit_code == 0
    listed = json.loads(run("key", "list", "--json", *where).stdout)
    assert [(row["id"], row["name"]) for row in listed] == [(public.id, "Ada")]
    assert "Ada" in run("key", "list", *where).stdout
    assert run("key", "revoke", public.id[:8], *where).exit_code == 0
    assert run("key", "revoke", public.id[:8], *where).exit_code == 1
    assert run("key", "trust", "nonsense", *where).exit_code == 1


def test_an_audit_prints_the_head_and_fails_where_something_does_not_fit(home: Path) -> None:
    zoo = LocalCoordinator(Settings(home=str(home / "zoo")))
    register(zoo, net())
    whole = run("audit")
    assert whole.exit_code == 0
    head = whole.stdout.rsplit("head ", 1)[1].strip()
    register(zoo, net(), "b", 0.8)
    since = run("audit", "--since", head)
    assert since.exit_code == 0
    assert "Nothing before 1 was rewritten" in since.stdout
    assert run("audit", "--since", "what").exit_code == 2
    with zoo.zoo.catalog.database.writing() as connection:
        connection.execute(sa.update(ledger).where(ledger.c.number == 1).values(kind="lent"))
    zoo.close()
    broken = run("audit", "--json")
    assert broken.exit_code == 1
    found = json.loads(broken.stdout)
    assert found["whole"] is False
    assert found["broken"][0].startswith("entry 1: its columns")
    assert "The log is broken. entry 1" in run("audit").stdout
