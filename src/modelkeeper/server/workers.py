"""How do several processes of one machine serve a zoo at one address? Workers, and their supervisor.

    supervise(opened, settings, began)      until a signal says stop

Each worker is a service of its own over the same catalog, store and home, as a replica on another machine is;
what was saved of the search index is mapped into the memory of all of them, once. Each listens at the address
by itself (SO_REUSEPORT), and the kernel gives each connection to one of them. The supervisor serves nothing:
it starts a worker again that dies, passes a signal on, and ends when all have ended. A worker without a
supervisor stops, too. Counters are summed over all workers, also those that died, by files that
prometheus_client keeps in a folder: whichever is asked for /metrics answers for all.

On Linux alone: elsewhere kernels do not spread connections so.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from typing import Any

import msgspec

from modelkeeper.coordinator.opening import open_local
from modelkeeper.errors import InvalidSetting
from modelkeeper.logs import logger
from modelkeeper.server.app import Application
from modelkeeper.server.serve import listen, log_to_stderr, run
from modelkeeper.settings import ServiceSettings

LASTING = 10.0  # seconds after which a worker that dies is started again at once
LONGEST = 30.0  # seconds to wait if it dies sooner, again and again
SHARED_COUNTERS = "PROMETHEUS_MULTIPROC_DIR"  # as prometheus_client calls it
_spawn = multiprocessing.get_context("spawn")  # threads of a store do not survive a fork
log = logger("modelkeeper.server")


@dataclass
class _Seat:
    """A place for a worker: who has it, since when, and how often in a row one died soon."""

    worker: SpawnProcess | None = None
    since: float = 0.0
    failed: int = 0

    @property
    def due(self) -> float:
        """When is the next one to start?"""
        return self.since + (min(LONGEST, 2.0**self.failed) if self.failed else 0.0)


def supervise(opened: dict[str, Any], settings: ServiceSettings, began: Callable[[str], None]) -> None:
    """Run as many workers as is set, until a signal says stop and all have ended.

    Args:
        opened: What each worker opens its coordinator with: see `open_local`.
        settings: Of the service; what it may hold in memory and in connections, workers share.
        began: Is told the address, once a worker listens there.

    Raises:
        InvalidSetting: The address is taken, or this is no Linux.
    """
    if sys.platform != "linux":
        raise InvalidSetting("workers", str(settings.workers), "only Linux has several; give 1")
    with _shared_counters(), _stopping() as stopped, _address(settings) as (host, port):
        count = settings.workers
        of_one = msgspec.structs.replace(
            settings,
            port=port,
            connections=max(1, settings.connections // count),
            body_memory=max(1, settings.body_memory // count),
        )
        listening = _spawn.Event()

        def tell() -> None:
            listening.wait()
            began(f"http://{host}:{port}")

        threading.Thread(target=tell, name="modelkeeper-began", daemon=True).start()
        seats = [_Seat() for _ in range(count)]
        start = partial(_spawn.Process, target=_work, args=(opened, of_one, listening))
        _keep(seats, lambda: start(name="modelkeeper-worker"), stopped)


def _keep(seats: list[_Seat], make: Callable[[], SpawnProcess], stopped: socket.socket) -> None:
    """Keep a worker in each seat until told to stop, then wait for their ends."""
    stopping = False
    while not stopping or any(seat.worker is not None for seat in seats):
        for seat in seats:
            if seat.worker is None and not stopping and time.monotonic() >= seat.due:
                seat.worker, seat.since = make(), time.monotonic()
                seat.worker.start()
        there = {seat.worker.sentinel: seat for seat in seats if seat.worker is not None}
        for ready in wait([stopped, *there], timeout=0.5 if len(there) < len(seats) else None):
            if ready is stopped:
                stopping = bool(stopped.recv(1))
                for seat in there.values():
                    if seat.worker is not None:
                        seat.worker.terminate()
            elif isinstance(ready, int):
                _end(there[ready], stopping)


def _end(seat: _Seat, stopping: bool) -> None:
    """Clear the seat of a worker that has ended."""
    assert seat.worker is not None
    seat.worker.join()
    if not stopping:
        lasted = time.monotonic() - seat.since
        seat.failed = 0 if lasted >= LASTING else seat.failed + 1
        seat.since = time.monotonic()
        log.error("a worker ended (%s) after %.0f s, another takes its place", seat.worker.exitcode, lasted)
    seat.worker.close()
    seat.worker = None


def _work(opened: dict[str, Any], settings: ServiceSettings, listening: Event) -> None:
    """What a worker does."""
    threading.Thread(target=_stop_with_supervisor, name="modelkeeper-supervisor", daemon=True).start()
    log_to_stderr()
    with contextlib.closing(open_local(**opened)) as coordinator:
        application = Application(coordinator, settings)
        with contextlib.closing(listen(settings, several=True)) as connections:
            listening.set()
            run(application, connections)


def _stop_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        wait([supervisor.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _address(settings: ServiceSettings) -> Iterator[tuple[str, int]]:
    """The address of the workers, which is nobody else's while the block runs."""
    with contextlib.closing(listen(settings)) as alone:  # fails if anybody listens there
        host, port = alone.getsockname()[:2]
    with contextlib.closing(listen(msgspec.structs.replace(settings, port=port), several=None)):
        yield (f"[{host}]" if ":" in host else host), port


@contextlib.contextmanager
def _stopping() -> Iterator[socket.socket]:
    """What can be read from once for each signal to stop."""
    tells, told = socket.socketpair()
    signs = signal.SIGINT, signal.SIGTERM
    before = {sign: signal.signal(sign, lambda *_: tells.send(b"1")) for sign in signs}
    try:
        yield told
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        tells.close()
        told.close()


@contextlib.contextmanager
def _shared_counters() -> Iterator[None]:
    """A folder for the counters of all workers, also of those that come later."""
    folder, before = tempfile.mkdtemp(prefix="modelkeeper-counters-"), os.environ.get(SHARED_COUNTERS)
    os.environ[SHARED_COUNTERS] = folder
    try:
        yield
    finally:
        os.environ.pop(SHARED_COUNTERS)
        if before is not None:
            os.environ[SHARED_COUNTERS] = before
        shutil.rmtree(folder, ignore_errors=True)
