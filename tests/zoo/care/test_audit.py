"""Audits: whoever rewrites the log or the catalog is noticed."""

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.signing import new_key
from modelkeeper.signing.chain import BEFORE, Head, following
from modelkeeper.zoo.care.audit import audit
from modelkeeper.zoo.catalog.ledger import entries_after
from modelkeeper.zoo.database.rows import reseal
from modelkeeper.zoo.database.schema import keys, models
from modelkeeper.zoo.database.schema import ledger as table
from modelkeeper.zoo.records import LENT, Event
from modelkeeper.zoo.trust import Trust
from tests.helpers.zoos import net, register

Tamper = Callable[[sa.Connection], object]


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[LocalCoordinator]:
    """Six entries: the beginning, three models, a loan of the first, the third is removed."""
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    ids = [register(coordinator, net(), f"m{place}", 0.9).id for place in range(3)]
    coordinator.zoo.lent(ids[0], Event(at=1e9, action=LENT, model=ids[0], user="bob"))
    coordinator.remove(ids[2])
    yield coordinator
    coordinator.close()


def change(which: int, **values: object) -> Tamper:
    changed = table.update().where(table.c.number == which).values(values)
    return lambda connection: connection.execute(changed)


def delete(*numbers: int) -> Tamper:
    return lambda connection: connection.execute(table.delete().where(table.c.number.in_(numbers)))


def swap(connection: sa.Connection) -> None:
    for old, new in ((3, 100), (4, 3), (100, 4)):
        change(old, number=new)(connection)


def insert(connection: sa.Connection) -> None:
    third = entries_after(connection, 2, 1)[0]
    for number in (5, 4, 3):
        change(number, number=number + 1)(connection)
    row = {name: getattr(third, name) for name in third.__struct_fields__}
    connection.execute(table.insert(), row)


@pytest.mark.parametrize(
    ("tamper", "where"),
    [
        (change(2, body='{"at":"1.0","kind":"lent","model":"","number":2}'), "entry 2: its digest"),
        (change(2, at=17.0), "entry 2: its columns"),
        (change(2, kind="lent"), "entry 2: its columns"),
        (change(2, model="0" * 16), "entry 2: its columns"),
        (change(2, digest="0" * 64), "entry 2: its digest"),
        (change(3, previous="0" * 64), "entry 3: it does not follow"),
        (delete(2), "entry 3: entry 2 is missing"),
        (delete(0), "entry 1: entry 0 is missing"),
        (delete(0, 1, 2, 3, 4, 5), "entry 0: it is missing"),
        (swap, "entry 3: it does not follow"),
        (insert, "entry 4: "),
    ],
)
def test_whatever_is_done_to_the_chain_is_noticed(zoo: LocalCoordinator, tamper: Tamper, where: str) -> None:
    assert audit(zoo.zoo.catalog).whole
    with zoo.zoo.catalog.database.writing() as connection:
        tamper(connection)
    found = audit(zoo.zoo.catalog)
    assert not found.whole
    assert found.broken[0].startswith(where)


def test_a_chain_that_was_cut_off_does_not_fit_the_catalog(zoo: LocalCoordinator) -> None:
    first, third = sorted(zoo.models(), key=lambda model: model.name)[0], "m2"
    lost = [(5, f"({third}): its state"), (4, f"{first.id} (m0): how often"), (3, "is not in the log")]
    for cut, said in lost:
        with zoo.zoo.catalog.database.writing() as connection:
            delete(cut)(connection)
        found = audit(zoo.zoo.catalog)
        assert not found.broken
        assert any(said in problem for problem in (*found.different, *found.unknown)), found


@pytest.mark.parametrize("field", ["checksum", "licence", "signer", "name"])
def test_a_catalog_that_says_otherwise_is_noticed_even_if_it_is_sealed(
    zoo: LocalCoordinator, field: str
) -> None:
    record = zoo.show("m1")
    with zoo.zoo.catalog.database.writing() as connection:
        connection.execute(models.update().where(models.c.id == record.id).values({field: "0" * 16}))
        reseal(connection, models.c.id == record.id)
    found = audit(zoo.zoo.catalog)
    assert not found.broken
    assert [problem.endswith("what was registered") for problem in found.different] == [True]


def test_models_that_came_or_went_beside_the_log_are_noticed(zoo: LocalCoordinator) -> None:
    record = zoo.show("m1")
    with zoo.zoo.catalog.database.writing() as connection:
        connection.execute(models.update().where(models.c.id == record.id).values(id="f" * 16))
    found = audit(zoo.zoo.catalog)
    assert f"model {record.id} of the log is not in the catalog" in found.unknown
    assert any(problem.startswith(f"model {'f' * 16} (m1) is not in") for problem in found.unknown)


def test_keys_that_were_trusted_beside_the_log_are_noticed(zoo: LocalCoordinator) -> None:
    trust, ada, eve = Trust(zoo.zoo.catalog), new_key().public, new_key().public
    trust.add(ada, "Ada", user="root")
    assert audit(zoo.zoo.catalog).whole
    with zoo.zoo.catalog.database.writing() as connection:
        row = {"id": eve.id, "public": eve.raw.hex(), "name": "Ada", "created": 0.0, "revoked": None}
        connection.execute(keys.insert(), row)
        connection.execute(keys.update().where(keys.c.id == ada.id).values(revoked=1.0))
    found = audit(zoo.zoo.catalog)
    assert sorted(problem.split()[1] for problem in found.different) == sorted([f"{ada.id}:", f"{eve.id}:"])


def test_a_chain_that_was_made_anew_does_not_go_through_the_head_that_was_kept(zoo: LocalCoordinator) -> None:
    catalog = zoo.zoo.catalog
    kept = Head.read(audit(catalog).head)
    zoo.pin("m0")
    assert audit(catalog, kept).whole
    with catalog.database.writing() as connection:
        there, head = entries_after(connection, -1, 100), BEFORE
        connection.execute(table.delete())
        for entry in there:
            said = entry.said() | ({"user": "somebody else"} if entry.kind == LENT else {})
            again = following(head, entry.at, entry.kind, entry.model, said)
            row = {name: getattr(again, name) for name in again.__struct_fields__}
            connection.execute(table.insert(), row)
            head = again.head
    assert audit(catalog).whole
    found = audit(catalog, kept)
    assert found.rewritten.startswith(f"entry {kept.number} is another")
    with catalog.database.writing() as connection:
        connection.execute(table.delete().where(table.c.number >= kept.number))
    assert "what came later is gone" in audit(catalog, kept).rewritten


def _lend_and_register(home: str, model: str, place: int) -> None:
    coordinator = LocalCoordinator(Settings(home=home))
    for number in range(10):
        coordinator.zoo.lent(model, Event(at=1e9, action=LENT, model=model, user=f"p{place}"))
        if number % 5 == 0:
            register(coordinator, net(), f"{place} {number}", 0.9)
    coordinator.close()


def test_two_processes_at_once_keep_one_chain(zoo: LocalCoordinator) -> None:
    context = multiprocessing.get_context("spawn")
    arguments = str(zoo.settings.folder), zoo.show("m0").id
    processes = [context.Process(target=_lend_and_register, args=(*arguments, place)) for place in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    found = audit(zoo.zoo.catalog)
    assert found.whole, found
    assert (found.entries, found.models) == (6 + 24, 7)
