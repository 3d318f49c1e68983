"""How long did a training take to be as good as one from scratch? The arithmetic of every table.

A job's score from scratch is the mean over the tail of that run; its targets are 99 % of it and all of it.
What never gets there within the budget counts with the whole budget, which flatters it, and is counted as
such besides. Time is in steps, no less than those before the first look, or in seconds of one core, the
transfer included.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from benchmarks.training.loop import FIRST, tail
from benchmarks.training.records import Record

SHARES = (0.99, 1.0)


def steps_to(record: Record, target: float) -> int | None:
    """The steps after which a training was as good as the target for the first time; None: never."""
    for step, score in zip(record["steps"], record["scores"], strict=True):
        if score >= target:
            return int(step)
    return None


def counted(record: Record, target: float, budget: int) -> int:
    """The steps that a training is charged with."""
    found = steps_to(record, target)
    return max(FIRST, min(budget, budget if found is None else found))


def seconds(record: Record, steps: int, scratch: Record) -> float:
    """Of one core, for so many steps and the transfer.

    A step takes as long as in the run from scratch: it is the same network on the same data, and on a machine
    that does other things as well two measurements of one step differ by more than arms do.
    """
    each: float = scratch["training"] / max(1, scratch["steps"][-1])
    return steps * each + float(record.get("seconds", 0.0))


@dataclass(frozen=True)
class Outcome:
    """One job with one arm, against the same job from scratch."""

    record: Record
    scratch: Record
    reached: dict[float, bool]
    steps: dict[float, int]
    cold_steps: dict[float, int]
    seconds: dict[float, float]
    cold_seconds: dict[float, float]
    gain: float | None  # of the score, over the same from scratch; None: it ended before the budget

    def speedup(self, share: float = 0.99) -> float:
        """In steps."""
        return self.cold_steps[share] / self.steps[share]


def outcome(record: Record, scratch: Record) -> Outcome:
    """Compare a training with the one from scratch, both with a constant rate."""
    budget, score = int(scratch["steps"][-1]), tail(scratch["scores"])
    targets = {share: share * score for share in SHARES}
    steps = {share: counted(record, target, budget) for share, target in targets.items()}
    cold = {share: counted(scratch, target, budget) for share, target in targets.items()}
    found = {share: steps_to(record, target) for share, target in targets.items()}
    return Outcome(
        record,
        scratch,
        {share: each is not None and each <= budget for share, each in found.items()},
        steps,
        cold,
        {share: seconds(record, count, scratch) for share, count in steps.items()},
        {share: seconds(scratch, count, scratch) for share, count in cold.items()},
        tail(record["scores"]) - score if record["steps"][-1] >= budget else None,
    )


def best_rate(
    screened: Sequence[Record], rates: Iterable[float], cold: Sequence[Record] | None = None
) -> float:
    """The learning rate that suits, of those that all of these jobs were trained with.

    From scratch the one with the best scores; with `cold`, the trainings from scratch to be judged by, the
    one that gets to 99 % of them soonest.
    """

    def cost(rate: float) -> float:
        these = [each for each in screened if each["rate"] == rate]
        if cold is None:
            return -mean(tail(each["scores"]) for each in these)
        base = {each["job"]: each for each in cold}
        return mean(1 / outcome(each, base[each["job"]]).speedup() for each in these) if these else 1.0

    return min(rates, key=cost)


# -- chance -------------------------------------------------------------------------------------------


def twins(cold: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Every two trainings from scratch of one network on one data set at one rate, in both orders."""
    return [
        (one, other)
        for one in cold
        for other in cold
        if one is not other and all(one[key] == other[key] for key in ("spec", "data", "rate", "length"))
    ]


@dataclass(frozen=True)
class Band:
    """What chance does: two deviations of one training from scratch against another of the same network."""

    pairs: int
    slower: float  # a speed-up below this is more than chance
    below: float  # a score so much below is more than chance


def band(pairs: Sequence[tuple[Record, Record]]) -> Band:
    """From pairs of twins, one judged by the other."""
    if not pairs:
        return Band(0, 1.0, 0.0)
    gains = [tail(one["scores"]) - tail(other["scores"]) for one, other in pairs]
    logs = [math.log(outcome(one, other).speedup()) for one, other in pairs]
    spread, deviation = (math.sqrt(mean(each**2 for each in these)) for these in (logs, gains))
    return Band(len(pairs), math.exp(-2 * spread), 2 * deviation)


# -- schedules that decay ------------------------------------------------------------------------------


def equal_budget(relative: float, shorter: dict[float, float]) -> float:
    """The share of the steps from scratch that gives a score, at most all of them.

    Args:
        relative: The score, relative to all steps from scratch.
        shorter: What shares of the steps give from scratch, relative to all of them.
    """
    points = sorted({**shorter, 1.0: 1.0}.items())
    if relative >= 1 or not shorter:
        return 1.0
    (low, worst), (high, better) = next(
        ((a, b) for a, b in pairwise(points) if relative <= b[1]),
        (points[-2], points[-1]),
    )
    if better <= worst:
        return high
    share = math.log(low) + (math.log(high) - math.log(low)) * (relative - worst) / (better - worst)
    return max(0.05, min(1.0, math.exp(share)))
