"""Does the store answer? Asked so that nobody waits long, however long the store does.

    watch = StoreWatch("s3://bucket/zoo", ask)
    watch.expect(3.0)       or StoreSilent after three seconds; what `ask` raises is raised

One question at a time is under way, in a thread of its own: those who ask meanwhile wait for the same answer.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from modelkeeper.errors import StoreSilent

PATIENCE = 3.0  # seconds


class StoreWatch:
    """Asks one store whether it is there. Safe to use from several threads."""

    def __init__(self, url: str, ask: Callable[[], None]) -> None:
        self._url, self._ask = url, ask
        self._lock = threading.Lock()
        self._asked: Future[None] | None = None
        self._since = 0.0

    def expect(self, seconds: float = PATIENCE) -> None:
        """Return if the store answers within so many seconds.

        Raises:
            StoreSilent: It does not.
            ZooUnusable: It answers that something is wrong.
        """
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked, self._since = Future(), time.monotonic()
                asking = threading.Thread(
                    target=self._answer, args=(self._asked,), name="modelkeeper-store-watch", daemon=True
                )
                asking.start()
            asked, since = self._asked, self._since
        try:
            asked.result(max(0.0, since + seconds - time.monotonic()))
        except TimeoutError:
            if asked.done():
                raise
            problem = f"its store has not answered for {time.monotonic() - since:.0f} s"
            raise StoreSilent(self._url, problem, "Check that it runs and can be reached.") from None

    def _answer(self, asked: "Future[None]") -> None:
        try:
            self._ask()
            asked.set_result(None)
        except BaseException as problem:  # noqa: BLE001 (whoever waits for the answer is told)
            asked.set_exception(problem)
