"""How does the service run on Ray Serve? As a deployment whose replicas are each the whole service.

    from modelkeeper.integrations.ray import deployment
    serve.run(deployment(min_replicas=2, max_replicas=8).bind())

    serve run modelkeeper.serve:app          the same, set by MODELKEEPER_* variables

Routes, guard, accounts and errors are those of `modelkeeper serve`; Serve's proxy takes the place of its
server. Bodies pass in both directions as they come, but Serve holds back nobody: of what a client reads
slowly, all may lie in the replica and in Ray's shared memory. A replica takes requests once its index is
there, finishes what is under way when it is told to go, and is replaced when it cannot reach the zoo for
long. What one does for all (upkeep) the leader does, as of any replicas over one catalog.
"""

import asyncio
import contextlib
import time
from collections.abc import MutableMapping
from typing import Any

import msgspec
import ray
from ray import serve

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.wire import to_problem
from modelkeeper.errors import (
    ModelKeeperError,
    NotAllowed,
    NotReady,
    ShardsUnreachable,
    WrongStore,
    ZooUnusable,
)
from modelkeeper.integrations.ray.sharing import expect_shared, nodes
from modelkeeper.logs import logger
from modelkeeper.server.app import Application
from modelkeeper.server.guard import App, Receive, Scope, Send
from modelkeeper.server.serve import log_to_stderr, working
from modelkeeper.settings import ServiceSettings, Settings, is_loopback

NAME = "modelkeeper"
TARGET = 8  # requests under way in a replica, on average, that autoscaling aims at
MOST_REQUESTS = 100  # under way in a replica: streams take long, and most of it they wait
HEALTH_PERIOD = 5.0  # seconds
UNWELL = 60.0  # seconds
STARTING = 120.0  # seconds that a replica waits for them; then Serve tries again
AGAIN = 0.5
JSON = (b"content-type", b"application/json")
_log = logger("modelkeeper.server")


def deployment(
    settings: Settings | None = None,
    service: ServiceSettings | None = None,
    *,
    min_replicas: int = 1,
    max_replicas: int = 4,
    unwell: float = UNWELL,
) -> serve.Deployment:
    """The service as a deployment of Ray Serve, whose `.options(...)` change whatever Serve lets be set.

    Args:
        settings: Of the zoo. Default: the MODELKEEPER_* variables of this process; replicas need none.
        service: Of the service, likewise; where it listens is for Serve to say (`serve.start`).
        min_replicas: Autoscaling keeps at least so many, ...
        max_replicas: ... and at most so many.
        unwell: Seconds without catalog, store or index after which a replica is replaced.

    Raises:
        InvalidSetting: Replicas would not share a zoo: it is in memory, or in files of one of several nodes.
    """
    settings = settings if settings is not None else Settings.read()
    service = service if service is not None else ServiceSettings.read()
    expect_shared(settings, nodes() if ray.is_initialized() else 1, blobs=True, what="replicas")
    scaling = {
        "min_replicas": min_replicas,
        "max_replicas": max_replicas,
        "target_ongoing_requests": TARGET,
    }
    made: serve.Deployment = serve.deployment(
        _replica_of(settings, service, unwell),
        name=NAME,
        autoscaling_config=scaling,
        max_ongoing_requests=min(MOST_REQUESTS, service.connections),
        health_check_period_s=HEALTH_PERIOD,
        graceful_shutdown_timeout_s=service.shutdown,
        graceful_shutdown_wait_loop_s=1.0,
        max_constructor_retry_count=100,
    )
    return made


def _replica_of(settings: Settings, service: ServiceSettings, unwell: float) -> type:
    """The class of a deployment: replicas are made without arguments, wherever they are."""

    class Keeper(Replica):
        """One replica."""

        def __init__(self) -> None:
            super().__init__(settings, service, unwell)

    ingress: type = serve.ingress()(Keeper)
    return ingress


class Replica:
    """One replica of the service."""

    def __init__(self, settings: Settings, service: ServiceSettings, unwell: float = UNWELL) -> None:
        """Open the zoo, and wait until requests can be taken.

        Raises:
            InvalidSetting: Nodes have come meanwhile, and it is in files of one of them.
            ZooUnusable: The catalog or the store cannot be used, nor could they for two minutes.
        """
        expect_shared(settings, nodes(), blobs=True, what="replicas")
        log_to_stderr()
        self._unwell: float | None = None  # since when something is missing
        self._patience = unwell
        self._closing = contextlib.ExitStack()
        end = time.monotonic() + STARTING
        coordinator = _patiently(lambda: LocalCoordinator(settings), end)
        self._closing.callback(coordinator.close)
        try:
            self._application = Application(coordinator, service)
            self._closing.enter_context(working(self._application.service))
            _patiently(self._application.service.readiness.expect, end)
        except BaseException:
            self._closing.close()
            raise

    def __serve_build_asgi_app__(self) -> App:
        """The service as an ASGI application; Serve calls it after the constructor."""
        app = in_bytes(self._application)
        return app if self._application.service.settings.auth else from_here_alone(app)

    async def check_health(self) -> None:
        """Raise what is missing, once it has been for long: others may miss it, and a start takes long."""
        try:
            await asyncio.to_thread(self._application.service.readiness.expect)
            self._unwell = None
        except ModelKeeperError as problem:
            now = time.monotonic()
            self._unwell = now if self._unwell is None else self._unwell
            _log.warning("not ready for %.0f s: %s", now - self._unwell, problem)
            if now - self._unwell > self._patience:
                raise

    async def __del__(self) -> None:
        """Requests under way have ended: let go of the zoo."""
        closing = getattr(self, "_closing", None)
        if closing is not None:
            await asyncio.to_thread(closing.close)


def in_bytes(app: App) -> App:
    """The same application, whose replies can go to another process: views of memory are copied."""

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_bytes(message: MutableMapping[str, Any]) -> None:
            if isinstance(message.get("body"), memoryview):
                message = {**message, "body": bytes(message["body"])}
            await send(message)

        await app(scope, receive, send_bytes)

    return plain


def from_here_alone(app: App) -> App:
    """The same application for this machine alone: without auth, wherever Serve's proxy listens."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        host = (scope.get("client") or ("", 0))[0]
        if scope["type"] != "http" or (host and is_loopback(host)):
            await app(scope, receive, send)
            return
        reason = f"there is no auth, so only this machine may call, and not {host or 'an unknown address'}"
        refused = NotAllowed(reason, "Set MODELKEEPER_AUTH to true, and use a token.")
        await send({"type": "http.response.start", "status": refused.status, "headers": [JSON]})
        await send({"type": "http.response.body", "body": msgspec.json.encode(to_problem(refused))})

    return guarded


def _patiently(work: Any, end: float) -> Any:
    """Do what needs the zoo, again and again until a time, as long as that does not answer."""
    while True:
        try:
            return work()
        except (WrongStore, ShardsUnreachable):
            raise
        except (ZooUnusable, NotReady):
            if time.monotonic() > end:
                raise
            time.sleep(AGAIN)
