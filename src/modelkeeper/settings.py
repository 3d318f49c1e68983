"""What may a user set? Read once, at the edge, then passed down by hand.

    Settings(home="zoo/")                      one folder holds everything
    Settings.read(home="zoo/", capacity="20GB")  and the rest from MODELKEEPER_* variables

Every field can be set by a variable of its name: `minimum_similarity` by MODELKEEPER_MINIMUM_SIMILARITY.
"""

import getpass
import ipaddress
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from msgspec import Struct
from msgspec.structs import force_setattr

from modelkeeper.errors import InvalidSetting
from modelkeeper.plugins import POLICIES
from modelkeeper.text import one_line

MEMORY = ":memory:"
PREFIX = "MODELKEEPER_"
PORT = 7433  # of a coordinator behind HTTP, unless another is named
DAY = 86_400.0  # seconds; settings that are of days say so
Verdict = Literal["admitted", "not_a_parent", "refused"]
ADMISSIONS: dict[str, Verdict] = {  # what becomes of an outlier below its peers, by the setting
    "refuse": "refused",
    "not_a_parent": "not_a_parent",
    "off": "admitted",
}
# on: in a process of their own, that has given up all that this system lets it give up. strict: only where it
# has no files and no network. off: in the training's own process, since whoever may register is trusted.
SANDBOXES = ("on", "strict", "off")
LISTS = ("owners", "projects", "licences")  # settings that are several names
# What of a model and a query travels to upstreams. coarse: kinds, widths and edges, no name and no word.
# words: besides, data set, fold, task and tags as the query has them. full: the graph as it is.
COARSE, WORDS, FULL = PRIVACIES = ("coarse", "words", "full")
# Do large files go straight to and from the store, by URLs that a service signs? auto: where it can.
AUTO, OFF = DIRECTS = ("auto", "off")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 2 ** (10 * power) for power, unit in enumerate("KMGT", start=1)}


def default_home() -> str:
    """The zoo of whoever does not say which."""
    return str(Path.home() / ".modelkeeper")


def login() -> str:
    """Who uses this machine."""
    try:
        return one_line(getpass.getuser())[:200]
    except (KeyError, OSError):  # a container without a name for its user
        return "unknown"


