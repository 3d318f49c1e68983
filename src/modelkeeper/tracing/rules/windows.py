"""Rules for windows that slide over the last axes: pooling, resizing, folding space into channels."""

import math
from collections.abc import Sequence

from modelkeeper.graph.vocabulary import Pin
from modelkeeper.tracing.infer_spaces import Axes, Inference, position, rule
from modelkeeper.tracing.trace import Step, Value
from modelkeeper.tracing.window_arguments import per_axis

_DIMENSIONS = {"1d": 1, "2d": 2, "3d": 3}


@rule("windows")
def _windows(run: Inference, step: Step) -> list[Axes]:
    """Pooling and resizing: channels stay, the last axes are new."""
    count = next(n for text, n in _DIMENSIONS.items() if text in step.name)
    channels = step.inputs[0].axes[:-count]
    return [[*channels, *slid(run, step, value, count)] for value in step.outputs]


def slid(run: Inference, step: Step, value: Value, count: int) -> Axes:
    """The last axes after a window has slid over them: mere sizes, unless they were units."""
    before, window = step.inputs[0].axes[-count:], _window(step, count)
    after = []
    for axis, size, width in zip(before, value.shape[-count:], window, strict=True):
        if not run.solver.atoms(axis):
            after.append(run.solver.fixed(size, "spatial"))
        elif width == 1 and size == axis.size:
            after.append(axis)
        else:
            pin = Pin("window", run.where)
            run.solver.pin(axis, pin)
            after += run.solver.unknown([size], pin)
    return after


def _window(step: Step, count: int) -> Sequence[int]:
    """The extent of a window on each axis; 0 where the operation does not say."""
    if "kernel_size" in step.arguments:
        return per_axis(step.arguments["kernel_size"], count)
    weight = step.arguments.get("weight")
    return weight.shape[2:] if isinstance(weight, Value) else [0] * count


@rule("pixel_shuffle")
def _pixel_shuffle(run: Inference, step: Step) -> list[Axes]:
    source, by = step.inputs[0], step.arguments["upscale_factor"]
    channels, inner = run.solver.factor(source.axes[-3], source.shape[-3] // by**2, run.where)
    run.pin(inner, "into_space")
    return [[*source.axes[:-3], channels, *run.fixed(step.outputs[0].shape[-2:], "spatial")]]


@rule("pixel_unshuffle")
def _pixel_unshuffle(run: Inference, step: Step) -> list[Axes]:
    source, by = step.inputs[0], step.arguments["downscale_factor"]
    channels = run.solver.product([source.axes[-3], run.solver.fixed(by**2, "from_space")])
    return [[*source.axes[:-3], channels, *run.fixed(step.outputs[0].shape[-2:], "spatial")]]


@rule("im2col")
def _im2col(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    window = run.solver.fixed(math.prod(step.arguments["kernel_size"]), "kernel")
    return [
        [
            *source.axes[:-3],
            run.solver.product([source.axes[-3], window]),
            *run.fixed(step.outputs[0].shape[-1:], "spatial"),
        ]
    ]


@rule("unfold")
def _unfold(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = position(step.arguments["dimension"], source)
    run.pin(source.axes[dim], "windowed")
    shape = step.outputs[0].shape
    axes = [*source.axes, run.solver.fixed(shape[-1], "kernel")]
    axes[dim] = run.solver.fixed(shape[dim], "spatial")
    return [axes]


@rule("channel_shuffle")
def _channel_shuffle(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    groups, rest = run.solver.factor(source.axes[1], step.arguments["groups"], run.where)
    return [[source.axes[0], run.solver.product([rest, groups]), *source.axes[2:]]]
