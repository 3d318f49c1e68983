"""Which connections may be open, and how long may each of them take? Asked before anybody is known.

A connection has HEAD seconds from its first moment to the end of its first request's head, and as many from
the first byte of each further one; what is not read of a reply for STALLED seconds is not waited for. When as
many are open as may be, the one that has been without a request for longest gives way to a new one: whoever
opens connections and says nothing keeps out nobody but themselves.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from modelkeeper.logs import logger
from modelkeeper.server.inflow import LINE

HEAD = 15.0  # seconds for the head of a request
KEPT = 40  # seconds that a connection without a request stays open; clients let go of theirs after 30
STALLED = 60.0  # seconds in which some of a reply must have been read
SPARE = 256  # files that a service has open besides
LEAST = 16
log = logger("modelkeeper.server.refused")


class Crowd:
    """The connections of one service: how many there are, from where, and which have no request."""

    def __init__(self, most: int, of_one: int) -> None:
        """So many may be open, and so many from one address."""
        self._most, self._of_one = most, of_one
        self._from: Counter[str] = Counter()
        self._open: set[Connection] = set()
        self._resting: dict[Connection, None] = {}  # the one that has rested longest first

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: "Connection") -> bool:
        """May it stay? If there is no room, one that has no request gives way."""
        address = connection.address
        if self._from[address] >= self._of_one and not self._make_room(address):
            log.warning("connections are refused: %s has %s open", address, self._from[address])
            return False
        if len(self._open) >= self._most and not self._make_room(None):
            log.warning("connections are refused: all %s are in use", self._most)
            return False
        self._open.add(connection)
        self._from[address] += 1
        self._resting[connection] = None
        return True

    def leave(self, connection: "Connection") -> None:
        """It is closed."""
        self._resting.pop(connection, None)
        if connection in self._open:
            self._open.remove(connection)
            self._from[connection.address] -= 1
            if not self._from[connection.address]:
                del self._from[connection.address]

    def work(self, connection: "Connection") -> None:
        """It has a request."""
        self._resting.pop(connection, None)

    def rest(self, connection: "Connection") -> None:
        """Its request is answered."""
        if connection in self._open:
            self._resting.pop(connection, None)
            self._resting[connection] = None

    def _make_room(self, address: str | None) -> bool:
        """Close the one that has rested longest (of this address). Was there one?"""
        for connection in self._resting:
            if address in (None, connection.address):
                self.leave(connection)
                connection.transport.abort()
                return True
        return False


class Connection(H11Protocol):
    """A connection that speaks HTTP/1.1, within its time."""

    def __init__(
        self,
        crowd: Crowd,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.address = ""
        self._crowd = crowd
        self._head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It was opened."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self._crowd.enter(self):
            self._head = self.loop.call_later(HEAD, transport.abort)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed, by whomever."""
        self._stop_head()
        self._stop_stalled()
        self._crowd.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came: of a head, of a body, or of what nobody reads any more."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_head()
            self.cycle.scope["extensions"] = {LINE: self}  # type: ignore[dict-item]
            if not self.cycle.response_complete:
                self._crowd.work(self)
        elif self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._head = self.loop.call_later(HEAD, self.transport.abort)

    def on_response_complete(self) -> None:
        """A request is answered; the next one may have come already."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before:
            self._crowd.rest(self)

    def pause_writing(self) -> None:
        """Whoever asked does not read."""
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        """Whoever asked reads again."""
        self._stop_stalled()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """No request came for long. What is still unread of the last reply is not waited for."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def room_for(wanted: int, *, more_files: bool) -> int:
    """So many of the connections that are wanted can be open on this system.

    With `more_files` the process may have as many files open as it takes, if the system allows it.
    """
    try:
        import resource
    except ImportError:  # this system has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if more_files and soft != resource.RLIM_INFINITY and soft < wanted + SPARE:
        soft = wanted + SPARE if hard == resource.RLIM_INFINITY else min(wanted + SPARE, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(LEAST, min(wanted, soft - min(SPARE, soft // 2)))
