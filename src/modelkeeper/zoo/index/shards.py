"""Whose is which model of a zoo that is spread over several processes, and how are they all asked?

    Spread.read("ray://head:10001?shards=4&replicas=2")     what the setting `shards` says
    Shard(settings, number, count)      one share of a zoo: follows the catalog, takes turns in searches
    SpreadIndex(shards)                 all of them, searched as one index is

A shard has all models of some architectures, by ranges of their fingerprints: so each architecture lies in
one shard, and is aligned there once. It reads them from the catalog, as every process of a zoo does, and
saves its index beside the zoo and, where that has one, in its object store: from there it comes back on
another machine, too. Who starts shards and carries calls to them is no
matter of ours: an engine does (`SHARDS`), of which Ray is built in.
"""

import contextlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Unpack, cast
from urllib.parse import parse_qsl, urlsplit

import sqlalchemy as sa

from modelkeeper.errors import InvalidSetting, ModelKeeperError, NotReady
from modelkeeper.logs import logger
from modelkeeper.matching import Found, Prepared
from modelkeeper.matching.search import Wanted
from modelkeeper.matching.sharded import Asked, Packed, Scatter, ShardSearch, Told, Turn, ends_of, gather
from modelkeeper.plugins import Registry
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import Changes
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.index.index_snapshots import Snapshots
from modelkeeper.zoo.index.index_sync import Follower
from modelkeeper.zoo.index.shared_snapshots import SharedSnapshots
from modelkeeper.zoo.replicas.store_identity import expect_own

SHARDS = Registry("shards", "modelkeeper.shards", {"ray": "modelkeeper.integrations.ray.shards:open_shards"})
COUNT, MOST_SHARDS, MOST_REPLICAS = 4, 1024, 8
UNDER_WAY = 64  # searches that a shard remembers: one whose caller has died is dropped for newer ones
ADVICE = "give e.g. ray://head:10001?shards=4&replicas=2"
_log = logger()


@dataclass(frozen=True)
class Spread:
    """Over what a zoo is spread: an engine, where it is, how many shards, and how many copies of each."""

    engine: str
    place: str  # host and port; "": on this machine; of Ray also "auto" and "local"
    shards: int = COUNT
    replicas: int = 1

    @classmethod
    def read(cls, text: str) -> "Spread":
        """What the setting says: `engine://place?shards=N&replicas=M`; `auto` and `local` are Ray's.

        Raises:
            InvalidSetting: It cannot be read, or there is no such engine.
        """
        parts = urlsplit(f"ray://{text}" if re.match(r"(auto|local)(\?|$)", text) else text)
        if not parts.scheme or parts.path not in ("", "/") or parts.fragment:
            raise InvalidSetting("shards", repr(text), ADVICE)
        if parts.scheme not in SHARDS:
            raise SHARDS.unknown(parts.scheme)
        numbers = {"shards": COUNT, "replicas": 1}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            most = {"shards": MOST_SHARDS, "replicas": MOST_REPLICAS}.get(name, 0)
            if not (value.isdecimal() and 1 <= int(value) <= most):
                raise InvalidSetting("shards", repr(text), f"{name}={value} cannot be; {ADVICE}")
            numbers[name] = int(value)
        return cls(parts.scheme, parts.netloc, **numbers)


class Shards(Protocol):
    """The shards of one zoo, wherever they are. Safe to use from several threads."""

    count: int

    def scatter(self, asked: Asked) -> Scatter:
        """Begin a search in all shards."""

    def behind(self) -> list[int]:
        """The numbers of shards that have not read all that is in the catalog by now, or cannot be asked."""

    def close(self) -> None:
        """Let go of them; others may use them on."""


def open_shards(settings: Settings) -> Shards:
    """The shards that the settings name, started if they are not there.

    Raises:
        InvalidSetting: The setting cannot be read, or these shards could not read the zoo.
        ShardsUnreachable: The engine that runs them does not answer.
    """
    spread = Spread.read(settings.shards)
    opener = cast("Callable[[Spread, Settings], Shards]", SHARDS.get(spread.engine))
    return opener(spread, settings)


