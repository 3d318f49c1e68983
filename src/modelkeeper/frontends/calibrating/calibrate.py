"""Fit a child's layers to its parent's activations, on a few of the user's own examples.

    calibrate(models, planner, examples, budget=..., load=...)  ->  Calibration

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

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from modelkeeper.errors import InvalidProgram, ModelKeeperError
from modelkeeper.frontends.calibrating.apart import parent_apart
from modelkeeper.frontends.calibrating.examples import FEWEST, Examples
from modelkeeper.frontends.calibrating.fits import Fitting
from modelkeeper.frontends.calibrating.parent_run import Lent, ParentRun
from modelkeeper.frontends.calibrating.regression import Places, cross_entropy, number
from modelkeeper.frontends.calibrating.side_by_side import CHUNK, Models
from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, FitTask, FittedLayer, Progress
from modelkeeper.frontends.programs.names import vocabulary_name
from modelkeeper.frontends.programs.passes import try_out
from modelkeeper.text import first_line
from modelkeeper.weights import Array

STEPS, BATCH = 100, 64  # as long as so many training steps on so many examples, if no other limit is given
STEP = 4  # how many times as long as a pass over its examples a training step takes, about
# A model with batch norms that is further from its parent's outputs than this, relative to their variance, is
# better off with the weights of the plan: what was fitted so badly took longer to train.
CLOSE = 0.5
SOFTMAX, TINY = "softmax", 1e-30
TRIED = 16  # examples to see how long a pass takes, and how much memory
# A foreign parent is ended if it runs so many times longer than layers are fitted, and so many seconds, since
# what was fitted still has to be judged; and PATIENCE more, if nobody said how long it may take.
LATE, PATIENCE = (1.25, 1.0), 60.0


def calibrate(
    models: Models,
    planner: FitPlanner,
    examples: Examples,
    *,
    load: Callable[[Mapping[str, Array]], Any],
    budget: Budget,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the layers of a child to its parent's activations.

    Args:
        models: The child, with the weights of a plan in it, and the parent, as programs. If the parent's came
            from elsewhere, it runs in a process of its own, unless the budget trusts it.
        planner: From a ranking of the parent's units (by space) to the weights to start from and to what
            each layer should compute.
        examples: Both models have to run on them.
        load: Called with the child's new weights if they are to be kept, and only then.
        budget: How many examples, seconds and bytes it may take.
        progress: Called before each layer.

    Raises:
        CannotCalibrate: The examples do not serve.
        InvalidProgram: A program does not run on the examples; or a foreign one died, or took too long.
    """
    began = time.perf_counter()
    with (
        _lent(models, budget) as lent,
        _believed(models.foreign),
        np.errstate(all="ignore"),
    ):  # what is not finite is found, and not used
        job = _prepare(models, lent, planner, examples, budget)
        fitted = _fit(job.run, job.tasks, progress)
        judgement = _judge(job.run, fitted, any(task.kind == "head" for task in job.tasks))
        changed = {name: job.run.tensors[name] for name in {*job.weights, *job.run.changed}}
        why = _against(job.run, judgement, changed)
    if not why:
        load(changed)
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


@dataclass(frozen=True)
class _Cost:
    """The cost of one example: seconds for a pass of either model, and bytes of activations in both."""

    child: float
    parent: float
    memory: int


def _lent(models: Models, budget: Budget) -> AbstractContextManager[Lent]:
    """The parent, ready to run: in this process if it was recorded here or is trusted, otherwise apart."""
    engine, tensors, inputs = models.engine, models.parent_tensors, models.parent_inputs
    if models.foreign and budget.sandbox != "off":
        return parent_apart(engine, models.parent, tensors, inputs, budget)
    held = {name: engine.tensor(array) for name, array in tensors.items()}
    memory = 2 * budget.memory if models.foreign else None
    return nullcontext(ParentRun(engine, models.parent, held, inputs, memory=memory))


