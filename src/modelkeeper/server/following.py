"""How does the search index keep up ahead of queries? A thread opens it at the start, and follows changes.

    with following(service): ...        from here on `/readyz` says whether the index is there, and keeps up

A query still asks the catalog for the count of changes, and sees all that was acknowledged before it,
wherever that was; what this thread has read, no query need read.
"""

import contextlib
import threading
from collections.abc import Iterator

from modelkeeper.errors import ModelKeeperError
from modelkeeper.logs import logger
from modelkeeper.server.service import Service

AGAIN = 2.0  # seconds after which an index that could not be opened is tried again
ANYWAY = 10.0  # seconds after which it is looked at though nobody has told of a change: shards may be lost
PATIENCE = 5.0  # seconds that the end waits for it
log = logger("modelkeeper.server")


@contextlib.contextmanager
def following(service: Service) -> Iterator[None]:
    """Keep the index in step while the block runs."""
    stopped = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(service, stopped), name="modelkeeper-following", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        service.beat.changed.set()
        thread.join(PATIENCE)  # opening a large index takes its time, and nobody wants it any more


def _follow(service: Service, stopped: threading.Event) -> None:
    said = ""
    while not stopped.is_set():
        service.beat.changed.clear()
        try:
            service.coordinator.follow()
            service.readiness.kept_up()
            said = ""
            if service.beat.leads:
                service.coordinator.share_index()
        except ModelKeeperError as problem:
            service.readiness.fell_behind(problem)
            if str(problem) != said:
                said = str(problem)
                log.warning("the search index cannot keep up, and tries again: %s", problem)
        except Exception:
            service.readiness.fell_behind(None)
            said = "failed"
            log.exception("the search index cannot keep up, and tries again")
        service.beat.changed.wait(AGAIN if said else ANYWAY)
