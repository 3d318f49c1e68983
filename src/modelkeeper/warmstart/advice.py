"""How should training go on after a start?

    meta["advice"]      schedule 0.25, rate 1: a quarter of the steps that you would train from scratch, with
                        the same peak of the learning rate and the same warm-up

For training with a rate that decays to zero, as most people train. What it rests on is in docs/evaluation.md
(`make evaluate`, the study of schedules): a lower peak was tried, too, and gained nothing. It is advice:
nothing follows it unless it is asked to.
"""

from msgspec import Struct

NEAR = 0.8  # a similarity from which on most of what the parent computes survives


class Advice(Struct, frozen=True, kw_only=True):
    """Relative to how the model would be trained from scratch."""

    rate: float = 1.0  # times the peak of the learning rate
    schedule: float = 1.0  # times the steps
    warm_up: bool = True  # raise the rate slowly at the beginning, as from scratch
    why: str = "a cold start"

    def __str__(self) -> str:
        if self == Advice(why=self.why):
            return f"train as from scratch: {self.why}"
        rate = "the same learning rate" if self.rate == 1 else f"{self.rate:g} of the learning rate"
        return f"{rate}, {self.schedule:g} of the steps: {self.why}"


def advise(*, exact: bool, similarity: float, same_data: bool) -> Advice:
    """After a warm start.

    Args:
        exact: Does the model compute what the parent computes?
        similarity: To the parent.
        same_data: Was the parent trained on the same data set?
    """
    if not same_data:
        return Advice(why="the parent was trained on other data")
    if exact or similarity >= NEAR:
        how = "it starts where the parent ended" if exact else "most of what the parent computes survives"
        return Advice(schedule=0.25, why=how)
    return Advice(why="too little of what the parent computes survives to train for less")
