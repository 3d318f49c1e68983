"""Fill a tensor from another one: which unit of the source does each unit take, and how much of it?

Whatever is done to a weight to change its widths, in the end it is one gather along all of its axes:

    out[i, j, ..] = source[x[i], y[j], ..] * f[i] * g[j] * ..

To widen the inputs of a linear layer from 2 to 3, the third a copy of the first, each with half its weight:

    gather(weight, [AxisMap(), AxisMap(np.array([0, 1, 0]), np.array([0.5, 1.0, 0.5]))], (4, 3))

Two gathers in a row are one: by `a`, then by `b`, is the gather by `a.index[b.index]` with the factors
`a.factor[b.index] * b.factor`. A gather by identities is a copy, bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.errors import CannotGather
from modelkeeper.weights import FLOAT_KINDS, Array, Kind

__all__ = ["AxisMap", "gather"]

# Types of NumPy's family whose zero is all bits zero, which is what a hole is filled with.
_MOVABLE = {
    np.dtype(getattr(ml_dtypes, name))
    for name in (
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "int4",
        "uint4",
    )
}


_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by size: to look at any numbers as bits


@dataclass(frozen=True, eq=False)
class AxisMap:
    """Where the units along one axis of the result come from. `AxisMap()` is the identity.

    Attributes:
        index: The source's unit for each unit of the result, -1 for one that is zero. None: the same unit.
        factor: What each unit of the result is multiplied by. None: 1.
    """

    index: NDArray[np.int64] | None = None
    factor: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        for name, array, dtype in (("index", self.index, np.int64), ("factor", self.factor, np.float64)):
            if array is not None and (array.ndim != 1 or array.dtype != dtype):
                raise CannotGather(
                    f"{name} must have one axis of {np.dtype(dtype)}, not {array.ndim} of {array.dtype}"
                )
        if self.index is not None and self.factor is not None and len(self.index) != len(self.factor):
            raise CannotGather(f"{len(self.index)} entries of index, but {len(self.factor)} factors")


def gather(
    source: Array,
    maps: Sequence[AxisMap],
    shape: Sequence[int],
    *,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Fill a tensor of `shape` from `source`, one map for each axis.

    The result has the source's type. Factors need fp16, bf16, fp32 or fp64: the factors of an element are
    multiplied in fp64, the element by their product in fp64 (fp16 and bf16: in fp32), and the result is
    rounded to the nearest, ties to even. An element without factors keeps its bits. A zero is a zero: no
    factor makes it infinite or NaN. The result is the same for any number of threads.

    Args:
        source: Any byte order, and its axes in any order in memory: the result has them in the order of
            `shape`, so that a view whose axes were moved is gathered and moved in one pass.
        maps: One for each axis of `source`.
        shape: Sizes of the result, as many as the source has.
        out: Where to write: C-contiguous, of `shape` and the source's type. Default: a new array.
        threads: At most so many. Default: as many as the machine runs at once. Small tensors take one.

    Raises:
        CannotGather: A map, `shape` or `out` does not fit the source, or its type cannot be gathered. Nothing
            was written.
    """
    shape = tuple(shape)
    dtype = source.dtype.newbyteorder("=")
    if threads is not None and threads < 1:
        raise CannotGather(f"threads is {threads}; give 1 or more, or None for all there are")
    kind = _checked_kind(source, dtype, maps, shape)
    if out is None:
        out = np.empty(shape, dtype)
    elif out.shape != shape or out.dtype != dtype or not (out.flags.c_contiguous and out.flags.writeable):
        raise CannotGather(
            f"out must be a writable C-contiguous array of {dtype}, shape {shape}; "
            f"it is {'' if out.flags.writeable else 'read-only, '}of {out.dtype}, shape {out.shape}"
        )
    source = _readable(np.asarray(source, dtype))
    try:
        _native.gather(
            _span(source),
            _bytes(out),
            kind,
            dtype.itemsize,
            source.shape,
            [stride // dtype.itemsize for stride in source.strides],
            shape,
            [None if axis_map.index is None else np.ascontiguousarray(axis_map.index) for axis_map in maps],
            [None if axis_map.factor is None else np.ascontiguousarray(axis_map.factor) for axis_map in maps],
            threads or 0,
        )
    except ValueError as error:
        raise CannotGather(str(error)) from None
    return out


def _checked_kind(
    source: Array, dtype: np.dtype[Any], maps: Sequence[AxisMap], shape: tuple[int, ...]
) -> Kind | Literal["bits"]:
    """Check that the maps and the shape fit the source; how the native module calls its numbers."""
    if dtype.kind not in "biufc" and dtype not in FLOAT_KINDS and dtype not in _MOVABLE:
        raise CannotGather(f"arrays of {dtype} cannot be gathered")
    if len(maps) != source.ndim or len(shape) != source.ndim:
        raise CannotGather(
            f"a source of shape {source.shape} needs {source.ndim} maps and a shape of as many sizes, "
            f"not {len(maps)} and {shape}"
        )
    if min(shape, default=0) < 0:
        raise CannotGather(f"shape {shape} has a negative size")
    kind: Kind | Literal["bits"] = FLOAT_KINDS.get(dtype, "bits")
    if kind == "bits" and any(axis_map.factor is not None for axis_map in maps):
        raise CannotGather(f"{dtype} takes no factors: convert the source to a float type first")
    return kind


def _readable(source: Array) -> Array:
    """The source itself, if its elements are whole steps apart and go forwards in memory; else a copy."""
    forwards = all(stride >= 0 and not stride % source.itemsize for stride in source.strides)
    return source if forwards and source.itemsize in _WORDS else np.asarray(source, order="C")


def _span(source: Array) -> NDArray[np.uint8]:
    """All bytes from the first element of an array to its last, in place: with what lies between them."""
    if source.flags.c_contiguous or not source.size:
        return _bytes(np.asarray(source, order="C"))
    steps = [(size - 1) * stride for size, stride in zip(source.shape, source.strides, strict=True)]
    words = source.view(_WORDS[source.itemsize])  # NumPy's own, as strides cannot be set for others
    count = sum(steps) // source.itemsize + 1
    line: Array = np.lib.stride_tricks.as_strided(words, (count,), (source.itemsize,), writeable=False)
    return line.view(np.uint8)


def _bytes(array: Array) -> NDArray[np.uint8]:
    """The bytes of a C-contiguous array, in place: the native module knows no types but NumPy's own."""
    return array.reshape(-1).view(np.uint8)
