"""Operations of windows that slide over maps: convolutions, pooling, resizing. Channels come first.

On the CPU, backends take channels last alone: maps are turned and turned back. Borders are put around a map
before, since backends know but 'same' and 'valid'.
"""

# ruff: noqa: A002 (arguments go by ATen's names)

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from modelkeeper.frontends.keras.operations.shape import constant_pad, reshape
from modelkeeper.frontends.keras.operations.table import carries_out, per_axis, sizes
from modelkeeper.weights import Array

LAST = "channels_last"


def _last(maps: Any) -> Any:
    """Channels last."""
    return ops.moveaxis(maps, 1, -1)


def _first(maps: Any) -> Any:
    """Channels first."""
    return ops.moveaxis(maps, -1, 1)


def _bordered(maps: Any, pads: Sequence[tuple[int, int]], value: float = 0) -> Any:
    """A border around the places of a map: so much before and behind, for each axis."""
    return constant_pad(maps, [width for pair in reversed(pads) for width in pair], value)


# -- convolutions -----------------------------------------------------------------------------------


def _added(maps: Any, bias: Any) -> Any:
    return maps if bias is None else maps + reshape(bias, [-1] + [1] * (len(maps.shape) - 2))


def _slid(maps: Any, weight: Any, stride: list[int], dilation: list[int], groups: int) -> Any:
    """A convolution without a border; `weight`: (out, in of a group, places...)."""
    kernel = ops.moveaxis(weight, (1, 0), (-2, -1))
    inputs, channels = _last(maps), int(maps.shape[1])
    if groups == channels and groups > 1 and len(stride) < 3 and len(set(stride)) == 1:
        times = int(weight.shape[0]) // groups
        kernel = reshape(ops.moveaxis(weight, 0, -1), [*sizes(weight)[2:], groups, times])
        made = ops.depthwise_conv(inputs, kernel, tuple(stride), "valid", LAST, tuple(dilation))
    else:
        made = ops.conv(inputs, kernel, tuple(stride), "valid", LAST, tuple(dilation))
    return _first(made)


