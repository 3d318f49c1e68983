"""Rules for shape: reshape, permute, concatenate, split, index, pad."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from modelkeeper.frontends.keras.lower.lowering import Lowering, number
from modelkeeper.frontends.keras.lower.seen import Held, Seen, inverse
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, axes_of, each, lowers
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.tracing.trace import Value


@lowers("Reshape", "Ravel", "ExpandDims", "Squeeze")
def _reshape(low: Lowering, call: Call) -> Seen | Held:
    shape = tuple(call.outputs[0].shape)
    seen = low.seen(call.args[0])
    if isinstance(seen, Held):
        if [size for size in shape if size != 1] == [size for size in seen.shape if size != 1]:
            return Held(seen.variable, shape)
        return Seen.plain(low.build.view(low.plain(seen), shape))
    if seen.shape == shape:
        return seen
    if seen.only_moved and not seen.in_order:
        wide = [n for n in seen.order if seen.value.shape[n] != 1]
        if wide == sorted(wide):
            return Seen.plain(low.build.view(seen.value, shape))
        if len(shape) == 2 and shape[0] == seen.shape[0] and seen.order[0] == 0:  # a flatten: channels first
            return Seen(low.build.view(seen.value, shape), shape, seen.order, seen.split)
        folded = _fold_rows(low, seen, shape)
        if folded is not None:
            return folded
    return Seen.plain(low.build.view(low.plain(seen), shape))


def _fold_rows(low: Lowering, seen: Seen, shape: tuple[int, ...]) -> Seen | None:
    """Several axes before those that are moved become one, or one becomes several."""
    kept = len(seen.shape) - 1
    while kept > 1 and (kept >= len(shape) or shape[-kept:] != seen.shape[-kept:]):
        kept -= 1
    if kept <= 1 or kept >= len(shape) or shape[-kept:] != seen.shape[-kept:]:
        return None
    lead, new = len(seen.shape) - kept, len(shape) - kept
    if seen.order[:lead] != tuple(range(lead)):
        return None
    rest = [n - lead for n in seen.order[lead:]]
    tail = seen.value.shape[lead:]
    value = low.build.view(seen.value, (*shape[:new], *tail))
    return Seen.moved(value, (*range(new), *[new + n for n in rest]))


@lowers("Transpose")
def _transpose(low: Lowering, call: Call) -> Value | Seen:
    axes = call.operation.axes
    rank = len(call.outputs[0].shape)
    return _permuted(low, call.args[0], list(range(rank))[::-1] if axes is None else axes_of(axes, rank))


@lowers("Swapaxes")
def _swapaxes(low: Lowering, call: Call) -> Value | Seen:
    order = list(range(len(call.outputs[0].shape)))
    first, second = call.operation.axis1, call.operation.axis2
    order[first], order[second] = order[second], order[first]
    return _permuted(low, call.args[0], order)


@lowers("Moveaxis")
def _moveaxis(low: Lowering, call: Call) -> Value | Seen:
    rank = len(call.outputs[0].shape)
    numbered = np.empty(range(1, rank + 1)) if rank < 6 else None
    if numbered is None:
        raise CannotLower("axes moved among more than five")
    moved = np.moveaxis(numbered, call.operation.source, call.operation.destination)
    return _permuted(low, call.args[0], [size - 1 for size in moved.shape])


def _permuted(low: Lowering, thing: Any, order: Sequence[int]) -> Value | Seen:
    """Axes in another order, as somebody asked for it: in one permutation with what was moved before."""
    return low.arranged(thing, order)


@lowers("Concatenate")
def _concatenate(low: Lowering, call: Call) -> Seen:
    things = [low.seen(thing) for thing in call.args[0]]
    axis = call.operation.axis % len(things[0].shape)
    moved = [thing for thing in things if isinstance(thing, Seen) and thing.only_moved and not thing.in_order]
    back = moved[0].order if moved else tuple(range(len(things[0].shape)))
    values = [low.arranged(thing, inverse(back)) for thing in things]
    shape = tuple(call.outputs[0].shape)
    shape = tuple(shape[n] for n in inverse(back))
    return Seen.moved(low.step("cat", shape, tensors=values, dim=back[axis]), back)


@lowers("Stack")
def _stack(low: Lowering, call: Call) -> Value:
    values = [low.plain(thing) for thing in call.args[0]]
    return low.step("stack", call.outputs[0].shape, tensors=values, dim=int(call.operation.axis))


@lowers("Split")
def _split(low: Lowering, call: Call) -> list[Seen]:
    seen = low.moved(call.args[0])
    axis = call.operation.axis % len(seen.shape)
    dim = seen.order[axis]
    sizes = [int(tensor.shape[axis]) for tensor in call.outputs]
    shapes = [[size if n == dim else other for n, other in enumerate(seen.value.shape)] for size in sizes]
    if len(set(sizes)) == 1:
        made = low.steps("split", shapes, self=seen.value, split_size=sizes[0], dim=dim)
    else:
        made = low.steps("split_with_sizes", shapes, self=seen.value, split_sizes=sizes, dim=dim)
    return [Seen.moved(value, seen.order) for value in made]


@lowers("Unstack")
def _unstack(low: Lowering, call: Call) -> list[Value]:
    shapes = [tensor.shape for tensor in call.outputs]
    return low.steps("unbind", shapes, self=low.plain(call.args[0]), dim=int(call.operation.axis))


@lowers("GetItem")
def _getitem(low: Lowering, call: Call) -> Seen:
    given = arguments(call)
    seen, key = low.moved(given["x"]), given["key"]
    key = list(key) if isinstance(key, (tuple, list)) else [key]
    if any(isinstance(part, keras.KerasTensor) or np.ndim(part) > 0 for part in key if part is not Ellipsis):
        return Seen.plain(_picked(low, call, seen, key))
    if Ellipsis in key:
        at = key.index(Ellipsis)
        named = sum(part is not None and part is not Ellipsis for part in key)
        key[at : at + 1] = [slice(None)] * (len(seen.shape) - named)
    key += [slice(None)] * (len(seen.shape) - sum(part is not None for part in key))
    value, order = seen.value, list(seen.order)
    axis = 0  # of Keras
    for part in key:
        if part is None:
            value, order = _new_axis(low, Seen.moved(value, order), axis)
            axis += 1
        elif isinstance(part, slice):
            value = _slice(low, value, order[axis], part)
            axis += 1
        else:
            value, order = _select(low, value, order, axis, int(number(part) or 0))
    return Seen.moved(value, order)


def _slice(low: Lowering, value: Value, dim: int, part: slice) -> Value:
    start, end, step = part.indices(value.shape[dim])
    if (start, end, step) == (0, value.shape[dim], 1):
        return value
    if step < 0:
        if (start, end, step) != (value.shape[dim] - 1, -1, -1):
            raise CannotLower("a slice that goes backwards")
        return low.step("flip", value.shape, self=value, dims=[dim])
    shape = [len(range(start, end, step)) if n == dim else size for n, size in enumerate(value.shape)]
    by = None if step == 1 else step
    return low.step("slice", shape, self=value, dim=dim, start=start, end=end, step=by)


def _select(low: Lowering, value: Value, order: list[int], axis: int, index: int) -> tuple[Value, list[int]]:
    dim = order[axis]
    shape = [size for n, size in enumerate(value.shape) if n != dim]
    made = low.step("select", shape, self=value, dim=dim, index=index)
    return made, [n - (n > dim) for m, n in enumerate(order) if m != axis]


def _new_axis(low: Lowering, seen: Seen, axis: int) -> tuple[Value, list[int]]:
    """An axis of one unit before Keras' axis; in the value it is the last."""
    value = low.build.view(seen.value, (*seen.value.shape, 1))
    order = [*seen.order[:axis], len(seen.shape), *seen.order[axis:]]
    return value, order


