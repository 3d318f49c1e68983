"""What does a service tidy up by itself, and when?

    with keeping_tidy(service): ...      every `upkeep` seconds, in a thread, while the block runs

Uploads that nobody goes on with, what killed processes left behind, events and counts older than is set.
Of several services over one zoo the leader does so (see `zoo.replicas.leader`); if two do, that does no
harm. Weights are not read: `gc --verify` does.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from modelkeeper.errors import ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.server.service import Service
from modelkeeper.settings import DAY
from modelkeeper.zoo.care.gc import Swept
from modelkeeper.zoo.database.postgres import unhurried

log = logger("modelkeeper.server")


@contextlib.contextmanager
def keeping_tidy(service: Service) -> Iterator[None]:
    """Tidy up now and then while the block runs, if that is set."""
    stopped = threading.Event()
    interval = service.settings.upkeep

    def go_on() -> None:
        while not stopped.wait(interval):
            if service.beat.leads:
                tidy_up(service, still=lambda: service.beat.leads)

    thread = threading.Thread(target=go_on, name="modelkeeper-upkeep", daemon=True)
    if interval:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        if interval:
            thread.join(service.settings.shutdown)  # it may wait for a database that hangs


def tidy_up(
    service: Service, now: Callable[[], float] = time.time, still: Callable[[], bool] = lambda: True
) -> None:
    """Tidy up once. What cannot be done is logged, and tried again the next time.

    `still` says whether it is for this service to do so; one that is no leader any more leaves the rest.
    """
    try:
        with unhurried():
            swept = _tidy(service, now, still)
        for problem in swept.failed:
            log.warning("upkeep: %s", problem)
    except ModelKeeperError as problem:
        log.warning("upkeep failed, and is tried again: %s", problem)
    except Exception:
        log.exception("upkeep failed, and is tried again")


def _tidy(service: Service, now: Callable[[], float], still: Callable[[], bool]) -> Swept:
    swept = service.gc(None, False)
    days, pruned = service.settings.keep_events, 0
    if days and still():
        pruned = service.coordinator.prune_events(now() - days * DAY)
    if service.settings.keep_samples and still():
        service.coordinator.prune_samples(now() - service.settings.keep_samples * DAY)
    if still():
        service.coordinator.replica.forget_rates()
    done = (swept.staging, len(swept.folders), len(swept.damaged), len(swept.evicted), pruned)
    if any(done):
        log.info("upkeep: %d unfinished, %d folders, %d damaged, %d evicted, %d old events", *done)
    return swept
