"""How much may one caller ask for, so that others are not kept waiting? Rates, threads, and turns."""

import asyncio
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from modelkeeper.errors import TooManyRequests

T = TypeVar("T")

MOST_WAITING = 256  # queries in the queue
MOST_USERS = 10_000  # whose last requests are remembered


class Rates:
    """A bucket for each user, that fills at a rate and holds what comes in two seconds."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # level, and when it was so
        self._lock = threading.Lock()

    def take(self, user: str, rate: float) -> None:
        """Count a request.

        Raises:
            TooManyRequests: The bucket is empty; the error says how long to wait.
        """
        now, most = time.monotonic(), max(1.0, 2 * rate)
        with self._lock:
            level, then = self._buckets.pop(user, (most, now))
            level = min(most, level + (now - then) * rate)
            self._buckets[user] = (level - 1 if level >= 1 else level), now
            if len(self._buckets) > MOST_USERS:
                self._buckets.popitem(last=False)
        if level < 1:
            wait = f"{(1 - level) / rate:.3f}"
            raise TooManyRequests(f"more than {rate:g} requests per second", "Ask less often.", wait)


class MatchingThreads:
    """Threads for matching: as many as there are cores, of which no user may take the last one."""

    def __init__(self, slots: int) -> None:
        self._slots = max(2, slots)
        self._all = CapacityLimiter(self._slots)
        self._own: dict[str, CapacityLimiter] = {}
        self._waiting = 0

    async def run(self, user: str, work: Callable[[], T]) -> T:
        """Run work in a thread, when it is its user's turn."""
        if self._waiting >= MOST_WAITING:
            raise TooManyRequests(f"{self._waiting} queries are waiting", "The service is busy.", "1")
        most = self._slots - 1 if user else self._slots
        own = self._own.setdefault(user, CapacityLimiter(most))
        self._waiting += 1
        try:
            async with own:
                return await anyio.to_thread.run_sync(work, limiter=self._all)
        finally:
            self._waiting -= 1
            if not own.borrowed_tokens and not own.statistics().tasks_waiting:
                self._own.pop(user, None)


class Turns:
    """A lock for each upload: one request at a time works on it. For one event loop."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, identity: str) -> asyncio.Lock:
        """The lock of an upload; it lives as long as somebody holds it."""
        lock = self._locks.get(identity)
        if lock is None:
            lock = self._locks[identity] = asyncio.Lock()
        return lock
