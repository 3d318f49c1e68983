"""Which candidates get a plan before a policy decides, and what does the plan say of them?

A plan says whether a parent is exact and how much of it is rewired, but takes milliseconds to make. So the
most promising candidates get one, and whoever could not win even with the best of plans gets none.

    judge(candidates, policy, data, planner)      the same candidates, some of them with what a plan says
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import msgspec

from modelkeeper.policy.selection import Candidate, Policy
from modelkeeper.transform import Plan

PLANNED, PLANNED_OF_FEW = 2, 8  # architectures of each kind that get a plan
ENOUGH = 0.8  # of expected benefit, where there are many: an exact parent that is not poor


@dataclass(frozen=True, kw_only=True)
class Planner:
    """What judging asks of a query: how candidates relate to the child, and plans from them."""

    fits: Callable[[Candidate], bool]  # is it small enough to be contained in the child?
    architecture: Callable[[Candidate], Hashable]  # candidates of which this is the same share a plan
    plan: Callable[[Candidate], Plan | None]  # None: there is no time left to make one
    normed: bool  # has the child batch norms?
    few: bool  # is the zoo so small that time does not matter?


def judge(candidates: Iterable[Candidate], policy: Policy, data: str, planner: Planner) -> list[Candidate]:
    """Add what a plan says (exact, rewired) to the most promising candidates.

    First those no larger than the child: a parent that it contains is exact however little of the child
    it fills. Who could not win gets no plan; of many models nobody does once one is good ENOUGH, and of any
    nobody does once time is over.
    """
    ranked = sorted(candidates, key=lambda candidate: -policy.benefit(candidate, data))
    smaller = [candidate for candidate in ranked if planner.fits(candidate)]
    judging = _Judging(policy, data, planner)
    judging.go_through(smaller)
    judging.go_through(ranked)
    return [judging.judged.get(candidate.id, candidate) for candidate in ranked]


@dataclass
class _Judging:
    """How far judging is: who has been judged, with how many plans, and the best benefit so far."""

    policy: Policy
    data: str
    planner: Planner
    judged: dict[str, Candidate] = field(default_factory=dict)
    planned: set[Hashable] = field(default_factory=set)
    best: float = 0.0

    def go_through(self, pool: list[Candidate]) -> None:
        """Judge the candidates of a pool in their order, until so many architectures more have a plan."""
        most = len(self.planned) + (PLANNED_OF_FEW if self.planner.few else PLANNED)
        for candidate in pool:
            if not self._could_win(candidate):
                continue
            architecture = self.planner.architecture(candidate)
            if architecture not in self.planned and len(self.planned) == most:
                break
            self.planned.add(architecture)
            if not self._judge(candidate):
                break

    def _could_win(self, candidate: Candidate) -> bool:
        """Is it open whether it is better than the best so far?"""
        if candidate.id in self.judged or (self.best >= ENOUGH and not self.planner.few):
            return False
        at_best = msgspec.structs.replace(candidate, exact=self.planner.fits(candidate))
        return self.policy.benefit(at_best, self.data) > self.best

    def _judge(self, candidate: Candidate) -> bool:
        """Add what a plan says; False: there was no time to make one."""
        plan = self.planner.plan(candidate)
        if plan is None:
            return False
        judged = msgspec.structs.replace(
            candidate, exact=plan.exact, rewired=plan.rewired, normed=self.planner.normed
        )
        self.judged[candidate.id] = judged
        self.best = max(self.best, self.policy.benefit(judged, self.data))
        return True