@contextmanager
def _believed(foreign: bool) -> Iterator[None]:
    """What a foreign parent says of itself was checked, but may still not go with the child."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as problem:
        if not foreign or isinstance(problem, ModelKeeperError):
            raise
        raise InvalidProgram(
            "program", f"what it gives does not go with the child: {first_line(problem)}"
        ) from problem


def _try_out(models: Models, lent: Lent, examples: Examples, budget: Budget) -> tuple[_Cost, float]:
    """Measure time and memory of both models on a few examples; the moment when nothing more is fitted."""
    began, tried = time.perf_counter(), min(len(examples), TRIED)
    few = [array[:tried] for array in models.child_inputs]
    seconds, memory = try_out(models.engine, models.child, models.child_tensors, few)
    most = STEPS * STEP * BATCH * seconds / tried if budget.seconds is None else budget.seconds
    lent.ends(LATE[0] * most + LATE[1] + (PATIENCE if budget.seconds is None else 0))
    beside = lent.try_out(tried)
    return _Cost(seconds / tried, beside[0] / tried, (memory + beside[1]) // tried + 1), began + most


@dataclass(frozen=True)
class _Job:
    """Both models ready to be fitted side by side, and what the planner wants of the child."""

    run: Fitting
    tasks: Sequence[FitTask]
    weights: Collection[str]  # names of the tensors that the planner has given weights for
    count: int  # examples that are used
    memory: int  # bytes of activations for so many


def _prepare(models: Models, lent: Lent, planner: FitPlanner, examples: Examples, budget: Budget) -> _Job:
    """Ask the planner for weights and tasks, and take as many examples as the budget allows."""
    cost, end = _try_out(models, lent, examples, budget)
    room = min(len(examples), max(FEWEST, budget.memory // cost.memory))
    weights, tasks, frozen = planner.start(lent.pivots(min(room, CHUNK), planner.reads))
    left = max(0.0, end - time.perf_counter())
    count = min(room, max(BATCH, int(left / 2 / (cost.child + cost.parent))))
    plain = models.child_tensors
    start = plain | {name: np.asarray(array).astype(plain[name].dtype) for name, array in weights.items()}
    run = Fitting(models, lent, start, examples, count, end, frozen)
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
    child, plain, parent = (np.concatenate(parts) for parts in outputs)
    far, errors = 0.0, (0.0, 0.0)
    comparable = child.shape == parent.shape and not other_head
    if comparable:
        scale = max(_squares(parent - parent.mean(0)), 1e-30)
        before, after = (_squares(made - parent) / scale for made in (plain, child))
        errors, far = (number(before), number(after)), number(after)
    labels = _classes([chunk.labels for chunk in run.hold], child)
    if labels is not None:
        scores = (_scores(run, made) for made in (plain, child))
        before, after = (number(cross_entropy(made, labels)) for made in scores)
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


def _squares(values: Array) -> float:
    return float(np.square(values.astype(np.float64)).sum())


def _scores(run: Fitting, outputs: Array) -> Array:
    """Outputs as scores: the logarithms of probabilities, if the model ends with these."""
    maker = run.program.maker(run.program.outputs[0])
    last = vocabulary_name(run.program.steps[maker].operation) if maker >= 0 else ""
    return np.log(np.maximum(outputs, TINY)) if last == SOFTMAX else outputs


def _classes(labels: Sequence[Array | None], outputs: Array) -> Places | None:
    """The labels of all chunks as classes, if there are any and the outputs are scores of these."""
    known = [part for part in labels if part is not None]
    if len(known) < len(labels) or outputs.ndim != 2:
        return None
    classes = np.concatenate(known)
    if classes.ndim != 1 or classes.dtype.kind not in "iu" or int(classes.max()) >= outputs.shape[1]:
        return None
    return classes.astype(np.int64)


def _against(run: Fitting, judgement: _Judgement, changed: Mapping[str, Array]) -> str:
    """Why the fitted weights are not to be kept; "" if they are."""
    if run.normed and judgement.far > CLOSE:
        return f"{judgement.far:.0%} of the variance of the parent's outputs is not explained"
    if not judgement.after < judgement.before:
        return "it is no closer"
    if not all(np.isfinite(array).all() for array in changed.values()):
        return "its weights are not finite"
    return ""
