"""Operations on shape: reshape, permute, concatenate, split, index, pad."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from modelkeeper.frontends.keras.operations.table import axis_of, carries_out, sizes


@carries_out("reshape.default")
def reshape(self: Any, shape: list[int]) -> Any:
    """The same numbers in the same order, in another shape."""
    return ops.reshape(self, tuple(shape))


@carries_out("permute.default")
def _permute(self: Any, dims: list[int]) -> Any:
    return ops.transpose(self, tuple(axis_of(self, n) for n in dims))


@carries_out("transpose.int")
def _transpose(self: Any, dim0: int, dim1: int) -> Any:
    return ops.swapaxes(self, axis_of(self, dim0), axis_of(self, dim1)) if len(self.shape) else self


@carries_out("t.default")
def _t(self: Any) -> Any:
    return ops.transpose(self)


@carries_out("movedim.int")
def _movedim(self: Any, source: int, destination: int) -> Any:
    return ops.moveaxis(self, source, destination)


@carries_out("unsqueeze.default")
def _unsqueeze(self: Any, dim: int) -> Any:
    return ops.expand_dims(self, dim)


@carries_out("squeeze.default", "squeeze.dim", "squeeze.dims")
def _squeeze(self: Any, dim: Any = None) -> Any:
    named = range(len(self.shape)) if dim is None else dim if isinstance(dim, list) else [dim]
    gone = {axis_of(self, n) for n in named}
    return reshape(self, [size for n, size in enumerate(sizes(self)) if size != 1 or n not in gone])


@carries_out("expand.default")
def expand(self: Any, size: list[int], implicit: bool = False) -> Any:
    """Axes of one unit, repeated; -1: as it is."""
    have = [1] * (len(size) - len(self.shape)) + sizes(self)
    return ops.broadcast_to(self, [old if new == -1 else new for old, new in zip(have, size, strict=True)])


@carries_out("repeat.default")
def _repeat(self: Any, repeats: list[int]) -> Any:
    return ops.tile(reshape(self, [1] * (len(repeats) - len(self.shape)) + sizes(self)), repeats)


@carries_out("repeat_interleave.self_int")
def _repeat_interleave(self: Any, repeats: int, dim: int | None, output_size: int | None) -> Any:
    if dim is None:
        return ops.repeat(reshape(self, [-1]), repeats, 0)
    return ops.repeat(self, repeats, axis_of(self, dim))


@carries_out("flatten.using_ints")
def _flatten(self: Any, start_dim: int, end_dim: int) -> Any:
    first, last, shape = axis_of(self, start_dim), axis_of(self, end_dim), sizes(self)
    return reshape(self, [*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]])


@carries_out("unflatten.int")
def _unflatten(self: Any, dim: int, sizes: list[int]) -> Any:
    axis, shape = axis_of(self, dim), [int(size) for size in self.shape]
    rest = math.prod(size for size in sizes if size != -1)
    named = [shape[axis] // rest if size == -1 else size for size in sizes]
    return reshape(self, [*shape[:axis], *named, *shape[axis + 1 :]])


@carries_out("cat.default")
def _cat(tensors: list[Any], dim: int) -> Any:
    parts = [tensor for tensor in tensors if sizes(tensor) != [0]]  # torch lets empty ones pass
    return ops.concatenate(parts, axis_of(parts[0], dim))


@carries_out("stack.default")
def _stack(tensors: list[Any], dim: int) -> Any:
    return ops.stack(tensors, dim)


def _cut(self: Any, dim: int, begin: int, end: int, step: int = 1) -> Any:
    """A part of an axis."""
    axis = axis_of(self, dim)
    return self[(slice(None),) * axis + (slice(begin, end, step),)]


@carries_out("split.Tensor")
def _split(self: Any, split_size: int, dim: int) -> list[Any]:
    size = int(self.shape[axis_of(self, dim)])
    return [_cut(self, dim, begin, min(begin + split_size, size)) for begin in range(0, size, split_size)]


@carries_out("split_with_sizes.default")
def _split_with_sizes(self: Any, split_sizes: list[int], dim: int) -> list[Any]:
    ends: list[int] = np.cumsum(split_sizes).tolist()
    return [_cut(self, dim, end - size, end) for size, end in zip(split_sizes, ends, strict=True)]


@carries_out("chunk.default")
def _chunk(self: Any, chunks: int, dim: int) -> list[Any]:
    size = int(self.shape[axis_of(self, dim)])
    part = -(-size // chunks)
    return [_cut(self, dim, begin, min(begin + part, size)) for begin in range(0, size, part)]


@carries_out("unbind.int")
def _unbind(self: Any, dim: int) -> list[Any]:
    return [_select(self, dim, n) for n in range(int(self.shape[axis_of(self, dim)]))]


@carries_out("slice.Tensor")
def _slice(self: Any, dim: int, start: int | None, end: int | None, step: int) -> Any:
    begin, stop, _ = slice(start, end, step).indices(int(self.shape[axis_of(self, dim)]))
    return _cut(self, dim, begin, max(begin, stop), step)


@carries_out("select.int")
def _select(self: Any, dim: int, index: int) -> Any:
    axis = axis_of(self, dim)
    return self[(slice(None),) * axis + (index % int(self.shape[axis]),)]


@carries_out("narrow.default")
def _narrow(self: Any, dim: int, start: int, length: int) -> Any:
    begin = start % int(self.shape[axis_of(self, dim)]) if start < 0 else start
    return _cut(self, dim, begin, begin + length)


@carries_out("index_select.default")
def _index_select(self: Any, dim: int, index: Any) -> Any:
    return ops.take(self, index, axis_of(self, dim))


@carries_out("gather.default")
def _gather(self: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    axis, index = axis_of(self, dim), ops.cast(index, "int32")
    for n, size in enumerate(sizes(index)):
        if n != axis and size != int(self.shape[n]):
            self = _cut(self, n, 0, size)
    return ops.take_along_axis(self, index, axis)


@carries_out("index.Tensor")
def _index(self: Any, indices: list[Any]) -> Any:
    """Indices along neighbouring axes, which broadcast against each other."""
    named = [n for n, index in enumerate(indices) if index is not None]
    if named != list(range(named[0], named[0] + len(named))):
        raise NotImplementedError("indices along axes that are not neighbours")
    if any(keras.backend.standardize_dtype(indices[n].dtype) == "bool" for n in named):
        raise NotImplementedError("an index by a mask")
    shape, first = sizes(self), named[0]
    flat: Any = None
    for n in named:
        place = ops.mod(ops.cast(indices[n], "int32"), shape[n])
        flat = place if flat is None else flat * shape[n] + place
    merged = reshape(self, [*shape[:first], -1, *shape[first + len(named) :]])
    return ops.take(merged, flat, first)


@carries_out("flip.default")
def _flip(self: Any, dims: list[int]) -> Any:
    for dim in dims:
        self = ops.flip(self, axis_of(self, dim))
    return self


@carries_out("roll.default")
def _roll(self: Any, shifts: list[int], dims: list[int]) -> Any:
    if not dims:
        return reshape(ops.roll(reshape(self, [-1]), shifts[0], 0), sizes(self))
    for shift, dim in zip(shifts, dims, strict=True):
        self = ops.roll(self, shift, axis_of(self, dim))
    return self


@carries_out("constant_pad_nd.default")
def constant_pad(self: Any, pad: list[int], value: float = 0) -> Any:
    """A border of a number around the last axes, from the last one on; less than 0: cut off."""
    rank, widths = len(self.shape), [(0, 0)] * len(self.shape)
    for n in range(len(pad) // 2):
        before, behind = pad[2 * n], pad[2 * n + 1]
        axis = rank - 1 - n
        if before < 0 or behind < 0:
            size = int(self.shape[axis])
            self = _cut(self, axis, max(0, -before), size - max(0, -behind))
        widths[axis] = (max(0, before), max(0, behind))
    if not any(map(any, widths)):
        return self
    return ops.pad(self, widths, constant_values=value) if value else ops.pad(self, widths)


@carries_out("pad.default")
def _pad(self: Any, pad: list[int], mode: str, value: float | None) -> Any:
    if mode == "constant":
        return constant_pad(self, pad, value or 0)
    return _mirrored(self, pad, mode)


def _mirrored(self: Any, padding: list[int], mode: str) -> Any:
    """A border of what lies on the other side, of the outermost numbers, or of those at the far end."""
    rank = len(self.shape)
    for n in range(len(padding) // 2):
        axis = rank - 1 - n
        size = int(self.shape[axis])
        places = np.arange(-padding[2 * n], size + padding[2 * n + 1])
        if mode == "reflect":
            places = size - 1 - np.abs(size - 1 - np.abs(places))
        elif mode == "replicate":
            places = places.clip(0, size - 1)
        elif mode == "circular":
            places = places % size
        else:
            raise NotImplementedError(f"padding in mode {mode[:20]}")
        self = ops.take(self, ops.convert_to_tensor(places.astype(np.int32)), axis)
    return self


@carries_out("reflection_pad1d.default", "reflection_pad2d.default")
def _reflection_pad(self: Any, padding: list[int]) -> Any:
    return _mirrored(self, padding, "reflect")


@carries_out("replication_pad1d.default", "replication_pad2d.default")
def _replication_pad(self: Any, padding: list[int]) -> Any:
    return _mirrored(self, padding, "replicate")


@carries_out("tril.default")
def _tril(self: Any, diagonal: int) -> Any:
    return ops.tril(self, diagonal)


@carries_out("triu.default")
def _triu(self: Any, diagonal: int) -> Any:
    return ops.triu(self, diagonal)


@carries_out("channel_shuffle.default")
def _channel_shuffle(self: Any, groups: int) -> Any:
    shape = sizes(self)
    apart = reshape(self, [shape[0], groups, shape[1] // groups, *shape[2:]])
    return reshape(ops.swapaxes(apart, 1, 2), shape)


@carries_out("pixel_shuffle.default")
def _pixel_shuffle(self: Any, upscale_factor: int) -> Any:
    *lead, channels, height, width = sizes(self)
    r, n = upscale_factor, len(lead)
    apart = reshape(self, [*lead, channels // (r * r), r, r, height, width])
    moved = ops.transpose(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(moved, [*lead, channels // (r * r), height * r, width * r])


@carries_out("pixel_unshuffle.default")
def _pixel_unshuffle(self: Any, downscale_factor: int) -> Any:
    *lead, channels, height, width = sizes(self)
    r, n = downscale_factor, len(lead)
    apart = reshape(self, [*lead, channels, height // r, r, width // r, r])
    moved = ops.transpose(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(moved, [*lead, channels * r * r, height // r, width // r])


@carries_out("unfold.default")
def _unfold(self: Any, dimension: int, size: int, step: int) -> Any:
    axis = axis_of(self, dimension)
    starts = range(0, int(self.shape[axis]) - size + 1, step)
    parts = [ops.moveaxis(_cut(self, axis, start, start + size), axis, -1) for start in starts]
    return ops.stack(parts, axis)
