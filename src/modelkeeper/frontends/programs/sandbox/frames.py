"""How do a sandbox and who started it talk? In frames of JSON over a socket, and in areas of shared memory.

    send(line, Opened(...))           one message; descriptors of files may go with it
    receive(line, kind)               the next one, as a value of that type: what is no such value is refused
    place = put(area, 0, array)       numbers go into an area of memory, and a message says where they are
    array = get(area, place)          a copy of them

Whoever runs foreign programs may have been taken over, so nothing that comes from there is believed: messages
are of bounded length and have a type, and numbers are copied out of a file by reading, which can come short
but never fault.
"""

import math
import mmap
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from modelkeeper.frontends.programs.program import DTYPES, MAX_RANK
from modelkeeper.weights import Array

MOST = 2**22  # bytes of a message
ALIGNED = 64  # bytes; where an array begins in an area
M = TypeVar("M")


class Broken(Exception):
    """The other side is gone, or says what makes no sense."""


class Late(Exception):
    """No answer came in time."""


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the numbers of an array are in an area."""

    start: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """In bytes.

        Raises:
            Broken: There is no such array.
        """
        if self.dtype not in DTYPES or len(self.shape) > MAX_RANK or min((self.start, *self.shape)) < 0:
            raise Broken("an array that cannot be")
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def send(line: socket.socket, message: Any, files: Sequence[int] = (), enc_hook: Any = None) -> None:
    """Send a message, and with it descriptors of open files.

    Raises:
        Broken: The other side is gone.
    """
    data = msgspec.json.encode(message, enc_hook=enc_hook)
    if len(data) > MOST:
        raise Broken(f"a message of {len(data):,} bytes")
    try:
        if files:
            socket.send_fds(line, [len(data).to_bytes(4, "little")], list(files))
            line.sendall(data)
        else:
            line.sendall(len(data).to_bytes(4, "little") + data)
    except OSError as problem:
        raise Broken(str(problem)) from problem


def receive(line: socket.socket, kind: type[M], end: float | None = None) -> M:
    """The next message. `end`: the moment (`time.monotonic`) after which nobody waits for it.

    Raises:
        Broken: The other side is gone, or sends something else.
        Late: It takes too long.
    """
    head = _exactly(line, 4, end)
    return _decoded(_exactly(line, _length(head), end), kind)


def receive_with_files(line: socket.socket, kind: type[M], most: int) -> tuple[M, list[int]]:
    """The next message, and the descriptors that came with it."""
    try:
        head, files, _, _ = socket.recv_fds(line, 4, most)
    except OSError as problem:
        raise Broken(str(problem)) from problem
    head += _exactly(line, 4 - len(head), None) if head else b""
    if len(head) < 4:
        raise Broken("the line was closed")
    return _decoded(_exactly(line, _length(head), None), kind), files


def _length(head: bytes) -> int:
    length = int.from_bytes(head, "little")
    if length > MOST:
        raise Broken(f"a message of {length:,} bytes")
    return length


def _decoded(data: bytes, kind: type[M]) -> M:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as problem:
        raise Broken(f"a message that makes no sense: {problem}") from problem


def _exactly(line: socket.socket, length: int, end: float | None) -> bytes:
    data = bytearray()
    while len(data) < length:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise Late
        try:
            if end is not None:
                line.settimeout(left)
            piece = line.recv(length - len(data))
        except TimeoutError:
            raise Late from None
        except OSError as problem:
            raise Broken(str(problem)) from problem
        if not piece:
            raise Broken("the line was closed")
        data += piece
    return bytes(data)


# -- memory -----------------------------------------------------------------------------------------


def area(size: int) -> int:
    """A descriptor of so many bytes of memory that others can be handed; they cost nothing until written.

    Raises:
        OSError: There are none.
    """
    if hasattr(os, "memfd_create"):
        made = os.memfd_create("modelkeeper")
    else:
        with tempfile.TemporaryFile(prefix="modelkeeper-") as file:
            made = os.dup(file.fileno())
    try:
        os.ftruncate(made, size)
    except OSError:
        os.close(made)
        raise
    return made


def room_for(arrays: Sequence[Array]) -> int:
    """How many bytes an area needs, to hold these arrays one after the other."""
    return sum(array.nbytes + -array.nbytes % ALIGNED for array in arrays)


def put(area: int, given: Sequence[Array]) -> list[Place]:
    """Write arrays into an area, one after the other."""
    places, start = [], 0
    for array in given:
        rest = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        places.append(Place(start, array.dtype.name, array.shape))
        at = start
        while len(rest):
            written = os.pwrite(area, rest[: 2**30], at)
            at, rest = at + written, rest[written:]
        start += array.nbytes + -array.nbytes % ALIGNED
    return places


def get(area: int, place: Place) -> Array:
    """A copy of the numbers that are at a place of an area.

    Raises:
        Broken: They are not there.
    """
    try:
        data = bytearray(place.size)
        rest, at = memoryview(data), place.start
        while len(rest):
            read = os.preadv(area, [rest[: 2**30]], at)
            if read <= 0:
                raise Broken("numbers that are not there")
            at, rest = at + read, rest[read:]
        return np.frombuffer(data, DTYPES[place.dtype]).reshape(place.shape)
    except (OSError, OverflowError, MemoryError, ValueError) as problem:
        raise Broken(f"numbers that cannot be read: {problem}") from problem


class Mapped:
    """An area as the other side sees it: to look at arrays where they are, and to put some there."""

    def __init__(self, file: int, shared: bool) -> None:
        """Map an area. `shared`: what is written is seen by all; otherwise by this process alone."""
        size = os.fstat(file).st_size
        how = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        self._memory = (
            mmap.mmap(file, size, flags=how, prot=mmap.PROT_READ | mmap.PROT_WRITE) if size else b""
        )
        self._size, self._end = size, 0

    def at(self, place: Place) -> Array:
        """The numbers at a place, in the memory of the area."""
        count = math.prod(place.shape)
        return np.frombuffer(self._memory, DTYPES[place.dtype], count, place.start).reshape(place.shape)

    def clear(self) -> None:
        """Forget what was put there."""
        self._end = 0

    def put(self, array: Array) -> Place:
        """Copy an array behind what was put before.

        Raises:
            ValueError: There is no room for it, or it has no plain numbers.
        """
        if array.dtype.name not in DTYPES:
            raise ValueError(f"an array of {array.dtype.name}")
        place = Place(self._end, array.dtype.name, array.shape)
        if place.start + place.size > self._size:
            raise ValueError(f"an array of {array.nbytes:,} bytes, where {self._size - self._end:,} are left")
        self._end += place.size + -place.size % ALIGNED
        if array.size:
            np.copyto(self.at(place), array)
        return place
