"""Which start should a training take: warm, calibrated, shrunk or cold? They race, on the user's own batches.

    starts = Starts(frontend, model, graph, probe)              the model has its own initial values
    starts.lend(weights, "resnet20")                            warm; and shrunk, between warm and cold
    starts.calibrate(lender, program, None, budget=Budget())    fitted on examples that do not race
    model, race = starts.race()                                 the model has the winner's weights

A warm start can hurt: the parent was poor, had memorised its examples, knew other data, or its layers do not
fit. Little of that shows before training, so a few steps are made: `rules` says who is better. The model gets
the weights that the winner began with, not those that it raced to: they are its own training's to find, with
its own schedule, from its first batch on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from modelkeeper.errors import CannotCalibrate, InvalidProgram, InvalidSetting, NoProgram
from modelkeeper.frontends.fit_tasks import Budget, Calibration, Progress
from modelkeeper.frontends.protocol import Examples, Frontend, runner_of, trials_of
from modelkeeper.graph import Graph
from modelkeeper.warmstart.calibration import calibrated
from modelkeeper.warmstart.lender import Lender
from modelkeeper.warmstart.race.race import Terms, race
from modelkeeper.warmstart.race.rules import COLD, STEPS, Race, Runner
from modelkeeper.weights import Array

WARM, CALIBRATED, SECOND, SHRUNK = "warm", "calibrated", "second parent", "shrunk"
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

    def read(self, frontend: Frontend) -> "Probe":
        """The same with the batches read, as many as may be needed.

        Raises:
            CannotProbe: They do not serve.
        """
        return replace(self, batches=trials_of(frontend).labelled(self.batches, self.steps // 2 + SPARE))


class Starts:
    """The starts of one race."""

    def __init__(self, frontend: Frontend, model: Any, graph: Graph, probe: Probe) -> None:
        """`graph`: of the model, which has its own initial values.

        Raises:
            CannotProbe: The batches of the probe do not serve, or the front end cannot train.
        """
        self._frontend, self._trials = frontend, trials_of(frontend)
        self._model, self._graph, self._probe = model, graph, probe
        self._batches = probe.read(frontend).batches
        self._weights: dict[str, Mapping[str, Any]] = {}
        self._parents: dict[str, str] = {}
        self._absent: dict[str, str] = {}

    def lend(self, weights: Mapping[str, Array], parent: str = "") -> None:
        """What a parent lends. The first is the favourite; of a second one only the warm start races."""
        name = SECOND if WARM in self._weights else WARM
        self._weights[name], self._parents[name] = weights, parent

    def calibrate(
        self,
        lender: Lender,
        parent: Any,
        examples: Examples | None,
        *,
        budget: Budget,
        progress: Progress | None = None,
    ) -> Calibration | None:
        """Fit the favourite on examples, by default those of the probe; a further start, if that helps.

        What cannot be calibrated does not race, and the report says why, if nobody asked for it.
        """
        if lender.plan.exact:
            return None
        runner = runner_of(self._frontend)
        trial = self._frontend.load(self._trials.duplicate(self._model), self._weights[WARM])
        try:
            chosen = self._spare(budget) if examples is None else examples
            fitted = calibrated(runner, trial, lender, parent, chosen, budget=budget, progress=progress)
        except (CannotCalibrate, NoProgram, InvalidProgram) as problem:
            if examples is not None:
                raise
            self._absent[CALIBRATED] = str(problem)
            return None
        if fitted is not None and fitted.kept:
            self._weights[CALIBRATED] = dict(self._frontend.read(trial))
            self._parents[CALIBRATED] = self._parents[WARM]
        else:
            self._absent[CALIBRATED] = "on held-out examples no better than the plain transfer"
        return fitted

    def race(self) -> tuple[Any, Race]:
        """Let them race: the model with the winner's weights, and how all ran.

        Raises:
            CannotProbe: The model cannot be copied, or a training step fails. The model is as it was.
        """
        own = {name: array.copy() for name, array in self._frontend.read(self._model)}
        warm = iter(self._weights[WARM].items())
        shrunk = dict(perturbed(warm, own, self._graph, SHRINK, PERTURB))
        starts = self._weights | {SHRUNK: shrunk, COLD: own}
        parents = self._parents | {SHRUNK: self._parents[WARM]}
        probe = self._probe
        terms = Terms(probe.loss, probe.optimizer, probe.steps, probe.seconds)
        batches = self._batches[: probe.steps // 2]
        run = race(self._trials, self._model, starts, batches, terms, parents=parents)
        model = self._frontend.load(self._model, starts[run.winner])
        absent = [Runner(name, "", 0, None, None, why) for name, why in self._absent.items()]
        return model, replace(run, runners=(*run.runners, *absent))

    def _spare(self, budget: Budget) -> Examples:
        """Examples to calibrate with, and no start is judged by labels that it was fitted to."""
        spare = self._batches[self._probe.steps // 2 :]
        chosen = spare if len(spare) >= ENOUGH else [(batch.inputs,) for batch in self._batches]
        return runner_of(self._frontend).collect(chosen, None, budget.examples)


def perturbed(
    made: Iterator[tuple[str, Array]], own: Mapping[str, Array], child: Graph, shrink: float, perturb: float
) -> Iterator[tuple[str, Array]]:
    """Between warm and cold: parameters with two axes or more, which is where models remember."""
    for name, array in made:
        tensor = child.tensors[name]
        if not tensor.buffer and len(tensor.axes) > 1:
            array = (shrink * array + perturb * own[name]).astype(array.dtype)
        yield name, array
