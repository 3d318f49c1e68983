"""Rules for windows that slide over the last axes: pooling, resizing, folding space into channels."""

import math
from collections.abc import Sequence

from modelkeeper.frontends.torch.trace import Step, Value
from modelkeeper.tracing.infer_spaces import Axes, Inference, position, rule

_DIMENSIONS = {"1d": 1, "2d": 2, "3d": 3}


@rule(
    *"""avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices
        max_pool3d_with_indices max_pool1d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d
        adaptive_max_pool2d adaptive_max_pool3d upsample_bilinear2d upsample_nearest1d
        upsample_nearest2d upsample_nearest3d upsample_bicubic2d upsample_linear1d upsample_trilinear3d
        _upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad1d reflection_pad2d
        replication_pad1d replication_pad2d grid_sampler_2d""".split()
)
def _windows(run: Inference, step: Step) -> list[Axes]:
    """Pooling, resizing: channels stay, the last axes are new."""
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
            why = f"opaque {run.where}: a window over units"
            run.solver.pin(axis, why)
            after += run.solver.unknown([size], why)
    return after


def _window(step: Step, count: int) -> Sequence[int]:
    """How far a window reaches on each axis; 0 where the operation does not say."""
    if "kernel_size" in step.arguments:
        sizes: list[int] = step.arguments["kernel_size"]
        return sizes * count if len(sizes) == 1 else sizes
    weight = step.arguments.get("weight")
    return weight.shape[2:] if isinstance(weight, Value) else [0] * count


@rule("pixel_shuffle")
def _pixel_shuffle(run: Inference, step: Step) -> list[Axes]:
    source, by = step.inputs[0], step.arguments["upscale_factor"]
    channels, inner = run.solver.factor(source.axes[-3], source.shape[-3] // by**2, run.where)
    run.pin(inner, "moved into space")
    return [[*source.axes[:-3], channels, *run.fixed(step.outputs[0].shape[-2:], "spatial")]]


@rule("pixel_unshuffle")
def _pixel_unshuffle(run: Inference, step: Step) -> list[Axes]:
    source, by = step.inputs[0], step.arguments["downscale_factor"]
    channels = run.solver.product([source.axes[-3], run.solver.fixed(by**2, "moved from space")])
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
    run.pin(source.axes[dim], "a window over units")
    shape = step.outputs[0].shape
    axes = [*source.axes, run.solver.fixed(shape[-1], "kernel")]
    axes[dim] = run.solver.fixed(shape[dim], "spatial")
    return [axes]


@rule("native_channel_shuffle", "channel_shuffle")
def _channel_shuffle(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    groups, rest = run.solver.factor(source.axes[1], step.arguments["groups"], run.where)
    return [[source.axes[0], run.solver.product([rest, groups]), *source.axes[2:]]]
