"""Give a model the weights that a query found: as they are, calibrated, or those that win a race.

    answer = start(model, graph, warmth, Wishes(calibrate=batches), guard=...)

`guard` turns a fault of the keeper into a warning. What then holds is the best there was before: if starts
cannot race, the model starts warm; if layers cannot be fitted, it starts with the plain weights.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec

from modelkeeper.errors import NoProgram
from modelkeeper.frontends import frontend_for
from modelkeeper.frontends.fit_tasks import Calibration
from modelkeeper.frontends.races import Race
from modelkeeper.graph import Graph
from modelkeeper.warmstart.answer import Answer, Rival
from modelkeeper.warmstart.calibration import calibrated
from modelkeeper.warmstart.lender import Lender
from modelkeeper.warmstart.starts import CALIBRATED, COLD, SECOND, SHRUNK, Probe, Starts
from modelkeeper.warmstart.transfer import shown
from modelkeeper.weights import Array

CLOSE = 0.1  # by how much less similar a second parent may be, to race as well: a bucket
Guard = Callable[[str], AbstractContextManager[list[str]]]


@dataclass(frozen=True)
class Wishes:
    """What a user wants beside the plain weights."""

    calibrate: Any = None  # examples; False: none, also not those of a probe
    labels: Any = None
    progress: bool = False
    probe: Probe | None = None

    @property
    def fits(self) -> bool:
        """Are there examples to fit layers on?"""
        return self.calibrate is not None and self.calibrate is not False


def start(
    model: Any, graph: Graph, warmth: Any, wishes: Wishes, *, guard: Guard, second: Callable[[], Any]
) -> Answer:
    """Write the weights into the model, which has its own initial values; what was done.

    Args:
        model: Is changed in place.
        graph: The model's.
        warmth: What a coordinator's `query` found: a parent.
        wishes: Calibrate? Probe?
        guard: Makes a context in which a fault of the keeper becomes a warning, and gives the list of them.
        second: Asks for another parent; None if there is none that is about as similar.
    """
    answer: Answer = warmth.answer
    begun = time.perf_counter()
    weights = dict(warmth.weights())
    if wishes.probe is not None:
        with guard("The model starts warm, but unprobed") as trouble:
            return _raced(model, graph, warmth, weights, answer, wishes, wishes.probe, guard, second)
        answer = _warned(answer, trouble)
    frontend_for(model).load(model, weights)
    answer = _after(answer, "load", begun)
    if wishes.fits and not answer.exact:
        begun, found = time.perf_counter(), None
        with guard("The model starts warm, but uncalibrated") as trouble, warmth.lender() as lender:
            examples = _examples(model, wishes)
            with shown(wishes.progress) as told:
                program = _program(model, lender, answer)
                found = calibrated(model, lender.plan, program, lender.tensors, examples, progress=told)
        answer = _after(_warned(answer, trouble), "calibrate", begun)
        answer = msgspec.structs.replace(answer, calibration=None if found is None else found.to_dict())
    return answer


def _raced(
    model: Any,
    graph: Graph,
    warmth: Any,
    weights: Mapping[str, Array],
    answer: Answer,
    wishes: Wishes,
    probe: Probe,
    guard: Guard,
    second: Callable[[], Any],
) -> Answer:
    begun = time.perf_counter()
    starts, fitted = Starts(model, graph, probe, probe.read(model)), None
    starts.lend(weights, answer.parent_name)
    if wishes.calibrate is not False and not answer.exact:
        with guard("No calibrated start races") as trouble, warmth.lender() as lender:
            if lender.program is not None or wishes.fits:
                program = _program(model, lender, answer)
                examples = _examples(model, wishes)
                with shown(wishes.progress) as told:
                    fitted = starts.calibrate(lender.plan, program, lender.tensors, examples, progress=told)
        answer = _after(_warned(answer, trouble), "calibrate", begun)
        begun = time.perf_counter()
    other = None
    with guard("No second parent races") as trouble:
        other = second() if _close(answer) else None
        if other is not None:
            starts.lend(dict(other.weights()), other.answer.parent_name)
    answer = _warned(answer, trouble)
    race = starts.race()
    return _after(_outcome(race, answer, None if other is None else other.answer, fitted), "probe", begun)


def _close(answer: Answer) -> bool:
    """Is the next best parent about as similar as the best?"""
    rivals = [each.similarity for each in answer.runners_up[:1]]
    return any(each >= (answer.similarity or 0) - CLOSE for each in rivals)


def _outcome(race: Race, answer: Answer, other: Answer | None, fitted: Calibration | None) -> Answer:
    """The answer that goes with the start that won."""
    told: dict[str, Any] = {"probe": race.to_dict()}
    if race.winner == CALIBRATED and fitted is not None:
        told["calibration"] = fitted.to_dict()
    elif race.winner == SHRUNK:
        told |= {"exact": False, "doubts": (*answer.doubts, "the weights were shrunk and perturbed")}
    elif race.winner == SECOND and other is not None:
        told |= {"warnings": (*answer.warnings, *other.warnings), "seconds": answer.seconds}
        answer = other
    elif race.winner == COLD:
        lost = Rival(
            id=answer.parent or "",
            name=answer.parent_name,
            similarity=answer.similarity or 0.0,
            metric=answer.metric,
            value=answer.value,
            why="lost the race against a cold start",
        )
        return Answer(
            reason=f"in a race of a few steps, starting from {answer.parent_name} was not ahead by enough",
            runners_up=(lost, *answer.runners_up),
            considered=answer.considered,
            aligned=answer.aligned,
            warnings=answer.warnings,
            seconds=answer.seconds,
            **told,
        )
    return msgspec.structs.replace(answer, **told)


def _program(model: Any, lender: Lender, answer: Answer) -> Any:
    if lender.program is None:
        raise NoProgram(answer.parent_name, "it was registered without one")
    return frontend_for(model).Program.from_bytes(lender.program)


def _examples(model: Any, wishes: Wishes) -> Any:
    frontend = frontend_for(model)
    return frontend.collect(wishes.calibrate, wishes.labels, frontend.EXAMPLES) if wishes.fits else None


def _warned(answer: Answer, trouble: list[str]) -> Answer:
    return msgspec.structs.replace(answer, warnings=(*answer.warnings, *trouble))


def _after(answer: Answer, stage: str, begun: float) -> Answer:
    spent = answer.seconds | {stage: time.perf_counter() - begun}
    return msgspec.structs.replace(answer, seconds=spent)
