"""How does a long body come into buffers, without being copied on its way?

    body = LongBody(request, most)
    more = await body.fill(buffer)         as far as there is room, and as the body goes

Between a socket and a route, a body is cut into small pieces, and each is copied six times and wakes a task.
So once a body has begun, `Inflow` takes the place of its connection and reads the rest straight into the
buffers, but for the very last byte: with that, whoever parses HTTP finds the end. Where there is no
connection of ours (behind another server), pieces are copied.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from modelkeeper.write_buffers import Buffer

LINE = "modelkeeper.line"  # the extension of a scope that holds the connection
PAUSE = 60.0  # seconds between two pieces of a longer body, and after which SLOWEST counts
SLOWEST = 1_000  # bytes per second of a longer body
LOOK = 1.0  # seconds after which what came is given out, though there is room for more


class LongBody:
    """The body of a request, of which a limited number of bytes is wanted. For one reader."""

    def __init__(self, request: Request, most: int) -> None:
        self._line: H11Protocol | None = request.scope.get("extensions", {}).get(LINE)
        self._chunks = _stream(request)
        self._most, self._left = most, most
        self._rest = memoryview(b"")
        self._came, self._waited = 0, 0.0

    async def fill(self, buffer: Buffer) -> bool:
        """Fill a buffer, as far as the body goes. Can more come?

        Raises:
            HTTPException: More came than is wanted.
            TimeoutError: Nothing came for long, or all of it comes too slowly.
            ClientDisconnect: Whoever sent it has gone. What came before is in the buffer.
        """
        while not buffer.full:
            if not len(self._rest):
                if await self._directly(buffer):
                    continue
                begun = time.monotonic()
                async with asyncio.timeout(PAUSE):
                    chunk = await anext(self._chunks, None)
                if chunk is None:
                    return False
                self._count(len(chunk), begun)
                if len(chunk) > self._left:
                    raise HTTPException(413, f"more than the {self._most:,} bytes that were announced")
                self._left -= len(chunk)
                self._rest = memoryview(chunk)
            self._rest = buffer.take(self._rest)
        return True

    async def _directly(self, buffer: Buffer) -> bool:
        """Let the connection fill the buffer, if it can. Has anything come?"""
        inflow = None if self._line is None else Inflow.of(self._line, buffer)
        if inflow is None or inflow.left > self._left:
            return False
        begun = time.monotonic()
        try:
            came = await inflow.fill()
        finally:
            self._left -= inflow.came
        self._count(came, begun)
        return True

    def _count(self, came: int, begun: float) -> None:
        """Only the time that is spent waiting counts."""
        self._came, self._waited = self._came + came, self._waited + time.monotonic() - begun
        if self._waited > PAUSE and self._came < self._waited * SLOWEST:
            raise TimeoutError


async def _stream(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        if chunk:
            yield chunk


class Inflow(asyncio.BufferedProtocol):
    """Takes the place of a connection while the middle of a body comes."""

    def __init__(self, connection: H11Protocol, buffer: Buffer, left: int) -> None:
        self._connection, self._buffer, self.left = connection, buffer, left
        self.came = 0
        self._done: asyncio.Future[None] = connection.loop.create_future()

    @classmethod
    def of(cls, connection: H11Protocol, buffer: Buffer) -> "Inflow | None":
        """One for the body that comes at a connection, if what comes next is the middle of one."""
        conn, cycle = connection.conn, connection.cycle
        # h11 has no other name for it. It is not there where a body comes in chunks, of unknown length.
        left = getattr(conn._reader, "_remaining", 0)
        if left <= 1 or conn.trailing_data[0] or cycle.body or cycle.disconnected or cycle.response_complete:
            return None
        if cycle.waiting_for_100_continue or connection.transport.is_closing():
            return None
        return cls(connection, buffer, left)

    async def fill(self) -> int:
        """Wait until the buffer is full, the body is at its last byte, or something came a while ago.

        Raises:
            TimeoutError: Nothing came for long.
            ClientDisconnect: Whoever sent it has gone.
        """
        connection, patience = self._connection, time.monotonic() + PAUSE
        connection.transport.set_protocol(self)
        connection.flow.resume_reading()
        try:
            while not self._done.done():
                await asyncio.wait((self._done,), timeout=LOOK)
                if self.came and not self._done.done():
                    break
                if time.monotonic() > patience and not self.came:
                    raise TimeoutError
        finally:
            connection.flow.pause_reading()
            connection.transport.set_protocol(connection)
            connection.conn._reader._remaining -= self.came  # type: ignore[union-attr]
        if connection.cycle.disconnected:
            raise ClientDisconnect
        return self.came

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go; the last byte of the body is not for us."""
        return self._buffer.room()[: self.left - 1 - self.came]

    def buffer_updated(self, nbytes: int) -> None:
        """So many came."""
        self._buffer.held += nbytes
        self.came += nbytes
        if self._buffer.full or self.came == self.left - 1:
            self._connection.flow.pause_reading()
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed."""
        self._connection.connection_lost(exc)
        self._finish()

    def eof_received(self) -> None:
        """Nothing more comes: the connection is closed next."""
        self._connection.eof_received()

    def pause_writing(self) -> None:
        """Whoever sends does not read."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """It reads again."""
        self._connection.resume_writing()

    def _finish(self) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            self._done.set_result(None)
