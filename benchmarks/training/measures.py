"""How long did a training take to be as good as one from scratch? The arithmetic of every table.

A job's targets are the best score of its run from scratch, and 99 % of it. What never gets there within the
budget counts with the whole budget, which flatters it, and is counted as such besides. Time is in steps, no
less than one interval of the curve, or in seconds of one core, the transfer included.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from benchmarks.training.loop import EVERY

Record = dict[str, Any]
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
    return max(EVERY, min(budget, budget if found is None else found))


def seconds(record: Record, steps: int, scratch: Record) -> float:
    """Of one core, for so many steps and the transfer.

    A step takes as long as in the run from scratch: it is the same network on the same data, and on a machine
    that does other things as well two measurements of one step differ by more than arms do.
    """
    each: float = scratch["training"] / max(1, scratch["steps"][-1])
    return steps * each + float(record["seconds"])


def score_after(record: Record, steps: int) -> float:
    """How good a training was by then."""
    return float(
        next(
            score
            for step, score in reversed(list(zip(record["steps"], record["scores"], strict=True)))
            if step <= steps
        )
    )


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
    gain: float | None  # of the score after the budget, over the same from scratch; None: it ended before

    def speedup(self, share: float = 0.99) -> float:
        """In steps."""
        return self.cold_steps[share] / self.steps[share]


def outcome(record: Record, scratch: Record) -> Outcome:
    """Compare a training with the one from scratch."""
    budget, best = int(scratch["steps"][-1]), max(scratch["scores"])
    targets = {share: share * best for share in SHARES}
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
        score_after(record, budget) - scratch["scores"][-1] if record["steps"][-1] >= budget else None,
    )


def best_rate(records: Sequence[Record], arm: str, rates: Iterable[float]) -> float:
    """The learning rate that suits an arm, of those that all of these jobs were trained with.

    From scratch the one with the best scores; for another arm the one that gets to 99 % of them soonest.
    """
    rates = list(rates)

    def scratch_score(rate: float) -> float:
        these = [each for each in records if each["arm"] == "scratch" and each["rate"] == rate]
        return float(mean(max(each["scores"]) for each in these))

    cold = max(rates, key=scratch_score)
    if arm == "scratch":
        return cold
    reference = {each["job"]: each for each in records if each["arm"] == "scratch" and each["rate"] == cold}

    def cost(rate: float) -> float:
        these = [each for each in records if each["arm"] == arm and each["rate"] == rate]
        warm = [each for each in these if each["parent"] is not None]
        ratios = [outcome(each, reference[each["job"]]) for each in warm]
        return float(mean(1 / each.speedup() for each in ratios)) if ratios else 1.0

    return min(rates, key=cost)
