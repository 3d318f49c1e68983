"""Whoever listens to PostgreSQL is told of changes, also after a connection broke; others ask."""

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.database import notices
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.notices import counts, listening
from tests.helpers import zoos


def test_it_tells_of_models_and_accounts(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "AGAIN", 0.05)
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), catalog=postgres_url, threads=1))
    elsewhere, told = Database(postgres_url), threading.Event()
    with listening(elsewhere, told.set) as tells:
        assert tells
        assert told.wait(60), "whoever begins to listen may have missed something"
        told.clear()
        zoos.register(coordinator, zoos.net(4))
        assert told.wait(60)
        assert counts(elsewhere) == (1, 0)
        told.clear()
        coordinator.accounts.add_user("ada")
        assert told.wait(60)
        assert counts(elsewhere) == (1, 1)
        told.clear()
        with elsewhere.writing() as connection:  # the connections of all others break
            mine = sa.text("pid <> pg_backend_pid() AND datname = current_database()")
            connection.execute(
                sa.select(sa.text("pg_terminate_backend(pid) FROM pg_stat_activity")).where(mine)
            )
        assert told.wait(60), "it listens again"
        told.clear()
        coordinator.accounts.add_user("bob")
        assert told.wait(60)
    coordinator.close()
    elsewhere.close()


def test_a_file_tells_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "catalog.db")
    with listening(database, lambda: None) as tells:
        assert not tells
    assert counts(database) == (0, 0)
    database.close()
