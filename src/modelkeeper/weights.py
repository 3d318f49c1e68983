"""Weights as bytes: safetensors, written and read tensor by tensor.

    header = Header.of(tensors)                    names, dtypes, shapes -> where each lies
    for chunk in stream(header, arrays): ...       the bytes of a file; one tensor in memory at a time
    weights = open_file(path)                      a mapping; a tensor is read when it is asked for

The format is that of the `safetensors` package (8 bytes of length, a JSON header, then the numbers), so
that files can be used without us. It is read here rather than there because weights come from other people:
lengths, overlaps and counts are checked before anything is allocated, and a tensor can be fetched from
wherever its bytes are, a file or an object store.
"""

import math
import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import ml_dtypes
import msgspec
import numpy as np
from msgspec import Struct

from modelkeeper import _native
from modelkeeper.errors import InvalidWeights

Array = np.ndarray[Any, np.dtype[Any]]
Read = Callable[[int, int], Any]  # offset and length -> bytes

MAX_HEADER = 32 * 2**20
MAX_TENSORS = 200_000
MAX_RANK = 32
CHUNK = 8 * 2**20
METADATA = "__metadata__"
MAX_SHOWN = 200  # characters of a name in an error
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]')  # of JSON: strings and brackets

_CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32",
    "float64": "F64", "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip
_NAMES = {code: name for name, code in _CODES.items()}


def dtype_of(name: str) -> np.dtype[Any]:
    """A NumPy type by the name a graph gives it."""
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
    return dtype


SMALL_FLOATS = frozenset(dtype_of(name) for name in _CODES if "float16" in name or "float8" in name)

Kind = Literal["float16", "bfloat16", "float32", "float64"]  # of floats that the native module knows
FLOAT_KINDS: dict[np.dtype[Any], Kind] = {
    np.dtype(np.float16): "float16",
    np.dtype(ml_dtypes.bfloat16): "bfloat16",
    np.dtype(np.float32): "float32",
    np.dtype(np.float64): "float64",
}


def holds_nan(array: Array) -> bool:
    """Is any of the numbers NaN? One pass over them, as they lie in memory."""
    dtype = array.dtype.newbyteorder("=")
    kind = FLOAT_KINDS.get(np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype)
    if kind is not None:
        flat = array.ravel("K").astype(dtype, copy=False)
        return _native.holds_nan(flat.view(np.uint8), kind)
    with np.errstate(invalid="ignore"):  # a signalling NaN says so when it is cast
        return dtype in SMALL_FLOATS and array.size > 0 and bool(np.isnan(array.astype(np.float32).min()))


class Spec(Struct, frozen=True):
    """One tensor: its type, its shape, and where its bytes lie after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0


class _Entry(Struct):
    """One tensor as the header of a file has it."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    def spec(self, name: str, at: int) -> Spec:
        """The same as a Spec, if it is possible and its bytes begin just at `at`."""
        begin, end = self.data_offsets
        if self.dtype not in _NAMES:
            raise InvalidWeights(name[:MAX_SHOWN], f"unknown type {self.dtype[:MAX_SHOWN]!r}")
        dtype = _NAMES[self.dtype]
        least = min(self.shape, default=0)
        # What is empty has dimensions, too, and no array can have larger ones.
        if len(self.shape) > MAX_RANK or least < 0 or math.prod(s or 1 for s in self.shape) >= 2**59:
            raise InvalidWeights(name[:MAX_SHOWN], f"impossible shape {self.shape[:MAX_RANK]}")
        if begin != at or end - begin != math.prod(self.shape) * dtype_of(dtype).itemsize:
            where = f"bytes {begin} to {end} do not follow what comes before, or do not fit its shape"
            raise InvalidWeights(name[:MAX_SHOWN], where)
        return Spec(dtype, self.shape, begin, end)


_entries = msgspec.json.Decoder(_Entry)  # made here, where just one thread comes by


