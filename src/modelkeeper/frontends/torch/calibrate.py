"""Fit a child's layers to its parent's activations, on a few of the user's own examples.

    calibrate(child, planner, parent's program, parent's tensors, batches)  ->  Calibration

The child holds the weights of a plan already. Both models run side by side over all examples, the child from
layer to layer: when it comes to a layer with a task, everything before it is final, so the layer is fitted by
ridge regression from its own actual inputs to what the parent computes, and the run goes on with the new
weights. One pass over each model, no gradient. A batch norm behind a layer gets the statistics of what the
layer now puts out, and a gain and bias with which the whole matches.

A part of the examples is not fitted on but judges: for each layer, whether the fit, the gathered weights
with new statistics, or the gathered weights as they were come closest; and in the end, whether the child as
a whole is closer than it was before, and close enough. If not, it is left as it was.

Memory: the activations between two layers, for all examples; their number is cut so that these stay below
`memory` bytes. Regressions hold sums, not rows.
"""

import inspect
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, FitTask, FittedLayer, Progress
from modelkeeper.frontends.torch.examples import FEWEST, Examples, collect
from modelkeeper.frontends.torch.fits import Fitting
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.named_tensors import named_tensors
from modelkeeper.frontends.torch.pivots import pivots
from modelkeeper.frontends.torch.program import Program
from modelkeeper.frontends.torch.read_load import as_tensor, load
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.recorder import CPU, map_tensors
from modelkeeper.frontends.torch.regression import number
from modelkeeper.frontends.torch.run_program import check_run, try_out
from modelkeeper.frontends.torch.side_by_side import CHUNK, Models
from modelkeeper.frontends.torch.side_effects import unwrap

EXAMPLES = Budget.examples
STEPS, BATCH = 100, 64  # as long as so many training steps on so many examples, if no other limit is given
STEP = 4  # how many times as long as a pass over its examples a training step takes, about
# A model with batch norms that is further from its parent's outputs than this, relative to their variance, is
# better off with the weights of the plan: what was fitted so badly took longer to train.
CLOSE = 0.5
TRIED = 16  # examples to see how long a pass takes, and how much memory


