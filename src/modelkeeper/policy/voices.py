"""What do many values say together, if each owner has one voice, however many of the values are theirs?

    weights(owners)                     of each value: an owner's values share one voice
    middle(values, weights)             the weighted median, between two where they are even
    top(weights, share)                 how many from the first on have more than a share of the weight
    effective(weights)                  as how many equal voices these count

Where each owner has one value, or there is one owner alone, all values weigh the same, and these are the
plain median and quantiles. An owner with many values moves none of them further than one with one could.
"""

from collections import Counter
from collections.abc import Hashable, Sequence

EVEN = 1e-9  # shares of the whole weight that are closer than this are the same: sums of floats are not exact


def weights(owners: Sequence[Hashable]) -> list[float]:
    """What each value weighs, by whose it is: all values of one owner weigh 1 together."""
    number = Counter(owners)
    return [1 / number[owner] for owner in owners]


def middle(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted median; if just half of the weight lies below, the mean of the values on both sides."""
    ordered = sorted(zip(values, weights, strict=True))
    half = sum(weights) / 2
    so_far = 0.0
    for at, (value, weight) in enumerate(ordered):
        so_far += weight
        if abs(so_far - half) <= EVEN * half and at + 1 < len(ordered):
            return (value + ordered[at + 1][0]) / 2
        if so_far > half:
            return value
    return ordered[-1][0]


def low_middle(values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted median; if just half of the weight lies below, the value there."""
    ordered = sorted(zip(values, weights, strict=True))
    half = sum(weights) / 2
    so_far = 0.0
    for value, weight in ordered:
        so_far += weight
        if so_far >= half * (1 - EVEN):
            return value
    return ordered[-1][0]


def top(weights: Sequence[float], share: float) -> int:
    """How many values from the first on it takes to have more than a share of the whole weight."""
    wanted = share * sum(weights) * (1 + EVEN)
    so_far = 0.0
    for number, weight in enumerate(weights, start=1):
        so_far += weight
        if so_far > wanted:
            return number
    return len(weights)


def effective(weights: Sequence[float]) -> int:
    """As how many equal voices these count: all if they are equal, fewer where some outweigh others."""
    squares = sum(weight * weight for weight in weights)
    return int(sum(weights) ** 2 / squares + 0.5) if weights else 0