class _Read(Struct, frozen=True, kw_only=True):
    """Settings that can come from the environment."""

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Settings from the environment, unless they are given (None: not given).

        Raises:
            InvalidSetting: A value cannot be read, or cannot work.
        """
        environment = os.environ if environment is None else environment
        values = {name: value for name, value in given.items() if value is not None}
        for name in cls.__struct_fields__:
            text = environment.get(PREFIX + name.upper())
            if name not in values and text is not None:
                values[name] = text
        for name, value in values.items():
            if isinstance(value, str) and name in _READERS:
                values[name] = _READERS[name](name, value)
        return cls(**values)


class CatalogLimits(Struct, frozen=True, kw_only=True):
    """What a zoo asks of PostgreSQL at most; other databases are as they are. See `zoo.database.postgres`."""

    patience: float = 5.0  # seconds for which it may be silent
    statement: float = 60.0  # seconds for a statement; 0: any
    lock: float = 30.0  # seconds to wait for a lock; 0: any
    connections: int = 15  # of one process


class Settings(_Read, frozen=True, kw_only=True):
    """How one zoo is kept."""

    home: str = ""  # a folder, or ":memory:"; "" is ~/.modelkeeper
    catalog: str = ""  # a SQLAlchemy URL for the records; "" is a SQLite file in the home
    catalog_patience: float = 5.0  # seconds for which PostgreSQL may be silent before requests are told so
    catalog_statement: float = (
        60.0  # seconds for a statement of PostgreSQL; 0: any. Not of gc, verify, backup
    )
    catalog_lock: float = 30.0  # seconds that a statement of PostgreSQL waits for others; 0: any
    catalog_connections: int = 15  # to PostgreSQL, of one process
    blobs: str = ""  # a folder or a URL (`s3://...`) for the weights; "" is the home
    blobs_public: str = ""  # an S3 as clients reach it, `https://host`; "": as it is reached here
    capacity: int | None = None  # bytes of weights to keep; None: all
    policy: str = "benefit"  # how a parent is chosen: `benefit`, or the paper's `buckets`
    minimum_similarity: float = 0.3  # a match below this is a cold start
    minimum_benefit: float = 0.24  # so is a parent that is expected to help less than this
    admission: str = "refuse"  # models far below their peers: `refuse`, `not_a_parent`, `off`
    admission_threshold: float = 3.5  # how many spreads below its peers make an outlier
    minimum_peers: int = 5  # with fewer peers than this, everyone is admitted
    half_life: float = 30.0  # days in which a model that nobody uses loses half of its value
    grace: float = 3600.0  # seconds before what no record names counts as left behind
    threads: int = 0  # for matching; 0: as many as there are cores
    budget: int = 0  # architectures that a query compares at most; 0: until the answer is proved
    shards: str = ""  # of the search index, elsewhere, e.g. `ray://head:10001?shards=4&replicas=2`
    timeout: float = 10.0  # seconds to wait for a coordinator in each step, before a cold start
    deadline: float = 300.0  # seconds for a whole query or registration, and one more for each 250 kB
    direct: str = AUTO  # do large files go straight to and from the store? `auto`, `off`
    patience: float = 30.0  # seconds to wait for the other processes that train the same model
    owners: tuple[str, ...] = ()  # users whose models alone may lend; () all
    projects: tuple[str, ...] = ()  # projects whose models alone may lend; () all
    signed: bool = False  # may only models with a trusted signature lend?
    licences: tuple[str, ...] = ()  # SPDX expressions, of which a parent has one; () all
    history: bool = True  # record how trainings started and went? docs/zoo.md, "What is recorded"
    keep_starts: float = 90.0  # days for which it is known how trainings started; 0: for ever
    sandbox: str = "on"  # programs of a zoo run in a process apart: `on`, `strict`, `off` (you trust them)
    key: str = ""  # signs what is registered: a name in ~/.modelkeeper/keys, or a path; "": no signature
    organisation: str = ""  # that whoever signs belongs to
    trusted: str = ""  # the file of public keys that count; "" is ~/.modelkeeper/keys/trusted
    spool: str = ""  # where models wait that could not be sent; "" is ~/.modelkeeper/spool
    upstreams: tuple[str, ...] = ()  # zoos to ask where this one has nothing good: "URL", or "URL PUBLIC-KEY"
    upstream_tokens: str = ""  # a file with lines "URL TOKEN", which nobody else may read
    upstream_privacy: str = COARSE  # what travels there: `coarse` (kinds, widths, edges), `words`, `full`
    upstream_below: float = 0.0  # they are asked where less than this benefit is expected; 0: for cold starts
    upstream_timeout: float = 5.0  # seconds to wait for them, in each step
    upstream_pause: float = 60.0  # seconds before one that failed is asked again; longer if it goes on so
    upstream_capacity: int | None = None  # bytes of theirs to keep; None: a fifth of `capacity`, or 10 GB
    upstream_project: str = ""  # the project that sees what comes from them; "": everyone
    upstream_transitive: bool = False  # ask them also for queries that came through another coordinator

    def __post_init__(self) -> None:
        for name in LISTS:  # whoever sets one may give any sequence, or one name
            force_setattr(self, name, _names(name, getattr(self, name)))
        if self.capacity is not None and self.capacity <= 0:
            raise InvalidSetting("capacity", str(self.capacity), "give a number of bytes above 0, e.g. 20GB")
        if self.policy not in POLICIES:
            raise POLICIES.unknown(self.policy)
        if self.admission not in ADMISSIONS:
            raise InvalidSetting("admission", repr(self.admission), f"choose one of {', '.join(ADMISSIONS)}")
        _expect_direct(self.direct)
        if re.fullmatch(r"(https?://[A-Za-z0-9._-]+(:[0-9]+)?)?", self.blobs_public) is None:
            advice = "give https://host or https://host:port; a path would not be passed on as it was signed"
            raise InvalidSetting("blobs_public", repr(self.blobs_public), advice)
        if self.sandbox not in SANDBOXES:
            raise InvalidSetting("sandbox", repr(self.sandbox), f"choose one of {', '.join(SANDBOXES)}")
        for name in ("minimum_similarity", "minimum_benefit", "upstream_below"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidSetting(name, str(getattr(self, name)), "give a number from 0 to 1")
        if self.upstream_privacy not in PRIVACIES:
            advice = f"choose one of {', '.join(PRIVACIES)}"
            raise InvalidSetting("upstream_privacy", repr(self.upstream_privacy), advice)
        for name in (
            *("half_life", "admission_threshold", "timeout", "deadline", "patience"),
            *("upstream_timeout", "upstream_pause", "catalog_patience", "catalog_connections"),
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidSetting(name, str(value), "give a number above 0")
        for name in (
            *("grace", "keep_starts", "threads", "budget", "minimum_peers"),
            *("catalog_statement", "catalog_lock"),
        ):
            if not getattr(self, name) >= 0:
                raise InvalidSetting(name, str(getattr(self, name)), "give 0 or more")

    @property
    def in_memory(self) -> bool:
        """Is the zoo gone when the process ends?"""
        return self.home == MEMORY

    @property
    def folder(self) -> Path:
        """The home as a path."""
        return Path(self.home or default_home()).expanduser()

    @property
    def catalog_place(self) -> str | Path:
        """The database of the catalog: the path of a SQLite file, or a SQLAlchemy URL."""
        if self.catalog:
            return self.catalog
        return "sqlite://" if self.in_memory else self.folder.absolute() / "catalog.db"

    @property
    def catalog_limits(self) -> CatalogLimits:
        """What is asked of the database of the catalog at most."""
        names = CatalogLimits.__struct_fields__
        return CatalogLimits(**{name: getattr(self, f"catalog_{name}") for name in names})

    @property
    def blobs_url(self) -> str:
        """Where the files of models are: a folder, or a URL as `zoo.files.stores` opens it."""
        return self.blobs or ("memory://" if self.in_memory else str(self.folder))


class ServiceSettings(_Read, frozen=True, kw_only=True):
    """How a coordinator is offered over HTTP."""

    host: str = "127.0.0.1"  # where it listens
    port: int = PORT  # 0: any that is free
    auth: bool = True  # False: everyone who reaches it may do everything, so only this machine may
    hosts: str = ""  # names it answers to, separated by commas; "": with auth all, without those of loopback
    rate: float = 100.0  # requests per second of one user, over all replicas, unless told otherwise
    quota_bytes: int | None = None  # bytes of weights that a user may keep, unless told otherwise
    quota_models: int | None = None  # models that a user may keep, unless told otherwise
    quota_pins: int = 10  # models that a user may pin, unless told otherwise; administrators may pin more
    query_time: float = 30.0  # seconds after which a search answers with what it has, and says so
    upkeep: float = 600.0  # seconds between two sweeps of what was left behind; 0: never
    keep_events: float = 90.0  # days for which the log of events is kept; 0: for ever
    keep_samples: float = 90.0  # days for which counts by minute are kept; 0: for ever
    shutdown: float = 60.0  # seconds that requests under way get when the service is told to stop
    drain: float = (
        5.0  # seconds that it listens on when told to stop, and says 503 at /readyz, while it works
    )
    workers: int = 1  # processes of this machine that serve it
    connections: int = 1000  # that may be open; of which one address gets a quarter, one user half
    body_memory: int = 512 * 2**20  # bytes for the bodies of requests under way; one user gets a quarter
    direct: str = AUTO  # are clients given URLs of the store for large files? `auto`, `off`

    def __post_init__(self) -> None:
        _expect_direct(self.direct)
        if not 0 <= self.port <= 65535:
            raise InvalidSetting("port", str(self.port), "give a number from 0 to 65535")
        for name in ("rate", "query_time", "shutdown", "workers", "connections", "body_memory"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidSetting(name, str(value), "give a number above 0")
        for name in ("upkeep", "keep_events", "keep_samples", "drain"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InvalidSetting(name, str(getattr(self, name)), "give 0 or more")
        if not self.auth and not is_loopback(self.host):
            advice = (
                "without auth everyone who reaches the service may read and delete every model. "
                "Leave out --no-auth, or bind to 127.0.0.1"
            )
            raise InvalidSetting("host", repr(self.host), advice)


def _expect_direct(value: str) -> None:
    if value not in DIRECTS:
        raise InvalidSetting("direct", repr(value), f"choose one of {', '.join(DIRECTS)}")


def is_address(uri: str) -> bool:
    """Does it name a coordinator (http(s)://…, an IP address, localhost or host:port), and no folder?"""
    if re.match(r"https?://|[A-Za-z0-9._-]+:[0-9]{1,5}$|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}$", uri, re.IGNORECASE):
        return True
    try:
        return ipaddress.ip_address(uri.strip("[]")) is not None
    except ValueError:
        return uri.lower() == "localhost"


def is_loopback(host: str) -> bool:
    """Can a host's address only be reached from this machine?"""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def parse_bytes(name: str, text: str) -> int:
    """`20GB`, `512 MiB` or a plain number, as bytes."""
    parts = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if parts is None or parts[2] == "I":
        raise InvalidSetting(name, repr(text), "give a number of bytes, e.g. 20GB or 512MiB")
    return int(float(parts[1]) * _UNITS[parts[2]])


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSetting(name, repr(text), "give a number") from None


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise InvalidSetting(name, repr(text), "give a whole number, 0 or more")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise InvalidSetting(name, repr(text), "give true or false")
    return text.lower() in ("1", "true", "yes", "on")


def _names(name: str, given: object) -> tuple[str, ...]:
    """Names, or text in which commas stand between them."""
    listed = given.split(",") if isinstance(given, str) else given
    if not isinstance(listed, Iterable) or not all(isinstance(each, str) for each in listed):
        raise InvalidSetting(name, repr(given)[:80], "give names, or one text with commas between them")
    return tuple(dict.fromkeys(each.strip() for each in listed if each.strip()))


def _several(name: str, text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split(",") if part.strip())


_READERS: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(("auth", "signed", "history"), _flag),
    **dict.fromkeys(
        (
            *("threads", "budget", "minimum_peers", "port"),
            *("quota_models", "quota_pins", "workers", "connections", "catalog_connections"),
        ),
        _count,
    ),
    "upstream_transitive": _flag,
    "upstreams": _several,
    **dict.fromkeys(("capacity", "quota_bytes", "body_memory", "upstream_capacity"), parse_bytes),
    **dict.fromkeys(
        (
            "minimum_similarity",
            "minimum_benefit",
            "admission_threshold",
            "half_life",
            "grace",
            "keep_starts",
            "timeout",
            "deadline",
            "patience",
            "upstream_below",
            "upstream_timeout",
            "upstream_pause",
            "catalog_patience",
            "catalog_statement",
            "catalog_lock",
        ),
        _number,
    ),
    **dict.fromkeys(
        ("rate", "query_time", "shutdown", "drain", "upkeep", "keep_events", "keep_samples"), _number
    ),
}