def calibrate(
    child: nn.Module,
    planner: FitPlanner,
    parent: Program | nn.Module,
    tensors: Mapping[str, Any],
    batches: Any,
    *,
    labels: Any = None,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the layers of a child to its parent's activations, in place.

    Args:
        child: The model, with the weights of a plan in it.
        planner: From a ranking of the parent's units (by space) to the weights to start from and to what
            each layer should compute.
        parent: The parent's program, or the parent itself, which is then recorded. A program may come from
            anywhere: it is checked before it runs.
        tensors: The parent's tensors or arrays by name.
        batches: See `examples`, or what `collect` made of them. Both models have to run on them.
        labels: Of the batches, if they do not hold them: for a head that the parent cannot teach.
        budget: How many examples, seconds and bytes it may take.
        progress: Called before each layer.

    Raises:
        CannotCalibrate: The examples do not serve. The child is unchanged, as after any other error.
        NoProgram: The child cannot be taken apart layer by layer.
        InvalidProgram: The parent's program does not run on the examples.
    """
    began, budget = time.perf_counter(), budget or Budget()
    examples = collect(batches, labels, budget.examples)
    models = _models(child, parent, tensors, examples)
    foreign = isinstance(parent, Program)  # not recorded here: it may come from anyone
    job = _prepare(models, planner, examples, budget, began, foreign=foreign)
    fitted = _fit(job.run, job.tasks, progress)
    judgement = _judge(job.run, fitted, any(task.kind == "head" for task in job.tasks))
    changed = {name: job.run.tensors[name] for name in {*job.weights, *job.run.changed}}
    why = _against(job.run, judgement, changed)
    if not why:
        load(child, changed)
    return Calibration(
        kept=not why,
        why=why,
        measure=judgement.measure,
        plain=judgement.before,
        calibrated=judgement.after,
        layers=tuple(fitted),
        examples=job.count,
        passed_over=examples.passed_over,
        seconds=time.perf_counter() - began,
        memory=job.memory,
    )


def example_of(model: nn.Module, inputs: Inputs) -> Inputs:
    """Inputs to describe or record on: two examples, and no caches that a language model would hand out."""
    few = map_tensors(inputs.args, lambda t: t[:2]), map_tensors(dict(inputs.kwargs), lambda t: t[:2])
    extra = {"use_cache": False} if "use_cache" in inspect.signature(unwrap(model).forward).parameters else {}
    return Inputs(few[0], tuple({**extra, **few[1]}.items()))


def _models(
    child: nn.Module, parent: Program | nn.Module, tensors: Mapping[str, Any], examples: Examples
) -> Models:
    """Both models as programs, and copies or views of their tensors."""
    program = record_program(child, example_of(child, examples.inputs)).shortcuts_first()
    if not isinstance(parent, Program):
        parent = record_program(parent, example_of(parent, examples.inputs))
    own = {name: named.tensor.detach().to(CPU) for named in named_tensors(child) for name in named.names}
    lent = {
        taken.name: as_tensor(taken.name, tensors[taken.name])
        for taken in parent.tensors
        if taken.name in tensors
    }
    return Models(program, own, parent, lent)


@dataclass(frozen=True)
class _Cost:
    """The cost of one example: seconds for a pass of either model, and bytes of activations in both."""

    child: float
    parent: float
    memory: int


def _try_out(models: Models, examples: Examples, foreign: bool) -> _Cost:
    """Measure time and memory of both models on a few examples. A foreign parent is checked first, on one."""
    child_inputs, parent_inputs = examples.fitting(models.child), examples.fitting(models.parent)
    if foreign:
        check_run(models.parent, models.parent_tensors, [tensor[:1] for tensor in parent_inputs])
    tried = min(len(examples), TRIED)
    seconds, memory = try_out(models.child, models.child_tensors, [tensor[:tried] for tensor in child_inputs])
    beside = try_out(models.parent, models.parent_tensors, [tensor[:tried] for tensor in parent_inputs])
    return _Cost(seconds / tried, beside[0] / tried, (memory + beside[1]) // tried + 1)


@dataclass(frozen=True)
class _Job:
    """Both models ready to be fitted side by side, and what the planner wants of the child."""

    run: Fitting
    tasks: Sequence[FitTask]
    weights: Collection[str]  # names of the tensors that the planner has given weights for
    count: int  # examples that are used
    memory: int  # bytes of activations for so many


def _prepare(
    models: Models, planner: FitPlanner, examples: Examples, budget: Budget, began: float, *, foreign: bool
) -> _Job:
    """Ask the planner for weights and tasks, and take as many examples as the budget allows."""
    cost = _try_out(models, examples, foreign)
    room = min(len(examples), max(FEWEST, budget.memory // cost.memory))
    few = [tensor[: min(room, CHUNK)] for tensor in examples.fitting(models.parent)]
    if foreign:
        check_run(models.parent, models.parent_tensors, few)
    weights, tasks = planner.start(pivots(models.parent, models.parent_tensors, planner.reads, few))
    end = began + (STEPS * STEP * cost.child * BATCH if budget.seconds is None else budget.seconds)
    left = max(0.0, end - time.perf_counter())
    count = min(room, max(BATCH, int(left / 2 / (cost.child + cost.parent))))
    plain = models.child_tensors
    start = plain | {name: as_tensor(name, array).to(plain[name].dtype) for name, array in weights.items()}
    run = Fitting(models, start, examples, count, end)
    return _Job(run, tasks, weights.keys(), count, count * cost.memory)


def _fit(run: Fitting, tasks: Sequence[FitTask], progress: Progress | None) -> list[FittedLayer]:
    """Fit one layer after the other, in the order in which the child runs; then the norms that are left."""
    tasks = sorted(tasks, key=lambda task: run.program.layers.get(task.layer, -1))
    run.expect(tasks)
    fitted = []
    for done, task in enumerate(tasks):
        if progress is not None:
            progress(done, len(tasks), task.layer)
        fitted.append(run.fit(task))
    run.renew(len(run.program.steps))
    if progress is not None:
        progress(len(tasks), len(tasks), "")
    return fitted


class _Judgement(NamedTuple):
    """How far the child is from what it should compute, before and after, on held-out examples.

    `far`: from the parent's outputs, relative to their variance; 0 where these are not comparable, as with
    another head.
    """

    measure: str
    before: float
    after: float
    far: float


def _judge(run: Fitting, fitted: Sequence[FittedLayer], other_head: bool) -> _Judgement:
    outputs = zip(*(run.outputs(chunk) for chunk in run.hold), strict=True)
    child, plain, parent = (torch.cat(parts) for parts in outputs)
    far, errors = 0.0, (0.0, 0.0)
    comparable = child.shape == parent.shape and not other_head
    if comparable:
        scale = (parent - parent.mean(0)).double().square().sum().clamp_min(1e-30)
        before, after = (float((made - parent).double().square().sum() / scale) for made in (plain, child))
        errors, far = (number(before), number(after)), number(after)
    labels = _classes([chunk.labels for chunk in run.hold], child)
    if labels is not None:
        before, after = (
            number(float(nn.functional.cross_entropy(made.float(), labels))) for made in (plain, child)
        )
        return _Judgement("cross-entropy on held-out labels", before, after, far)
    if comparable:
        return _Judgement("squared difference from the parent's outputs, over their variance", *errors, far)
    compared = [
        (layer.before, layer.after)
        for layer in fitted
        if layer.before is not None and layer.after is not None and not math.isnan(layer.before)
    ]
    means = [number(sum(pair[n] for pair in compared) / max(1, len(compared))) for n in range(2)]
    return _Judgement("mean error of the fitted layers", means[0], means[1], far)


def _classes(labels: Sequence[Tensor | None], outputs: Tensor) -> Tensor | None:
    """The labels of all chunks as classes, if there are any and the outputs are scores of these."""
    known = [part for part in labels if part is not None]
    if len(known) < len(labels) or outputs.ndim != 2:
        return None
    classes = torch.cat(known)
    if classes.ndim != 1 or classes.is_floating_point() or int(classes.max()) >= outputs.shape[1]:
        return None
    return classes.long()


def _against(run: Fitting, judgement: _Judgement, changed: Mapping[str, Tensor]) -> str:
    """Why the fitted weights are not to be kept; "" if they are."""
    if run.normed and judgement.far > CLOSE:
        return f"{judgement.far:.0%} of the variance of the parent's outputs is not explained"
    if not judgement.after < judgement.before:
        return "it is no closer"
    if not all(torch.isfinite(tensor).all() for tensor in changed.values()):
        return "its weights are not finite"
    return ""
