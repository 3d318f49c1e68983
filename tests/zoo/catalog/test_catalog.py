"""The contract of a catalog, held by every database that it runs on."""

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from modelkeeper.errors import UnknownModel, ZooUnusable
from modelkeeper.graph import Graph, to_json
from modelkeeper.matching import prepare
from modelkeeper.zoo.catalog import changes
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import Changes
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.records import ACTIVE, BARRED, EVICTED, REMOVED, Event, Filter, Record, Viewer, new_id
from modelkeeper.zoo.restriction import Restriction
from tests.helpers import zoos

GRAPH = zoos.net(4)


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite-memory":
        return "sqlite://"
    if request.param == "sqlite-file":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    opened = Catalog(url)
    yield opened
    opened.close()


DIGEST = hashlib.sha256(to_json(GRAPH)).hexdigest()


def record(**given: object) -> Record:
    fields: dict[str, object] = {
        "id": new_id(), "name": "net", "owner": "ann", "owner_id": "ann",
        "data": "digits", "task": "classification",
        "metrics": {"accuracy": 0.9, "val_loss": 0.25}, "metric": "accuracy", "value": 0.9,
        "framework": "torch", "parameters": 2**40, "bytes": 100, "fingerprint": GRAPH.fingerprint,
        "graph": DIGEST, "checksum": "c" * 64, "created": 1.7e9 + 1 / 3, "last_used": 1.7e9,
    }  # fmt: skip
    return Record(**{**fields, **given})  # type: ignore[arg-type]


def add(catalog: Catalog, of: Graph = GRAPH, **given: object) -> Record:
    return catalog.add(record(**given), to_json(of), prepare(of).to_bytes())


def test_a_record_comes_back_as_it_went_in(catalog: Catalog) -> None:
    told = record(
        name='näme \U0001f600 "quoted" %_', tags=("a", "b%"), parent="0" * 16, similarity=0.1 + 0.2,
        more_parents=("2" * 16, "1" * 16),
        visibility="project", project="p", lower_is_better=True, value=-1e-300, metrics={"loss": 1e300},
    )  # fmt: skip
    added = catalog.add(told, to_json(GRAPH), prepare(GRAPH).to_bytes())
    assert added.key > 0
    assert msgspec.structs.replace(added, key=0) == told
    assert catalog.get(added.id) == added
    assert catalog.with_keys([added.key]) == {added.key: added}
    assert catalog.with_ids([added.id, "f" * 16]) == {added.id: added}
    assert catalog.graph(added.graph) == GRAPH
    assert catalog.prepared([added.graph]) == {added.graph: prepare(GRAPH).to_bytes()}


def test_a_model_is_found_by_its_id_the_beginning_of_it_or_its_name(catalog: Catalog) -> None:
    one = add(catalog, id="abcd0" + "0" * 11, name="first")
    two = add(catalog, id="abcd1" + "0" * 11, name="second")
    old, new = add(catalog, name="third"), add(catalog, name="third")
    assert catalog.get(one.id) == catalog.get("abcd0") == catalog.get("first") == one
    assert catalog.get("third") == new
    catalog.retire({new.id: "done"}, REMOVED)
    assert catalog.get("third") == old
    assert catalog.get(new.id).state == REMOVED
    with pytest.raises(UnknownModel, match=f"{two.id}, {one.id}"):
        catalog.get("abcd")
    for unknown in ("", "abc", "%", "____", "f" * 16, "../x"):
        with pytest.raises(UnknownModel):
            catalog.get(unknown)


def test_filters(catalog: Catalog) -> None:
    plain = add(catalog)
    tagged = add(catalog, tags=("x", "y"), name="50%_net")
    other = add(catalog, task="detection", data="coco", owner="bob", owner_id="", state=BARRED)
    gone = add(catalog)
    catalog.retire({gone.id: "worth little"}, EVICTED)

    def ids(**wanted: object) -> set[str]:
        asked = Filter(**wanted)  # type: ignore[arg-type]
        return {each.id for each in catalog.find(asked)}

    assert ids() == {plain.id, tagged.id, other.id}
    assert ids(states=(ACTIVE,)) == {plain.id, tagged.id}
    assert ids(states=(EVICTED,)) == {gone.id}
    assert ids(tags=("x",)) == ids(tags=("y", "x")) == ids(text="50%_") == {tagged.id}
    assert ids(tags=("x", "z")) == ids(text="50__") == set()
    assert ids(task="detection") == ids(data="coco") == {other.id}
    assert ids(restrictions=(Restriction(owners=("bob",)),)) == {other.id}
    assert catalog.names.called(["50%_net", other.id, "nobody"]) == {
        tagged.key: tagged.id,
        other.key: other.id,
    }


