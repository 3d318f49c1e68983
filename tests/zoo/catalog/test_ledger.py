"""The ledger: all that happens to models is in it, in one chain, whoever writes."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.signing.chain import Head
from modelkeeper.zoo.care.audit import audit
from modelkeeper.zoo.catalog import ledger
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database.schema import ledger as table
from modelkeeper.zoo.records import LENT, Event, new_id
from tests.helpers.zoos import net, register, told, weights


@pytest.fixture
def zoo(tmp_path: Path) -> Iterator[LocalCoordinator]:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    yield coordinator
    coordinator.close()


def entries(catalog: Catalog) -> list[dict[str, Any]]:
    with catalog.database.reading() as connection:
        return [json.loads(body) for body in connection.scalars(sa.select(table.c.body).order_by("number"))]


def kinds(catalog: Catalog) -> list[str]:
    return [entry["kind"] for entry in entries(catalog)]


def lend(coordinator: LocalCoordinator, model: str, user: str = "bob") -> None:
    coordinator.zoo.lent(model, Event(at=1e9, action=LENT, model=model, user=user))


def test_what_happens_to_a_model_is_in_it(zoo: LocalCoordinator) -> None:
    first, second = register(zoo, net(), "a", 0.9), register(zoo, net(), "b", 0.8, owner="eve")
    lend(zoo, first.id)
    zoo.pin(first.id, user="ann")
    zoo.pin(first.id, False, user="ann")
    zoo.remove(second.id, user="eve")
    catalog = zoo.zoo.catalog
    assert kinds(catalog) == ["genesis", "registered", "registered", "lent", "pinned", "unpinned", "removed"]
    written = entries(catalog)
    assert [entry["number"] for entry in written] == list(range(7))
    assert written[1] | {"at": ""} == {
        "number": 1,
        "at": "",
        "kind": "registered",
        "model": first.id,
        "user": "ann",
        "name": "a",
        "weights": first.checksum,
        "signer": "",
        "facts": ledger.facts(first),
        "state": "active",
        "pinned": False,
        "hits": 0,
    }
    assert (written[3]["user"], written[6]["user"], written[6]["state"]) == ("bob", "eve", "removed")
    assert audit(catalog).whole


def test_versions_of_a_training_and_repairs_are_in_it(zoo: LocalCoordinator, tmp_path: Path) -> None:
    run, graph = new_id(), net()
    for accuracy in (0.5, 0.6):
        said = msgspec.structs.replace(told("net", accuracy), run=run, finished=accuracy > 0.5)
        record = zoo.register(graph, said, weights(graph, int(accuracy * 10)).items(), owner="ann").record
        zoo.pin(record.id)
        lend(zoo, record.id)
    file = tmp_path / "zoo" / record.folder / "model.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    zoo.gc(verify=True)
    assert zoo.show(record.id).state == "damaged"
    assert audit(zoo.zoo.catalog).whole
    file.write_bytes(good)
    zoo.gc(verify=True)
    happened = [kind for kind in kinds(zoo.zoo.catalog) if kind not in ("pinned", "lent")]
    assert happened == ["genesis", "reported", "replaced", "registered", "damaged", "repaired"]
    assert audit(zoo.zoo.catalog).whole


def test_what_fails_leaves_no_entry(zoo: LocalCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    record = register(zoo, net())
    before = kinds(zoo.zoo.catalog)

    def fails(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("modelkeeper.zoo.catalog.catalog.append", fails)
    acts: list[Callable[[], object]] = [
        lambda: register(zoo, net(), "b", 0.7),
        lambda: zoo.pin(record.id),
        lambda: zoo.remove("net"),
    ]
    for act in acts:
        with pytest.raises(RuntimeError):
            act()
    monkeypatch.undo()
    assert kinds(zoo.zoo.catalog) == before
    assert [model.name for model in zoo.models()] == ["net"]
    assert audit(zoo.zoo.catalog).whole


def test_a_model_that_is_not_there_lends_nothing_in_the_ledger(zoo: LocalCoordinator) -> None:
    lend(zoo, "0" * 16)
    assert kinds(zoo.zoo.catalog) == ["genesis"]


def test_threads_keep_one_chain(zoo: LocalCoordinator) -> None:
    record = register(zoo, net())

    def work() -> None:
        for _ in range(20):
            lend(zoo, record.id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = audit(zoo.zoo.catalog)
    assert found.whole
    assert found.entries == 82


def test_a_zoo_that_was_there_before_begins_with_what_it_holds(zoo: LocalCoordinator) -> None:
    names = [register(zoo, net(), f"m{place}", 0.9).id for place in range(3)]
    zoo.remove(names[0])
    zoo.pin(names[1])
    lend(zoo, names[2])
    catalog = zoo.zoo.catalog
    with catalog.database.writing() as connection:
        connection.execute(table.delete())
        ledger.begin(connection)
        ledger.begin(connection)
    assert kinds(catalog) == ["genesis", "present"]
    assert entries(catalog)[0]["models"] == 3
    assert audit(catalog).whole
    lend(zoo, names[2])
    zoo.remove(names[1])
    assert audit(catalog).whole


def test_on_postgres_writers_keep_one_chain(postgres_url: str, tmp_path: Path) -> None:
    one, two = (LocalCoordinator(Settings(home=str(tmp_path), catalog=postgres_url)) for _ in range(2))
    try:
        record = register(one, net())

        def work(coordinator: LocalCoordinator, place: int) -> None:
            for number in range(5):
                lend(coordinator, record.id)
                register(coordinator, net(), f"{place} {number}", 0.9)

        both = (one, two, one, two)
        threads = [threading.Thread(target=work, args=(each, place)) for place, each in enumerate(both)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = audit(one.zoo.catalog)
        assert found.whole, found
        assert (found.models, Head.read(found.head).number) == (21, 41)
    finally:
        one.close()
        two.close()
