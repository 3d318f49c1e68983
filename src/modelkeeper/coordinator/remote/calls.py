"""Call a coordinator: within a time, again where that is safe, and with its errors as they were raised.

Time runs from the first attempt to the last byte of a JSON reply. A line that is refused or breaks is tried
again a few times, for about two seconds: that is a coordinator that restarts. One that does not answer has
used up the time. Every call here may be made twice without harm.
"""

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import httpx
import msgspec

from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.certificates import trusted
from modelkeeper.coordinator.remote.direct import Direct
from modelkeeper.coordinator.remote.replies import wrong_with
from modelkeeper.coordinator.wire import PREFIX, Problem, to_error
from modelkeeper.errors import CoordinatorUnreachable, InvalidSetting, ModelKeeperError, TooManyRequests
from modelkeeper.settings import PORT
from modelkeeper.text import one_line
from modelkeeper.zoo.database.forks import renew_after_fork

T = TypeVar("T")

PAUSES = (0.1, 0.3, 0.6, 1.0)  # seconds between attempts
MAX_REPLY = 64 * 2**20  # of JSON
ADVICE = "Check that it runs and that its address is right."
_making = threading.Lock()  # two threads that first read a type at the same time crash msgspec
_decoders: dict[Any, Any] = {}
BUSY = frozenset({502, 503, 504})  # what proxies say while the service behind them restarts


def busy(status: int, text: bytes) -> bool:
    """Does a proxy say that the service behind it cannot answer just now?

    Ray Serve's says 500 of one that died on the way; where a service itself says so, it gives a reason.
    """
    return status in BUSY or (status == 500 and not text.startswith(b"{"))


def _decoder(kind: type[T]) -> "msgspec.json.Decoder[T]":
    with _making:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        decoder: msgspec.json.Decoder[T] = _decoders[kind]
        return decoder


def address(uri: str) -> str:
    """The URL of a coordinator that `uri` names: see `settings.is_address`.

    Raises:
        InvalidSetting: It looks like an address, but is none.
    """
    if re.match(r"https?://", uri, re.IGNORECASE):
        try:
            url = httpx.URL(uri.rstrip("/"))
        except httpx.InvalidURL as problem:
            raise InvalidSetting("uri", repr(uri), f"{problem}") from problem
        if not url.host or url.userinfo or url.query or url.fragment:
            advice = (
                "give scheme, host, port and perhaps a path: https://keeper.example.org. A token goes apart"
            )
            raise InvalidSetting("uri", repr(str(url.copy_with(userinfo=b""))), advice)
        return str(url)
    host, port = uri, ""
    if parts := re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", uri):
        host, port = parts.groups()
        if not 0 < int(port) < 65536:
            raise InvalidSetting("uri", repr(uri), "a port is a number from 1 to 65535")
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{port or PORT}"