def test_who_sees_what(catalog: Catalog) -> None:
    public = add(catalog, owner="ann")
    project = add(catalog, owner="ann", visibility="project", project="p", project_id="p")
    private = add(catalog, owner="ann", visibility="private", project="p", project_id="p", name="secret")

    def seen(viewer: Viewer | None) -> set[str]:
        return {each.id for each in catalog.find(Filter(viewer=viewer))}

    assert seen(None) == seen(Viewer("ann")) == {public.id, project.id, private.id}
    assert seen(Viewer("bob")) == seen(Viewer("bob", ("q",))) == {public.id}
    assert seen(Viewer("bob", ("q", "p"))) == {public.id, project.id}
    for name in (private.id, private.id[:8], "secret"):
        assert catalog.get(name, Viewer("ann")) == private
        with pytest.raises(UnknownModel):
            catalog.get(name, Viewer("bob", ("p",)))


def test_order_and_pages(catalog: Catalog) -> None:
    made = [add(catalog, created=float(at), hits=hits) for at, hits in ((1, 5), (2, 0), (3, 5))]
    assert catalog.find(Filter()) == made[::-1]
    assert catalog.find(Filter(), order="created", limit=1, offset=1) == [made[1]]
    assert catalog.find(Filter(), order="-hits") == [made[2], made[0], made[1]]


def test_changes_are_told_once_and_in_order(catalog: Catalog) -> None:
    start = catalog.clock()
    assert catalog.changes(start) == Changes(start)
    one, two = add(catalog), add(catalog)
    came = catalog.changes(start)
    now = came.now
    assert [(row.key, row.state, row.graph) for row in came.rows] == [
        (one.key, ACTIVE, one.graph), (two.key, ACTIVE, two.graph)
    ]  # fmt: skip
    assert catalog.changes(now) == Changes(now)
    catalog.update(one.id, hits=3)
    catalog.lent(two.id, 1.8e9)
    assert catalog.clock() == now, "what cannot be searched for is no change"
    assert [each.id for each in catalog.retire({one.id: "old"}, REMOVED)] == [one.id]
    assert catalog.retire({one.id: "again"}, REMOVED) == []
    went = catalog.changes(now)
    assert went.now > now
    assert [(row.key, row.state) for row in went.rows] == [(one.key, REMOVED)]
    assert [row.key for row in catalog.changes(start).rows] == [two.key, one.key]
    catalog.update(two.id, published=True)
    assert [(row.key, row.published) for row in catalog.changes(went.now).rows] == [(two.key, True)]


