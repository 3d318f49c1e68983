"""Which of several starts should a training take? The rules of a race, whoever runs it.

Every start trains on the same batches in the same order, and each batch judges a start before it teaches it:
the loss of a training step is taken before the step. So every loss is one on examples that the start has not
seen in the race, none has to be held out, and judging costs nothing. What counts is the mean loss over the
later half of the batches so far. NaN is worse than any number.

There are rivals (warm starts of several kinds) and the cold start. Rivals compete with each other by
successive halving: `heats` says how far all that are left train before the better half goes on, `ranked` who
is better. The first rival is the favourite (the plain warm start), and another takes its place only if it is
ahead by more than chance explains, batch by batch.

The cold start runs all along, and `worthwhile` compares the best rival with it in the end. A rival that is
ahead by little is not taken: a cold start soon makes up for that, and in the long run it is the better one
where a parent was poor, had memorised its examples, or knew other data. The lead that is asked for was found
by `make probing`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import msgspec

COLD = "cold"  # the start that every race needs
STEPS = 100  # of all starts together
WINDOW = 0.5  # the share of the batches so far that counts, the last ones
SURE = 2.0  # standard errors by which a rival has to be ahead of the favourite
LEAD = 0.7  # of the cold start's loss: a rival has to come below it ...
FURTHER = 1.3  # ... or, where losses have a floor, has to have come so much further from where that began


@dataclass(frozen=True)
class Runner:
    """A start, and how it ran."""

    start: str
    parent: str  # whom its weights are from; "" for none
    steps: int
    first: float | None  # the loss of the first batch, before any step; None: it is no number
    loss: float | None  # the mean loss over the later half of its batches: what it was judged by
    verdict: str


@dataclass(frozen=True)
class Race:
    """What came out of a race: who won, how all ran, what it cost."""

    winner: str
    runners: tuple[Runner, ...]  # the winner first
    steps: int  # of all together
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data. A loss that is no number is None."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain | {"runners": list(plain["runners"])}


def heats(rivals: int, batches: int, steps: int) -> list[tuple[int, int]]:
    """For each heat: the batch it ends with, and how many rivals go on. The cold start runs along.

    >>> heats(3, batches=50, steps=100)
    [(12, 2), (20, 1), (34, 1)]

    Each heat but the last takes half of the steps that are left.
    """
    planned: list[tuple[int, int]] = []
    left, at = steps, 0
    while rivals > 1:
        until = min(batches, at + max(1, left // 2 // (rivals + 1)))
        left -= (until - at) * (rivals + 1)
        at, rivals = until, (rivals + 1) // 2
        planned.append((at, rivals))
    return [*planned, (min(batches, at + max(1, left // 2)), 1)]


def score(losses: Sequence[float]) -> float:
    """The mean loss over the later half of the batches; infinite if one of them is no number."""
    if not losses or not all(map(math.isfinite, losses)):
        return math.inf
    return fmean(losses[-_window(losses) :])


def ranked(losses: Mapping[str, Sequence[float]]) -> list[str]:
    """Rivals, the best first. The first that is given is the favourite: chance does not beat it."""
    order = sorted(losses, key=lambda name: score(losses[name]))
    favourite = next(iter(losses))
    ahead = [name for name in order if _surely(losses[name], losses[favourite])]
    return [*ahead, favourite, *(name for name in order if name not in ahead and name != favourite)]


def worthwhile(rival: Sequence[float], cold: Sequence[float]) -> bool:
    """Is a rival ahead of a cold start by enough?

    Raises:
        ValueError: Neither has a loss that is a number.
    """
    loss, bar = score(rival), score(cold)
    if math.isinf(loss) and math.isinf(bar):
        raise ValueError("no loss is a number")
    if math.isinf(bar):
        return True
    learned = max(0.0, cold[0] - bar)
    return loss < max(bar - (1 - LEAD) * abs(bar), bar - (FURTHER - 1) * learned) and loss < bar


def _window(losses: Sequence[float]) -> int:
    return max(1, math.ceil(WINDOW * len(losses)))


def _surely(losses: Sequence[float], others: Sequence[float]) -> bool:
    """Is the one below the other, batch by batch, by more than chance explains?"""
    if math.isinf(score(losses)) or math.isinf(score(others)):
        return score(losses) < score(others)
    count = min(_window(losses), _window(others))
    ahead = [other - loss for loss, other in zip(losses[-count:], others[-count:], strict=True)]
    chance = stdev(ahead) / math.sqrt(count) if count > 1 else 0.0
    return fmean(ahead) > SURE * chance
