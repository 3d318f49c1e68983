"""The policy `buckets`, as the paper has it: who is the best among the most similar?

Ten buckets of similarity, from the top the first that holds a candidate, and in it the best accuracy.
Accuracies are compared only on the same task and data set and by the same metric. So in a bucket the
candidates trained on the child's data set come first; the best of each such group then compete by their
standing among their own peers. Whose quality is unknown comes last. Whose claim others doubt
(`policy.credit`) comes behind those who claim the same metric, and its standing counts for less.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from modelkeeper.matching.similarity import BUCKETS, bucket
from modelkeeper.policy.credit import DOUBTED
from modelkeeper.policy.selection.base import Candidate, Policy
from modelkeeper.policy.selection.comparing import (
    believed_standing,
    below,
    on_same_data,
    tie_order,
    told_apart,
    why_tie_lost,
)


class Buckets(Policy):
    """The best accuracy in the highest bucket of similarity."""

    name = "buckets"
    description = "the best accuracy in the highest bucket of similarity, as in the paper"

    def rank(self, pool: Sequence[Candidate], data: str) -> list[Candidate]:
        """Merge comparable groups: the best of each competes; when it has won its place, the next does."""
        groups: dict[tuple[object, ...], list[Candidate]] = defaultdict(list)
        for candidate in pool:
            # Without a metric nobody is comparable: a group of its own.
            group = _comparable(candidate) or candidate.id
            groups[bucket(candidate.similarity), group].append(candidate)
        for members in groups.values():
            members.sort(key=_within_group, reverse=True)  # the best is popped first
        heap = [(_among_groups(members[-1], data), at, members) for at, members in enumerate(groups.values())]
        heapq.heapify(heap)
        ranking = []
        while heap:
            _, at, members = heap[0]
            ranking.append(members.pop())
            if members:
                heapq.heapreplace(heap, (_among_groups(members[-1], data), at, members))
            else:
                heapq.heappop(heap)
        return ranking

    def why_won(self, winner: Candidate, pool: Sequence[Candidate], data: str) -> str:
        """Which bucket it is in, and what it is the best of there."""
        number = bucket(winner.similarity)
        rivals = sum(bucket(candidate.similarity) == number for candidate in pool)
        return self.why_best_of(winner, rivals, data)

    def why_best_of(self, winner: Candidate, rivals: int, data: str) -> str:
        """Likewise, of so many in its bucket."""
        number = bucket(winner.similarity)
        where = f"similarity {winner.similarity:.3g}, bucket {number + 1} of {BUCKETS}"
        if rivals == 1:
            return f"{where}: alone in it"
        if winner.metric is None:
            return f"{where}: of {rivals} models of unknown quality the most similar"
        on = "the same data set" if on_same_data(winner, data) else f"another data set ({winner.data!r})"
        return f"{where}: {winner.metric} on {on} is the best of {rivals} models in it"

    def why_lost(self, loser: Candidate, winner: Candidate, data: str) -> str:
        """The first of bucket, data set, metric, standing and ties in which it is behind."""
        if bucket(loser.similarity) < bucket(winner.similarity):
            return f"similarity {told_apart(loser.similarity, winner.similarity)[0]} is in a lower bucket"
        lost, won = loser.metric, winner.metric
        if lost is None and won is not None:
            return "how good it is, is not known"
        if on_same_data(winner, data) and not on_same_data(loser, data):
            return f"trained on other data ({loser.data!r})" if loser.data else "its data set is not known"
        if lost is None or won is None:
            return why_tie_lost("nobody knows how good they are", loser, winner)
        if _comparable(loser) == _comparable(winner):
            if loser.credit < DOUBTED <= winner.credit:
                return f"its {lost} is doubted by those who tried it"
            if lost.value == won.value:
                return why_tie_lost(f"the same {lost.name}", loser, winner)
            value, best = told_apart(lost.value, won.value)
            return f"{lost.name} {value} {'above' if lost.lower_is_better else 'below'} {best}"
        place, best_place = believed_standing(loser), believed_standing(winner)
        if place == best_place:
            return why_tie_lost("the same standing among its peers", loser, winner)
        if place < best_place:
            return f"standing among its peers on {loser.data!r} {below(place, best_place)}"
        return f"a better model on {loser.data!r} lost as well"


def _comparable(candidate: Candidate) -> tuple[str, str, str, bool] | None:
    """Candidates of which this is the same can be compared by their metric; None: it has none."""
    if candidate.metric is None:
        return None
    metric = candidate.metric
    return candidate.task, candidate.data, metric.name, metric.lower_is_better


def _within_group(candidate: Candidate) -> tuple[object, ...]:
    doubted = candidate.credit < DOUBTED
    return (doubted, -candidate.metric.goodness if candidate.metric else 0, *tie_order(candidate))


def _among_groups(head: Candidate, data: str) -> tuple[object, ...]:
    """By what the best of one group competes with those of the others."""
    unknown = head.metric is None
    other_data = not on_same_data(head, data)
    return (-bucket(head.similarity), unknown, other_data, -believed_standing(head), *tie_order(head))


BUCKETED = Buckets()
