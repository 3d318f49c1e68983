"""What is said in the log of what anybody can cause as often as they like? A few lines, and how many more."""

import logging
import time

LINES, SECONDS = 20, 10.0  # so many lines of one logger in so many seconds


class Sparing(logging.Filter):
    """Lets a few lines pass in each stretch of time; the first of the next one says how many did not."""

    def __init__(self, lines: int = LINES, seconds: float = SECONDS) -> None:
        super().__init__()
        self._lines, self._seconds = lines, seconds
        self._begun, self._passed, self._left_out = 0.0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Does it pass?"""
        now = time.monotonic()
        if now - self._begun > self._seconds:
            if self._left_out:
                record.msg = f"{self._left_out:,} lines like this were left out; {record.getMessage()}"
                record.args = None
            self._begun, self._passed, self._left_out = now, 0, 0
        if self._passed >= self._lines:
            self._left_out += 1
            return False
        self._passed += 1
        return True
