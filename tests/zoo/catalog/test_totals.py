"""Totals: whatever happens to models, they are what records sum up to, and cost no look at the records."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.care.verify import verify
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.records import (
    ACTIVE,
    BARRED,
    DAMAGED,
    EVICTED,
    REMOVED,
    STORED,
    Event,
    Filter,
    Viewer,
    new_id,
)
from tests.helpers import zoos
from tests.zoo.catalog.test_catalog import add


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    places = {"sqlite-memory": "sqlite://", "sqlite-file": f"sqlite:///{tmp_path / 'catalog.db'}"}
    opened = Catalog(places.get(request.param) or request.getfixturevalue("postgres_url"))
    yield opened
    opened.close()


def test_totals_are_those_of_the_records_whatever_happens(catalog: Catalog) -> None:
    """Law: after every change of records, totals say what counting the rows says."""
    accounts = Accounts(catalog)
    for name in ("ann", "bob"):
        accounts.add_user(name)
    owners = {user.name: user.id for user in accounts.users()}
    draw = random.Random(19)
    ids: list[str] = []

    def come(**more: Any) -> None:
        name = draw.choice(sorted(owners))
        given = {"task": draw.choice("tu"), "data": draw.choice("de"), "hits": draw.randrange(3), **more}
        given |= {"bytes": draw.randrange(10**12), "fingerprint": draw.choice("fgh") * 64}
        ids.append(add(catalog, owner=name, owner_id=owners[name], **given).id)

    def version() -> None:
        come(run=draw.choice("01") * 16, finished=draw.random() < 0.3)

    def go() -> None:
        some = draw.sample(ids, min(len(ids), 3))
        catalog.retire(dict.fromkeys(some, "why"), draw.choice([REMOVED, EVICTED, DAMAGED]))

    def back() -> None:
        model = draw.choice(ids)
        event = Event(at=1.0, action="repaired", model=model)
        catalog.restore(model, draw.choice(STORED), "", event)

    def lend() -> None:
        catalog.lent(draw.choice(ids), 2.0)

    def give() -> None:
        giver, taker = draw.sample(sorted(owners), 2)
        if any(record.owner_id == owners[giver] for record in catalog.find(Filter())):
            accounts.give(giver, taker)

    actions: list[Callable[[], None]] = [come, version, go, back, lend, give]
    come()
    for _ in range(60):
        draw.choice(actions)()
        assert catalog.wrong_totals() == []
    records = catalog.find(Filter())
    assert records
    assert catalog.bytes_stored() == sum(record.bytes for record in records)
    assert catalog.models_stored() == len(records)
    for identity in owners.values():
        theirs = [record.bytes for record in records if record.owner_id == identity]
        assert catalog.kept_by(identity) == (len(theirs), sum(theirs))
    assert catalog.kept_by("nobody") == (0, 0)
    assert catalog.stats() == catalog.stats(Viewer("nobody")), "all is public, so everybody sees all"


def test_what_all_see_is_counted_without_a_look_at_the_records(catalog: Catalog) -> None:
    add(catalog)
    asked: list[str] = []
    sa.event.listen(catalog.database._engine, "before_cursor_execute", lambda *said: asked.append(said[2]))
    for viewer in (None, Viewer("a", all=True)):
        assert catalog.stats(viewer)["models"] == 1
    assert (catalog.kept_by("ann")[0], catalog.bytes_stored(), catalog.models_stored()) == (1, 100, 1)
    read = [statement.partition("FROM ")[2].split()[0] for statement in asked if "FROM " in statement]
    assert set(read) == {"totals"}


def test_totals_that_are_wrong_are_found_and_counted_anew(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), threads=1))
    zoos.register(coordinator, zoos.net(4))
    catalog = coordinator.zoo.catalog
    with catalog.database.writing() as connection:  # as who knows nothing of totals would
        connection.execute(models.update().values(bytes=models.c.bytes + 7))
    problems = verify(coordinator.zoo, quick=True).catalog
    assert any("the totals of state active say [1, " in problem for problem in problems)
    coordinator.gc(grace=0)
    assert catalog.wrong_totals() == []
    coordinator.close()


def test_loans_registrations_and_removals_at_once_lose_no_count(catalog: Catalog) -> None:
    """Nobody waits for another in a circle, and nothing is counted twice or not at all."""
    ids = [add(catalog, id=new_id(), task=task).id for task in "tutu"]
    start = threading.Barrier(4)

    def lend() -> None:
        start.wait()
        for number in range(12):
            catalog.lent(ids[number % 4], 1.0)

    def remove_and_restore() -> None:
        start.wait()
        for _ in range(5):
            catalog.retire(dict.fromkeys(ids[::-1], "why"), DAMAGED)
            for model in ids:
                catalog.restore(model, ACTIVE, "", Event(at=1.0, action="repaired", model=model))

    def register() -> None:
        start.wait()
        for task in "tuvtuv":
            add(catalog, id=new_id(), task=task, state=BARRED)

    with ThreadPoolExecutor(4) as pool:
        for work in [pool.submit(each) for each in (lend, lend, remove_and_restore, register)]:
            work.result()
    assert catalog.wrong_totals() == []
    assert catalog.stats()["hits"] == 24