def _picked(low: Lowering, call: Call, seen: Seen, key: list[Any]) -> Value:
    """Rows by a list of indices, along one axis."""
    lists = [n for n, part in enumerate(key) if not (isinstance(part, slice) and part == slice(None))]
    if len(lists) != 1 or any(part is None or part is Ellipsis for part in key):
        raise CannotLower("an index by several lists")
    return take(low, call, low.plain(seen), key[lists[0]], lists[0])


def take(low: Lowering, call: Call, value: Value, indices: Any, axis: int) -> Value:
    """Units along an axis by their indices, which may be numbers or come from the model."""
    index = low.plain(indices)
    count = int(np.prod(index.shape, dtype=np.int64))
    flat = low.build.view(index, [count])
    shape = [count if n == axis else size for n, size in enumerate(value.shape)]
    made = low.step("index_select", shape, self=value, dim=axis, index=flat)
    return low.build.view(made, call.outputs[0].shape)


@lowers("Slice")
def _slice_op(low: Lowering, call: Call) -> Value:
    given = arguments(call)
    value = low.plain(given["inputs"])
    starts = given["start_indices"]
    for dim, (start, size) in enumerate(zip(starts, call.outputs[0].shape, strict=True)):
        at = number(start)
        if at is None:
            raise CannotLower("a slice whose place is computed")
        value = _slice(low, value, dim, slice(int(at), int(at) + int(size)))
    return value


