"""Run a service: until it is told to stop, or in a thread beside other work.

with serving(coordinator, ServiceSettings(auth=False, port=0)) as url: ...
"""

import contextlib
import logging
import math
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.errors import InvalidSetting
from modelkeeper.server.app import Application
from modelkeeper.server.connections import KEPT, Connection, Crowd, room_for
from modelkeeper.server.following import following
from modelkeeper.server.sampling import sampling
from modelkeeper.server.service import Service
from modelkeeper.server.sparing_log import Sparing
from modelkeeper.server.upkeep import keeping_tidy
from modelkeeper.settings import ServiceSettings, is_loopback
from modelkeeper.text import one_line, printable
from modelkeeper.zoo.accounts.holders import ADMIN

BACKLOG = 1024
FIRST_USER = "admin"


def first_token(coordinator: ServedCoordinator) -> str | None:
    """The token of a first administrator, if nobody has one yet. It is shown once, and nowhere kept."""
    return coordinator.accounts.add_first(FIRST_USER, ADMIN, note="made at the first start")


def listen(settings: ServiceSettings, *, several: bool | None = False) -> socket.socket:
    """A socket at the address of the service; `several` may share it, None: without listening there.

    Raises:
        InvalidSetting: The address is taken, or is not of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol named: asyncio else does not switch Nagle's delay off, which costs 40 ms a reply.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if several is not False:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.host.strip("[]"), settings.port))
        if several is not None:
            listening.listen(BACKLOG)
    except (OSError, TypeError, ValueError) as problem:  # a name that cannot be one is no OSError
        listening.close()
        where = f"{settings.host}:{settings.port}"
        why = getattr(problem, "strerror", None) or str(problem)
        raise InvalidSetting("host and port", where, f"{why}; choose others") from problem
    return listening


def address(listening: socket.socket) -> str:
    """The URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Stops when it is told to, which is no failure: uvicorn's own would then die of the signal.

    Told by SIGTERM, it still listens for a while as long as requests are under way, so that whoever balances
    the load learns from `/readyz` to send no more.
    """

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application, self._listens_until = application, math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        service = self._application.service
        if sig != signal.SIGTERM or service.readiness.stopping:
            super().handle_exit(sig, frame)
        else:
            service.readiness.stopping = True
            self._listens_until = time.monotonic() + service.settings.drain

    async def on_tick(self, counter: int) -> bool:
        if self._application.service.readiness.stopping:
            self.should_exit |= time.monotonic() >= self._listens_until or not self._application.busy
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sign: signal.signal(sign, self.handle_exit) for sign in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sign, handler in before.items():
                signal.signal(sign, handler)


def server(application: Application, *, more_files: bool = False) -> uvicorn.Server:
    """A server that finishes the requests under way when it is told to stop; `more_files`: see `room_for`."""
    settings = application.service.settings
    most = room_for(settings.connections, more_files=more_files)
    # Where only this machine can connect, all may come from one address: that of a proxy.
    crowd = Crowd(most, most if is_loopback(settings.host) else max(1, most // 4))
    connection: Any = partial(Connection, crowd)
    config = uvicorn.Config(
        application,
        http=connection,
        loop="asyncio",  # also where uvloop is installed: the same loop that was tested
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, int(settings.shutdown)),
        timeout_keep_alive=KEPT,
        lifespan="off",
        ws="none",
    )
    return _Server(config, application)


@contextlib.contextmanager
def working(service: Service) -> Iterator[None]:
    """Do all that a service does beside requests, in threads, while the block runs."""
    with (
        service.beat.going_on(),
        following(service),
        keeping_tidy(service),
        sampling(service),
        service.maps.going_on(),
    ):
        yield


def run(application: Application, listening: socket.socket) -> None:
    """Serve until a signal says stop."""
    with working(application.service):
        server(application, more_files=True).run(sockets=[listening])


@contextlib.contextmanager
def serving(coordinator: ServedCoordinator, settings: ServiceSettings) -> Iterator[str]:
    """Serve in a thread; gives the URL."""
    application = Application(coordinator, settings)  # before anybody can knock: its store may be a wrong one
    listening = listen(settings)
    serves = server(application)
    thread = threading.Thread(target=serves.run, args=([listening],), name="modelkeeper-server", daemon=True)
    thread.start()
    try:
        with working(application.service):
            yield address(listening)
    finally:
        serves.should_exit = True
        thread.join()
        listening.close()


class _Lines(logging.Formatter):
    """A message is one line, and nothing in it or in a traceback steers the terminal that shows the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # as logging calls it
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_to_stderr() -> None:
    """One line of JSON for each request; warnings as they are."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(message)s"))
    for name in ("modelkeeper", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.INFO if name == "modelkeeper" else logging.WARNING)
    for name in ("modelkeeper.server.refused", "uvicorn.error", "asyncio"):  # what strangers can cause
        logging.getLogger(name).addFilter(Sparing())
