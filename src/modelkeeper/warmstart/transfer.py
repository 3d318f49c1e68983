"""Carry the weights of one model into another, in place, whatever their widths and depths.

    report = modelkeeper.transfer(source, target)
    report = modelkeeper.transfer([first, second], wider)      computes the mean of both

is the answer to "load_state_dict with mismatched sizes": the two models are aligned layer by layer, what
fits is copied, what is wider or narrower is gathered unit by unit over whole spaces, what is deeper starts
as the identity. Where the target contains the source, it computes what the source computes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from modelkeeper.display.tables import as_text, plan_table
from modelkeeper.errors import InvalidSetting, InvalidWeights
from modelkeeper.frontends import Frontend, frontend_for
from modelkeeper.frontends.fit_tasks import Budget, Calibration
from modelkeeper.frontends.protocol import Runner, runner_of
from modelkeeper.graph import Graph
from modelkeeper.matching import Alignment
from modelkeeper.transform import Plan, SideBySide
from modelkeeper.warmstart.model_source import ModelLoan, ModelSource, SeveralLoan, SeveralSource
from modelkeeper.warmstart.pipeline import KEEP, Raised, Request, Source, kept, start
from modelkeeper.warmstart.race.rules import STEPS, Race
from modelkeeper.warmstart.race.starts import WARM, Probe
from modelkeeper.warmstart.report import calibration_table, race_table
from modelkeeper.weights import Array


@dataclass(frozen=True)
class Report:
    """What a transfer did. Prints as a table."""

    plan: Plan | SideBySide
    alignment: Alignment  # of the first source, if there are several
    difference: float | None = None  # of the two models' outputs on random inputs, if that was asked for
    calibration: Calibration | None = None  # what was fitted on examples, if that was asked for and of use
    race: Race | None = None  # how the starts ran, if they were probed: the target has the winner's weights
    # The target with its weights: the one that was given, unless its framework cannot write in place.
    model: Any = field(default=None, repr=False, compare=False)

    @property
    def exact(self) -> bool:
        """Does the target now compute what the source computes, in evaluation mode?"""
        return self.plan.exact and (self.race is None or self.race.winner == WARM)

    @property
    def similarity(self) -> float:
        """How alike the two architectures are, from 0 to 1."""
        return self.alignment.similarity

    @property
    def missing_keys(self) -> list[str]:
        """Tensors of the target that keep their own values."""
        return [entry.tensor for entry in self.plan.entries if entry.action == "kept"]

    @property
    def unexpected_keys(self) -> list[str]:
        """Tensors of the source that nothing was taken from."""
        parts = self.plan.parts if isinstance(self.plan, SideBySide) else (self.plan,)
        taken = {entry.source for part in parts for entry in part.entries}
        stored = {n: None for part in parts for n, tensor in part.parent.tensors.items() if tensor.stored}
        return [name for name in stored if name not in taken]

    def __str__(self) -> str:
        parts = [plan_table(self.plan, self.similarity, self.difference)]
        parts += [calibration_table(self.calibration)] if self.calibration is not None else []
        parts += [race_table(self.race)] if self.race is not None else []
        return "\n".join(map(as_text, parts))


# long: what a user may ask for, and the words that explain it.
def transfer(
    source: Any,
    target: Any,
    example_inputs: Any = None,
    *,
    source_inputs: Any = None,
    weights: Mapping[str, Array] | str | Path | None = None,
    same_task: bool = True,
    seed: int = 0,
    noise: float = 0.0,
    shrink_perturb: tuple[float, float] | None = None,
    verify: bool = False,
    calibrate: Any = None,
    labels: Any = None,
    program: Any = None,
    progress: Callable[[int, int, str], None] | bool = False,
    probe: Any = None,
    loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Any = None,
    probe_steps: int = STEPS,
    probe_seconds: float | None = None,
    frozen: str = KEEP,
    **budget: Any,
) -> Report:
    """Load the weights of `source` into `target`, in place.

    Args:
        source: A model, or a Graph together with `weights`. A list of models, where the target is wide enough
            for all of them: they lie side by side in it, and it computes the mean of what they compute. Where
            the later ones do not fit whole, the most important of their units do.
        target: A model. Its architecture, dtypes and devices are not changed.
        example_inputs: What both models run on, if it cannot be found from the models. A source of another
            framework is not given them.
        source_inputs: What the source runs on, if that is something else.
        weights: The source's tensors by name, or a safetensors file of them; only with a Graph.
        same_task: Do both predict the same things? If not, the target's head keeps its own values.
        seed: Of which units are copied, and by which shares they are read.
        noise: On what is inserted as an identity; more than 0 is never exact (see `make_plan`).
        shrink_perturb: Two factors, for the weights that are transferred and for the target's own initial
            values, which are added: a start between warm and cold, e.g. (0.5, 0.2). Never exact.
        verify: Run both models on random inputs and report by how much they differ.
        calibrate: Examples to fit the target's layers on, so that they compute what the source's do: tensors,
            pairs (x, y), dicts, a DataLoader, an iterator. Without gradients, in the time of some dozen
            training steps, for whatever is narrower, shallower or of another family. Where the transfer is
            exact nothing is fitted, and where held-out examples say that fitting does not help, nothing is
            changed.
        labels: Of the examples, for a head that the source cannot teach.
        program: The source's program, to calibrate from a Graph: what `record` made of the model.
        progress: Shows a bar while layers are fitted; or a function that is told of each.
        probe: Labelled batches (pairs (x, y), dicts with "labels", a loader) on which several starts race:
            warm, calibrated where the transfer is not exact, shrunk (between warm and cold), and cold. Copies
            of the target train on them for a few steps, and the target gets the winner's starting weights; if
            that is the cold start, nothing is changed. Batches that the source was not trained on are best;
            they may be validation data, since what was learned in the race is thrown away.
        loss: Of the target's outputs and the labels. Default: the outputs' own loss (Hugging Face).
        optimizer: What the target will be trained with: an optimizer on its parameters, which is not changed,
            or a function that makes one of parameters. Default: AdamW with its own rate.
        probe_steps: Training steps of all starts together.
        probe_seconds: The race ends after about so long. Default: no limit.
        frozen: What becomes of tensors that do not require gradients (Keras: of layers that are not
            trainable), and of the statistics beside them: "keep" leaves them as they are, "replace" does not.
        budget: examples (at most 2,048), seconds (as 100 training steps), memory (1 GiB of activations), and
            where a `program` runs: sandbox "on" (in a process of its own), "strict" or "off" (`Settings`).

    Raises:
        CannotDescribe: A model did not run on the inputs there were.
        InvalidWeights: The weights do not fit the source's graph. The target is unchanged.
        InvalidSetting: `noise` is negative or no number; `frozen` is neither of its two words; several
            sources do not fit into the target, or something is asked for that several cannot do.
        CannotCalibrate: The examples do not serve. The target is unchanged.
        CannotProbe: Batches, loss or optimizer do not serve. The target is unchanged.
        NoProgram: One of the models cannot be taken apart. The target has the weights, uncalibrated.
        InvalidProgram: The program does not run on the examples. The target has the weights, uncalibrated.
    """
    frontend = frontend_for(target)
    runner = _verifier(frontend, source) if verify else None
    request = _request(
        Request(
            frontend,
            target,
            example_inputs,
            calibrate=calibrate,
            labels=labels,
            budget=Budget(**budget),
            progress=progress,
            probe=None if probe is None else Probe(probe, loss, optimizer, probe_steps, probe_seconds),
            shrink_perturb=shrink_perturb,
            frozen=kept(frontend, target, frozen),
        )
    )
    several = isinstance(source, list | tuple)
    given = _several(source, weights, program, calibrate, noise) if several else [source]
    models = [
        _model_source(each, request, source_inputs, weights, program, same_task, seed, noise)
        for each in given
    ]
    lender: Source[ModelLoan | SeveralLoan] = models[0] if len(models) == 1 else SeveralSource(models)
    outcome = start(request, lender, Raised())
    difference = None
    if runner is not None:
        difference = runner.difference(source, outcome.model, request.example_inputs)
    plan, alignment = outcome.loan.plan, outcome.loan.alignment
    return Report(plan, alignment, difference, outcome.calibration, outcome.race, outcome.model)


def _several(models: Sequence[Any], weights: Any, program: Any, calibrate: Any, noise: float) -> list[Any]:
    """Several sources, if what else is asked for can be done with them.

    Raises:
        InvalidSetting: It cannot, or there are none.
    """
    if not models:
        raise InvalidSetting("source", "an empty list", "give one model or more")
    for name, value in (("weights", weights), ("program", program), ("calibrate", calibrate)):
        if value is not None and len(models) > 1:
            raise InvalidSetting(name, type(value).__name__, "it goes with a single source: leave it out")
    if noise and len(models) > 1:
        raise InvalidSetting("noise", str(noise), "it goes with a single source: leave it out")
    return list(models)


def _model_source(
    source: Any,
    request: Request,
    inputs: Any,
    weights: Mapping[str, Array] | str | Path | None,
    program: Any,
    same_task: bool,
    seed: int,
    noise: float,
) -> ModelSource:
    """A model, or a graph and its weights, that is to lend."""
    frontend = None if isinstance(source, Graph) else frontend_for(source)
    if inputs is None and frontend is request.frontend:
        inputs = request.example_inputs
    parent = source if program is None and frontend is request.frontend else program
    return ModelSource(source, frontend, inputs, weights, parent, same_task, seed, noise, request.frozen)


def _request(request: Request) -> Request:
    """The request with examples and batches read at once, so that what does not serve is refused first.

    Where the user gave no example inputs they are taken from these.

    Raises:
        InvalidSetting: Wishes contradict each other.
        CannotCalibrate, CannotProbe: Examples or batches do not serve.
    """
    frontend, inputs = request.frontend, request.example_inputs
    if request.calibrate is not None:
        if request.shrink_perturb is not None:
            advice = "calibrated weights are not perturbed"
            raise InvalidSetting("shrink_perturb", str(request.shrink_perturb), advice)
        runner = runner_of(frontend)
        examples = runner.collect(request.calibrate, request.labels, request.budget.examples)
        inputs = runner.example_of(request.model, examples.inputs) if inputs is None else inputs
        request = replace(request, calibrate=examples)
    if request.probe is not None:
        probe = request.probe.read(frontend)
        if inputs is None and frontend.runner is not None:
            inputs = frontend.runner.example_of(request.model, probe.batches[0].inputs)
        request = replace(request, probe=probe)
    return replace(request, example_inputs=inputs)


def _verifier(frontend: Frontend, source: Any) -> Runner:
    """What runs both models, to compare them.

    Raises:
        InvalidWeights: One of them cannot run: it is a Graph.
        InvalidSetting: The front end cannot run them.
    """
    sources = source if isinstance(source, list | tuple) else [source]
    if any(isinstance(each, Graph) for each in sources):
        raise InvalidWeights("source", "verify=True runs both models, and a Graph cannot run")
    if frontend.runner is None or any(frontend_for(each) is not frontend for each in sources):
        raise InvalidSetting("verify", "True", f"the front end for {frontend.name} cannot run both models")
    return frontend.runner