@carries_out(
    *(f"conv{rank}d.{kind}" for rank in (1, 2, 3) for kind in ("default", "padding")),
)
def _conv(
    input: Any, weight: Any, bias: Any, stride: list[int], padding: Any, dilation: list[int], groups: int
) -> Any:
    window = sizes(weight)[2:]
    rank = len(window)
    step, spread = per_axis(stride, rank), per_axis(dilation, rank)
    if padding == "same":
        total = [d * (k - 1) for k, d in zip(window, spread, strict=True)]
        pads = [(n // 2, n - n // 2) for n in total]
    elif padding == "valid":
        pads = [(0, 0)] * rank
    else:
        pads = [(n, n) for n in per_axis(padding, rank)]
    return _added(_slid(_bordered(input, pads), weight, step, spread, groups), bias)


@carries_out("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(
    input: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    groups: int,
    dilation: list[int],
) -> Any:
    """A convolution over maps with zeros between places; `weight`: (in, out of a group, places...)."""
    incoming, outgoing, *window = sizes(weight)
    rank = len(window)
    step, spread, cut, more = (per_axis(n, rank) for n in (stride, dilation, padding, output_padding))
    reach = [d * (k - 1) for k, d in zip(window, spread, strict=True)]
    pads = [(r - c, r - c + m) for r, c, m in zip(reach, cut, more, strict=True)]
    grouped = reshape(weight, [groups, incoming // groups, outgoing, *window])
    turned = reshape(ops.swapaxes(grouped, 1, 2), [groups * outgoing, incoming // groups, *window])
    for axis in range(2, rank + 2):
        turned = ops.flip(turned, axis)
    maps = _bordered(_apart(input, step), pads)
    return _added(_slid(maps, turned, [1] * rank, spread, groups), bias)


def _apart(maps: Any, stride: Sequence[int]) -> Any:
    """A map with zeros between its places."""
    for axis, step in enumerate(stride, 2):
        if step > 1:
            shape = sizes(maps)
            wide = reshape(maps, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
            behind = [0, 0] * (len(shape) - axis - 1)
            wide = constant_pad(wide, [*behind, 0, step - 1])
            maps = reshape(wide, [*shape[:axis], shape[axis] * step, *shape[axis + 1 :]])
            maps = constant_pad(maps, [*behind, 0, 1 - step])
    return maps


# -- pooling ----------------------------------------------------------------------------------------


def _borders(
    shape: list[int], window: list[int], stride: list[int], padding: list[int], ceil_mode: bool
) -> list[tuple[int, int]]:
    """How much is put before and behind each axis; behind more, if the last window may hang over."""
    pads = []
    for size, k, s, p in zip(shape, window, stride, padding, strict=True):
        places = (size + 2 * p - k) // s + 1
        if ceil_mode and -(-(size + 2 * p - k) // s) * s < size + p:
            places = -(-(size + 2 * p - k) // s) + 1
        pads.append((p, max(p, (places - 1) * s + k - size - p)))
    return pads


@carries_out("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def _max_pool(
    self: Any,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> Any:
    rank = len(self.shape) - 2
    window = per_axis(kernel_size, rank)
    step = per_axis(stride, rank) if stride else window
    if any(n != 1 for n in dilation):
        raise NotImplementedError("a maximum over places that lie apart")
    pads = _borders(sizes(self)[2:], window, step, per_axis(padding, rank), ceil_mode)
    maps = _last(_bordered(self, pads, -math.inf))
    return _first(ops.max_pool(maps, tuple(window), tuple(step), "valid", LAST))


@carries_out("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    self: Any,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> Any:
    shape = sizes(self)[2:]
    rank = len(shape)
    window, given = per_axis(kernel_size, rank), per_axis(padding, rank)
    step = per_axis(stride, rank) if stride else window
    pads = _borders(shape, window, step, given, ceil_mode)
    maps = _last(_bordered(self, pads))
    made = _first(ops.average_pool(maps, tuple(window), tuple(step), "valid", LAST))
    if divisor_override:
        return made * (math.prod(window) / divisor_override)
    factor = np.ones((1,) * rank)
    for axis in range(rank):
        starts = np.arange(int(made.shape[2 + axis])) * step[axis] - given[axis]
        ends = starts + window[axis]
        if count_include_pad:
            counted = np.minimum(ends, shape[axis] + given[axis]) - starts
        else:
            counted = np.minimum(ends, shape[axis]) - np.maximum(starts, 0)
        factor = factor * (window[axis] / counted).reshape([-1] + [1] * (rank - axis - 1))
    return made if (factor == 1).all() else made * ops.cast(ops.convert_to_tensor(factor), made.dtype)


@carries_out("adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default")
def _adaptive_avg_pool(self: Any, output_size: list[int]) -> Any:
    shape = sizes(self)[2:]
    if all(size == 1 for size in output_size):
        return ops.mean(self, tuple(range(2, len(self.shape))), keepdims=True)
    for axis, (size, out) in enumerate(zip(shape, output_size, strict=True)):
        means = np.zeros((out, size))
        for n in range(out):
            begin, end = n * size // out, -(-(n + 1) * size // out)
            means[n, begin:end] = 1 / (end - begin)
        self = _mixed(self, axis, means)
    return self


# -- resizing ---------------------------------------------------------------------------------------


def _mixed(maps: Any, axis: int, matrix: Array) -> Any:
    """Places along an axis, each a sum of old ones: `matrix` is (new places, old places)."""
    mixing = ops.cast(ops.convert_to_tensor(matrix.T.astype(np.float32)), maps.dtype)
    return ops.moveaxis(ops.matmul(ops.moveaxis(maps, 2 + axis, -1), mixing), -1, 2 + axis)


def _nearest(size: int, out: int, ratio: float) -> Array:
    matrix = np.zeros((out, size))
    matrix[np.arange(out), np.minimum((np.arange(out) * ratio).astype(int), size - 1)] = 1
    return matrix


def _between(size: int, out: int, ratio: float, corners: bool, cubic: bool) -> Array:
    """What lies between places, by lines or by cubics."""
    if corners:
        at = np.arange(out) * ((size - 1) / max(1, out - 1))
    else:
        at = (np.arange(out) + 0.5) * ratio - 0.5
        at = at if cubic else np.maximum(at, 0)
    below = np.floor(at).astype(int)
    part = at - below
    matrix = np.zeros((out, size))
    weights = _cubic(part) if cubic else {0: 1 - part, 1: part}
    for shift, share in weights.items():
        np.add.at(matrix, (np.arange(out), (below + shift).clip(0, size - 1)), share)
    return matrix


def _cubic(part: Array) -> dict[int, Array]:
    """The shares of four neighbours."""
    a = -0.75

    def near(x: Array) -> Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return {-1: far(part + 1), 0: near(part), 1: near(1 - part), 2: far(2 - part)}


def _resized(maps: Any, way: str, output_size: Any, scales: Any, corners: bool = False) -> Any:
    """A map with other sizes. `scales`: by how much larger; if it is not said, it follows from sizes."""
    shape = sizes(maps)[2:]
    factors: list[Any] = list(scales) if scales else [None] * len(shape)
    for axis, size in enumerate(shape):
        out = output_size[axis] if output_size else int(size * factors[axis])
        ratio = 1 / factors[axis] if factors[axis] else size / out
        if way == "nearest":
            maps = _mixed(maps, axis, _nearest(size, out, ratio))
        elif out != size or factors[axis]:
            maps = _mixed(maps, axis, _between(size, out, ratio, corners, way == "cubic"))
    return maps


@carries_out("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def _nearest_vec(input: Any, output_size: Any, scale_factors: Any) -> Any:
    return _resized(input, "nearest", output_size, scale_factors)


@carries_out("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def _linear_vec(input: Any, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
    return _resized(input, "linear", output_size, scale_factors, align_corners)


@carries_out("upsample_bicubic2d.vec")
def _cubic_vec(input: Any, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
    return _resized(input, "cubic", output_size, scale_factors, align_corners)
