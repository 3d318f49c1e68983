"""What did a race say of the parents? By how much starts from them were ahead of a cold start, or behind."""

from collections.abc import Mapping

from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.race.rules import COLD, Race
from modelkeeper.warmstart.race.starts import SECOND

LEAST = 0.01  # a win is a win


def gains(answer: Answer, second: Answer | None, race: Race) -> Mapping[str, float]:
    """By the ids of parents that raced, from -1 to 1: above 0 if one of their starts won.

    Of a parent that lost to another parent's start, nobody knows.
    """
    losses = {runner.start: runner.loss for runner in race.runners if runner.steps}
    cold = losses.get(COLD)
    ours, theirs = (
        [loss for start, loss in losses.items() if start != COLD and (start == SECOND) is other]
        for other in (False, True)
    )
    if race.winner == COLD:
        lost = {parent.id: min(0.0, _lead(ours, cold)) for parent in answer.parents}
        if second is not None and theirs:
            lost |= {parent.id: min(0.0, _lead(theirs, cold)) for parent in second.parents}
        return lost
    won, of = (theirs, second) if race.winner == SECOND and second is not None else (ours, answer)
    return {parent.id: max(LEAST, _lead(won, cold)) for parent in of.parents}


def _lead(losses: list[float | None], cold: float | None) -> float:
    """By how much of the cold start's loss the best of some is ahead; -1 if none is a number."""
    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return -1.0
    if cold is None:
        return 1.0
    scale = max(abs(cold), abs(min(finite)))
    return max(-1.0, min(1.0, (cold - min(finite)) / scale)) if scale else 0.0
