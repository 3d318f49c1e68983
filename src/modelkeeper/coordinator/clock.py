"""How long does each stage of a query take, and how much time is left?"""

import math
import time

SEARCHING = 0.6  # of the time that a query may take; the rest is for plans


class Clock:
    """How long did each stage take, and is it too long in all?"""

    def __init__(self, seconds: float = math.inf) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()
        self._end, self._found = self._last + seconds, self._last + SEARCHING * seconds

    def late(self) -> bool:
        """Is the time over that a query may take?"""
        return time.perf_counter() > self._end

    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self._end - time.perf_counter())

    def late_to_search(self) -> bool:
        """Is the part of it over in which candidates are looked for?"""
        return time.perf_counter() > self._found

    def __call__(self, stage: str) -> None:
        """A stage has ended: count the time since the last one."""
        now = time.perf_counter()
        self.spent[stage] = self.spent.get(stage, 0.0) + now - self._last
        self._last = now
