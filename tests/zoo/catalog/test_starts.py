"""Starts, in every database: what is noted comes back, goes with its model, and is forgotten in time."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.policy.curves import Curve, Point
from modelkeeper.settings import Settings
from modelkeeper.warmstart.race.rules import Race, Runner
from modelkeeper.zoo.care.dump import dump, load
from modelkeeper.zoo.catalog.starts import Start, StartFilter
from modelkeeper.zoo.database.schema import VERSION
from modelkeeper.zoo.history.savings import Saved
from modelkeeper.zoo.records import Viewer
from tests.helpers.service import network, tensors, told

GRAPH = network()
CURVE = Curve(metric="accuracy", points=(Point(1, 0.5, 0.1 + 0.2), Point(2**53, 1e9, 0.9)))
RACE = Race(
    "warm", (Runner("warm", "p", 3, None, 0.1 + 0.2, "wön"), Runner("cold", "", 3, 2.0, None, "")), 6, 0.5
)
START = Start(
    id="a" * 16,
    at=1.7e9 + 1 / 3,
    user="ännchen",
    child="c" * 64,
    task="t",
    data="d",
    parents=("1" * 16, "2" * 16),
    similarity=0.1 + 0.2,
    benefit={"expected": 1 / 3, "standing": 0.5},
    exact=True,
    schedule=0.25,
    actions={"copied": {"tensors": 3.0}},
    seconds={"search": 1e-9},
)


@pytest.fixture(params=["sqlite", "postgresql"])
def zoo(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCoordinator]:
    catalog = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    blobs = str(tmp_path / "blobs") if catalog else ""
    with closing(LocalCoordinator(Settings(home=str(tmp_path), catalog=catalog, blobs=blobs))) as opened:
        yield opened


def test_a_start_comes_back_as_it_was_noted_and_knows_what_came_of_it(zoo: LocalCoordinator) -> None:
    zoo.zoo.starts.add(START)
    [found] = zoo.starts()
    assert found.number > 0
    assert msgspec.structs.replace(found, number=0) == START
    zoo.raced(START.id, RACE)
    said = msgspec.structs.replace(told("net"), start=START.id, curve=CURVE)
    record = zoo.register(GRAPH, said, tensors(GRAPH).items()).record
    [found] = zoo.starts(StartFilter(model=record.id, parent="1" * 16, cold=False, user="ännchen"))
    assert (found.race, found.model) == (RACE, record.id)
    assert zoo.curve(record) == CURVE
    [week] = zoo.savings(wanted=StartFilter(since=1.6e9, until=1.8e9)).groups
    assert (week.starts, week.measured.unknown) == (1, 1)
    assert zoo.zoo.starts.forget(START.at) == 0
    assert zoo.zoo.starts.forget(START.at + 1) == 1
    assert zoo.starts() == []


def test_a_catalog_that_was_loaded_goes_on_counting(zoo: LocalCoordinator) -> None:
    """What is noted after a restore gets numbers after those that are there, in PostgreSQL, too."""
    for digit in "abc":
        zoo.zoo.starts.add(msgspec.structs.replace(START, id=digit * 16))
    zoo.tell(zoo.register(GRAPH, told(), tensors(GRAPH).items()).record.id, "checked", 0.5, user="bob")
    database = zoo.zoo.catalog.database
    with database.reading() as connection:
        lines = list(dump(connection))
    with database.writing() as connection:
        load(connection, VERSION, lines)
    assert [start.id[0] for start in zoo.starts()] == ["c", "b", "a"]
    zoo.zoo.starts.add(msgspec.structs.replace(START, id="d" * 16))
    assert [start.id[0] for start in zoo.starts()] == ["d", "c", "b", "a"]
    assert zoo.tell("net", "checked", 0.5, user="cat").held == 2


def test_what_came_of_a_model_is_found_in_every_database(zoo: LocalCoordinator) -> None:
    """Loans, children and twins, for who sees all and for who sees only what is public."""
    stranger = Viewer("e" * 16, name="eve")
    said = msgspec.structs.replace(told("parent"), curve=CURVE)
    parent = zoo.register(GRAPH, said, tensors(GRAPH).items(), owner="ann", owner_id="a" * 16).record
    for number, visibility in enumerate(("public", "private")):
        asked = Query(data="digits", task="classification", parents=(parent.id,))
        start = zoo.query(GRAPH, asked).answer.start
        said = told(f"child {number}", parent=parent.id, visibility=visibility, project="vision")
        said = msgspec.structs.replace(said, start=start, curve=CURVE)
        zoo.register(GRAPH, said, tensors(GRAPH, 1 + number).items())
    second, first = zoo.children(parent)
    assert [loan.model for loan in zoo.loans(parent)] == [second.id, first.id]
    assert [loan.model for loan in zoo.loans(parent, viewer=stranger)] == ["", first.id]
    assert zoo.loans(parent, before=zoo.loans(parent)[0].number) == zoo.loans(parent)[1:]
    assert zoo.children(parent, viewer=stranger) == zoo.children(parent, before=second.id) == [first]
    assert zoo.children(parent, before=second.id, viewer=stranger) == []
    assert first.matched == Saved(1, 0.0, 0.0)
    assert zoo.curves(zoo.show(first.id)).model == parent.id
    for viewer, known in ((None, 2), (stranger, 1)):
        assert len(zoo.starts(StartFilter(project="vision"), viewer=viewer)) == known
        saved = zoo.savings("project", StartFilter(project="vision"), viewer=viewer)
        assert (saved.total.starts, saved.total.matched.starts) == (known, known)
        assert saved.weeks == (msgspec.structs.replace(saved.total, name=saved.weeks[0].name),)
