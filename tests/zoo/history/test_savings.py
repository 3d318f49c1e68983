"""Savings: three kinds of evidence, each for itself, and honest where nothing is known."""

import dataclasses
import time
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.curves import Curve, Point
from modelkeeper.settings import Settings
from modelkeeper.warmstart.race.rules import Race, Runner
from modelkeeper.zoo.catalog.starts import Start, StartFilter
from modelkeeper.zoo.history.savings import UNKNOWN, Saved, estimated, matched, measured
from modelkeeper.zoo.records import Registration, new_id
from tests.helpers.service import network, tensors, told

GRAPH = network()
COLD = Runner("cold", "", 40, 2.3, 1.0, "lost")
WARM = Runner("warm", "p", 40, 0.9, 0.5, "won")
RACE = Race("warm", (WARM, COLD), 80, 8.0)


def curve(*scores: float, lower: bool = False, every: int = 1) -> Curve:
    points = (
        Point(every * (number + 1), 2.0 * every * (number + 1), score) for number, score in enumerate(scores)
    )
    return Curve(metric="accuracy", lower_is_better=lower, points=tuple(points))


def test_a_race_says_at_least() -> None:
    assert measured(RACE) == Saved(1, 30.0, 3.0), (
        "the cold start's loss is that of three quarters of its steps"
    )
    behind = dataclasses.replace(WARM, first=1.1)
    assert measured(dataclasses.replace(RACE, runners=(behind, COLD))) == UNKNOWN, "ahead, but by how much?"
    assert measured(dataclasses.replace(RACE, winner="cold")) == Saved(1), "it saved nothing"
    for runners in ((WARM,), (COLD,), (WARM, dataclasses.replace(COLD, loss=None))):
        assert measured(dataclasses.replace(RACE, runners=runners)) == UNKNOWN
    assert measured(dataclasses.replace(RACE, steps=0)) == UNKNOWN


@pytest.mark.parametrize("lower", [False, True])
def test_a_cold_run_is_compared_at_what_both_reached(lower: bool) -> None:
    sign = -1 if lower else 1
    warm = curve(*(sign * score for score in (0.5, 0.8, 0.9)), lower=lower)
    cold = curve(*(sign * score for score in (0.1, 0.4, 0.6, 0.8)), lower=lower)
    assert matched(warm, [cold]) == Saved(1, 2.0, 4.0), "0.8 after 2 steps instead of 4"
    assert matched(cold, [warm]) == Saved(1, -2.0, -4.0), "a start that harmed says so"
    slow = curve(*(sign * score for score in (0.1, 0.2, 0.3, 0.4, 0.5, 0.8)), lower=lower)
    assert matched(warm, [cold, slow, slow]) == Saved(1, 4.0, 8.0), "the median of several"
    poor = curve(*(sign * score for score in (0.1, 0.2)), lower=lower)
    assert matched(warm, [cold, poor]) == matched(warm, [cold]), "who never got so far does not say when"
    other = msgspec.structs.replace(cold, metric="f1")
    assert matched(warm, [other]) is None
    assert matched(warm, []) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_who_is_compared_with_whom_only_turns_the_sign(mine: list[float], others: list[float]) -> None:
    """Law: a training saves nothing against itself, and against another what that loses against it."""
    first, second = curve(*mine), curve(*others)
    assert matched(first, [first]) == Saved(1, 0.0, 0.0)
    here, there = matched(first, [second]), matched(second, [first])
    assert here is not None
    assert there is not None
    assert (here.steps, here.seconds) == (-there.steps, -there.seconds)


def test_advice_is_an_estimate_where_the_length_of_the_training_is_known() -> None:
    start = Start(id="a" * 16, at=0.0, child="c", parents=("p",), schedule=0.25)
    assert estimated(start, curve(0.5, 0.6)) == Saved(1, 6.0, 12.0)
    assert estimated(start, None) == UNKNOWN
    assert estimated(msgspec.structs.replace(start, schedule=1.0), curve(0.5)) == Saved()
    assert estimated(msgspec.structs.replace(start, parents=()), curve(0.5)) == Saved()


@pytest.fixture
def zoo() -> Iterator[LocalCoordinator]:
    with closing(LocalCoordinator(Settings(home=":memory:"))) as opened:
        yield opened


def trained(zoo: LocalCoordinator, said: Registration, seed: int, **start: object) -> Start:
    """A start and what was trained from it."""
    fields: dict[str, object] = {"id": new_id(), "at": time.time(), "child": GRAPH.fingerprint, "user": "ann"}
    noted = Start(**{**fields, **start})  # type: ignore[arg-type]
    zoo.zoo.starts.add(noted)
    if noted.race is not None:
        zoo.raced(noted.id, noted.race)
    said = msgspec.structs.replace(said, start=noted.id)
    zoo.register(GRAPH, said, tensors(GRAPH, seed).items())
    return noted


def test_kinds_stand_side_by_side_and_are_grouped(zoo: LocalCoordinator) -> None:
    empty = zoo.savings()
    assert (empty.groups, empty.bytes, empty.complete) == ((), 0, True)
    cold = msgspec.structs.replace(told("cold"), curve=curve(0.1, 0.5, 0.8, 0.9))
    trained(zoo, cold, 0, seconds={"search": 0.5})
    [first] = zoo.models()
    warm = msgspec.structs.replace(
        told("warm", parent=first.id, project="vision"), curve=curve(0.8, 0.9), visibility="public"
    )
    lent = {"parents": (first.id,), "schedule": 0.5, "user": "bob"}
    trained(zoo, warm, 1, **lent)
    raced = msgspec.structs.replace(told("raced", parent=first.id, data="other"), curve=curve(0.8))
    trained(zoo, raced, 2, race=RACE, **lent)
    advised = msgspec.structs.replace(told("advised", parent=first.id, data="third"), curve=curve(0.7, 0.8))
    trained(zoo, advised, 3, **lent)
    lost = msgspec.structs.replace(told("lost"), curve=curve(0.1, 0.2))
    trained(zoo, lost, 4, race=dataclasses.replace(RACE, winner="cold"), **(lent | {"user": "cat"}))
    found = zoo.savings("user")
    ann, bob, cat = found.groups
    assert (cat.cold, cat.measured, cat.matched, cat.estimated) == (1, Saved(1), Saved(), Saved())
    assert (ann.name, ann.starts, ann.cold) == ("ann", 1, 1)
    assert (ann.measured, ann.matched, ann.estimated) == (Saved(), Saved(), Saved())
    assert (bob.name, bob.starts, bob.cold) == ("bob", 3, 0)
    assert bob.matched == Saved(1, 2.0, 4.0)
    assert bob.measured == Saved(1, 30.0, 3.0)
    assert bob.estimated == Saved(1, 2.0, 4.0)
    assert (found.race_steps, found.race_seconds, found.query_seconds) == (160, 16.0, 0.5)
    assert found.bytes == sum(record.bytes for record in zoo.models())
    assert [group.name for group in zoo.savings("project").groups] == ["", "vision"]
    [week] = zoo.savings("week").groups
    assert week.starts == 5
    assert week.name == time.strftime("%G-W%V", time.gmtime())
    assert zoo.savings(wanted=StartFilter(until=time.time() - 1000)).groups == ()
    with pytest.raises(InvalidMeta, match="choose one of week"):
        zoo.savings("day")
