"""How do bytes that come in small pieces go to a file, while more are coming?

Reading from a line, hashing and writing cost about the same, and only the first has to wait for the other
side. So bytes are collected in a buffer, and a full one is written and hashed by another thread while the
next one fills. Two buffers, which stay, are all that is held: large memory that is asked for again and again
costs a system more than copying does.
"""

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO

BUFFER_BYTES = 2 * 2**20  # bytes; large enough that a thread is worth waking, small enough for a cache


class Buffer:
    """Memory that fills, is written, and is filled again."""

    def __init__(self, most: int = BUFFER_BYTES, size: int = BUFFER_BYTES) -> None:
        """`most` is how much can come at all; no more than that is held, nor more than `size`."""
        self._buffer = memoryview(bytearray(max(1, min(size, most))))
        self.held = 0

    @property
    def full(self) -> bool:
        """Does nothing more go in?"""
        return self.held == len(self._buffer)

    def take(self, data: memoryview) -> memoryview:
        """As much of it as there is room for. Gives back the rest."""
        size = min(len(data), len(self._buffer) - self.held)
        self._buffer[self.held : self.held + size] = data[:size]
        self.held += size
        return data[size:]

    def room(self) -> memoryview:
        """Where more can be put by whoever then says so: `held`."""
        return self._buffer[self.held :]

    def view(self) -> memoryview:
        """What it holds, until it is filled anew."""
        return self._buffer[: self.held]


class BackgroundWriter:
    """Writes to a file and hashes in another thread, while more bytes come. Used as a context manager.

    Raises:
        OSError: The file cannot be written to; said by the next `add`, or at the end.
    """

    def __init__(self, file: IO[bytes], most: int = BUFFER_BYTES) -> None:
        self.digest = hashlib.sha256()
        self._file = file
        self._filling, self._spare = Buffer(most), Buffer(most)
        self._thread = ThreadPoolExecutor(1, "modelkeeper-writing")
        self._writing: Future[None] | None = None

    def add(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        rest = memoryview(data)
        while len(rest):
            rest = self._filling.take(rest)
            if self._filling.full:
                self._hand_over()

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """All is written and hashed, also what came before an error: one can go on from there."""
        try:
            self._hand_over()
            self._wait()
        except OSError:
            if error is None:
                raise
        finally:
            self._thread.shutdown()

    def _hand_over(self) -> None:
        self._wait()
        self._writing = self._thread.submit(self._write, self._filling.view())
        self._filling, self._spare = self._spare, self._filling
        self._filling.held = 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()

    def _write(self, data: memoryview) -> None:
        rest = data
        while len(rest):
            rest = rest[self._file.write(rest) :]
        self.digest.update(data)
