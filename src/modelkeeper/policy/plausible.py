"""Can a claimed accuracy be true, by how many of some held-out examples a model got right?

    plausible(0.93, right=411, examples=500)     False: by chance alone that is next to impossible

The number of right answers among examples that were drawn like those of the claim is binomial. A claim
fails if so few, or fewer, would be right in less than one of a thousand such draws, though it were half a
point lower than was said: claims are rounded. Being better than claimed is never a failure.
"""

import math

ROUNDED = 0.005  # accuracies are given with two digits, or three
RARE = 0.001


def plausible(claim: float, right: int, examples: int) -> bool:
    """Can it be?"""
    if not 0 <= right <= examples:
        raise ValueError(f"{right} of {examples} examples")
    return _at_most(right, examples, max(0.0, min(1.0, claim) - ROUNDED)) >= RARE


def _at_most(right: int, examples: int, chance: float) -> float:
    """How probable it is that so many, or fewer, are right."""
    if chance <= 0:
        return 1.0
    rows = (
        math.exp(
            math.lgamma(examples + 1)
            - math.lgamma(number + 1)
            - math.lgamma(examples - number + 1)
            + number * math.log(chance)
            + (examples - number) * math.log1p(-chance)
        )
        for number in range(right + 1)
    )
    return math.fsum(rows)
