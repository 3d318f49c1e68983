"""Which candidate becomes the parent, and why not the others?

    choice = select(candidates, data="Flowers102")
    choice.parent, choice.reason          None: a cold start, and why
    choice.runners_up                     everyone else, the next best first, with why it lost

Two policies, both pure: the same candidates, in any order, give the same choice.

`buckets`, as the paper does it: ten buckets of similarity, from the top the first that holds a candidate,
and in it the best accuracy. Accuracies are compared only on the same task and data set and by the same
metric. So in a bucket the candidates trained on the child's data set come first; the best of each such
group then compete by their standing among their own peers. Whose quality is unknown comes last.

`benefit` ranks all candidates above the minimum by what training is expected to gain from them, and if that
is below `worth`, nobody is taken: a training from scratch is expected to be as fast.

    fidelity * quality * trust        (less for another data set)

fidelity: 1 where the child will compute what the parent computes. Else 0.8 times the similarity, times the
    share of layers that are fed as in the parent; that once more where no batch norm puts scales right
    again. Over many pairs that were trained (docs/evaluation.md), exact starts gained most whatever their
    similarity; of the others, the more similar and less rewired ones.
quality: from the standing among its peers: 0.8 to 1 for most, but soon falling to 0 for those far below
    what the good ones have reached. A poor parent is a training that was stopped early: even if it is
    exact it saves few steps, and some are slower than from scratch. Unknown: as one that is rather poor.
trust: 1, falling to 0.5 as the parent's training accuracy exceeds its validation accuracy by 5 to 15
    points. A parent that memorised its data can be worse than none.

Ties go to the more similar, then the newer, then the smaller id. What a user may not see, other tasks and
tags are filtered before; `excluded` should be too, where the search itself stops at the first bucket.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from modelkeeper.errors import InvalidSetting
from modelkeeper.matching.similarity import BUCKETS, bucket
from modelkeeper.policy.quality import Metric

INEXACT, OTHER_DATA = 0.8, 0.35
POOR_STANDING, UNKNOWN_STANDING = 0.19, 0.15
MEMORISED, MEMORISED_FULLY, LEAST_TRUST = 0.05, 0.15, 0.5


class Candidate(Struct, frozen=True, kw_only=True):
    """A model of the zoo that could become the parent."""

    id: str
    name: str
    similarity: float
    metric: Metric | None = None
    standing: float | None = None  # of its metric, among its peers: `metrics.standing`
    gap: float | None = None  # how much better it is on the data it was trained on: `metrics.gap`
    data: str = ""
    task: str = ""
    exact: bool | None = None  # will the child compute what the parent computes?
    rewired: float = 0.0  # which share of its layers is fed with something else than in the parent
    normed: bool = True  # does it have batch norms?
    created: float = 0.0

    def __post_init__(self) -> None:
        for name in ("similarity", "standing", "rewired"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"the {name} of candidate {self.id!r} is {value}, not from 0 to 1")
        if (self.metric is None) != (self.standing is None):
            raise ValueError(f"candidate {self.id!r} needs a metric and its standing, or neither")


class RunnerUp(Struct, frozen=True):
    """A candidate that lost."""

    candidate: Candidate
    why_lost: str


class Choice(Struct, frozen=True):
    """The parent, or None for a cold start; the reason either way."""

    parent: Candidate | None
    reason: str
    runners_up: tuple[RunnerUp, ...] = ()


Ranking = list[Candidate]


def select(
    candidates: Sequence[Candidate],
    *,
    data: str | None,
    policy: str = "buckets",
    minimum: float = 0.3,
    preferred: Collection[str] = (),
    excluded: Collection[str] = (),
    considered: int | None = None,
    poor: float = 0.0,
    worth: float = 0.0,
) -> Choice:
    """Choose a parent.

    Args:
        candidates: What the search found, each id once.
        data: The data set that the child is trained on; None if it is not known.
        policy: "buckets" or "benefit".
        minimum: A candidate less similar than this is not taken.
        preferred: Names or ids. If one of them reaches the minimum, the others have no chance.
        excluded: Names or ids that are not taken. Stronger than `preferred`.
        poor: A standing among its peers below which a candidate is not taken unless it is preferred.
        considered: How many models the search looked at, if it left out those below the minimum.
        worth: The least expected benefit, if that is the policy, of a candidate that is not preferred.

    Raises:
        InvalidSetting: there is no such policy, or the minimum is not from 0 to 1.
    """
    if policy not in POLICIES:
        raise InvalidSetting("policy", repr(policy), f"choose one of {', '.join(sorted(POLICIES))}")
    if not 0 <= minimum <= 1:
        raise InvalidSetting("minimum", str(minimum), "give a similarity from 0 to 1")
    rank, why_lost, why_won = POLICIES[policy]
    same = data or ""
    barred = [each for each in candidates if _named(each, excluded)]
    rest = [each for each in candidates if not _named(each, excluded)]
    near = [each for each in rest if each.similarity >= minimum]
    outliers = [each for each in near if _poor(each, poor) and not _named(each, preferred)]
    eligible = [each for each in near if each not in outliers]
    below = sorted((each for each in rest if each.similarity < minimum), key=_ties)
    favourites = [each for each in eligible if _named(each, preferred)]
    pool = favourites or eligible
    lost_anyway = [
        RunnerUp(each, f"{each.metric} is far below its peers") for each in sorted(outliers, key=_ties)
    ]
    lost_anyway += [
        RunnerUp(each, f"similarity {_below(each.similarity, minimum, 'the minimum ')}") for each in below
    ] + [RunnerUp(each, "excluded by name") for each in sorted(barred, key=_ties)]
    if not pool:
        reason = _cold(below, barred, minimum, considered)
        if outliers:
            reason = f"what is similar enough is far below its peers: {lost_anyway[0].candidate.metric}"
        return Choice(None, reason, tuple(lost_anyway))

    first, *others = rank(pool, same)
    if policy == "benefit" and not favourites and expected_benefit(first, same) < worth:
        return _not_worth_it([first, *others], worth, same, lost_anyway)
    reason = why_won(first, pool, same)
    if favourites:
        reason = f"preferred by name; {reason}"
    elif preferred:
        reason += f"; no preferred parent reaches the minimum similarity {minimum:g}"
    losers = [RunnerUp(each, why_lost(each, first, same)) for each in others]
    if favourites:
        unnamed = rank([each for each in eligible if not _named(each, preferred)], same)
        losers += [RunnerUp(each, f"{first.name} is preferred by name") for each in unnamed]
    return Choice(first, reason, (*losers, *lost_anyway))


def expected_benefit(candidate: Candidate, data: str) -> float:
    """What training is expected to gain from this parent, from 0 to 1: see the top of the file."""
    place = UNKNOWN_STANDING if candidate.standing is None else candidate.standing
    quality = min(1.0, place / POOR_STANDING) ** 2 * (0.8 + 0.2 * place)
    doubt = ((candidate.gap or 0.0) - MEMORISED) / (MEMORISED_FULLY - MEMORISED)
    trust = 1 - (1 - LEAST_TRUST) * max(0.0, min(1.0, doubt))
    return fidelity(candidate) * quality * trust * (1.0 if _same(candidate, data) else OTHER_DATA)


def fidelity(candidate: Candidate) -> float:
    """How much of what the parent computes the child is expected to begin with, from 0 to 1."""
    if candidate.exact:
        return 1.0
    return float(INEXACT * candidate.similarity * (1 - candidate.rewired) ** (1 if candidate.normed else 2))


def _not_worth_it(ranking: Ranking, worth: float, data: str, lost_anyway: Sequence[RunnerUp]) -> Choice:
    best = expected_benefit(ranking[0], data)
    reason = (
        f"the best expected benefit is {_below(best, worth)} ({_parts(ranking[0], data)}): from scratch, "
        "training is expected to be as fast"
    )
    lost = [
        RunnerUp(
            each, f"expected benefit {_below(expected_benefit(each, data), worth)} ({_parts(each, data)})"
        )
        for each in ranking
    ]
    return Choice(None, reason, (*lost, *lost_anyway))


def _rank_by_buckets(pool: Sequence[Candidate], data: str) -> Ranking:
    groups: dict[tuple[object, ...], Ranking] = defaultdict(list)
    for each in pool:
        # Without a metric nobody is comparable: a group each.
        groups[bucket(each.similarity), _comparable(each) or each.id].append(each)

    def challenge(group: Ranking) -> tuple[object, ...]:
        head = group[-1]
        known = head.metric is not None
        return (-bucket(head.similarity), not known, not _same(head, data), -_standing(head), *_ties(head))

    # The best of each group competes; when it has won its place, the next of its group does.
    for group in groups.values():
        group.sort(key=lambda each: (-each.metric.goodness if each.metric else 0, *_ties(each)), reverse=True)
    heap = [(challenge(group), number, group) for number, group in enumerate(groups.values())]
    heapq.heapify(heap)
    ranking = []
    while heap:
        _, number, group = heap[0]
        ranking.append(group.pop())
        if group:
            heapq.heapreplace(heap, (challenge(group), number, group))
        else:
            heapq.heappop(heap)
    return ranking


def _why_lost_by_buckets(loser: Candidate, winner: Candidate, data: str) -> str:
    if bucket(loser.similarity) < bucket(winner.similarity):
        return f"similarity {_pair(loser.similarity, winner.similarity)[0]} is in a lower bucket"
    ours, theirs = loser.metric, winner.metric
    if ours is None and theirs is not None:
        return "how good it is, is not known"
    if _same(winner, data) and not _same(loser, data):
        return f"trained on other data ({loser.data!r})" if loser.data else "its data set is not known"
    if ours is None or theirs is None:
        return _tie("nobody knows how good they are", loser, winner)
    if _comparable(loser) == _comparable(winner):
        if ours.value == theirs.value:
            return _tie(f"the same {ours.name}", loser, winner)
        mine, other = _pair(ours.value, theirs.value)
        return f"{ours.name} {mine} {'above' if ours.lower_is_better else 'below'} {other}"
    if _standing(loser) == _standing(winner):
        return _tie("the same standing among its peers", loser, winner)
    if _standing(loser) < _standing(winner):
        return f"standing among its peers on {loser.data!r} {_below(_standing(loser), _standing(winner))}"
    return f"a better model on {loser.data!r} lost as well"


def _why_won_by_buckets(winner: Candidate, pool: Sequence[Candidate], data: str) -> str:
    number = bucket(winner.similarity)
    rivals = [each for each in pool if bucket(each.similarity) == number]
    where = f"similarity {winner.similarity:.3g}, bucket {number + 1} of {BUCKETS}"
    if len(rivals) == 1:
        return f"{where}: alone in it"
    if winner.metric is None:
        return f"{where}: of {len(rivals)} models of unknown quality the most similar"
    on = "the same data set" if _same(winner, data) else f"another data set ({winner.data!r})"
    return f"{where}: {winner.metric} on {on} is the best of {len(rivals)} models in it"


def _rank_by_benefit(pool: Sequence[Candidate], data: str) -> Ranking:
    return sorted(pool, key=lambda each: (-expected_benefit(each, data), *_ties(each)))


def _why_lost_by_benefit(loser: Candidate, winner: Candidate, data: str) -> str:
    ours, theirs = expected_benefit(loser, data), expected_benefit(winner, data)
    if ours == theirs:
        return _tie("the same expected benefit", loser, winner)
    return f"expected benefit {_below(ours, theirs)} ({_parts(loser, data)})"


def _why_won_by_benefit(winner: Candidate, pool: Sequence[Candidate], data: str) -> str:
    benefit = expected_benefit(winner, data)
    return f"expected benefit {benefit:.3g}, the highest of {len(pool)} ({_parts(winner, data)})"


def _parts(candidate: Candidate, data: str) -> str:
    """What an expected benefit is made of, in words."""
    known = candidate.metric is not None
    parts = [f"standing {_standing(candidate):.2f}" if known else "quality unknown"]
    parts.append("exact" if candidate.exact else f"similarity {candidate.similarity:.2f}, not exact")
    if candidate.rewired > 0 and not candidate.exact:
        parts.append(f"{candidate.rewired:.0%} of the layers fed differently")
    if (candidate.gap or 0.0) > MEMORISED:
        parts.append("may have memorised its data")
    if not _same(candidate, data):
        parts.append(f"other data: {candidate.data!r}" if candidate.data else "its data set is not known")
    return ", ".join(parts)


POLICIES: dict[
    str,
    tuple[
        Callable[[Sequence[Candidate], str], Ranking],
        Callable[[Candidate, Candidate, str], str],
        Callable[[Candidate, Sequence[Candidate], str], str],
    ],
] = {
    "buckets": (_rank_by_buckets, _why_lost_by_buckets, _why_won_by_buckets),
    "benefit": (_rank_by_benefit, _why_lost_by_benefit, _why_won_by_benefit),
}


def _cold(below: Ranking, barred: Ranking, minimum: float, considered: int | None) -> str:
    if below:
        return f"the most similar model reaches {_below(below[0].similarity, minimum, 'the minimum ')}"
    if considered:
        return f"none of {considered:,} models reaches the minimum similarity {minimum:g}"
    if barred:
        return f"all {len(barred)} candidates are excluded by name"
    return "the zoo is empty, or nothing in it passes the filters"


def _named(candidate: Candidate, names: Collection[str]) -> bool:
    names = (names,) if isinstance(names, str) else names  # else a name would be a collection of letters
    return candidate.id in names or candidate.name in names


def _poor(candidate: Candidate, limit: float) -> bool:
    return candidate.standing is not None and candidate.standing < limit


def _same(candidate: Candidate, data: str) -> bool:
    return bool(data) and candidate.data == data


def _comparable(candidate: Candidate) -> tuple[str, str, str, bool] | None:
    """Candidates of which this is the same can be compared by their metric."""
    if candidate.metric is None:
        return None
    metric = candidate.metric
    return candidate.task, candidate.data, metric.name, metric.lower_is_better


def _standing(candidate: Candidate) -> float:
    return candidate.standing or 0.0


def _ties(candidate: Candidate) -> tuple[float, float, str]:
    return (-candidate.similarity, -candidate.created, candidate.id)


def _tie(what: str, loser: Candidate, winner: Candidate) -> str:
    if loser.similarity != winner.similarity:
        return f"{what}, but similarity {_below(loser.similarity, winner.similarity)}"
    if loser.created != winner.created:
        return f"{what} and similarity, but older"
    return f"{what}, similarity and age as {winner.id}, whose id comes first"


def _below(low: float, high: float, what: str = "") -> str:
    """'0.21 below 0.3', with as many digits as it takes to see the difference."""
    return f" below {what}".join(_pair(low, high))


def _pair(one: float, other: float) -> tuple[str, str]:
    for digits in range(3, 17):
        pair = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if one == other or pair[0] != pair[1]:
            break
    return pair
