"""Of all who would lead, one does; when it dies or sleeps, another."""

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.schema import leases
from modelkeeper.zoo.replicas import leader as leading
from modelkeeper.zoo.replicas.leader import LEASE, Leader, who_leads


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a catalog is to be."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def database(place: str) -> Iterator[Database]:
    made = Database(place)
    yield made
    made.close()


def elapse(database: Database) -> None:
    """Let the lease run out."""
    with database.writing() as connection:
        connection.execute(leases.update().where(leases.c.folder == LEASE).values(until=1.0))


def test_of_many_at_once_one_leads_and_the_next_when_it_resigns(database: Database) -> None:
    every, both = [Leader(database) for _ in range(4)], threading.Barrier(4)

    def take(one: Leader) -> bool:
        both.wait(60)
        return one.take()

    assert who_leads(database) == ""
    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(take, every)) == 1
    (first,) = [one for one in every if one.leads]
    assert first.take(), "it goes on"
    assert not any(one.take() for one in every if one is not first)
    assert who_leads(database).endswith(f":{multiprocessing.current_process().pid}")
    first.resign()
    assert not first.leads
    second = next(one for one in every if one is not first)
    assert second.take()
    first.resign()
    assert second.take(), "nobody gives back what is another's"


def test_who_slept_too_long_leads_no_more(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Leader(database), Leader(database)
    assert first.take()
    elapse(database)
    assert who_leads(database) == ""
    assert second.take()
    assert not first.take()
    assert not first.leads
    monkeypatch.setattr(leading, "SPARE", leading.SECONDS)  # all of its time has passed
    assert second.take()
    assert not second.leads, "before another one can have taken over, it knows by its own clock"


def _take_and_die(place: str) -> None:
    assert Leader(Database(place)).take()


def test_a_leader_of_this_machine_that_died_is_followed_at_once(place: str) -> None:
    dies = multiprocessing.get_context("spawn").Process(target=_take_and_die, args=(place,))
    dies.start()
    dies.join(60)
    assert dies.exitcode == 0
    database = Database(place)
    with database.reading() as connection:
        assert connection.scalar(sa.select(leases.c.holder)) is not None
    assert Leader(database).take()
    database.close()