def test_many_changes_are_told_in_parts(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST", 2)
    added = [add(catalog).key for _ in range(7)]
    catalog.retire({each.id: "x" for each in catalog.with_keys(added[:5]).values()}, REMOVED)  # all at once
    told: list[int] = []
    seen = 0
    for _ in range(9):
        part = catalog.changes(seen)
        seen, told = part.now, told + [row.key for row in part.rows]
        if not part.more:
            break
    assert (seen, told) == (catalog.clock(), [*added[5:], *added[:5]])


def test_evicting_waits_for_nobody_and_overtakes_nobody(catalog: Catalog) -> None:
    one, two = add(catalog), add(catalog)
    clock = catalog.clock()
    three = add(catalog)
    assert catalog.retire({one.id: "x"}, EVICTED, clock=clock) is None
    catalog.update(two.id, pinned=True)
    gone = catalog.retire({one.id: "x", two.id: "x"}, EVICTED, clock=catalog.clock())
    assert [each.id for each in gone or []] == [one.id], "a pinned model stays"
    assert {each.id for each in catalog.find(Filter())} == {two.id, three.id}


def test_an_id_is_given_once(catalog: Catalog) -> None:
    one = add(catalog, name="one")
    assert catalog.add(record(id=one.id, name="two"), b"", b"") == one
    assert catalog.find(Filter()) == [one]


def test_a_record_whose_lease_has_ended_is_not_there(catalog: Catalog) -> None:
    clock, new = catalog.clock(), record(tags=("t",))
    with pytest.raises(ZooUnusable, match="taken for left behind"):
        catalog.add(new, to_json(GRAPH), b"x", Event(at=0.0, action="registered"), leased=True)
    assert catalog.find(Filter()) == []
    assert catalog.log() == []
    assert catalog.clock() == clock
    assert catalog.prepared(["a" * 64]) == {}


def test_events_the_newest_first(catalog: Catalog) -> None:
    one = add(catalog)
    lent = Event(
        at=5.0, action="lent", model=one.id, user="bob", detail="x", data={"child": "ä", "n": [1, None]}
    )
    catalog.lent(one.id, 5.0, lent)
    catalog.note(Event(at=1.0, action="swept"))  # a clock that was set back does not change the order
    catalog.retire({one.id: "too old"}, EVICTED, "carol")
    assert [event.action for event in catalog.log()] == ["evicted", "swept", "lent"]
    assert [event.action for event in catalog.log(model=one.id)] == ["evicted", "lent"]
    assert [msgspec.structs.replace(event, number=0) for event in catalog.log(action="lent")] == [lent]
    numbers = [event.number for event in catalog.log()]
    assert numbers == sorted(numbers, reverse=True)
    assert [event.number for event in catalog.log(before=numbers[0])] == numbers[1:]
    assert [event.user for event in catalog.log(user="carol")] == ["carol"]
    assert len(catalog.log(limit=2)) == 2
    assert catalog.get(one.id).hits == 1
    assert catalog.get(one.id).last_used == 5.0
    assert catalog.get(one.id).reason == "too old"


def test_counts(catalog: Catalog) -> None:
    assert catalog.stats() == {
        "models": 0, "architectures": 0, "bytes": 0, "parameters": 0, "hits": 0, "states": {}, "groups": [],
    }  # fmt: skip
    add(catalog, bytes=2**40, parameters=2**40, hits=2)
    add(catalog, bytes=1, parameters=1, hits=1, fingerprint="other")
    gone = add(catalog, hits=4)
    catalog.retire({gone.id: "x"}, REMOVED)
    assert catalog.bytes_stored() == 2**40 + 1
    found = catalog.stats()
    assert (found["models"], found["architectures"]) == (2, 2)
    assert found["hits"] == 7, "what was lent was lent, whatever became of the model"
    assert (found["bytes"], found["parameters"]) == (2**40 + 1, 2**40 + 1)
    assert found["states"] == {"active": 2, "removed": 1}
    assert found["groups"] == [{"task": "classification", "data": "digits", "models": 2, "hits": 3}]


def test_graphs_are_shared_and_swept(catalog: Catalog) -> None:
    one, two, three = add(catalog), add(catalog), add(catalog, zoos.net(8), graph="b" * 64)
    catalog.retire({one.id: "x", three.id: "x"}, REMOVED)
    assert catalog.sweep_graphs() == 0, "a removed model keeps its graph, for those who compare"
    with catalog.database.writing() as connection:
        connection.execute(models.delete().where(models.c.id == three.id))
    assert catalog.sweep_graphs() == 1
    assert catalog.graph(two.graph) == GRAPH
    with pytest.raises(ZooUnusable, match="missing"):
        catalog.graph("b" * 64)
    catalog.set_prepared(two.graph, b"new")
    assert catalog.prepared([two.graph]) == {two.graph: b"new"}


def test_children_and_twins(catalog: Catalog) -> None:
    parent = add(catalog)
    children = [add(catalog, parent=parent.id) for _ in range(2)]
    assert zoos.children(catalog, [parent.id]) == children
    catalog.set_twins({children[0].id: (parent.id, 0.95)})
    assert catalog.get(children[0].id).twin == parent.id
    assert catalog.get(children[0].id).twin_similarity == 0.95


def test_children_of_several_parents(catalog: Catalog) -> None:
    one, two = add(catalog), add(catalog, visibility="private")
    both = add(catalog, parent=two.id, more_parents=(one.id,), similarity=0.5)
    only = add(catalog, parent=one.id)
    assert zoos.children(catalog, [one.id]) == [both, only]
    assert zoos.children(catalog, [two.id]) == [both]
    others = [new_id() for _ in range(1000)]
    assert zoos.children(catalog, [two.id, *others, one.id]) == [both, only], "each once"
    catalog.retire({both.id: "x"}, REMOVED)
    assert [each.id for each in zoos.children(catalog, [two.id])] == [both.id], "its record stays"


def test_parents_that_may_not_be_seen_are_left_out_of_records(catalog: Catalog) -> None:
    one, two, three = add(catalog), add(catalog, visibility="private"), add(catalog)
    first = add(catalog, parent=two.id, more_parents=(one.id, three.id), similarity=0.5)
    second = add(catalog, parent=one.id, more_parents=(two.id, three.id), similarity=0.5)
    for child, similarity in ((first, None), (second, 0.5)):
        assert catalog.get(child.id, Viewer("ann")) == child
        seen = catalog.get(child.id, Viewer("bob"))
        assert (seen.parents, seen.similarity) == ((one.id, three.id), similarity)
        assert seen in zoos.children(catalog, [three.id], Viewer("bob"))


def test_a_fold_leaks_by_any_parent(catalog: Catalog) -> None:
    clean, leaking = add(catalog, fold="1"), add(catalog, fold="2")
    heir = add(catalog, data="others", parent=clean.id, more_parents=(leaking.id,))
    late = add(catalog, data="others", parent=clean.id, more_parents=(new_id(), heir.id))
    add(catalog, data="others", parent=clean.id)
    assert sorted(catalog.keys_beyond_fold("digits", "1")) == [leaking.key, heir.key, late.key]
    assert set(catalog.keys_beyond_fold("digits", "2")) >= {clean.key, heir.key, late.key}


def test_many_at_once(catalog: Catalog) -> None:
    made = [add(catalog) for _ in range(3)]
    ids = [each.id for each in made] + [new_id() for _ in range(1500)]
    assert set(catalog.with_ids(ids)) == {each.id for each in made}
    assert len(catalog.retire(dict.fromkeys(ids, "all"), REMOVED)) == 3


def test_threads_lose_nothing(catalog: Catalog) -> None:
    """Writers of the same graph, readers, and one that evicts, all at once."""
    start = threading.Barrier(6)

    def write(name: str) -> list[Record]:
        start.wait()
        made = []
        for number in range(10):
            made.append(add(catalog, name=name, graph=f"{number:064}"))
            catalog.lent(made[0].id, time.time())
            catalog.set_twins({each.id: (made[0].id, 0.5) for each in made})
        return made

    def look() -> None:
        start.wait()
        seen, end = 0, time.monotonic() + 20
        keys: set[int] = set()
        while len(keys) < 40 and time.monotonic() < end:
            part = catalog.changes(seen)
            seen = part.now
            assert not keys & {row.key for row in part.rows}, "told twice"
            keys |= {row.key for row in part.rows}
            catalog.sweep_graphs()
        assert len(keys) == 40

    with ThreadPoolExecutor(6) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        made = [each for done in pool.map(write, "abcd") for each in done]
        for each in looking:
            each.result(timeout=30)
    assert {each.id for each in catalog.find(Filter())} == {each.id for each in made}
    assert len(catalog.prepared([each.graph for each in made])) == 10
    assert all(catalog.get(each.id).hits == 10 for each in made[::10])


def test_a_catalog_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "junk.db").write_bytes(b"no database at all" * 100)
    for url in (
        f"sqlite:///{tmp_path / 'folder'}",
        f"sqlite:///{tmp_path / 'junk.db'}",
        f"sqlite:///{tmp_path / 'nowhere' / 'catalog.db'}",
        "nonsense",
        "unknown://x",
        "postgresql+psycopg://nobody:hunter2@/x?host=/nowhere",
        "postgresql+pg8000://nobody:hunter2@host/x",  # whose driver is not installed
    ):
        with pytest.raises(ZooUnusable) as problem:
            Catalog(url)
        assert "hunter2" not in str(problem.value), "passwords stay secret"
