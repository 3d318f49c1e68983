"""Who lends: the chosen model, or several that fit side by side?"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from modelkeeper.coordinator.company import MOST_PLANS, Lenders, Meeting, gather
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.matching import align
from modelkeeper.meta import Query
from modelkeeper.patience import OutOfPatience
from modelkeeper.policy.quality import Metric
from modelkeeper.policy.selection import Candidate
from modelkeeper.settings import Settings
from modelkeeper.transform import SideBySide, make_plan, side_by_side
from modelkeeper.warmstart.answer import Answer
from tests.helpers import zoos


def net(width: int) -> Graph:
    layers = nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    return describe(nn.Sequential(*layers), torch.zeros(2, 5))


SMALL, WIDE = net(4), net(9)
ALIGNED = align(SMALL, WIDE)
ALONE = make_plan(SMALL, WIDE, ALIGNED)
BOTH = side_by_side([(SMALL, ALIGNED), (SMALL, ALIGNED)], WIDE)


def candidate(name: str, standing: float = 0.5) -> Candidate:
    metric = Metric("accuracy", standing, False)
    return Candidate(id=name, name=name, similarity=0.7, metric=metric, standing=standing, data="digits")


def gathered(
    chosen: str, rivals: str, most: int = 2, fits: Sequence[str] = (), **meeting: Any
) -> tuple[str, list[str]]:
    """The names of those who lend, and the teams that a plan was made for; `fits`: those that are exact."""
    asked: list[str] = []

    def plan(team: Sequence[Candidate]) -> SideBySide | None:
        asked.append("".join(member.name for member in team))
        return BOTH if asked[-1] in fits else None

    options: dict[str, Any] = {"benefit": lambda who: 1.0, "size": lambda who: 10, "room": 100, "plan": plan}
    options |= {"late": lambda: False, "related": lambda first, second: False}
    alone = Lenders((candidate(chosen),), ALONE)
    lenders = gather(alone, list(map(candidate, rivals)), most, Meeting(**options | meeting))
    return "".join(member.name for member in lenders.candidates), asked


def test_two_that_fit_lend_together() -> None:
    assert gathered("a", "bc", fits=["ab"]) == ("ab", ["ab"])
    assert gathered("a", "bc", fits=["ac"]) == ("ac", ["ab", "ac"])


def test_the_chosen_one_gives_way_to_two_that_fit() -> None:
    assert gathered("a", "bc", fits=["bc"])[0] == "bc"


def test_one_alone_if_no_more_are_wanted_or_none_fits() -> None:
    assert gathered("a", "b", most=1, fits=["ab"]) == ("a", [])
    assert gathered("a", "b") == ("a", ["ab"])
    assert gathered("a", "") == ("a", [])


def test_three_if_they_fit() -> None:
    assert gathered("a", "bcd", most=3, fits=["ab", "abd"])[0] == "abd"
    assert gathered("a", "bcd", most=3, fits=["ab"])[0] == "ab"


def test_nobody_joins_who_brings_too_little_or_has_no_room() -> None:
    benefits = {"a": 1.0, "b": 0.4, "c": 0.6}
    assert gathered("a", "bc", fits=["ab", "ac"], benefit=lambda who: benefits[who.name])[0] == "ac"
    assert gathered("a", "b", fits=["ab"], room=15) == ("a", [])


def test_whoever_is_late_takes_what_there_is() -> None:
    assert gathered("a", "b", fits=["ab"], late=lambda: True) == ("a", [])


def _always(so: bool, *_: Candidate) -> bool:
    return so


def test_who_is_far_below_its_peers_or_started_from_the_other_does_not_join() -> None:
    alone = Lenders((candidate("a"),), ALONE)
    options: dict[str, Any] = {"benefit": lambda who: 1.0, "size": lambda who: 10, "room": 100}
    options |= {"plan": lambda team: BOTH, "late": lambda: False}
    for standing, related, joins in ((0.5, False, True), (0.1, False, False), (0.5, True, False)):
        meeting = Meeting(**options, related=partial(_always, related))
        found = gather(alone, [candidate("b", standing)], 2, meeting)
        assert (len(found.candidates) == 2) == joins


def test_plans_are_few() -> None:
    assert len(gathered("a", "bcdefgh")[1]) == MOST_PLANS


# -- in a zoo -----------------------------------------------------------------------------------------


@pytest.fixture
def coordinator() -> Iterator[LocalCoordinator]:
    coordinator = LocalCoordinator(Settings(home=":memory:", threads=1))
    yield coordinator
    coordinator.close()


def answer(coordinator: LocalCoordinator, **query: Any) -> Answer:
    asked = Query(data=zoos.DATA, task=zoos.TASK, most_parents=2)
    return coordinator.query(WIDE, msgspec.structs.replace(asked, **query)).answer


def test_a_query_takes_two_and_says_so(coordinator: LocalCoordinator) -> None:
    first = zoos.register(coordinator, SMALL, "first", 0.91)
    second = zoos.register(coordinator, SMALL, "second", 0.9)
    both = answer(coordinator)
    assert [parent.id for parent in both.parents] == [both.parent, second.id] == [first.id, second.id]
    assert both.exact
    assert both.actions.keys() == {"joined"}
    assert "first and second fit side by side" in both.reason
    assert both.runners_up == ()
    assert [coordinator.show(name).hits for name in ("first", "second")] == [1, 1]


def test_who_does_not_join(coordinator: LocalCoordinator) -> None:
    zoos.register(coordinator, SMALL, "first", 0.91)
    zoos.register(coordinator, SMALL, "elsewhere", 0.9, data="letters")
    zoos.register(coordinator, SMALL, "twice", 0.9)
    again = coordinator.register(SMALL, zoos.told("same weights", 0.9), zoos.weights(SMALL, 7).items()).record
    coordinator.register(SMALL, zoos.told("same weights", 0.9), zoos.weights(SMALL, 7).items())
    names = [parent.name for parent in answer(coordinator, parents=("same weights",)).parents]
    assert names == ["same weights"]  # a copy of it is no second training
    assert answer(coordinator, exclude=("twice", again.id)).parent_name == "first"
    assert {parent.name for parent in answer(coordinator, exclude=("same weights",)).parents} == {
        "first",
        "twice",
    }
    assert len(answer(coordinator, most_parents=1).parents) == 1
    assert len(answer(coordinator, parents=("first",)).parents) == 1  # who is named is meant


def test_a_model_does_not_lend_beside_the_one_that_it_started_from(coordinator: LocalCoordinator) -> None:
    first = zoos.register(coordinator, SMALL, "first", 0.91)
    zoos.register(coordinator, SMALL, "child", 0.9, parent=first.id)
    assert len(answer(coordinator).parents) == 1
    zoos.register(coordinator, SMALL, "stranger", 0.9)
    assert "stranger" in {parent.name for parent in answer(coordinator).parents}


def test_a_second_parent_that_cannot_be_read_is_taken_out(coordinator: LocalCoordinator) -> None:
    zoos.register(coordinator, SMALL, "first", 0.91)
    second = zoos.register(coordinator, SMALL, "second", 0.9)
    coordinator.zoo.blobs.delete(second.folder)
    alone = answer(coordinator)
    assert [parent.name for parent in alone.parents] == ["first"]
    assert any("second could not be read" in warning for warning in alone.warnings)


def test_without_time_to_plan_for_two_one_lends(
    coordinator: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        zoos.register(coordinator, SMALL, name, 0.9)

    def late(*arguments: Any, **options: Any) -> Any:
        raise OutOfPatience

    monkeypatch.setattr("modelkeeper.coordinator.planning.side_by_side", late)
    assert len(answer(coordinator).parents) == 1
