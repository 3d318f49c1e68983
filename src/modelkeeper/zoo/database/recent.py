"""What was made or read lately, and need not be again? A mapping with room for so many values and bytes.

recent = Recent(64, 2**20)
recent.put(key, value, size)
recent.get(key)                 None: it is not known, or forgotten
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from modelkeeper.zoo.database.forks import renew_after_fork

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping that forgets what was asked for longest ago. Safe to use from several threads."""

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        """Hold `most` values, that take up `most_bytes` together."""
        self._most, self._most_bytes, self._lock = most, most_bytes, threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        renew_after_fork(self, Recent._renew)

    def _renew(self) -> None:
        """In a forked child: a thread that is not here may have held the lock, or been about to change it."""
        self._lock, self._bytes = threading.Lock(), 0
        self._values = OrderedDict()

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Remember a value of this size as the newest; one that is too large by itself is not."""
        with self._lock:
            self._bytes += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = value, size
            while len(self._values) > self._most or self._bytes > self._most_bytes:
                _, (_, forgotten) = self._values.popitem(last=False)
                self._bytes -= forgotten

    def drop(self, key: K) -> None:
        """Forget a value."""
        with self._lock:
            self._bytes -= self._values.pop(key, (None, 0))[1]

    def get(self, key: K) -> V | None:
        """The value, if it is remembered."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]
