"""Carry the weights of one model into another, in place, whatever their widths and depths.

    report = modelkeeper.transfer(source, target)

is the answer to "load_state_dict with mismatched sizes": the two models are aligned layer by layer, what
fits is copied, what is wider or narrower is gathered unit by unit over whole spaces, what is deeper starts
as the identity. Where the target contains the source, it computes what the source computes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkeeper.display.tables import as_text, calibration_table, plan_table, race_table
from modelkeeper.errors import InvalidSetting, InvalidWeights
from modelkeeper.frontends import frontend_for
from modelkeeper.frontends.fit_tasks import Calibration
from modelkeeper.frontends.races import STEPS, Race
from modelkeeper.graph import Graph
from modelkeeper.matching import Alignment, align
from modelkeeper.transform import Plan, apply, make_plan
from modelkeeper.warmstart.calibration import calibrated
from modelkeeper.warmstart.starts import WARM, Probe, Starts, perturbed
from modelkeeper.weights import Array, open_file


@dataclass(frozen=True)
class Report:
    """What a transfer did. Prints as a table."""

    plan: Plan
    alignment: Alignment
    difference: float | None = None  # of the two models' outputs on random inputs, if that was asked for
    calibration: Calibration | None = None  # what was fitted on examples, if that was asked for and of use
    race: Race | None = (
        None  # how the starts ran, if they were probed: the winner's weights are in the target
    )

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
        taken = {entry.source for entry in self.plan.entries}
        return [
            name for name, tensor in self.plan.parent.tensors.items() if tensor.stored and name not in taken
        ]

    def __str__(self) -> str:
        parts = [plan_table(self.plan, self.similarity, self.difference)]
        parts += [calibration_table(self.calibration)] if self.calibration is not None else []
        parts += [race_table(self.race)] if self.race is not None else []
        return "\n".join(map(as_text, parts))


def transfer(
    source: Any,
    target: Any,
    example_inputs: Any = None,
    *,
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
    **budget: Any,
) -> Report:
    """Load the weights of `source` into `target`, in place.

    Args:
        source: A model, or a Graph together with `weights`.
        target: A model. Its architecture, dtypes and devices are not changed.
        example_inputs: What both models run on, if it cannot be found from the models.
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
        budget: examples (at most 2,048), seconds (as 100 training steps), memory (1 GiB of activations).

    Raises:
        CannotDescribe: A model did not run on the inputs there were.
        InvalidWeights: The weights do not fit the source's graph. The target is unchanged.
        InvalidSetting: `noise` is negative or no number.
        CannotCalibrate: The examples do not serve. The target is unchanged.
        CannotProbe: Batches, loss or optimizer do not serve. The target is unchanged.
        NoProgram: One of the models cannot be taken apart. The target has the weights, uncalibrated.
        InvalidProgram: The program does not run on the examples. The target has the weights, uncalibrated.
    """
    frontend = frontend_for(target)
    trial = None if probe is None else Probe(probe, loss, optimizer, probe_steps, probe_seconds)
    if calibrate is not None and shrink_perturb is not None:
        raise InvalidSetting("shrink_perturb", str(shrink_perturb), "calibrated weights are not perturbed")
    if calibrate is not None:
        most = budget.get("examples", frontend.EXAMPLES)
        calibrate = frontend.collect(calibrate, labels, most)
        if example_inputs is None:
            example_inputs = frontend.example_of(target, calibrate.inputs)
    if trial is not None:
        batches = trial.read(target)
        if example_inputs is None:
            example_inputs = frontend.example_of(target, batches[0].inputs)
    child = frontend.describe(target, example_inputs)
    if isinstance(source, Graph):
        if weights is None:
            raise InvalidWeights("source", "a Graph has no weights; pass weights=")
        if verify:
            raise InvalidWeights("source", "verify=True runs both models, and a Graph cannot run")
        parent, tensors = source, open_file(weights) if isinstance(weights, (str, Path)) else weights
    else:
        lender = frontend_for(source)
        parent, tensors = lender.describe(source, example_inputs), dict(lender.read(source))
    alignment = align(parent, child)
    plan = make_plan(parent, child, alignment, same_task=same_task, seed=seed, noise=noise)
    made: Iterator[tuple[str, Array]] = apply(plan, tensors)
    if shrink_perturb is not None:
        made = perturbed(made, dict(frontend.read(target)), child, *shrink_perturb)
    made_of = source if program is None and not isinstance(source, Graph) else program
    fitted = race = None
    with shown(progress) as told:
        if trial is not None:
            starts = Starts(target, child, trial, batches)
            starts.lend(dict(made))
            if made_of is not None:
                fitted = starts.calibrate(plan, made_of, tensors, calibrate, progress=told, **budget)
            race = starts.race()
        else:
            frontend.load(target, dict(made))
            if calibrate is not None and made_of is not None:
                fitted = calibrated(target, plan, made_of, tensors, calibrate, progress=told, **budget)
    found = frontend.difference(source, target, example_inputs) if verify else None
    return Report(plan, alignment, found, fitted, race)


@contextmanager
def shown(
    progress: Callable[[int, int, str], None] | bool,
) -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar in the terminal, if that was asked for."""
    if progress is not True:
        yield progress or None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("calibrating")
        yield lambda done, total, layer: bar.update(task, completed=done, total=total, description=layer)
