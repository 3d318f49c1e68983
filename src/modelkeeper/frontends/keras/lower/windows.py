"""Rules for windows that slide over an image: convolutions, pooling, resizing."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from modelkeeper.frontends.keras.lower.lowering import Lowering, made_by
from modelkeeper.frontends.keras.lower.seen import Held, Seen, channels_first, inverse
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, each, lowers
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.frontends.keras.variables import shape_of
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import Value

Pads = list[tuple[int, int]]  # before and behind, for each axis of places
_NEVER_NEGATIVE = ("relu", "sigmoid", "hardsigmoid", "softmax", "square", "abs", "exp")


def order_of(operation: Any, rank: int) -> list[int]:
    """Keras' axis for each axis of the trace: channels come first there."""
    last = (operation.data_format or keras.config.image_data_format()) == "channels_last"
    return channels_first(rank) if last else list(range(rank + 2))


def same(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """How much padding 'same' puts before and behind."""
    total = max((math.ceil(size / stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def written(pads: Pads) -> list[int]:
    """Padding as the vocabulary has it: a number for each axis, or all before and then all behind."""
    before, behind = [pad[0] for pad in pads], [pad[1] for pad in pads]
    return before if before == behind else [*before, *behind]


def slides(size: int, window: int, stride: int, pad: tuple[int, int], dilation: int = 1) -> int:
    """In how many places a window fits."""
    return (size + sum(pad) - (window - 1) * dilation - 1) // stride + 1


def border(value: Value, rank: int) -> tuple[Value, Pads] | None:
    """What a border of zeros was put around, if that made the value, and its widths."""
    step = made_by(value)
    if step is None or step.name != "pad" or "value" in step.arguments:
        return None
    pads = step.arguments["pad"]
    if len(pads) > 2 * rank or min(pads) < 0:
        return None
    pads = pads + [0] * (2 * rank - len(pads))
    return step.inputs[0], [(pads[2 * n], pads[2 * n + 1]) for n in reversed(range(rank))]


def kernel(low: Lowering, thing: Any, layout: Layout) -> Value:
    """A kernel in a layout: a variable, or computed from some."""
    seen = low.seen(thing)
    if isinstance(seen, Held) and shape_of(seen.variable) == seen.shape:
        return low.enter(seen.variable, layout)
    value = low.build.view(low.plain(seen), layout.first)
    return low.build.view(low.permute(value, layout.order), layout.last)


def outermost_first(shape: Sequence[int]) -> Layout:
    """(places..., in, out) becomes (out, in, places...)."""
    rank = len(shape) - 2
    return Layout.moved(shape, (rank + 1, rank, *range(rank)))


def depthwise(shape: Sequence[int]) -> Layout:
    """(places..., channels, times) becomes (channels * times, 1, places...)."""
    rank = len(shape) - 2
    channels, times = shape[-2:]
    return Layout(tuple(shape), (rank, rank + 1, *range(rank)), (channels * times, 1, *shape[:rank]))


def convolve(
    low: Lowering, call: Call, thing: Any, weight: Value, *, strides: Any, dilation: Any, padding: str
) -> Seen:
    """A convolution. A border of zeros right before it is its padding."""
    rank = len(weight.shape) - 2
    order = order_of(call.operation, rank)
    value = low.arranged(thing, order)
    stride, spread = each(strides, rank), each(dilation, rank)
    pads: Pads = [(0, 0)] * rank
    if padding == "same":
        pads = [same(value.shape[2 + n], weight.shape[2 + n], stride[n], spread[n]) for n in range(rank)]
    elif padding == "causal":
        pads = [((weight.shape[2] - 1) * spread[0], 0)]
    elif isinstance(thing, keras.KerasTensor) and low.read_once(thing):
        value, pads = border(value, rank) or (value, pads)
    places = [
        slides(value.shape[2 + n], weight.shape[2 + n], stride[n], pads[n], spread[n]) for n in range(rank)
    ]
    made = low.step(
        f"conv{rank}d",
        (value.shape[0], weight.shape[0], *places),
        input=value,
        weight=weight,
        stride=stride,
        padding=written(pads),
        dilation=spread,
        groups=value.shape[1] // weight.shape[1],
    )
    return Seen.moved(made, inverse(order))


@lowers("Conv")
def _conv(low: Lowering, call: Call) -> Seen:
    given, op = arguments(call), call.operation
    weight = kernel(low, given["kernel"], outermost_first(given["kernel"].shape))
    how = {"strides": op.strides, "dilation": op.dilation_rate, "padding": op.padding}
    return convolve(low, call, given["inputs"], weight, **how)


@lowers("DepthwiseConv")
def _depthwise_conv(low: Lowering, call: Call) -> Seen:
    given, op = arguments(call), call.operation
    weight = kernel(low, given["kernel"], depthwise(given["kernel"].shape))
    how = {"strides": op.strides, "dilation": op.dilation_rate, "padding": op.padding}
    return convolve(low, call, given["inputs"], weight, **how)


@lowers("SeparableConv")
def _separable_conv(low: Lowering, call: Call) -> Seen:
    given, op = arguments(call), call.operation
    each_channel = kernel(low, given["depthwise_kernel"], depthwise(given["depthwise_kernel"].shape))
    across = kernel(low, given["pointwise_kernel"], outermost_first(given["pointwise_kernel"].shape))
    how = {"strides": op.strides, "dilation": op.dilation_rate, "padding": op.padding}
    seen = convolve(low, call, given["inputs"], each_channel, **how)
    return convolve(low, call, seen, across, strides=1, dilation=1, padding="valid")


@lowers("ConvTranspose")
def _conv_transpose(low: Lowering, call: Call) -> Seen:
    """A transposed convolution: (places..., out, in) becomes (in, out, places...)."""
    given, op = arguments(call), call.operation
    shape = given["kernel"].shape
    rank = len(shape) - 2
    weight = kernel(low, given["kernel"], outermost_first(shape))
    order = order_of(op, rank)
    value = low.arranged(given["inputs"], order)
    stride, spread = each(op.strides, rank), each(op.dilation_rate, rank)
    extra = [None] * rank if op.output_padding is None else each(op.output_padding, rank)
    cuts = [_cut(shape[n], stride[n], spread[n], op.padding, extra[n]) for n in range(rank)]
    behind = [max(before - after, 0) for before, after in cuts]
    made = low.step(
        f"conv_transpose{rank}d",
        [call.outputs[0].shape[n] for n in order],
        input=value,
        weight=weight,
        stride=stride,
        padding=written([(cut[0], cut[1] + more) for cut, more in zip(cuts, behind, strict=True)]),
        output_padding=behind,
        groups=1,
        dilation=spread,
    )
    return Seen.moved(made, inverse(order))


def _cut(window: int, stride: int, dilation: int, padding: str, extra: int | None) -> tuple[int, int]:
    """How much of what a transposed convolution makes is cut off before and behind; below 0: added."""
    reach = (window - 1) * dilation + 1
    if padding == "valid":
        return 0, reach - max(reach, stride) if extra is None else -extra
    total = stride + reach - 2 if extra is None else reach + reach % 2 - 2 + extra
    before = min(total - total // 2, reach - 1)
    return reach - 1 - before, reach - 1 - (total - before)


@lowers("MaxPool", "AveragePool")
def _pool(low: Lowering, call: Call) -> Seen:
    op, thing = call.operation, call.args[0]
    rank = len(thing.shape) - 2
    order = order_of(op, rank)
    value = low.arranged(thing, order)
    size = each(op.pool_size, rank)
    stride = size if op.strides is None else each(op.strides, rank)
    most = call.name == "MaxPool"
    pads: Pads = [(0, 0)] * rank
    if op.padding == "same":
        pads = [same(value.shape[2 + n], size[n], stride[n]) for n in range(rank)]
    elif most and low.read_once(thing):
        value, pads = _rectified_border(value, size) or (value, pads)
    padded = any(map(any, pads))
    shape = [slides(value.shape[2 + n], size[n], stride[n], pads[n]) for n in range(rank)]
    outside = {"ceil_mode": False, "count_include_pad": False} if padded and not most else {}
    made = low.step(
        f"{'max' if most else 'avg'}_pool{rank}d",
        (*value.shape[:2], *shape),
        self=value,
        kernel_size=size,
        stride=stride,
        padding=written(pads) if padded else None,
        **outside,
    )
    return Seen.moved(made, inverse(order))


def _rectified_border(value: Value, size: Sequence[int]) -> tuple[Value, Pads] | None:
    """Zeros around what is never negative: to a maximum they are as good as no numbers at all."""
    bordered = border(value, len(size))
    step = None if bordered is None else made_by(bordered[0])
    if bordered is None or step is None or step.name not in _NEVER_NEGATIVE:
        return None
    reaches = all(2 * max(pad) <= window for pad, window in zip(bordered[1], size, strict=True))
    return bordered if reaches else None


@lowers("UpSampling1D", "UpSampling2D", "UpSampling3D")
def _upsample(low: Lowering, call: Call) -> Seen:
    """Each place several times, or what lies between places."""
    layer = call.operation
    rank = len(call.outputs[0].shape) - 2
    last = getattr(layer, "data_format", "channels_last") == "channels_last"
    order = channels_first(rank) if last else list(range(rank + 2))
    way = getattr(layer, "interpolation", "nearest")
    if way not in ("nearest", "bilinear", "bicubic"):
        raise CannotLower(f"resized by {way} interpolation")
    value = low.arranged(call.args[0], order)
    shape = [call.outputs[0].shape[n] for n in order]
    corners = None if way == "nearest" else False
    name = f"upsample_{way}{rank}d"
    made = low.step(name, shape, input=value, output_size=shape[2:], align_corners=corners)
    return Seen.moved(made, inverse(order))


@lowers("Resize")
def _resize(low: Lowering, call: Call) -> Seen:
    op = call.operation
    if op.crop_to_aspect_ratio or op.pad_to_aspect_ratio or len(call.outputs[0].shape) != 4:
        raise CannotLower("resized with its aspect ratio kept")
    names = {
        ("nearest", False): "upsample_nearest2d",
        ("bilinear", False): "upsample_bilinear2d",
        ("bicubic", False): "upsample_bicubic2d",
        ("bilinear", True): "_upsample_bilinear2d_aa",
        ("bicubic", True): "_upsample_bicubic2d_aa",
    }
    name = names.get((op.interpolation, bool(op.antialias)))
    if name is None:
        raise CannotLower(f"resized by {op.interpolation} interpolation")
    order = order_of(op, 2)
    value = low.arranged(call.args[0], order)
    shape = [call.outputs[0].shape[n] for n in order]
    if op.interpolation == "nearest" and any(
        after % size for after, size in zip(shape[2:], value.shape[2:], strict=True)
    ):
        raise CannotLower("the nearest of places between which others lie")
    corners = None if op.interpolation == "nearest" else False
    made = low.step(name, shape, input=value, output_size=shape[2:], align_corners=corners)
    return Seen.moved(made, inverse(order))
