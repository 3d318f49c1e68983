"""Who is it, may they come in, and what did they get? What happens to every request before any route.

Every path needs a token, whether there is a route behind it or not, except those in OPEN and pages, which
know their visitors by a session (`ui.visitors`). Without auth, the address of the request (its Host header)
must be one of this machine: that keeps web pages of strangers out, which a browser would let call a local
service under another name.

Each request has an id, which its reply, its errors and its line in the log carry. A log line has no headers,
no query and no body, and what looks like a token in a path is blanked: secrets never come into a log.
"""

import asyncio
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

import anyio.to_thread
import msgspec
from anyio import CapacityLimiter
from starlette.requests import ClientDisconnect

from modelkeeper.coordinator.wire import REQUEST_ID, Problem, to_problem
from modelkeeper.errors import (
    CatalogSilent,
    DiskFull,
    ModelKeeperError,
    NotAllowed,
    NotAuthenticated,
    StoreSilent,
    TooManyRequests,
    WrongStore,
    ZooUnusable,
)
from modelkeeper.logs import logger
from modelkeeper.server.beat import Beat
from modelkeeper.server.limits import Held
from modelkeeper.server.service import Service
from modelkeeper.server.ui.visitors import Visitors, is_page
from modelkeeper.settings import is_loopback
from modelkeeper.text import one_line
from modelkeeper.zoo.accounts.holders import ADMIN, Holder, User

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse = Callable[[Scope, Receive, Send, int, str, dict[str, str]], Awaitable[None]]

OPEN = frozenset({"/healthz", "/readyz", "/version"})  # for load balancers; they tell nothing of the zoo
REMEMBERED = 0.9  # seconds after which a token is looked up again, unless no account has changed since
MOST_REMEMBERED = 1000
STRANGERS = 500.0  # requests per second without a valid token that one address is told so
THREADS = 8  # for looking tokens up, so that nobody's work keeps others from being known
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]
_NONE: Mapping[str, str] = MappingProxyType({})
_SECRET = re.compile(r"mk_[A-Za-z0-9_-]+")
_EVERYONE = Holder(user=User(name="", created=0.0), scope=ADMIN)  # where there are no users
log = logger("modelkeeper.server")
refused = logger("modelkeeper.server.refused")  # requests of strangers: see `sparing_log`


