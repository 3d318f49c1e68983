"""Reshape, transpose, slice, split, concatenate, pad, expand: where numbers stand."""

import math
from collections.abc import Sequence

import numpy as np

from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, NotLowered, Stored, short
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Value


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(low: Lowering, call: Call) -> Value:
    value = low.value(call.needed(0))
    if math.prod(call.shape) != math.prod(value.shape):
        raise NotLowered
    return low.view(value, call.shape)


@lowers("Transpose")
def _transpose(low: Lowering, call: Call) -> Entry:
    entry = call.needed(0)
    order = call.get("perm") or list(reversed(range(len(entry.shape))))
    return entry.turned(order) if isinstance(entry, Stored) else low.permute(low.value(entry), order)


@lowers("Expand")
def _expand(low: Lowering, call: Call) -> Entry:
    entry = call.needed(0)
    if entry.shape == call.shape:
        return entry
    numbers = low.array(entry)
    if numbers is not None and not np.any(numbers):  # states to begin with
        return np.broadcast_to(numbers, call.shape)
    return low.step("expand", call, self=low.value(entry), size=list(call.shape))


@lowers("Tile")
def _tile(low: Lowering, call: Call) -> Value:
    times = low.numbers(call, "repeats", 1)
    if times is None:
        raise NotLowered
    value = low.value(call.needed(0))
    return value if set(times) == {1} else low.step("repeat", call, self=value, repeats=times)


@lowers("Concat")
def _concat(low: Lowering, call: Call) -> Entry:
    parts = [entry for entry in call.inputs if entry is not None and 0 not in entry.shape]
    if len(parts) == 1:
        return parts[0]
    return low.step("cat", call, tensors=[low.value(part) for part in parts], dim=call.get("axis", 0))


@lowers("Split")
def _split(low: Lowering, call: Call) -> Sequence[Value]:
    value = low.value(call.needed(0))
    axis = call.get("axis", 0) % len(value.shape)
    shapes = [made.shape for made in call.made if made.shape is not None]
    if len(shapes) < len(call.made):
        raise NotLowered
    return _parts(low, value, shapes, [shape[axis] for shape in shapes], axis)


def _parts(
    low: Lowering, value: Value, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int], axis: int
) -> Sequence[Value]:
    """The parts of a value along an axis: all as large as the first but the last, or each of its own size."""
    if len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]:
        return low.build.results(
            "split", shapes, dtype=value.dtype, self=value, split_size=sizes[0], dim=axis
        )
    return low.build.results(
        "split_with_sizes", shapes, dtype=value.dtype, self=value, split_sizes=list(sizes), dim=axis
    )


@lowers("SplitToSequence")
def _split_to_sequence(low: Lowering, call: Call) -> Value:
    """Keep the parts for who takes one of them; the sequence itself is no tensor, and opaque to others."""
    value, sizes = low.value(call.needed(0)), low.array(call[1])
    axis = call.get("axis", 0) % len(value.shape)
    if sizes is None:
        raise NotLowered
    size = value.shape[axis]
    if sizes.ndim == 0:
        each = int(sizes)
        parts = [min(each, size - start) for start in range(0, size, each)]
    else:
        parts = [int(part) for part in sizes]
    shapes = [(*value.shape[:axis], part, *value.shape[axis + 1 :]) for part in parts]
    made = _parts(low, value, shapes, parts, axis)
    low.sequences[call.node.outputs[0]] = made
    raise NotLowered


@lowers("Slice")
def _slice(low: Lowering, call: Call) -> Value:
    value = low.value(call.needed(0))
    starts, ends = low.numbers(call, "starts", 1), low.numbers(call, "ends", 2)
    if starts is None or ends is None:
        raise NotLowered
    axes = low.numbers(call, "axes", 3) or list(range(len(starts)))
    steps = low.numbers(call, "steps", 4) or [1] * len(starts)
    for axis, start, end, by in zip(axes, starts, ends, steps, strict=True):
        axis %= len(value.shape)
        size = value.shape[axis]
        kept = range(size)[slice(start, end, by)]
        shape = (*value.shape[:axis], len(kept), *value.shape[axis + 1 :])
        if by == -1 and len(kept) == size:
            value = low.build.step("flip", shape, self=value, dims=[axis])
        elif by < 1:
            raise NotLowered
        elif len(kept) < size:
            first, last = (kept[0], min(size, kept[-1] + by)) if kept else (0, 0)
            value = low.build.step("slice", shape, self=value, dim=axis, start=first, end=last, step=by)
    return value


@lowers("Pad")
def _pad(low: Lowering, call: Call) -> Value:
    value = low.value(call.needed(0))
    given = low.numbers(call, "paddings" if call.opset < 2 else "pads", 1)
    if given is None:
        raise NotLowered
    rank = len(value.shape)
    axes = low.numbers(call, "axes", 3) or list(range(rank))
    around = {axis % rank: (given[n], given[n + len(axes)]) for n, axis in enumerate(axes)}
    if not any(any(pair) for pair in around.values()):
        return value
    first = min(axis for axis, pair in around.items() if any(pair))
    pads = [size for axis in reversed(range(first, rank)) for size in around.get(axis, (0, 0))]
    mode, number = call.get("mode", "constant"), call.get("value")
    if number is None and call[2] is not None:
        number = low.number(call[2])
        if number is None:
            raise NotLowered
    if mode == "constant" and not number:
        return low.step("pad", call, self=value, pad=pads)
    if mode == "constant":
        return low.step("pad", call, self=value, pad=pads, mode=mode, value=short(float(number or 0.0)))
    modes = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    return low.step("pad", call, self=value, pad=pads, mode=modes.get(mode, mode))


@lowers("DepthToSpace")
def _depth_to_space(low: Lowering, call: Call) -> Value:
    value, by = low.value(call.needed(0)), call.get("blocksize")
    if call.get("mode", "DCR") == "CRD":
        return low.step("pixel_shuffle", call, self=value, upscale_factor=by)
    batch, channels, height, width = value.shape
    apart = low.view(value, (batch, by, by, channels // by**2, height, width))
    return low.view(low.permute(apart, (0, 3, 4, 1, 5, 2)), call.shape)


@lowers("SpaceToDepth")
def _space_to_depth(low: Lowering, call: Call) -> Value:
    value, by = low.value(call.needed(0)), call.get("blocksize")
    batch, channels, height, width = value.shape
    apart = low.view(value, (batch, channels, height // by, by, width // by, by))
    return low.view(low.permute(apart, (0, 3, 5, 1, 2, 4)), call.shape)


@lowers("GatherElements")
def _gather_elements(low: Lowering, call: Call) -> Value:
    data, index = low.value(call.needed(0)), low.value(call.needed(1))
    return low.step("gather", call, self=data, dim=call.get("axis", 0), index=index)


@lowers("Trilu")
def _triangle(low: Lowering, call: Call) -> Value:
    diagonal = low.number(call[1]) if call[1] is not None else 0
    if diagonal is None:
        raise NotLowered
    name = "triu" if call.get("upper", 1) else "tril"
    return low.step(name, call, self=low.value(call.needed(0)), diagonal=int(diagonal) or None)
