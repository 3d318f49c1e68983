"""The policy `benefit`: from whom is training expected to gain most?

It ranks all candidates above the minimum by what training is expected to gain from them, and if that is below
the least that is worth it, nobody is taken: a training from scratch is expected to be as fast.

    fidelity * quality * trust * credit        (less for another data set)

fidelity: 1 where the child will compute what the parent computes. Else 0.8 times the similarity, times the
    share of layers that are fed as in the parent; that once more where no batch norm puts scales right
    again. Over many pairs that were trained (docs/evaluation.md), exact starts gained most whatever their
    similarity; of the others, the more similar and less rewired ones.
quality: from the standing among its peers: 0.8 to 1 for most, but soon falling to 0 for those far below
    what the good ones have reached. A poor parent is a training that was stopped early: even if it is
    exact it saves few steps, and some are slower than from scratch. Unknown: as one that is rather poor.
trust: 1, falling to 0.5 as the parent's training accuracy exceeds its validation accuracy by 5 to 15
    points. A parent that memorised its data can be worse than none.
credit: 1, or less where others found that starts from it do not gain, or that its claim does not hold
    (`policy.credit`).
"""

from collections.abc import Sequence

from modelkeeper.policy.selection.base import Candidate, Policy, thorough
from modelkeeper.policy.selection.comparing import (
    below,
    known_standing,
    on_same_data,
    tie_order,
    why_tie_lost,
)

INEXACT, OTHER_DATA = 0.8, 0.35
POOR_STANDING, UNKNOWN_STANDING = 0.19, 0.15
MEMORISED, MEMORISED_FULLY, LEAST_TRUST = 0.05, 0.15, 0.5


class Benefit(Policy):
    """The highest expected benefit, if it is worth it."""

    name = "benefit"
    description = "from whom training is expected to gain most, if that is worth it"
    plans_first = True

    def rank(self, pool: Sequence[Candidate], data: str) -> list[Candidate]:
        """By expected benefit."""
        return sorted(pool, key=lambda candidate: (-expected_benefit(candidate, data), *tie_order(candidate)))

    def why_won(self, winner: Candidate, pool: Sequence[Candidate], data: str) -> str:
        """Its expected benefit and what that is made of."""
        return self.why_best_of(winner, len(pool), data)

    def why_best_of(self, winner: Candidate, number: int, data: str) -> str:
        """Likewise, of so many."""
        benefit, parts = expected_benefit(winner, data), self.benefit_parts(winner, data)
        return f"expected benefit {benefit:.3g}, the highest of {number} ({parts})"

    def why_lost(self, loser: Candidate, winner: Candidate, data: str) -> str:
        """By how much its expected benefit is less, and what it is made of."""
        benefit, highest = expected_benefit(loser, data), expected_benefit(winner, data)
        if benefit == highest:
            return why_tie_lost("the same expected benefit", loser, winner)
        return f"expected benefit {below(benefit, highest)} ({self.benefit_parts(loser, data)})"

    def depth(self, models: int) -> int:
        """Deep: an exact parent may be less similar than others."""
        return thorough(models)

    def benefit(self, candidate: Candidate, data: str) -> float:
        """See `expected_benefit`."""
        return expected_benefit(candidate, data)

    def benefit_parts(self, candidate: Candidate, data: str) -> str:
        """Standing, fidelity, trust and data, in words."""
        measured = candidate.metric is not None
        parts = [f"standing {known_standing(candidate):.2f}" if measured else "quality unknown"]
        if candidate.exact:
            parts.append("exact")
        else:  # of whom nobody made a plan, nobody knows
            known = "not exact" if candidate.exact is False else "no plan was made"
            parts.append(f"similarity {candidate.similarity:.2f}, {known}")
        if candidate.rewired > 0 and not candidate.exact:
            parts.append(f"{candidate.rewired:.0%} of the layers fed differently")
        if (candidate.gap or 0.0) > MEMORISED:
            parts.append("may have memorised its data")
        if candidate.credit < 1:
            parts.append(f"credit {candidate.credit:.2f} with those who tried it")
        if not candidate.data:
            parts.append("its data set is not known")
        elif not data:
            parts.append(f"of data {candidate.data!r}, and the query names none")
        elif not on_same_data(candidate, data):
            parts.append(f"other data: {candidate.data!r}")
        return ", ".join(parts)


def expected_benefit(candidate: Candidate, data: str) -> float:
    """What training is expected to gain from this parent, from 0 to 1: see the top of the file.

    `fields.benefits` says the same of many at once, number for number.
    """
    place = UNKNOWN_STANDING if candidate.standing is None else candidate.standing
    good = min(1.0, place / POOR_STANDING)
    quality = good * good * (0.8 + 0.2 * place)
    doubt = ((candidate.gap or 0.0) - MEMORISED) / (MEMORISED_FULLY - MEMORISED)
    trust = 1 - (1 - LEAST_TRUST) * max(0.0, min(1.0, doubt))
    believed = trust * candidate.credit
    return fidelity(candidate) * quality * believed * (1.0 if on_same_data(candidate, data) else OTHER_DATA)


def fidelity(candidate: Candidate) -> float:
    """How much of what the parent computes the child is expected to begin with, from 0 to 1."""
    if candidate.exact:
        return 1.0
    fed = 1 - candidate.rewired
    return float(INEXACT * candidate.similarity * (fed if candidate.normed else fed * fed))


BENEFIT = Benefit()
