"""How many threads may search at once? As many as there are places; the others wait in the order they came.

    places = Places(2)
    with places.one(): ...          a place of one's own, unless a pool has given this thread one already

Most of a query is Python, of which one thread runs at a time. When many threads search at once they take the
interpreter from each other all the time, and all of them are slower than if some had waited.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

from modelkeeper.stepping_out import has_place, in_place
from modelkeeper.zoo.database.forks import renew_after_fork


class Places:
    """So many places. Safe to use from several threads, and after a fork."""

    def __init__(self, count: int) -> None:
        self._count = max(1, count)
        self._renew()
        renew_after_fork(self, Places._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._free = self._count  # in a forked child nobody else works
        self._waiting: deque[threading.Event] = deque()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Have a place while the block runs. Whoever steps out of it (`stepping_out`) leaves it to others."""
        if has_place():
            yield
            return
        self._enter()
        try:
            with in_place(self._leave, lambda: self._enter(first=True)):
                yield
        finally:
            self._leave()

    def _enter(self, *, first: bool = False) -> None:
        """Wait for a place; who comes back goes before those who have not begun."""
        with self._lock:
            if self._free and not self._waiting:
                self._free -= 1
                return
            turn = threading.Event()
            self._waiting.appendleft(turn) if first else self._waiting.append(turn)
        try:
            turn.wait()
        except BaseException:  # such as Ctrl-C
            with self._lock:
                waits = turn in self._waiting
                if waits:
                    self._waiting.remove(turn)
            if not waits:  # both at once
                self._leave()
            raise

    def _leave(self) -> bool:
        """Give the place to whoever waits longest."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free = min(self._count, self._free + 1)  # a fork may lie between
        return True
