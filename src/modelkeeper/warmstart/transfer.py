"""Carry the weights of one model into another, in place, whatever their widths and depths.

    report = modelkeeper.transfer(source, target)

is the answer to "load_state_dict with mismatched sizes": the two models are aligned layer by layer, what
fits is copied, what is wider or narrower is gathered unit by unit over whole spaces, what is deeper starts
as the identity. Where the target contains the source, it computes what the source computes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from modelkeeper.display.tables import as_text, plan_table
from modelkeeper.errors import InvalidSetting, InvalidWeights
from modelkeeper.frontends import Frontend, describe, frontend_for
from modelkeeper.frontends.fit_tasks import Budget, Calibration
from modelkeeper.frontends.protocol import Runner, runner_of
from modelkeeper.graph import Graph
from modelkeeper.layouts import Laid, Layout
from modelkeeper.matching import Alignment, align
from modelkeeper.transform import Plan, apply, make_plan
from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.lender import Lender
from modelkeeper.warmstart.pipeline import KEEP, Raised, Request, kept, start
from modelkeeper.warmstart.race.rules import STEPS, Race
from modelkeeper.warmstart.race.starts import WARM, Probe
from modelkeeper.warmstart.report import calibration_table, race_table
from modelkeeper.weights import Array, open_file


@dataclass(frozen=True)
class Report:
    """What a transfer did. Prints as a table."""

    plan: Plan
    alignment: Alignment
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
        taken = {entry.source for entry in self.plan.entries}
        return [
            name for name, tensor in self.plan.parent.tensors.items() if tensor.stored and name not in taken
        ]

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
        source: A model, or a Graph together with `weights`.
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
        budget: examples (at most 2,048), seconds (as 100 training steps), memory (1 GiB of activations).

    Raises:
        CannotDescribe: A model did not run on the inputs there were.
        InvalidWeights: The weights do not fit the source's graph. The target is unchanged.
        InvalidSetting: `noise` is negative or no number; `frozen` is neither of its two words.
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
    source_frontend = None if isinstance(source, Graph) else frontend_for(source)
    if source_inputs is None and source_frontend is frontend:
        source_inputs = request.example_inputs
    lender = ModelSource(
        source,
        source_frontend,
        source_inputs,
        weights,
        source if program is None and source_frontend is frontend else program,
        same_task,
        seed,
        noise,
        request.frozen,
    )
    outcome = start(request, lender, Raised())
    difference = None
    if runner is not None:
        difference = runner.difference(source, outcome.model, request.example_inputs)
    plan, alignment = outcome.loan.plan, outcome.loan.alignment
    return Report(plan, alignment, difference, outcome.calibration, outcome.race, outcome.model)


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
    if isinstance(source, Graph):
        raise InvalidWeights("source", "verify=True runs both models, and a Graph cannot run")
    if frontend.runner is None or frontend_for(source) is not frontend:
        raise InvalidSetting("verify", "True", f"the front end for {frontend.name} cannot run both models")
    return frontend.runner


@dataclass(frozen=True)
class ModelSource:
    """A single model, or a graph and its weights, as a source: it lends what it has."""

    model: Any
    frontend: Frontend | None  # that takes it; None: it is a Graph
    example_inputs: Any = None
    weights: Mapping[str, Array] | str | Path | None = None  # of a Graph
    parent: Any = None  # what can be run beside the child: the model itself, or its program
    same_task: bool = True
    seed: int = 0
    noise: float = 0.0
    frozen: frozenset[str] = frozenset()  # tensors of the child that keep their values

    def loan(self, graph: Graph) -> "ModelLoan":
        """What it lends to a model with this graph.

        Raises:
            CannotDescribe: It did not run on the inputs there were.
            InvalidWeights: It is a Graph, and came without weights.
        """
        parent, tensors = self._read()
        alignment = align(parent, graph)
        plan = make_plan(
            parent,
            graph,
            alignment,
            same_task=self.same_task,
            seed=self.seed,
            noise=self.noise,
            frozen=self.frozen,
        )
        return ModelLoan(plan, alignment, tensors, self.parent)

    def another(self, graph: Graph, than: Answer) -> None:
        """There is none."""

    def _read(self) -> tuple[Graph, Mapping[str, Array]]:
        if self.frontend is not None:
            graph = describe(self.frontend, self.model, self.example_inputs)
            return graph, dict(self.frontend.read(self.model))
        if self.weights is None:
            raise InvalidWeights("source", "a Graph has no weights; pass weights=")
        if isinstance(self.weights, str | Path):
            return self.model, open_file(self.weights)
        return self.model, self.weights


class ModelLoan:
    """What one model lends to another."""

    def __init__(self, plan: Plan, alignment: Alignment, tensors: Mapping[str, Array], parent: Any) -> None:
        """`parent`: the model, or its program; None: it cannot be run."""
        self.plan, self.alignment, self._tensors, self._parent = plan, alignment, tensors, parent
        self.answer = Answer(
            parent="",
            similarity=alignment.similarity,
            framework=plan.parent.framework,
            exact=plan.exact,
            doubts=tuple(plan.doubts),
        )

    def weights(self) -> Iterator[tuple[str, Array]]:
        """The child's tensors by name."""
        return apply(self.plan, self._tensors)

    def stored_weights(self, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Array | Laid]]:
        """The same in the order in which the child stores them."""
        return apply(self.plan, self._tensors, layouts=layouts)

    @contextmanager
    def lender(self) -> Iterator[Lender | None]:
        """The parent itself; None if it cannot be run."""
        runs = self._parent is not None
        yield Lender(self.plan, self._tensors, None, self._parent) if runs else None