class Busy(httpx.HTTPError):
    """What says no now may say yes soon: a line that breaks, as far as a transfer is concerned."""

    def __init__(self, problem: ModelKeeperError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Calls:
    """The line to one coordinator. Safe to use from several threads, and after a fork."""

    def __init__(
        self,
        url: str,
        token: str,
        timeout: float,
        *,
        headers: Mapping[str, str] | None = None,
        pauses: Sequence[float] = PAUSES,
        direct: bool = False,
    ) -> None:
        """`headers` go with each request; after each of `pauses`, a line that broke is tried again.

        If `direct`, large files go past the coordinator where it says how.
        """
        self.direct = Direct(url, timeout, wanted=direct)
        self.url, self.timeout, self._pauses = url, timeout, tuple(pauses)
        self._headers = {**(headers or {}), **({"authorization": f"Bearer {token}"} if token else {})}
        self._client: httpx.Client | None = None
        self._process = 0
        self._renew()
        renew_after_fork(self, Calls._renew)

    def _renew(self) -> None:
        self._opening = threading.Lock()  # in a forked child nobody else holds it

    @property
    def client(self) -> httpx.Client:
        """Connections of this process."""
        with self._opening:
            if self._client is None or self._process != os.getpid():
                self._process = os.getpid()
                self._client = httpx.Client(
                    base_url=self.url + PREFIX,
                    headers=self._headers,
                    timeout=self.timeout,
                    follow_redirects=False,  # a token goes nowhere else
                    verify=trusted(),
                    limits=httpx.Limits(keepalive_expiry=30.0),
                )
            return self._client

    def close(self) -> None:
        """Hang up."""
        if self._client is not None and self._process == os.getpid():
            self._client.close()
        self._client = None

    def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        params: dict[str, Any] | None = None,
        body: bytes | None = None,
        timeout: float | None = None,
        allowance: Allowance | None = None,
    ) -> T:
        """A reply as a value.

        Raises:
            CoordinatorUnreachable: There is none in time, or it is nonsense.
            ModelKeeperError: What the coordinator raised.
        """
        with allowance or Allowance() as within:
            text = self._reply(method, path, params, body, self.within(within, timeout or self.timeout))
        try:
            value = _decoder(kind).decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
            raise self.nonsense(str(problem)) from problem
        if wrong := wrong_with(value):
            self.refuse(wrong)
        return value

    def within(self, allowance: Allowance, seconds: float) -> float:
        """So many seconds, or as many as are left.

        Raises:
            CoordinatorUnreachable: None are.
        """
        left = min(seconds, allowance.left())
        if left <= 0:
            raise self.unreachable(f"it kept this training waiting for more than {allowance.seconds:.0f} s")
        return left

    def _reply(
        self, method: str, path: str, params: dict[str, Any] | None, body: bytes | None, timeout: float
    ) -> bytes:
        deadline = time.monotonic() + timeout
        headers = {"content-type": "application/json"} if body is not None else {}
        for pause in (*self._pauses, None):
            left = max(0.01, deadline - time.monotonic())
            try:
                with self.client.stream(
                    method, path, params=params, content=body, headers=headers, timeout=left
                ) as reply:
                    text = self.read(reply, deadline)
                if reply.is_success:
                    return text
                problem: Exception = self.failure(reply.status_code, text)
                wait = 0.0
                if isinstance(problem, TooManyRequests):
                    wait = problem.wait  # until it fills again
                elif not busy(reply.status_code, text):
                    raise problem
            except httpx.TimeoutException as late:
                raise self.unreachable(f"it did not answer within {timeout:g} s") from late
            except httpx.HTTPError as broken:
                problem, wait = self.unreachable(_line(broken)), 0.0
            if pause is None or time.monotonic() + max(pause, wait) > deadline:
                raise problem
            time.sleep(max(pause, wait))
        raise AssertionError("the last attempt returns or raises")

    def read(self, reply: httpx.Response, deadline: float) -> bytes:
        """The body of a reply, if it is no longer than one can be, and comes before the deadline."""
        text = bytearray()
        for chunk in reply.iter_bytes():
            text += chunk
            if len(text) > MAX_REPLY:
                raise self.nonsense(f"a reply of more than {MAX_REPLY:,} bytes")
            if time.monotonic() > deadline:
                raise self.unreachable("its reply took too long")
        return bytes(text)

    def broken(self, status: int, text: bytes) -> ModelKeeperError | Busy:
        """The error that a reply in the middle of a transfer stands for; Busy: go on after a pause."""
        problem = self.failure(status, text)
        return Busy(problem) if busy(status, text) else problem

    def failure(self, status: int, text: bytes) -> ModelKeeperError:
        """The error that a reply stands for."""
        try:
            problem = _decoder(Problem).decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return self.unreachable(f"HTTP status {status} without a reason that modelkeeper knows")
        error = to_error(problem, status)
        if error is not None:
            return error
        message = one_line(problem.message[:300])
        return self.unreachable(f"{message} (HTTP status {status}, request {problem.request[:40]!r})")

    def unreachable(self, problem: str) -> CoordinatorUnreachable:
        """The error for a line that does not work."""
        return CoordinatorUnreachable(self.url, problem, ADVICE)

    def nonsense(self, problem: str) -> CoordinatorUnreachable:
        """The error for a reply that cannot be meant."""
        return CoordinatorUnreachable(self.url, f"it answered nonsense: {problem[:300]}", ADVICE)

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error for a reply that cannot be meant."""
        raise self.nonsense(problem)


def _line(problem: Exception) -> str:
    text = str(problem).strip().partition("\n")[0]
    return text or type(problem).__name__
