"""Does a store, or a database, answer? Asked so that nobody waits long, however long it does.

    watch = Watch(ask, silent)
    watch.expect(3.0)       or what `silent` makes after three seconds; what `ask` raises is raised
    watch.look()            ask, if nobody has asked for a while, and wait for nothing
    watch.silent(3.0)       has a question been open for three seconds?
    watch.answered          when it last answered, by the clock of this process

One question at a time is under way, in a thread of its own: those who ask meanwhile wait for the same answer.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from modelkeeper.errors import ZooUnusable

PATIENCE = 3.0  # seconds
AGAIN = 1.0  # seconds for which an answer is believed by those who only look


class Watch:
    """Asks one part of a zoo whether it is there. Safe to use from several threads."""

    def __init__(self, ask: Callable[[], None], silent: Callable[[float], ZooUnusable]) -> None:
        """`silent` makes the error of one that has not answered for so many seconds."""
        self._ask, self._silent = ask, silent
        self._lock = threading.Lock()
        self._asked: Future[None] | None = None
        self._since = 0.0
        self.answered = 0.0

    def expect(self, seconds: float = PATIENCE) -> None:
        """Return if it answers within so many seconds.

        Raises:
            ZooUnusable: It does not, as `silent` says; or it answers that something is wrong.
        """
        asked, since = self._question()
        try:
            asked.result(max(0.0, since + seconds - time.monotonic()))
        except TimeoutError:
            if asked.done():
                raise
            raise self._silent(time.monotonic() - since) from None

    def look(self) -> None:
        """Ask, unless that is under way or it has just answered."""
        if time.monotonic() - self.answered > AGAIN:
            self._question()

    def silent(self, seconds: float) -> float:
        """For how long has it owed an answer, if that is longer than so many seconds? Else 0."""
        with self._lock:
            if self._asked is None or self._asked.done():
                return 0.0
            owed = time.monotonic() - self._since
            return owed if owed > seconds else 0.0

    def _question(self) -> "tuple[Future[None], float]":
        """The question that is under way, or a new one; and since when."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked, self._since = Future(), time.monotonic()
                asking = threading.Thread(
                    target=self._answer, args=(self._asked,), name="modelkeeper-watch", daemon=True
                )
                asking.start()
            return self._asked, self._since

    def _answer(self, asked: "Future[None]") -> None:
        try:
            self._ask()
            self.answered = time.monotonic()
            asked.set_result(None)
        except BaseException as problem:  # noqa: BLE001 (whoever waits for the answer is told)
            asked.set_exception(problem)
