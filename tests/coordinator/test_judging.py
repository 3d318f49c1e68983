"""Who gets a plan before a policy decides: the most promising, and nobody who could not win."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from modelkeeper.coordinator.judging import PLANNED, PLANNED_OF_FEW, Planner, judge, look_closer
from modelkeeper.policy.quality import metric
from modelkeeper.policy.selection import Candidate, policy

BENEFIT = policy("benefit")


def candidate(name: str, similarity: float, standing: float = 0.5) -> Candidate:
    measured = metric("accuracy", standing)
    return Candidate(id=name, name=name, similarity=similarity, metric=measured, standing=standing, data="F")


class Plans:
    """Hands out plans, and remembers to whom."""

    def __init__(self, *, exact: str = "", small: str = "", few: bool = False) -> None:
        self.given: list[str] = []
        self._exact = exact.split()
        self.planner = Planner(
            fits=lambda candidate: candidate.id in small.split(),
            architecture=lambda candidate: candidate.id.rstrip("'"),  # a' has the graph of a
            plan=self._plan,
            normed=True,
            few=few,
        )

    def _plan(self, candidate: Candidate) -> Any:
        self.given.append(candidate.id)
        return SimpleNamespace(exact=candidate.id in self._exact, rewired=0.5)


def test_the_smaller_come_first_and_what_a_plan_says_is_added() -> None:
    plans = Plans(exact="small", small="small")
    judged = judge([candidate("near", 0.9), candidate("small", 0.4)], BENEFIT, "F", plans.planner)
    assert plans.given == ["small"], "near could not win against an exact one"
    assert [(each.id, each.exact, each.rewired) for each in judged] == [
        ("near", None, 0.0),
        ("small", True, 0.5),
    ]


@pytest.mark.parametrize(("few", "most"), [(True, PLANNED_OF_FEW), (False, PLANNED)])
def test_so_many_architectures_get_a_plan(few: bool, most: int) -> None:
    plans = Plans(few=few)
    pool = [candidate(f"m{number}", 0.9) for number in range(20)]
    pool += [candidate("m0'", 0.9), candidate("m1'", 0.9)]
    judge(pool, BENEFIT, "F", plans.planner)
    assert len({name.rstrip("'") for name in plans.given}) == most


def test_of_many_nobody_is_planned_once_one_is_good_enough() -> None:
    pool = [candidate("good", 0.9, 0.6), candidate("better", 0.5, 0.9)]
    for few in (False, True):
        plans = Plans(exact="good better", small="good better", few=few)
        judge(pool, BENEFIT, "F", plans.planner)
        assert plans.given == (["good", "better"] if few else ["good"])


def test_nobody_is_lost() -> None:
    assert judge([], BENEFIT, "F", Plans().planner) == []
    pool = [candidate(f"m{number}", number / 10) for number in range(11)]
    judged = judge(pool, BENEFIT, "F", Plans(small="m1 m9", exact="m9").planner)
    assert sorted(each.id for each in judged) == sorted(each.id for each in pool)


def test_nobody_is_planned_once_time_is_over() -> None:
    plans = Plans(exact="m0", small="m0", few=True)
    given = plans.planner.plan
    late = dataclasses.replace(
        plans.planner, plan=lambda candidate: given(candidate) if len(plans.given) < 1 else None
    )
    judged = judge([candidate(f"m{number}", 0.5 + number / 20) for number in range(5)], BENEFIT, "F", late)
    assert {each.id: each.exact for each in judged} == {
        "m0": True, "m1": None, "m2": None, "m3": None, "m4": None,
    }  # fmt: skip


def test_whoever_lost_without_a_plan_gets_one_when_somebody_asks_why() -> None:
    """What a plan says of a loser never makes it better than who was chosen, nor changes the order."""
    plans = Plans(exact="within surprise")
    winner = msgspec.structs.replace(candidate("best", 1.0, 0.7), exact=True)
    losers = [candidate("within", 0.4, 0.3), candidate("surprise", 0.4, 0.9), candidate("other", 0.3)]
    seen = msgspec.structs.replace(candidate("seen", 0.3), exact=False)
    asked: dict[str, Any] = {"policy": BENEFIT, "data": "F", "planner": plans.planner}
    looked = look_closer([*losers, seen, candidate("beyond", 0.3)], winner, most=4, **asked)
    assert [(each.id, each.exact) for each in looked] == [
        ("within", True),
        ("surprise", None),
        ("other", False),
        ("seen", False),
        ("beyond", None),
    ]
    assert plans.given == ["within", "surprise", "other"]
