"""How are all tensors of a start made before the first one is written, in little memory?

A model gets all that is lent to it, or nothing: what goes wrong while tensors are read, checked and gathered
must not leave it half written. So they are all made first. What lies in a mapped file, or in the memory of
another model, waits there at no cost. What was made anew waits in memory as long as it is little; beyond that
in a temporary file without a name, mapped into memory, so that the process holds a model once and not twice.

    weights = held(apply(plan, tensors))      all of them: a dict, as loading takes it

Where there is no room for such a file, the rest waits in memory.
"""

import mmap
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from typing import IO, Any, TypeVar

import numpy as np

from modelkeeper.layouts import Laid
from modelkeeper.weights import Array

W = TypeVar("W", Array, "Array | Laid")
IN_MEMORY = 64 * 2**20  # bytes of tensors made anew that may wait in memory
SMALL = 2**16  # bytes of a tensor that is not worth a place in a file
ALIGNED = 64  # bytes; where a tensor begins in the file


def held(lent: Iterable[tuple[str, W]], in_memory: int | None = None) -> dict[str, W]:
    """All of these tensors at once, with at most about `in_memory` bytes of new memory for them."""
    in_memory = IN_MEMORY if in_memory is None else in_memory
    waiting: dict[str, W] = {}
    places: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
    with _Overflow() as overflow:
        for name, value in lent:
            waiting[name] = value
            array = value.array if isinstance(value, Laid) else value
            if array.nbytes < SMALL or not _made_anew(array):
                continue
            if array.nbytes <= in_memory:
                in_memory -= array.nbytes
            elif (place := overflow.put(array)) is not None:
                places[name] = place, array.shape, array.dtype
                waiting[name] = _without(value)  # forget the memory before the next one is made
        mapped = overflow.mapped() if places else b""
    for name, (place, shape, dtype) in places.items():
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(mapped, dtype, count, place).reshape(shape)
        value = waiting[name]
        waiting[name] = replace(value, array=array) if isinstance(value, Laid) else array
    return waiting


def _made_anew(array: Array) -> bool:
    """Does an array have memory of its own, not that of a mapped file or of a model?"""
    root: Any = array
    while isinstance(root, np.ndarray) and root.base is not None:
        root = root.base
    return isinstance(root, np.ndarray)


def _without(value: W) -> W:
    """The same without its numbers."""
    empty = np.empty(0, np.uint8)
    return replace(value, array=empty) if isinstance(value, Laid) else empty


class _Overflow:
    """A temporary file without a name, made when it is first needed, that arrays are written to."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end, self._full = 0, False

    def __enter__(self) -> "_Overflow":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()  # what is mapped stays

    def put(self, array: Array) -> int | None:
        """Write an array: where it begins; None if there is no room for it."""
        if self._full:
            return None
        place = self._end
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="modelkeeper-", buffering=0)  # noqa: SIM115 (`__exit__`)
            self._file.seek(place)
            rest = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            self._end += len(rest) + -len(rest) % ALIGNED
            while len(rest):
                rest = rest[self._file.write(rest) :]
            self._file.truncate(self._end)
        except OSError:
            self._full = True
            return None
        return place

    def mapped(self) -> "mmap.mmap | bytes":
        """All that was written, mapped into memory; writing to it changes no file."""
        assert self._file is not None
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
