"""Which candidates get a plan before a policy decides, and what does the plan say of them?

A plan says whether a parent is exact and how much of it is rewired, but takes milliseconds to make. So the
most promising candidates get one, and whoever could not win even with the best of plans gets none.

    judge(candidates, policy, data, planner)      the same candidates, some of them with what a plan says
    judge_field(field, planner)                   the same for candidates in arrays, by the policy `benefit`
    look_closer(losers, winner, policy, ...)      plans for those who lost, to explain why
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkeeper.coordinator.planning import Verdict
from modelkeeper.policy.selection import Candidate, Policy
from modelkeeper.policy.selection.fields import Field, benefits, first

PLANNED, PLANNED_OF_FEW = 2, 8  # architectures of each kind that get a plan
ENOUGH = 0.8  # of expected benefit, where there are many: an exact parent that is not poor
AHEAD = 256  # candidates that are put into their order at a time

T = TypeVar("T")  # a candidate, or its place in a field


@dataclass(frozen=True, kw_only=True)
class Planner(Generic[T]):
    """What judging asks of a query: how candidates relate to the child, and plans from them."""

    fits: Callable[[T], bool]  # is it small enough to be contained in the child?
    architecture: Callable[[T], Hashable]  # candidates of which this is the same share a plan
    plan: Callable[[T], Verdict | None]  # None: there is no time left to make one
    normed: bool  # has the child batch norms?
    few: bool  # is the zoo so small that time does not matter?


def judge(
    candidates: Iterable[Candidate], policy: Policy, data: str, planner: Planner[Candidate]
) -> list[Candidate]:
    """Add what a plan says (exact, rewired) to the most promising candidates.

    First those no larger than the child: a parent that it contains is exact however little of the child
    it fills. Who could not win gets no plan; of many models nobody does once one is good ENOUGH, and of any
    nobody does once time is over.
    """
    given = list(candidates)
    if not given:
        return []
    fits = np.array([planner.fits(candidate) for candidate in given])
    plain = np.array([policy.benefit(candidate, data) for candidate in given])
    judged = list(given)

    def at_best(candidate: Candidate, fit: bool) -> float:
        return policy.benefit(msgspec.structs.replace(candidate, exact=fit), data)

    def add(place: int, plan: Verdict) -> float:
        judged[place] = msgspec.structs.replace(
            given[place], exact=plan.exact, rewired=plan.rewired, normed=planner.normed
        )
        return policy.benefit(judged[place], data)

    judging = _Judging(
        plain=plain,
        at_best=np.array([at_best(*each) for each in zip(given, fits.tolist(), strict=True)]),
        order=(
            -plain,
            np.array([-candidate.similarity for candidate in given]),
            np.array([-candidate.created for candidate in given]),
        ),
        architecture=lambda place: planner.architecture(given[place]),
        plan=lambda place: planner.plan(given[place]),
        add=add,
        few=planner.few,
    )
    judging.go_through(fits)
    judging.go_through(np.ones(len(given), np.bool_))
    return [judged[place] for place in np.argsort(-plain, kind="stable")]


def judge_field(given: Field, fits: NDArray[np.bool_], planner: Planner[int]) -> Field:
    """The same for candidates in arrays, which are known by their places."""
    plain = benefits(given)
    certain = benefits(replace(given, exact=np.ones(len(given), np.int8)))
    exact, rewired, normed = given.exact.copy(), given.rewired.copy(), given.normed.copy()
    judged = replace(given, exact=exact, rewired=rewired, normed=normed)

    def add(place: int, plan: Verdict) -> float:
        exact[place], rewired[place], normed[place] = plan.exact, plan.rewired, planner.normed
        return float(benefits(judged.at(np.array([place])))[0])

    judging = _Judging(
        plain=plain,
        at_best=np.where(fits, certain, plain),
        order=(-plain, -given.similarity, -given.created),
        architecture=planner.architecture,
        plan=planner.plan,
        add=add,
        few=planner.few,
    )
    judging.go_through(fits)
    judging.go_through(np.ones(len(given), np.bool_))
    return judged


def look_closer(
    losers: Sequence[Candidate],
    winner: Candidate,
    *,
    policy: Policy,
    data: str,
    planner: Planner[Candidate],
    most: int,
) -> list[Candidate]:
    """Add what a plan says to the first `most` who lost without one, as long as there is time.

    Whoever could not win got no plan; whoever asks why wants to know what it would have said. Nobody is said
    to be better than who was chosen.
    """
    looked, highest = list(losers), policy.benefit(winner, data)
    for place, loser in enumerate(losers[:most]):
        if loser.exact is None and (plan := planner.plan(loser)) is not None:
            known = {"exact": plan.exact, "rewired": plan.rewired, "normed": planner.normed}
            candidate = msgspec.structs.replace(loser, **known)
            if policy.benefit(candidate, data) <= highest:
                looked[place] = candidate
    return looked


@dataclass(kw_only=True)
class _Judging:
    """How far judging is: who has been judged, with how many plans, and the best benefit so far.

    Of equal candidates whoever is given first comes first.
    """

    plain: NDArray[np.float64]  # the expected benefit of each candidate as it is
    at_best: NDArray[np.float64]  # ... with the best of plans
    order: tuple[NDArray[np.float64], ...]  # in which they are gone through, by several keys
    architecture: Callable[[int], Hashable]
    plan: Callable[[int], Verdict | None]
    add: Callable[[int, Verdict], float]  # notes what a plan says, and gives the expected benefit then
    few: bool
    planned: set[Hashable] = field(default_factory=set)
    best: float = 0.0

    def __post_init__(self) -> None:
        self.judged = np.zeros(len(self.plain), np.bool_)

    def go_through(self, among: NDArray[np.bool_]) -> None:
        """Judge candidates in their order, until so many architectures more have a plan.

        Whoever could not win once never can: so those who still can are all that is left to go through.
        """
        most = len(self.planned) + (PLANNED_OF_FEW if self.few else PLANNED)
        while not self._enough():
            left = np.flatnonzero(among & ~self.judged & (self.at_best > self.best))
            if not len(left):
                return
            ahead = left[first(AHEAD, *(key[left] for key in self.order))]
            ahead = ahead[np.lexsort((ahead, *(key[ahead] for key in self.order[::-1])))]
            for place in ahead.tolist():
                if self._enough():
                    return
                if self.at_best[place] > self.best and not self._judge(place, most):
                    return

    def _enough(self) -> bool:
        return self.best >= ENOUGH and not self.few

    def _judge(self, place: int, most: int) -> bool:
        """Add what a plan says; False: there was no time to make one, or enough have one."""
        architecture = self.architecture(place)
        if architecture not in self.planned and len(self.planned) == most:
            return False
        self.planned.add(architecture)
        plan = self.plan(place)
        if plan is None:
            return False
        self.judged[place] = True
        self.best = max(self.best, self.add(place, plan))
        return True
