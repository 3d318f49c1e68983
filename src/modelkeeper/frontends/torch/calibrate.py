"""Fit a child's layers to its parent's activations, on a few of the user's own examples.

    calibrate(child, start, parent's program, parent's tensors, batches)  ->  Calibration

The child holds the weights of a plan already. Both models run side by side over all examples, the child from
layer to layer: when it comes to a layer with an aim, everything before it is final, so the layer is fitted by
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
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from modelkeeper.frontends.fit_tasks import Aim, Calibration, Fitted
from modelkeeper.frontends.torch.examples import FEWEST, Examples, collect
from modelkeeper.frontends.torch.fits import Fitting
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.named_tensors import owned_tensors
from modelkeeper.frontends.torch.pivots import pivots
from modelkeeper.frontends.torch.program import Program
from modelkeeper.frontends.torch.read_load import as_tensor, load
from modelkeeper.frontends.torch.record_program import record
from modelkeeper.frontends.torch.recorder import CPU, map_tensors
from modelkeeper.frontends.torch.regression import number
from modelkeeper.frontends.torch.run_program import check_run, try_out
from modelkeeper.frontends.torch.side_by_side import CHUNK
from modelkeeper.frontends.torch.side_effects import unwrap

EXAMPLES = 2_048
STEPS, BATCH = 100, 64  # as long as so many training steps on so many examples, if no other limit is given
STEP = 4  # how many times as long as a pass over its examples a training step takes, about
MEMORY = 2**30
# A model with batch norms that is further from its parent's outputs than this, relative to their variance, is
# better off with the weights of the plan: what was fitted so badly took longer to train.
CLOSE = 0.5
TRIED = 16  # examples to see how long a pass takes, and how much memory

Ranks = Mapping[int, Any]  # by the parent's space, of its units
Start = Callable[[Ranks], tuple[Mapping[str, Any], Sequence[Aim]]]
Progress = Callable[[int, int, str], None]  # layers done, layers in all, the one at hand


def calibrate(
    child: nn.Module,
    start: Start,
    parent: Program | nn.Module,
    tensors: Mapping[str, Any],
    batches: Any,
    *,
    reads: Sequence[tuple[str, int]] = (),
    labels: Any = None,
    examples: int = EXAMPLES,
    seconds: float | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the layers of a child, in place.

    Args:
        child: The model, with the weights of a plan in it.
        start: From a ranking of the parent's units (by space) to the weights to start from and to what each
            layer should compute.
        parent: The parent's program, or the parent itself, which is then recorded. A program may come from
            anywhere: it is checked before it runs.
        tensors: The parent's tensors or arrays by name.
        batches: See `examples`, or what `collect` made of them. Both models have to run on them.
        reads: The parent's layers that read one space, and that space, to rank its units by.
        labels: Of the batches, if they do not hold them: for a head that the parent cannot teach.
        examples: At most so many are used.
        seconds: At most about so long. Default: as long as 100 training steps of the child take, about.
        memory: At most so many bytes of activations.
        progress: Called before each layer.

    Raises:
        CannotCalibrate: The examples do not serve. The child is unchanged, as after any other error.
        NoProgram: The child cannot be taken apart layer by layer.
        InvalidProgram: The parent's program does not run on the examples.
    """
    began = time.perf_counter()
    found = batches if isinstance(batches, Examples) else collect(batches, labels, examples)
    ours = record(child, example_of(child, found.inputs)).shortcuts_first()
    theirs = parent if isinstance(parent, Program) else record(parent, example_of(parent, found.inputs))
    plain = {name: each.tensor.detach().to(CPU) for each in owned_tensors(child) for name in each.names}
    lent = {
        each.name: as_tensor(each.name, tensors[each.name]) for each in theirs.tensors if each.name in tensors
    }
    mine, other = found.fitting(ours), found.fitting(theirs)
    if isinstance(parent, Program):  # not recorded here: it may come from anyone
        check_run(theirs, lent, [tensor[:1] for tensor in other])
    tried = min(len(found), TRIED)
    own = try_out(ours, plain, [tensor[:tried] for tensor in mine])
    its = try_out(theirs, lent, [tensor[:tried] for tensor in other])
    each = (own[1] + its[1]) // tried + 1
    room = min(len(found), max(FEWEST, memory // each))
    few = [tensor[: min(room, CHUNK)] for tensor in other]
    if isinstance(parent, Program):
        check_run(theirs, lent, few)
    weights, aims = start(pivots(theirs, lent, reads, few))
    end = began + (STEPS * STEP * own[0] * BATCH / tried if seconds is None else seconds)
    left = max(0.0, end - time.perf_counter())
    count = min(room, max(BATCH, int(left / 2 / (own[0] + its[0]) * tried)))
    first = plain | {name: as_tensor(name, array).to(plain[name].dtype) for name, array in weights.items()}
    run = Fitting(ours, plain, first, theirs, lent, found, count, end)
    aims = sorted(aims, key=lambda aim: ours.layers.get(aim.layer, -1))
    run.expect(aims)
    fitted = []
    for done, aim in enumerate(aims):
        if progress is not None:
            progress(done, len(aims), aim.layer)
        fitted.append(run.fit(aim))
    run.renew(len(ours.steps))
    if progress is not None:
        progress(len(aims), len(aims), "")
    measure, before, after, far = _judge(run, fitted, any(aim.kind == "head" for aim in aims))
    changed = {name: run.tensors[name] for name in {*weights, *run.changed}}
    why = ""
    if run.normed and far > CLOSE:
        why = f"{far:.0%} of the variance of the parent's outputs is not explained"
    elif not after < before:
        why = "it is no closer"
    elif not all(torch.isfinite(each).all() for each in changed.values()):
        why = "its weights are not finite"
    if not why:
        load(child, changed)
    return Calibration(
        kept=not why,
        why=why,
        measure=measure,
        plain=before,
        calibrated=after,
        layers=tuple(fitted),
        examples=count,
        passed_over=found.passed_over,
        seconds=time.perf_counter() - began,
        memory=count * each,
    )


def example_of(model: nn.Module, inputs: Inputs) -> Inputs:
    """Inputs to describe or record on: two examples, and no caches that a language model would hand out."""
    few = map_tensors(inputs.args, lambda t: t[:2]), map_tensors(dict(inputs.kwargs), lambda t: t[:2])
    extra = {"use_cache": False} if "use_cache" in inspect.signature(unwrap(model).forward).parameters else {}
    return Inputs(few[0], tuple({**extra, **few[1]}.items()))


def _judge(run: Fitting, fitted: Sequence[Fitted], other_head: bool) -> tuple[str, float, float, float]:
    """How far the child is from what it should compute, before and after, on held-out examples.

    And how far from the parent's outputs, relative to their variance; 0 where these are not comparable, as
    with another head.
    """
    outputs = [run.outputs(chunk) for chunk in run.hold]
    ours, plain, theirs = (torch.cat([each[n] for each in outputs]) for n in range(3))
    labels = [chunk.labels for chunk in run.hold]
    far = 0.0
    comparable = ours.shape == theirs.shape and not other_head
    if comparable:
        scale = (theirs - theirs.mean(0)).double().square().sum().clamp_min(1e-30)
        error = [float((each - theirs).double().square().sum() / scale) for each in (plain, ours)]
        far = number(error[1])
    if all(each is not None for each in labels):
        y = torch.cat([each for each in labels if each is not None])
        if ours.ndim == 2 and y.ndim == 1 and not y.is_floating_point() and int(y.max()) < ours.shape[1]:
            loss = [float(nn.functional.cross_entropy(each.float(), y.long())) for each in (plain, ours)]
            return "cross-entropy on held-out labels", *_pair(loss), far
    if comparable:
        return "squared difference from the parent's outputs, over their variance", *_pair(error), far
    pairs = [(each.before, each.after) for each in fitted if each.before == each.before]
    means = [sum(each[n] for each in pairs) / max(1, len(pairs)) for n in range(2)]
    return "mean error of the fitted layers", *_pair(means), far


def _pair(values: Sequence[float]) -> tuple[float, float]:
    first, second = map(number, values)
    return first, second
