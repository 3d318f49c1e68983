"""How should training go on after a start, and what is that expected to cost?

    meta["advice"]      schedule 0.25, rate 1: a quarter of the steps that you would train from scratch, with
                        the same peak of the learning rate and the same warm-up

For training with a rate that decays to zero, as most people train. What it saves is in docs/evaluation.md
(`make evaluate`, table b). A lower peak was tried, too, and gained nothing. It is advice:
nothing follows it unless it is asked to.

A parent that is far below what its peers reached, or whose training was not ended, leaves more to learn: from
an exact parent at 92 % of the plateau nothing was gained, at 97 % half of the steps, at 99 % three quarters.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from modelkeeper.transform.plan import Entry

NEAR = 0.8  # a similarity from which on most of what the parent computes survives
GOOD, POOR = 0.3, 0.19  # standings among its peers: about 2 and 5 points below the good ones
LEAST_LENT = 0.5  # of the numbers that are trained

CALIBRATED_COST = 0.3  # points, for half of the steps after a calibrated start: seven trials, one of them 1.3


class Advice(Struct, frozen=True, kw_only=True):
    """Relative to how the model would be trained from scratch."""

    rate: float = 1.0  # times the peak of the learning rate
    schedule: float = 1.0  # times the steps
    warm_up: bool = True  # raise the rate slowly at the beginning, as from scratch
    why: str = "a cold start"
    cost: float = 0.0  # points that it is expected to end below the whole schedule from scratch
    may_calibrate: bool = False  # would a calibrated start need less?

    def __str__(self) -> str:
        if self.rate == self.schedule == 1 and self.warm_up:
            return f"train as from scratch: {self.why}"
        rate = "the same learning rate" if self.rate == 1 else f"{self.rate:g} of the learning rate"
        cost = f" (expected to cost about {self.cost:g} points)" if self.cost else ""
        return f"{rate}, {self.schedule:g} of the steps: {self.why}{cost}"


def advise(
    *,
    exact: bool,
    similarity: float,
    same_data: bool,
    standing: float | None = None,
    finished: bool = True,
    lent: float = 1.0,
) -> Advice:
    """After a warm start.

    Args:
        exact: Does the model compute what the parent computes?
        similarity: To the parent.
        same_data: Was the parent trained on the same data set?
        standing: Of the parent among its peers (`quality.standing`); None if its quality is not known.
        finished: Was the parent's training ended?
        lent: Which share of the numbers that are trained comes from the parent (`lent_share`).
    """
    if not same_data:
        return Advice(why="the parent was trained on other data")
    if not exact and lent < LEAST_LENT:
        return Advice(why="most of what is trained is new")
    if standing is not None and standing < POOR:
        return Advice(why="the parent is far below what its peers reached")
    if not exact and similarity < NEAR:
        why = "too little of what the parent computes survives to train for less"
        return Advice(why=why, may_calibrate=True)
    how = "it starts where the parent ended" if exact else "most of what the parent computes survives"
    if standing is None or standing < GOOD or not finished:
        doubt = "was not trained to the end" if not finished else "is below its peers"
        doubt = "may not be good: its quality is not known" if standing is None else doubt
        return Advice(schedule=0.5, why=f"{how}, but the parent {doubt}")
    return Advice(schedule=0.25 if exact else 0.5, why=how)


def once_calibrated(advice: Advice) -> Advice:
    """What is advised after a start that was calibrated, given what was advised before it was."""
    if not advice.may_calibrate:
        return advice
    why = "calibrated, it starts near to what the parent computes"
    return msgspec.structs.replace(advice, schedule=0.5, why=why, cost=CALIBRATED_COST, may_calibrate=False)


def lent_share(entries: "Iterable[Entry]", frozen: Collection[str]) -> float:
    """Of the numbers of a model that are trained, which share comes from the parent?"""
    trained = [entry for entry in entries if entry.tensor not in frozen]
    lent = sum(entry.parameters for entry in trained if entry.source)
    return lent / max(1, sum(entry.parameters for entry in trained))
