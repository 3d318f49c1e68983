"""Which other zoos are asked when this one has nothing good, and when not? One that fails costs a log line.

    upstreams = Upstreams(zoo, settings, folder)
    upstreams.bring(request, least, clock, via)     a model that fits better is in this zoo now, or is not

An upstream that fails is left alone for a while, longer each time; what it did not have is not asked for
again for some minutes; trials that ask for one architecture at the same time ask once. A query that came
through another coordinator says through which ones (`via`). It goes no further, unless `upstream_transitive`
allows it, and never through the same one twice, nor through more than a few.
"""

import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from modelkeeper.coordinator.candidates import Request
from modelkeeper.coordinator.clock import Clock
from modelkeeper.coordinator.remote.calls import address
from modelkeeper.coordinator.upstream.coarse import coarse_query, travelling
from modelkeeper.coordinator.upstream.line import Line
from modelkeeper.coordinator.upstream.taking import Taking, room, unwanted
from modelkeeper.errors import InvalidSetting, ModelKeeperError, ModelRefused, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.settings import Settings, is_loopback
from modelkeeper.signing import PublicKey
from modelkeeper.zoo.database.forks import renew_after_fork
from modelkeeper.zoo.zoo import Zoo

MOST_HOPS = 3  # coordinators that a query goes through
MOST_ASKING = 2  # queries that wait for upstreams at a time; others go without
MOST_TRIED = 4  # of the models that an upstream names
FORGET = 300.0  # seconds after which what an upstream did not have is asked for again
LONGEST_PAUSE = 3600.0
MOST_REMEMBERED = 10_000
_log = logger()


class Brought(Struct, frozen=True):
    """What came of asking: is there more in this zoo now, and what is to be said of it?"""

    more: bool = False
    warnings: tuple[str, ...] = ()


class Upstream:
    """One other zoo, and how it has been lately."""

    def __init__(self, url: str, token: str, key: str = "") -> None:
        """`key` is the id of the key that its models must be signed with; "": they need not be signed."""
        self.url, self.token, self.key = url, token, key
        self._failures, self._until = 0, 0.0

    def open(self) -> bool:
        """May it be asked now?"""
        return time.monotonic() >= self._until

    def worked(self) -> None:
        """It has answered."""
        self._failures = 0

    def failed(self, pause: float) -> float:
        """It has not: for so many seconds it is left alone."""
        pause = min(pause * 2**self._failures, max(pause, LONGEST_PAUSE))
        self._failures, self._until = min(self._failures + 1, 16), time.monotonic() + pause
        return pause


