"""How long does a training wait for its coordinator in all? Each step has its time, and all of them together.

    allowance = Allowance(300.0)
    with allowance:                 the time that is spent in here counts
        allowance.came(len(chunk))  what came is worth the time that it takes on a slow line
        allowance.left()            seconds; none: it is over

Between two steps a client describes, races or trains; that time is its own.
"""

import math
import threading
import time
from types import TracebackType

SLOW_LINE = 250_000  # bytes per second: whoever sends more may go on for as long as it takes


class Allowance:
    """So many seconds of waiting, and one more for each SLOW_LINE bytes that come."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._spent, self._depth, self._begun = 0.0, 0, 0.0
        self._lock = threading.Lock()

    def left(self) -> float:
        """Seconds; 0 if it is over."""
        running = time.monotonic() - self._begun if self._depth else 0.0
        return max(0.0, self.seconds - self._spent - running)

    def came(self, size: int) -> None:
        """So many bytes more have come."""
        self.seconds += size / SLOW_LINE

    def __enter__(self) -> "Allowance":
        with self._lock:
            if not self._depth:
                self._begun = time.monotonic()
            self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self._spent += time.monotonic() - self._begun
