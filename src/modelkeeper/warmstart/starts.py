"""Which start should a training take: warm, calibrated, shrunk or cold? They race, on the user's own batches.

    probe = Probe(batches, loss, optimizer)
    starts = Starts(model, graph, probe, probe.read(model))     the model has its own initial values
    starts.lend(weights, "resnet20")                            warm; and shrunk, between warm and cold
    starts.calibrate(plan, program, tensors)                    fitted on examples that do not race
    race = starts.race()                                        the model has the winner's weights

A warm start can hurt: the parent was poor, had memorised its examples, knew other data, or its layers do not
fit. Little of that shows before training, so a few steps are made: `modelkeeper.frontends.races` has the
rules. The model gets the weights that the winner began with, not those that it raced to: they are its own
training's to find, with its own schedule, from its first batch on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modelkeeper.errors import CannotCalibrate, InvalidProgram, InvalidSetting, NoProgram
from modelkeeper.frontends import frontend_for
from modelkeeper.frontends.fit_tasks import Calibration
from modelkeeper.frontends.races import STEPS, Race, Runner
from modelkeeper.graph import Graph
from modelkeeper.transform import Plan
from modelkeeper.warmstart.calibration import calibrated
from modelkeeper.weights import Array

WARM, CALIBRATED, SECOND, SHRUNK, COLD = "warm", "calibrated", "second parent", "shrunk", "cold"
SHRINK, PERTURB = 0.5, 0.2
SPARE = 32  # batches beyond those that race, to calibrate with
ENOUGH = 8  # batches to calibrate with: if there are fewer to spare, those that race serve, unlabelled


@dataclass(frozen=True)
class Probe:
    """What a user gives for a race: see `modelkeeper.transfer`."""

    batches: Any
    loss: Any = None
    optimizer: Any = None
    steps: int = STEPS
    seconds: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 10:
            raise InvalidSetting("probe_steps", repr(self.steps), "give a number of steps, at least 10")
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidSetting("probe_seconds", repr(self.seconds), "give a number of seconds above 0")

    def read(self, model: Any) -> Sequence[Any]:
        """The batches, as many as may be needed.

        Raises:
            CannotProbe: They do not serve.
        """
        found: Sequence[Any] = frontend_for(model).labelled(self.batches, self.steps // 2 + SPARE)
        return found


class Starts:
    """The starts of one race."""

    def __init__(self, model: Any, graph: Graph, probe: Probe, batches: Sequence[Any]) -> None:
        """`graph`: of the model, which has its own initial values; `batches`: what `probe` read."""
        self._model, self._graph, self._probe, self._batches = model, graph, probe, batches
        self._frontend = frontend_for(model)
        self._weights: dict[str, Mapping[str, Any]] = {}
        self._parents: dict[str, str] = {}
        self._absent: dict[str, str] = {}

    def lend(self, weights: Mapping[str, Array], parent: str = "") -> None:
        """What a parent lends. The first is the favourite; of a second one only the warm start races."""
        name = SECOND if WARM in self._weights else WARM
        self._weights[name], self._parents[name] = weights, parent

    def calibrate(
        self, plan: Plan, parent: Any, tensors: Mapping[str, Array], examples: Any = None, **options: Any
    ) -> Calibration | None:
        """Fit the favourite on examples, by default those of the probe; a further start, if that helps.

        What cannot be calibrated does not race, and the report says why, if nobody asked for it.
        """
        if plan.exact:
            return None
        trial = self._frontend.duplicate(self._model)
        self._frontend.load(trial, self._weights[WARM])
        try:
            own = self._spare() if examples is None else examples
            found = calibrated(trial, plan, parent, tensors, own, **options)
        except (CannotCalibrate, NoProgram, InvalidProgram) as problem:
            if examples is not None:
                raise
            self._absent[CALIBRATED] = str(problem)
            return None
        if found is not None and found.kept:
            self._weights[CALIBRATED] = dict(self._frontend.read(trial))
            self._parents[CALIBRATED] = self._parents[WARM]
        else:
            self._absent[CALIBRATED] = "on held-out examples no better than the plain transfer"
        return found

    def race(self) -> Race:
        """Let them race, and give the model the winner's weights.

        Raises:
            CannotProbe: The model cannot be copied, or a training step fails. The model is as it was.
        """
        own = {name: array.copy() for name, array in self._frontend.read(self._model)}
        warm = iter(self._weights[WARM].items())
        shrunk = dict(perturbed(warm, own, self._graph, SHRINK, PERTURB))
        starts = self._weights | {SHRUNK: shrunk, COLD: own}
        parents = self._parents | {SHRUNK: self._parents[WARM]}
        probe = self._probe
        found: Race = self._frontend.race(
            self._model,
            starts,
            self._batches[: probe.steps // 2],
            probe.loss,
            probe.optimizer,
            parents=parents,
            steps=probe.steps,
            seconds=probe.seconds,
        )
        self._frontend.load(self._model, starts[found.winner])
        nan = float("nan")
        absent = [Runner(name, "", 0, nan, nan, why) for name, why in self._absent.items()]
        return replace(found, runners=(*found.runners, *absent))

    def _spare(self) -> Any:
        """Examples to calibrate with, and no start is judged by labels that it was fitted to."""
        spare = self._batches[self._probe.steps // 2 :]
        chosen = spare if len(spare) >= ENOUGH else [(each.inputs,) for each in self._batches]
        return self._frontend.collect(chosen, None, self._frontend.EXAMPLES)


def perturbed(
    made: Iterator[tuple[str, Array]], own: Mapping[str, Array], child: Graph, shrink: float, perturb: float
) -> Iterator[tuple[str, Array]]:
    """Between warm and cold: parameters with two axes or more, which is where models remember."""
    for name, array in made:
        tensor = child.tensors[name]
        if not tensor.buffer and len(tensor.axes) > 1:
            array = (shrink * array + perturb * own[name]).astype(array.dtype)
        yield name, array
