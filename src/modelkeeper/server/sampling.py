"""How does what a service counts outlive its process? Rolled up by minute, into the catalog.

    with sampling(service): ...       at the end of each minute, and once more when the block ends

Nothing is counted twice: what goes into the catalog is by how much the counters of /metrics have grown. A
request costs nothing more. What cannot be written now is written later; a process that is killed loses what
it counted in its last minute.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.metrics import MetricWrapperBase

from modelkeeper.errors import ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.server.prometheus import Metrics
from modelkeeper.zoo.history.samples import MINUTE

if TYPE_CHECKING:
    from modelkeeper.server.service import Service

MOST_WAITING = 24 * 60  # minutes that wait for a catalog that does not answer
MOST_NAME = 80  # letters
log = logger("modelkeeper.server")


def counted(metrics: Metrics) -> dict[str, float]:
    """What a service has counted since it began, by the names of samples."""
    found: defaultdict[str, float] = defaultdict(float)
    for labels, value in _of(metrics.queries):
        found[f"queries.{labels['result']}"] += value
    for labels, value in _of(metrics.bytes):
        found[f"bytes.{labels['direction']}"] += value
    for suffix, name in (("_sum", "seconds"), ("_count", "count")):
        for labels, value in _of(metrics.stages, suffix):
            found[f"{name}.{labels['stage']}"[:MOST_NAME]] += value
    for labels, value in _of(metrics.requests):
        found["requests"] += value
        found["errors"] += value if labels["status"].startswith("5") else 0
    for name, counter in (
        ("registrations", metrics.registered),
        ("refusals", metrics.refused),
        ("evictions", metrics.evictions),
    ):
        found[name] += sum(value for _, value in _of(counter))
    return found


def _of(family: MetricWrapperBase, suffix: str = "_total") -> Iterator[tuple[Mapping[str, str], float]]:
    for metric in family.collect():
        for sample in metric.samples:
            if sample.name == metric.name + suffix:
                yield sample.labels, sample.value


class Sampling:
    """What of the counters of a service is in the catalog by now."""

    def __init__(
        self, count: Callable[[], Mapping[str, float]], write: Callable[[int, Mapping[str, float]], None]
    ) -> None:
        self._count, self._write = count, write
        self._noted: Mapping[str, float] = {}
        self._waiting: dict[int, dict[str, float]] = {}  # by minute, what is not written yet
        self._failed = False

    def note(self, minute: int) -> None:
        """Write what was counted since the last time, as of this minute, and what still waits."""
        now = self._count()
        grown = {name: value - self._noted.get(name, 0.0) for name, value in now.items()}
        self._noted = now
        if grown := {name: value for name, value in grown.items() if value}:
            waits = self._waiting.setdefault(minute, {})
            waits |= {name: waits.get(name, 0.0) + value for name, value in grown.items()}
        while len(self._waiting) > MOST_WAITING:
            del self._waiting[min(self._waiting)]
        try:
            for waiting in sorted(self._waiting):
                self._write(waiting, self._waiting[waiting])
                del self._waiting[waiting]
            self._failed = False
        except ModelKeeperError as problem:
            if not self._failed:
                log.warning("what was counted is not written, and is tried again: %s", problem)
            self._failed = True


@contextlib.contextmanager
def sampling(service: "Service") -> Iterator[None]:
    """Note what a service counts, in a thread, while the block runs."""
    noted = Sampling(lambda: counted(service.metrics), service.coordinator.add_samples)
    stopped = threading.Event()

    def go_on() -> None:
        while not stopped.is_set():
            minute = int(time.time() // MINUTE)
            stopped.wait((minute + 1) * MINUTE - time.time())
            try:
                noted.note(minute)
            except Exception:
                log.exception("counting by minutes failed")

    thread = threading.Thread(target=go_on, name="modelkeeper-sampling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