class Guard:
    """The outermost layer of the service."""

    def __init__(self, app: App, service: Service, refuse: Refuse) -> None:
        """`refuse` replies with what went wrong, as a page, where a page was asked for."""
        self._app, self._service, self._refuse = app, service, refuse
        self._known: dict[str, _Known] = {}
        self._under_way: Counter[str] = Counter()  # requests, by user
        self._asking = CapacityLimiter(THREADS)
        self._visitors = Visitors(service.accounts, auth=service.settings.auth)
        self._hosts = frozenset(name.strip().lower() for name in service.settings.hosts.split(",") if name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        scope.setdefault("state", {})["request"] = exchange.id
        held: Held | None = None
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]}
        scope["state"]["page"] = is_page(scope, headers)
        try:
            if scope["path"] not in OPEN:  # a probe asks by an address that no setting can name
                self._check_host(headers.get("host", ""))
            if headers.get("content-encoding", "identity") != "identity":
                problem = Problem(error="Unsupported", message="send bodies as they are", request=exchange.id)
                await self._fail(exchange, receive, 415, problem)
            else:
                holder = await self._holder(scope, headers)
                user = holder.user.name if holder else ""
                exchange.known, exchange.user = holder is not None, user
                held = self._begin(user)
                scope["state"]["holder"], scope["state"]["held"] = holder, held
                await self._app(scope, receive, exchange.send)
        except ModelKeeperError as error:
            note_failure(error, exchange.id)
            problem = to_problem(public(error), exchange.id)
            await self._fail(exchange, receive, error.status, problem, headers_of(error))
        except (asyncio.CancelledError, ClientDisconnect) as end:
            if isinstance(end, asyncio.CancelledError):
                raise
        except Exception:
            log.exception("request %s failed", exchange.id)
            failed = Problem(error="Internal", message="the coordinator failed", request=exchange.id)
            await self._fail(exchange, receive, 500, failed)
        finally:
            if held is not None:
                self._end(exchange.user, held)
            exchange.note(self._service)

    async def _fail(
        self,
        exchange: "_Exchange",
        receive: Receive,
        status: int,
        problem: Problem,
        headers: Mapping[str, str] = _NONE,
    ) -> None:
        """Reply with an error, if nothing was replied yet: to a browser that asked for a page, with one."""
        if exchange.replied:
            return
        if exchange.scope["state"]["page"]:
            exchange.scope["state"].setdefault("holder", None)
            words = (exchange.scope, receive, exchange.send, status, problem.message, dict(headers))
            await self._refuse(*words)
        else:
            await exchange.fail(status, problem, headers)

    @property
    def busy(self) -> bool:
        """Are requests under way?"""
        return bool(self._under_way)

    def _begin(self, user: str) -> Held:
        """Count a request of a user who comes in.

        Raises:
            TooManyRequests: They have as many under way as one may have.
        """
        most = max(1, self._service.settings.connections // 2)
        if user and self._under_way[user] >= most:
            raise TooManyRequests(f"{most} of your requests are under way", "Wait for them.", "1")
        self._under_way[user] += 1
        return self._service.bodies.of(user)

    def _end(self, user: str, held: Held) -> None:
        held.release()
        self._under_way[user] -= 1
        if not self._under_way[user]:
            del self._under_way[user]

    def _check_host(self, host: str) -> None:
        name = re.sub(r":[0-9]+$", "", host).lower()
        if self._hosts:
            allowed = name in self._hosts
        else:
            allowed = self._service.settings.auth or is_loopback(name)
        if not allowed:
            raise NotAllowed(f"this service is not {host[:100]!r}", "Its setting `hosts` says who it is.")

    async def _holder(self, scope: Scope, headers: Mapping[str, str]) -> Holder | None:
        page = scope["state"]["page"]
        visitor = await self._visitors.admit(scope, headers) if page else None
        if not self._service.settings.auth:
            return _EVERYONE
        if page:  # it says itself what it shows to nobody
            return visitor
        if scope["path"] in OPEN:
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        holder = await self._look_up(token.strip()) if kind.lower() == "bearer" else None
        if holder is None:
            self._service.strangers.take((scope.get("client") or ("",))[0], STRANGERS)
            problem = "the token is not valid (any more)" if token else "no token was sent"
            raise NotAuthenticated(problem, "Give a token: token=... or MODELKEEPER_TOKEN.")
        rate = holder.user.rate or self._service.settings.rate
        self._service.rates.take(holder.user.id, rate)
        return holder

    async def _look_up(self, token: str) -> Holder | None:
        beat, known = self._service.beat, self._known.get(token)
        if known is not None and known.holds(beat):
            return known.holder
        accounts, now = beat.accounts, time.monotonic()  # before it is looked up
        holder = await anyio.to_thread.run_sync(self._service.accounts.holder, token, limiter=self._asking)
        if len(self._known) > MOST_REMEMBERED:
            self._known.clear()
        if holder is None:
            self._known.pop(token, None)
        else:
            self._known[token] = _Known(holder, now, accounts)
        return holder


class _Known(NamedTuple):
    """Whose token it was when it was looked up, after so many changes of accounts."""

    holder: Holder
    at: float
    accounts: int | None

    def holds(self, beat: Beat) -> bool:
        """Is it still so, as far as can be known?"""
        if self.holder.expires is not None and self.holder.expires <= time.time():
            return False
        return time.monotonic() - beat.confirmed(self.accounts, self.at) <= REMEMBERED


class _Exchange:
    """A request and its reply: counts it, and writes a line about it into the log."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.id, self.user, self.known = secrets.token_hex(8), "", False
        self.scope, self._send = scope, send
        self._begun, self._status, self._bytes = time.perf_counter(), 0, 0

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            named = {key for key, _ in message["headers"]}
            extra = [(key, value) for key, value in _HEADERS if key not in named]
            identity = (REQUEST_ID.encode(), self.id.encode())
            message = {**message, "headers": [*message["headers"], *extra, identity]}
        else:
            self._bytes += len(message.get("body", b""))
        await self._send(message)

    @property
    def replied(self) -> bool:
        """Has a reply begun?"""
        return bool(self._status)

    async def fail(self, status: int, problem: Problem, extra: Mapping[str, str]) -> None:
        """Reply with an error."""
        body = msgspec.json.encode(problem)
        named = {"content-type": "application/json", "content-length": str(len(body)), **extra}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def note(self, service: Service) -> None:
        """Count the request, and write a line."""
        seconds = time.perf_counter() - self._begun
        route = getattr(self.scope.get("route"), "path", "other")
        status = self._status or 499  # who asked went away
        method = self.scope["method"] if self.scope["method"] in _METHODS else "other"
        service.metrics.requests.labels(method, route, status).inc()
        service.metrics.seconds.labels(route).observe(seconds)
        line = {
            "at": round(time.time(), 3),
            "request": self.id,
            "user": self.user,
            "method": self.scope["method"],
            "path": _SECRET.sub("mk_…", self.scope["path"])[:300],
            "status": status,
            "ms": round(1000 * seconds, 1),
            "bytes": self._bytes,
        }
        stranger = not self.known and status in (401, 403, 429)
        (refused if stranger else log).info("%s", json.dumps(line))


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})


def note_failure(error: ModelKeeperError, request: str) -> None:
    """Write down what is no fault of whoever asked.

    A part of the service that does not answer takes a line with its cause; in an outage each request has one.
    """
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        cause = f" ({one_line(str(error.__cause__))})" if error.__cause__ else ""
        log.error("request %s failed: %s%s", request, error, cause)
    elif error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request %s failed: %s", request, error, exc_info=error)


def headers_of(error: ModelKeeperError) -> dict[str, str]:
    """The HTTP headers that go with an error: what to authenticate with, or how long to wait."""
    if isinstance(error, NotAuthenticated):
        return {"www-authenticate": "Bearer"}
    if isinstance(error, TooManyRequests):
        return {"retry-after": str(int(error.wait) + 1)}
    return {}


_SAID: dict[type[ModelKeeperError], str] = {
    DiskFull: "its disk is full",
    CatalogSilent: "its catalog's database does not answer",
    StoreSilent: "its store does not answer",
    WrongStore: "its store is not the one that its catalog belongs to",
}


def public(error: ModelKeeperError) -> ModelKeeperError:
    """The same error without what is nobody's business: paths and addresses inside the service."""
    if isinstance(error, ZooUnusable):
        text = _SAID.get(type(error), "its catalog or its store failed")
        return type(error)("the coordinator", text, "Tell whoever runs it; its log says more.")
    return error