@lowers("BroadcastTo")
def _broadcast_to(low: Lowering, call: Call) -> Value:
    shape, value = tuple(call.outputs[0].shape), low.plain(call.args[0])
    return value if value.shape == shape else low.step("expand", shape, self=value, size=list(shape))


@lowers("Tile")
def _tile(low: Lowering, call: Call) -> Value:
    value = low.plain(call.args[0])
    times = to_numpy(call.operation.repeats).reshape(-1).tolist()
    rank = max(len(times), len(value.shape))
    times = [1] * (rank - len(times)) + times
    return low.step("repeat", call.outputs[0].shape, self=value, repeats=times)


@lowers("Repeat")
def _repeat(low: Lowering, call: Call) -> Seen:
    """Each unit so many times in a row: along a moved axis as it lies."""
    axis, times = call.operation.axis, number(call.operation.repeats)
    if axis is None or times is None:
        raise CannotLower("repeated in another way than so many times along an axis")
    seen = low.moved(call.args[0])
    dim = seen.order[axis % len(seen.shape)]
    shape = list(seen.value.shape)
    value = low.build.view(seen.value, [*shape[: dim + 1], 1, *shape[dim + 1 :]])
    wide = [*shape[: dim + 1], int(times), *shape[dim + 1 :]]
    value = low.step("expand", wide, self=value, size=wide)
    shape[dim] *= int(times)
    return Seen.moved(low.build.view(value, shape), seen.order)


@lowers("Pad")
def _pad(low: Lowering, call: Call) -> Seen:
    operation, given = call.operation, arguments(call)
    seen = low.moved(call.args[0])
    widths = [each(pair, 2) for pair in operation.pad_width]
    widths = widths * len(seen.shape) if len(widths) == 1 else widths
    moved = [widths[n] for n in inverse(seen.order)]
    shape = [size + sum(pair) for size, pair in zip(seen.value.shape, moved, strict=True)]
    pads = [width for pair in reversed(moved) for width in pair]
    while len(pads) > 2 and pads[-2:] == [0, 0]:
        del pads[-2:]
    if operation.mode == "constant":
        fill = number(given.get("constant_values")) or None  # zero is what the vocabulary takes for granted
        return Seen.moved(low.step("pad", shape, self=seen.value, pad=pads, value=fill), seen.order)
    names = {"reflect": "reflection_pad", "edge": "replication_pad"}
    count = len(pads) // 2
    if operation.mode not in names or count > 2 or len(seen.shape) - count not in (1, 2):
        raise CannotLower(f"padding in mode {operation.mode}")
    made = low.step(f"{names[operation.mode]}{count}d", shape, self=seen.value, padding=pads)
    return Seen.moved(made, seen.order)


@lowers("Flip")
def _flip(low: Lowering, call: Call) -> Seen:
    seen = low.moved(call.args[0])
    dims = [seen.order[n] for n in axes_of(call.operation.axis, len(seen.shape))]
    return Seen.moved(low.step("flip", seen.value.shape, self=seen.value, dims=dims), seen.order)


@lowers("Roll")
def _roll(low: Lowering, call: Call) -> Seen:
    operation, seen = call.operation, low.moved(call.args[0])
    if operation.axis is None:
        raise CannotLower("rolled without an axis")
    dims = [seen.order[n] for n in axes_of(operation.axis, len(seen.shape))]
    shifts = each(operation.shift, len(dims))
    made = low.step("roll", seen.value.shape, self=seen.value, shifts=shifts, dims=dims)
    return Seen.moved(made, seen.order)


@lowers("Tril", "Triu")
def _triangle(low: Lowering, call: Call) -> Value:
    value = low.plain(call.args[0])
    return low.step(call.name.lower(), value.shape, self=value, diagonal=int(call.operation.k) or None)
