"""How much memory of its own does a process hold at most, while something runs?

Of a process's memory only what is its own counts (RssAnon: the heap). Pages of files that are mapped into it
(RssFile) are the system's cache: it takes them back when it needs them, and does not swap for them.
"""

import threading
from pathlib import Path
from types import TracebackType

STATUS = Path("/proc/self/status")


def own_memory() -> int:
    """Bytes of memory that are this process's own."""
    for line in STATUS.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


class Peak:
    """Watches memory in a thread as long as its block runs: `peak.bytes` is the most there was."""

    def __init__(self, pause: float = 0.002) -> None:
        self.bytes, self._pause = own_memory(), pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(self._pause):
            self.bytes = max(self.bytes, own_memory())

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.bytes = max(self.bytes, own_memory())
