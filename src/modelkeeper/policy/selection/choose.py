"""Which candidate becomes the parent, and why not the others?

    choice = select(candidates, policy("buckets"), data="Flowers102")
    choice.parent, choice.reason          None: a cold start, and why
    choice.runners_up                     everyone else, the next best first, with why it lost

What holds for every policy is decided here: names that a user prefers or excludes, the minimum similarity,
models far below their peers, and whether the best is worth it. The policy ranks whoever is left. All is pure:
the same candidates, in any order, give the same choice.

What a user may not see, other tasks and tags are filtered before; excluded names should be too, where the
search itself stops at the first bucket.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from modelkeeper.policy.selection.base import Candidate, Choice, Policy, RunnerUp, Terms
from modelkeeper.policy.selection.comparing import below, tie_order


def select(
    candidates: Iterable[Candidate],
    policy: Policy,
    *,
    data: str | None,
    terms: Terms | None = None,
    considered: int | None = None,
    won: Callable[[Candidate], str] | None = None,
    look: Callable[[Sequence[Candidate], Candidate], Sequence[Candidate]] | None = None,
) -> Choice:
    """Choose a parent among candidates by a policy.

    Args:
        candidates: What the search found, each id once.
        policy: Who ranks those that meet the terms.
        data: The data set that the child is trained on; None if it is not known.
        terms: What a parent must meet.
        considered: How many models the search looked at, if it left out those below the minimum.
        won: Says why the winner won, where more competed than are given (see `fields`). Default: the policy.
        look: Takes a closer look at those whom the policy ranked below the winner, for whoever wants to know
            why they lost; the choice and the order are as they are.
    """
    data, terms = data or "", terms or Terms()
    groups = _Groups.of(candidates, terms)
    out_of_question = groups.out_of_question(terms)
    pool = groups.preferred or groups.others
    if not pool:
        return Choice(None, _why_nobody(groups, terms, considered), out_of_question)
    ranking = policy.rank(pool, data)
    winner = ranking[0]
    if not groups.preferred and policy.benefit(winner, data) < terms.worth:
        return _not_worth_it(ranking, policy, data, terms.worth, out_of_question)
    reason = won(winner) if won is not None else policy.why_won(winner, pool, data)
    beaten = look(ranking[1:], winner) if look is not None else ranking[1:]
    losers = [RunnerUp(loser, policy.why_lost(loser, winner, data)) for loser in beaten]
    if groups.preferred:
        reason = f"preferred by name; {reason}"
        unnamed = policy.rank(groups.others, data) if groups.others else []
        losers += [RunnerUp(loser, f"{winner.name} is preferred by name") for loser in unnamed]
    elif terms.preferred:
        reason += f"; no preferred parent reaches the minimum similarity {terms.minimum:g}"
    return Choice(winner, reason, (*losers, *out_of_question))


@dataclass
class _Groups:
    """The candidates, sorted by which of the terms decides about them."""

    preferred: list[Candidate] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)
    refuted: list[Candidate] = field(default_factory=list)
    outliers: list[Candidate] = field(default_factory=list)
    too_far: list[Candidate] = field(default_factory=list)
    excluded: list[Candidate] = field(default_factory=list)

    @classmethod
    def of(cls, candidates: Iterable[Candidate], terms: Terms) -> "_Groups":
        """Sort candidates by the terms; in a group that has no chance by similarity."""
        groups = cls()
        for candidate in candidates:
            if _named(candidate, terms.excluded):
                groups.excluded.append(candidate)
            elif candidate.similarity < terms.minimum:
                groups.too_far.append(candidate)
            elif _named(candidate, terms.preferred):
                groups.preferred.append(candidate)
            elif candidate.refuted:
                groups.refuted.append(candidate)
            elif candidate.standing is not None and candidate.standing < terms.poor:
                groups.outliers.append(candidate)
            else:
                groups.others.append(candidate)
        for hopeless in (groups.refuted, groups.outliers, groups.too_far, groups.excluded):
            hopeless.sort(key=tie_order)
        return groups

    def out_of_question(self, terms: Terms) -> tuple[RunnerUp, ...]:
        """Whoever loses by the terms alone, and why."""
        return (
            *(
                RunnerUp(candidate, f"{_claim(candidate)} did not hold for others")
                for candidate in self.refuted
            ),
            *(RunnerUp(outlier, f"{outlier.metric} is far below its peers") for outlier in self.outliers),
            *(
                RunnerUp(far, f"similarity {below(far.similarity, terms.minimum, 'the minimum ')}")
                for far in self.too_far
            ),
            *(RunnerUp(candidate, "excluded by name") for candidate in self.excluded),
        )


def _why_nobody(groups: _Groups, terms: Terms, considered: int | None) -> str:
    if groups.refuted and not groups.outliers:
        return f"of what is similar enough, {_claim(groups.refuted[0])} did not hold for others"
    if groups.outliers:
        return f"what is similar enough is far below its peers: {groups.outliers[0].metric}"
    if groups.too_far:
        nearest = groups.too_far[0].similarity
        return f"the most similar model reaches {below(nearest, terms.minimum, 'the minimum ')}"
    if considered:
        return f"none of {considered:,} models reaches the minimum similarity {terms.minimum:g}"
    if groups.excluded:
        return f"all {len(groups.excluded)} candidates are excluded by name"
    return "the zoo is empty, or nothing in it passes the filters"


def _not_worth_it(
    ranking: Sequence[Candidate],
    policy: Policy,
    data: str,
    worth: float,
    out_of_question: tuple[RunnerUp, ...],
) -> Choice:
    def shortfall(candidate: Candidate) -> str:
        benefit, parts = policy.benefit(candidate, data), policy.benefit_parts(candidate, data)
        return f"{below(benefit, worth)} ({parts})"

    best = f"the best expected benefit is {shortfall(ranking[0])}"
    reason = f"{best}: from scratch, training is expected to be as fast"
    losers = (RunnerUp(loser, f"expected benefit {shortfall(loser)}") for loser in ranking)
    return Choice(None, reason, (*losers, *out_of_question))


def _claim(candidate: Candidate) -> str:
    return f"the claim of {candidate.metric}" if candidate.metric else "what it promises"


def _named(candidate: Candidate, names: Collection[str]) -> bool:
    names = (names,) if isinstance(names, str) else names  # else a name would be a collection of letters
    return candidate.id in names or candidate.name in names