class Upstreams:
    """The upstreams of one coordinator. Safe to use from several threads."""

    def __init__(self, zoo: Zoo, settings: Settings, folder: Callable[[], Path]) -> None:
        """Read who they are; nobody is asked yet.

        Raises:
            InvalidSetting: An address is none, or the file of tokens cannot be used.
        """
        self._settings, self._id = settings, secrets.token_hex(8)
        self._upstreams = read_upstreams(settings)
        self._taking = Taking(zoo, settings, folder)
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Event] = {}  # by the fingerprint of what is asked for
        self._nothing: dict[tuple[str, str], float] = {}  # what an upstream did not have, and until when
        renew_after_fork(self, Upstreams._renew)

    def _renew(self) -> None:
        """In a forked child: threads that are not here may have held the lock, or be waited for."""
        self._lock, self._asking = threading.Lock(), {}

    def may_ask(self, via: Sequence[str]) -> bool:
        """May a query that came through these coordinators go on?"""
        if not via:
            return True
        return self._settings.upstream_transitive and self._id not in via and len(via) < MOST_HOPS

    def bring(
        self, request: Request, least: float, clock: Clock, warnings: list[str], via: Sequence[str] = ()
    ) -> bool:
        """Ask for a model that is at least so similar, in half of the time left. Is there one more here now?

        Whatever goes wrong there or on the way, the query goes on with what is here.
        """
        if (request.viewer is not None and request.viewer.partner) or not self.may_ask(via):
            return False
        try:
            brought = self._bring(request, least, clock.left() / 2, via)
            warnings += brought.warnings
            return brought.more
        finally:
            clock("upstream")

    def _bring(self, request: Request, least: float, seconds: float, via: Sequence[str]) -> Brought:
        name = request.graph.fingerprint
        with self._lock:
            others = self._asking.get(name)
            if others is None:
                if len(self._asking) >= MOST_ASKING:
                    return Brought()
                self._asking[name] = threading.Event()
        if others is not None:  # what they bring, this query finds, too
            return Brought(more=others.wait(min(seconds, self._settings.upstream_timeout)))
        try:
            end = time.monotonic() + min(seconds, self._settings.deadline)
            for upstream in self._upstreams:
                brought = self._ask(upstream, request, least, end, via)
                if brought.more or brought.warnings:
                    return brought
            return Brought()
        finally:
            with self._lock:
                self._asking.pop(name).set()

    def _ask(
        self, upstream: Upstream, request: Request, least: float, end: float, via: Sequence[str]
    ) -> Brought:
        asked = upstream.url, f"{request.graph.fingerprint} {request.query}"
        seconds = end - time.monotonic()
        if not upstream.open() or self._remembered(asked) or seconds <= 0:
            return Brought()
        through = (*via, self._id)
        try:
            with Line(
                upstream.url, upstream.token, self._settings.upstream_timeout, seconds, through
            ) as line:
                brought = self._look(line, request, least, upstream.key)
        except ZooUnusable as problem:  # nothing that the upstream could help
            _log.warning("no model can be taken from %s: %s", upstream.url, problem)
            return Brought()
        except ModelKeeperError as problem:
            pause = upstream.failed(self._settings.upstream_pause)
            _log.warning("upstream %s is not asked for %.0f s: %s", upstream.url, pause, problem)
            return Brought()
        upstream.worked()
        if not brought.more and not brought.warnings:  # an offer to a dry run is something
            self._remember(asked)
        return brought

    def _look(self, line: Line, request: Request, least: float, key: str) -> Brought:
        """Ask what they have, and take the best of it that this query would take."""
        privacy, query = self._settings.upstream_privacy, request.query
        graph = travelling(request.graph, privacy)
        answer = line.query(graph, coarse_query(query, privacy), dry_run=request.dry_run)
        named = [parent.id for parent in answer.parents] + [rival.id for rival in answer.runners_up]
        for model in list(dict.fromkeys(named))[:MOST_TRIED]:
            record = line.record(model)
            problem = unwanted(record, query, room(self._settings))
            if problem or self._taking.here(line.url, record):
                _log.info("%s: model %s is not taken: %s", line.url, model, problem or "it is here")
                continue
            if request.dry_run:
                offer = f"{line.url} has {record.name!r} ({record.id}), which this query would fetch"
                return Brought(warnings=(offer,))
            try:
                taken = self._taking.take(line, record, request.prepared, least, key)
            except ModelRefused as refused:
                _log.info("%s: model %s is not taken: %s", line.url, model, refused)
                continue
            if taken is not None:
                self._taking.make_room([upstream.url for upstream in self._upstreams], taken)
                return Brought(more=True)
        return Brought()

    def _remembered(self, asked: tuple[str, str]) -> bool:
        with self._lock:
            return self._nothing.get(asked, 0.0) > time.monotonic()

    def _remember(self, asked: tuple[str, str]) -> None:
        now = time.monotonic()
        with self._lock:
            if len(self._nothing) >= MOST_REMEMBERED:
                self._nothing = {key: end for key, end in self._nothing.items() if end > now}
            if len(self._nothing) < MOST_REMEMBERED:
                self._nothing[asked] = now + FORGET


def read_upstreams(settings: Settings) -> list[Upstream]:
    """The upstreams that settings name, each with the token of its address.

    Raises:
        InvalidSetting: An address is none, would send a token in the clear, or the tokens cannot be read.
        InvalidKey: A key is none.
    """
    tokens = _read_tokens(settings.upstream_tokens)
    upstreams = []
    for text in settings.upstreams:
        name, _, key = text.partition(" ")
        if not re.match(r"https?://", name, re.IGNORECASE):
            raise InvalidSetting("upstreams", repr(name), "give a URL: https://zoo.partner.org")
        url = address(name)
        if urlsplit(url).scheme != "https" and not is_loopback(urlsplit(url).hostname or ""):
            raise InvalidSetting("upstreams", repr(url), "it leaves this machine: use https://")
        pinned = PublicKey.read(key)[0].id if key else ""
        upstreams.append(Upstream(url, tokens.get(url, ""), pinned))
    return upstreams


def _read_tokens(path: str) -> dict[str, str]:
    """Tokens by address, from a file that nobody else may read."""
    if not path:
        return {}
    try:
        with Path(path).expanduser().open() as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(2**20)
    except (OSError, UnicodeError) as problem:
        raise InvalidSetting("upstream_tokens", repr(path), f"it cannot be read: {problem}") from problem
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidSetting("upstream_tokens", repr(path), "others may read it: chmod 600")
    tokens = {}
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split()
        if not parts or line.lstrip().startswith("#"):
            continue
        if len(parts) != 2:
            raise InvalidSetting("upstream_tokens", repr(path), f"line {number} is not `URL TOKEN`")
        tokens[address(parts[0])] = parts[1]
    return tokens
