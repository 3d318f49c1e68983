"""How much may one caller ask for, so that others are not kept waiting? Rates, threads, memory, and turns."""

import asyncio
import threading
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.requests import ClientDisconnect

from modelkeeper.coordinator.wire import MAX_JSON
from modelkeeper.errors import TooManyRequests
from modelkeeper.stepping_out import in_place
from modelkeeper.zoo.replicas.shared_rates import Spent, holds

T = TypeVar("T")

MOST_WAITING = 256  # queries of one user in the queue
MOST_OUT = 32  # threads of a pool that wait for a store
MOST_USERS = 10_000  # whose last requests are remembered


class Rates:
    """A bucket for each user, that fills at a rate and holds what comes in two seconds (`shared_rates`)."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # level, and when it was so
        self._spent: dict[str, Spent] = {}  # since it was settled with other replicas
        self._lock = threading.Lock()

    def take(self, user: str, rate: float) -> None:
        """Count a request.

        Raises:
            TooManyRequests: The bucket is empty; the error says how long to wait.
        """
        now, most = time.monotonic(), holds(rate)
        with self._lock:
            level, then = self._buckets.pop(user, (most, now))
            level = min(most, level + (now - then) * rate)
            if level >= 1:
                before = self._spent.get(user, Spent(rate)).requests
                self._spent[user] = Spent(rate, before + 1)
            self._buckets[user] = (level - 1 if level >= 1 else level), now
            if len(self._buckets) > MOST_USERS:
                forgotten, _ = self._buckets.popitem(last=False)
                self._spent.pop(forgotten, None)
        if level < 1:
            wait = f"{(1 - level) / rate:.3f}"
            raise TooManyRequests(f"more than {rate:g} requests per second", "Ask less often.", wait)

    def spent(self) -> dict[str, Spent]:
        """What was let through since this was last asked."""
        with self._lock:
            spent, self._spent = self._spent, {}
            return spent

    def settle(self, levels: Mapping[str, float]) -> None:
        """What all replicas together leave to users, but for what was let through meanwhile."""
        now = time.monotonic()
        with self._lock:
            for user, level in levels.items():
                if user in self._buckets:
                    meanwhile = self._spent[user].requests if user in self._spent else 0.0
                    self._buckets[user] = level - meanwhile, now

    def unsettled(self, spent: Mapping[str, Spent]) -> None:
        """What was let through could not be settled: it is to be the next time."""
        with self._lock:
            for user, used in spent.items():
                newer = self._spent.get(user, Spent(used.rate))
                self._spent[user] = Spent(newer.rate, newer.requests + used.requests)


class FairThreads:
    """Threads that users share: each waits in a queue of its own, and they take turns. For one event loop.

    No user may take the last thread, so that another one's work can begin at once.
    """

    def __init__(self, slots: int, most_waiting: int = MOST_WAITING) -> None:
        self._slots, self._most_waiting = max(2, slots), most_waiting
        self._threads = CapacityLimiter(self._slots + MOST_OUT)
        self._out = 0  # of work that waits for a store
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # whose turn is next
        self._running: Counter[str] = Counter()

    async def run(
        self, user: str, work: Callable[[], T], gone: Callable[[], Awaitable[bool]] | None = None
    ) -> T:
        """Run work in a thread, when it is its user's turn.

        Args:
            user: Whose work it is; "": everyone's, where there are no users.
            work: What to run.
            gone: Has whoever asked hung up? Then there is nothing to do.

        Raises:
            TooManyRequests: This user has too much waiting already.
            ClientDisconnect: Whoever asked has gone.
        """
        queue = self._queues.get(user, ())
        if len(queue) >= self._most_waiting:
            raise TooManyRequests(f"{len(queue)} of your queries are waiting", "Wait for them.", "1")
        await self._turn(user)
        loop = asyncio.get_running_loop()

        def leave() -> bool:
            return asyncio.run_coroutine_threadsafe(self._leave(user), loop).result()

        def come_back() -> None:
            asyncio.run_coroutine_threadsafe(self._come_back(user), loop).result()

        def placed() -> T:
            with in_place(leave, come_back):
                return work()

        try:
            if gone is not None and await gone():
                raise ClientDisconnect
            return await anyio.to_thread.run_sync(placed, limiter=self._threads)
        finally:
            self._end(user)

    async def _turn(self, user: str, *, first: bool = False) -> None:
        """Wait for a place; who comes back goes before those who have not begun."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(user, deque())
        queue.appendleft(turn) if first else queue.append(turn)
        self._give_turns()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # both at once
                self._end(user)
            raise

    async def _leave(self, user: str) -> bool:
        """Let others have the place of work that waits for a store, unless too much waits already."""
        if self._out >= MOST_OUT:
            return False
        self._out += 1
        self._end(user)
        return True

    async def _come_back(self, user: str) -> None:
        self._out -= 1
        await self._turn(user, first=True)

    def _end(self, user: str) -> None:
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        self._give_turns()

    def _give_turns(self) -> None:
        """Begin as much of what waits as there are threads, going round the users."""
        for user in list(self._queues):
            if self._running.total() >= self._slots:
                return
            queue = self._queues[user]
            while queue and queue[0].done():  # given up
                queue.popleft()
            if queue and self._running[user] < (self._slots - 1 if user else self._slots):
                self._running[user] += 1
                queue.popleft().set_result(None)
                self._queues.move_to_end(user)
            if not queue:
                del self._queues[user]


class BodyRoom:
    """Memory for the bodies of requests under way: so much in all, of which one user gets a quarter."""

    def __init__(self, most: int) -> None:
        self._most, self._of_one = most, max(MAX_JSON, most // 4)
        self._held: Counter[str] = Counter()

    def of(self, user: str) -> "Held":
        """What a request of this user holds: nothing yet."""
        return Held(self, user)

    def change(self, user: str, size: int) -> None:
        """Count bytes that come, or go (below 0).

        Raises:
            TooManyRequests: There is no room for them.
        """
        if size > 0:
            of_one = self._of_one if user else self._most
            if self._held[user] + size > of_one or self._held.total() + size > self._most:
                problem = f"{self._held[user]:,} bytes of your requests are under way"
                raise TooManyRequests(problem, "Wait for them.", "1")
        self._held[user] += size
        if not self._held[user]:
            del self._held[user]


class Held:
    """What one request holds in memory."""

    def __init__(self, room: BodyRoom, user: str) -> None:
        self._room, self._user, self._size = room, user, 0

    def take(self, size: int) -> None:
        """Hold so many bytes in all.

        Raises:
            TooManyRequests: There is no room for them.
        """
        if size > self._size:
            self._room.change(self._user, size - self._size)
            self._size = size

    def release(self) -> None:
        """The request has ended."""
        self._room.change(self._user, -self._size)
        self._size = 0


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

    def taken(self, identity: str) -> bool:
        """Does a request work on this upload? May be asked from any thread."""
        lock = self._locks.get(identity)
        return lock is not None and lock.locked()
