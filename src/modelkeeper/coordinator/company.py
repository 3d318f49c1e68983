"""Do several models lie side by side in the new one, instead of the one that was chosen?

A child that is wide enough for two parents computes the mean of both, and starts better than from either
(`transform.side_by_side`). That is taken where it is exact, for models of the child's own task and data. None
of them is expected to bring less than WORTH of what the chosen one brings, is far below its peers, or started
from another one: these have too much in common (measured: benchmarks/results/side_by_side.md).

    lenders = gather(choice, rivals, most, meeting)      who lends, and by which plan
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modelkeeper.policy.selection import Candidate
from modelkeeper.transform import Decisions, SideBySide

WORTH = 0.5  # of the chosen one's expected benefit
STANDING = (
    0.25  # the least among its peers, 2 to 3 points below the good ones: one 1.8 points worse still helped
)
SPARE = 1.1  # times the child's parameters: parents share what is the mean of theirs
MOST_PLANS = 6  # that are made for the sake of further parents


@dataclass(frozen=True)
class Lenders:
    """Who lends, the best first, and by which plan."""

    candidates: tuple[Candidate, ...]
    plan: Decisions


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """What gathering asks of a query."""

    benefit: Callable[[Candidate], float]  # expected of it alone, were it exact
    size: Callable[[Candidate], int]  # of its parameters
    room: int  # parameters of the child
    related: Callable[[Candidate, Candidate], bool]  # did one of them start from the other?
    plan: Callable[[Sequence[Candidate]], SideBySide | None]  # of several side by side
    late: Callable[[], bool]  # is the time over that a query may take?


def gather(alone: Lenders, rivals: Sequence[Candidate], most: int, meeting: Meeting) -> Lenders:
    """Who lends: the chosen one, or several of it and its rivals, if they fit exactly.

    Args:
        alone: The chosen one, and its plan.
        rivals: Who else could lend, of the same task and data; of equals each is another training.
        most: So many may lend.
        meeting: What can be asked of the query.
    """
    (chosen,) = alone.candidates
    if most < 2 or not alone.plan.exact:
        return alone
    least = WORTH * meeting.benefit(chosen)
    worthy = [
        rival for rival in rivals if meeting.benefit(rival) >= least and (rival.standing or 0.0) >= STANDING
    ]
    ranked = [chosen, *sorted(worthy, key=lambda rival: (-meeting.benefit(rival), rival.id))]
    best, left = alone, MOST_PLANS
    for count in range(2, most + 1):
        teams: list[tuple[Candidate, ...]] = [
            (*best.candidates, rival) for rival in ranked if rival not in best.candidates
        ]
        if count == 2:
            teams = [(ranked[first], ranked[second]) for first, second in _pairs(len(ranked))]
        found = None
        for team in teams:
            if sum(map(meeting.size, team)) > SPARE * meeting.room:
                continue
            if any(meeting.related(*pair) for pair in itertools.combinations(team, 2)):
                continue
            if left == 0 or meeting.late():
                return best
            left -= 1
            plan = meeting.plan(team)
            if plan is not None and plan.exact:
                found = Lenders(team, plan)
                break
        if found is None:
            return best
        best = found
    return best


def _pairs(count: int) -> list[tuple[int, int]]:
    """All pairs of so many, those of the first ones first."""
    return sorted(itertools.combinations(range(count), 2), key=lambda pair: (sum(pair), pair))