class SpreadIndex:
    """The models of a zoo by similarity, in shards: answers as an `Index` does. Safe for many threads."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    def search(self, child: Prepared, **wanted: Unpack[Wanted]) -> Found:
        """Search all shards: see `Snapshot.search` and `gather`."""
        asked = Asked(
            child,
            wanted.get("buckets", 1),
            wanted.get("floor", 0.0),
            Packed.of(wanted.get("among")),
        )
        with contextlib.closing(self._shards.scatter(asked)) as scatter:
            return gather(
                scatter, buckets=asked.buckets, budget=wanted.get("budget"), stop=wanted.get("stop")
            )

    def expect(self) -> None:
        """Return if every shard has read the catalog.

        Raises:
            NotReady: Some have not.
        """
        if behind := self._shards.behind():
            numbers = ", ".join(map(str, behind))
            problem = f"shards {numbers} of the {self._shards.count} of its search index are being opened"
            raise NotReady(problem, "Wait for them.")

    def close(self) -> None:
        """Let go of the shards."""
        self._shards.close()


class CatalogShare(Catalog):
    """A catalog that tells only of changes of the models of one shard."""

    def __init__(self, place: str | Path, number: int, count: int) -> None:
        super().__init__(place)
        first, end = ends_of(number, count)
        fingerprint = models.c.fingerprint
        self._share = [fingerprint >= first] if first else []
        self._share += [fingerprint < end] if end else []

    def changes(self, since: int, *of: sa.ColumnElement[bool]) -> Changes:
        """As of the whole catalog, for the models of the shard."""
        return super().changes(since, *self._share, *of)


class Shard:
    """One share of a zoo in this process, and the searches under way in it. Safe for many threads."""

    def __init__(self, settings: Settings, number: int, count: int) -> None:
        """Nothing is opened yet: whoever asks first waits for it."""
        self._settings, self._number, self._count = settings, number, count
        self._opening, self._turn = threading.Lock(), threading.Lock()
        self._follower: Follower | None = None
        self._catalog: CatalogShare | None = None
        folder = settings.folder / "index" / f"shard-{number}-of-{count}"
        self._snapshots, self._shared = Snapshots(folder), _Shared(settings, f"{number}-of-{count}")
        self._searches: dict[str, ShardSearch] = {}  # by name, those that were asked last behind

    def follow(self) -> int:
        """Read all that is in the catalog by now. How many models are here?

        Raises:
            ZooUnusable: The catalog cannot be read.
        """
        return len(self._opened().index())

    def turn(self, search: str, asked: Asked | None, turn: Turn) -> Told | None:
        """Take a turn in the search of this name, which begins with what is asked; None: it is not known."""
        with self._turn:
            running = self._searches.pop(search, None)
        if running is None:
            if asked is None:
                return None
            running = self._begin(asked)
        told = running.turn(turn)
        with self._turn:
            self._searches[search] = running
            while len(self._searches) > UNDER_WAY:
                del self._searches[next(iter(self._searches))]
        return told

    def forget(self, search: str) -> None:
        """Nobody goes on with a search."""
        with self._turn:
            self._searches.pop(search, None)

    def share(self) -> bool:
        """Put the index into the store, for whoever comes back elsewhere, if enough has changed. Was it put?

        Raises:
            ZooUnusable: The store does not answer.
        """
        follower = self._opened()
        shared = self._shared.of(self._catalog, own=True) if self._catalog is not None else None
        if shared is None:
            return False
        follower.save()
        return shared.put(self._snapshots)

    def close(self) -> None:
        """Let go of the catalog."""
        with self._opening:
            if self._follower is not None:
                self._follower.close()

    def _begin(self, asked: Asked) -> ShardSearch:
        index = self._opened().index()
        return ShardSearch(index.snapshot, asked, index.threads)

    def _opened(self) -> Follower:
        with self._opening:
            if self._follower is None:
                settings = self._settings
                catalog = CatalogShare(settings.catalog_place, self._number, self._count)
                if (shared := self._shared.of(catalog)) is not None:
                    shared.bring(self._snapshots)
                self._follower = Follower(catalog, self._snapshots, settings.threads, columns=False)
                self._catalog = catalog
            return self._follower


class _Shared:
    """The saved indexes of a shard in the store of its zoo, if that is one that other machines see."""

    def __init__(self, settings: Settings, part: str) -> None:
        self._place, self._part = settings.blobs, part
        self._made: tuple[SharedSnapshots, Blobs] | None = None

    def of(self, catalog: Catalog, *, own: bool = False) -> SharedSnapshots | None:
        """Where they are; None: there are none, since the store is a folder, or cannot be used now.

        With `own` it is looked whether the store is the one that the catalog belongs to.
        """
        if "://" not in self._place:
            return None
        try:
            if self._made is None:
                blobs = Blobs(self._place)
                self._made = SharedSnapshots(catalog, blobs, self._part), blobs
            if own:
                expect_own(catalog, self._made[1])
        except ModelKeeperError as problem:
            _log.warning("no index of a shard can be saved in the store: %s", problem)
            return None
        return self._made[0]
