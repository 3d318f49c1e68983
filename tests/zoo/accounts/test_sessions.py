"""Sessions in the catalog, over every database."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkeeper.zoo.accounts import sessions
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database import schema


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    sqlite = request.param == "sqlite"
    place = f"sqlite:///{tmp_path / 'catalog.db'}" if sqlite else request.getfixturevalue("postgres_url")
    found = Catalog(place)
    yield found
    found.close()


def test_a_session_is_its_tokens(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = Accounts(catalog)
    accounts.add_user("ada")
    accounts.add_project("vision", ["ada"])
    tokens = [accounts.add_token("ada", scope, days=1) for scope in ("read", "write")]
    secrets = [accounts.sessions.begin(token) for token in tokens]
    assert all(secrets)
    read, write = (accounts.sessions.holder(secret or "") for secret in secrets)
    assert (read, write) == tuple(accounts.holder(token) for token in tokens)
    assert read is not None
    assert list(read.projects) == ["vision"]
    assert accounts.sessions.holder("") is accounts.sessions.holder("a" * 43) is None
    assert accounts.sessions.begin("mk_wrong") is accounts.sessions.begin(tokens[0][:-1] + "_") is None
    accounts.revoke(tokens[0].split("_")[1])
    assert accounts.sessions.holder(secrets[0] or "") is None
    assert accounts.sessions.holder(secrets[1] or "") is not None
    accounts.remove_user("ada")
    assert accounts.sessions.holder(secrets[1] or "") is None


def test_use_keeps_a_session_and_idleness_ends_it(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = Accounts(catalog)
    accounts.add_user("ada")
    token = accounts.add_token("ada", "read")
    used, idle = (accounts.sessions.begin(token) or "" for _ in range(2))
    begun = time.time()

    def at(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: begun + seconds)

    for part in (0.6, 1.2, 1.8):
        at(part * sessions.IDLE)
        assert accounts.sessions.holder(used) is not None
    assert accounts.sessions.holder(idle) is None
    at(sessions.LONGEST + 1)
    assert accounts.sessions.holder(used) is None
    assert accounts.sessions.begin(token) is not None  # sweeps what is over
    with catalog.database.reading() as connection:
        assert len(connection.execute(schema.sessions.select()).all()) == 1