class Header(Struct, frozen=True, dict=True):
    """Where each tensor of a file lies."""

    tensors: dict[str, Spec]
    metadata: dict[str, str] = {}

    @classmethod
    def of(
        cls, tensors: Iterable[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
    ) -> "Header":
        """Lay out tensors, given by name, dtype and shape, one after the other.

        The widest types come first, so that every tensor is aligned, as readers of the format expect.
        """
        listed = list(tensors)
        for name, dtype, _ in listed:
            if dtype not in _CODES:
                raise InvalidWeights(name, f"weights of type {dtype} cannot be stored in safetensors")
            if name == METADATA:
                raise InvalidWeights(name, "no tensor of a safetensors file can be called so")
        specs: dict[str, Spec] = {}
        at = 0
        for name, dtype, shape in sorted(listed, key=lambda tensor: -dtype_of(tensor[1]).itemsize):
            if name in specs:
                raise InvalidWeights(name, "it is given twice")
            end = at + math.prod(shape) * dtype_of(dtype).itemsize
            specs[name] = Spec(dtype, shape, at, end)
            at = end
        return cls(specs, dict(metadata or {}))

    @property
    def data_bytes(self) -> int:
        """The length of what follows the header."""
        return max((spec.end for spec in self.tensors.values()), default=0)

    def to_bytes(self) -> bytes:
        """The beginning of a file: the length of the header, and the header."""
        table: dict[str, Any] = {METADATA: self.metadata} if self.metadata else {}
        for name, spec in self.tensors.items():
            table[name] = _Entry(_CODES[spec.dtype], spec.shape, (spec.begin, spec.end))
        text = msgspec.json.encode(table)
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    @classmethod
    def parse(cls, text: bytes, data_bytes: int | None = None) -> "Header":
        """Read a header (without its length), and check that it describes just the bytes there are.

        Raises:
            InvalidWeights: It is no header, or tensors overlap, leave gaps or lie beyond the end.
        """
        try:
            raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            if len(raw) > MAX_TENSORS:
                raise InvalidWeights("file", f"{len(raw):,} tensors; at most {MAX_TENSORS:,}")
            if _names(text) != len(raw):
                raise InvalidWeights("file", "a name stands twice in its header")
            metadata = msgspec.json.decode(raw.pop(METADATA, b"{}"), type=dict[str, str])
            entries = {name: _entries.decode(entry) for name, entry in raw.items()}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidWeights("file", f"its header is no safetensors header: {problem}") from problem
        at, specs = 0, {}
        for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
            specs[name] = entry.spec(name, at)
            at = specs[name].end
        if data_bytes is not None and at != data_bytes:
            raise InvalidWeights("file", f"its tensors take {at:,} bytes, but {data_bytes:,} are there")
        return cls({name: specs[name] for name in entries}, metadata)


def _names(text: bytes) -> int:
    """How many names, also repeated ones, does the outermost object of a JSON text have?"""
    depth = names = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        depth += (first in b"{[") - (first in b"}]")
        names += depth == 1 and first == ord('"')
    return names


def without_nan(arrays: Iterable[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
    """The same tensors, as long as they hold numbers.

    Raises:
        InvalidWeights: One holds NaN: the training has failed.
    """
    for name, array in arrays:
        if holds_nan(array):
            raise InvalidWeights(name, "it holds NaN: the training has failed")
        yield name, array


def stream(header: Header, arrays: Iterable[tuple[str, Array]]) -> Iterator[memoryview | bytes]:
    """The bytes of a file with these tensors.

    Tensors that come in the order of the header are passed on at once; one that comes early waits.

    Raises:
        InvalidWeights: A tensor is missing, unknown, or of another type or shape than the header says.
    """
    yield header.to_bytes()
    waiting: dict[str, Array] = {}
    source = iter(arrays)
    for name in sorted(header.tensors, key=lambda tensor: header.tensors[tensor].begin):
        while name not in waiting:
            arrived = next(source, None)
            if arrived is None:
                raise InvalidWeights(name, "it is missing")
            other, array = arrived
            expected = header.tensors.get(other)
            if expected is None:
                raise InvalidWeights(other, "nobody asked for it")
            native = array.dtype.newbyteorder("=")
            if tuple(array.shape) != expected.shape or native != dtype_of(expected.dtype):
                given = f"{array.dtype} of shape {tuple(array.shape)}"
                raise InvalidWeights(other, f"{given} instead of {expected.dtype} {expected.shape}")
            waiting[other] = array
        yield from _chunks(waiting.pop(name))
    for other, _ in source:
        raise InvalidWeights(other, "it is given twice or nobody asked for it")


def _chunks(array: Array) -> Iterator[memoryview]:
    """The bytes of an array, little-endian, some megabytes at a time."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    flat = memoryview(array.reshape(-1).view(np.uint8).data)
    for at in range(0, len(flat), CHUNK):
        yield flat[at : at + CHUNK]


class Weights(Mapping[str, Array]):
    """The tensors of a file by name, each read when it is asked for. Arrays are not to be written to."""

    def __init__(self, read: Read, size: int) -> None:
        """`read(offset, length)` gives bytes of the file, `size` is its length."""
        if size < 8:
            raise InvalidWeights("file", f"{size} bytes are too few for a safetensors file")
        length = int.from_bytes(bytes(read(0, 8)), "little")
        if not 2 <= length <= min(MAX_HEADER, size - 8):
            raise InvalidWeights("file", f"its header claims {length:,} bytes of the {size:,} that there are")
        self.header = Header.parse(bytes(read(8, length)), size - 8 - length)
        self._read, self._start = read, 8 + length

    def __getitem__(self, name: str) -> Array:
        spec = self.header.tensors[name]
        data = self._read(self._start + spec.begin, spec.end - spec.begin)
        array: Array = np.frombuffer(data, dtype_of(spec.dtype)).reshape(spec.shape)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.tensors)

    def __len__(self) -> int:
        return len(self.header.tensors)


def open_file(path: str | Path) -> Weights:
    """The weights in a file, mapped into memory: what is not asked for is not read.

    Raises:
        InvalidWeights: There is no such file, or it is no safetensors file.
    """
    try:
        with Path(path).open("rb") as file:
            return map_file(file)
    except OSError as problem:
        raise InvalidWeights(str(path), f"it cannot be read: {problem.strerror or problem}") from problem
    except InvalidWeights as problem:
        where = Path(path).name if problem.name == "file" else problem.name
        raise InvalidWeights(where, problem.problem) from problem


def map_file(file: IO[bytes], *, private: bool = False) -> Weights:
    """The weights in an open file, which may then be closed.

    Private ones may be written to without changing the file, so that nobody has to copy them first.
    """
    size = file.seek(0, 2)
    if not size:
        raise InvalidWeights("file", "the file is empty")
    access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
    view = memoryview(mmap.mmap(file.fileno(), 0, access=access))  # arrays that point into it keep it alive
    return Weights(lambda offset, length: view[offset : offset + length], size)
