"""Keep a search index, and the columns beside it, in step with the catalog, in every process of a zoo.

    follower = Follower(catalog, Snapshots(folder))
    follower.followed()     index and columns, with all that was registered up to now, by whichever process

The catalog counts changes; a process asks for the count before each search, and reads just what changed
since. Now and then both are saved beside the zoo (see `index_snapshots`), so that the next process opens them
at once and reads only the rest.
"""

import contextlib
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from modelkeeper.errors import InvalidGraph, ZooUnusable
from modelkeeper.lasting import cached_property
from modelkeeper.matching import Index, Prepared, prepare
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import Changes
from modelkeeper.zoo.index.columns import Columns
from modelkeeper.zoo.index.index_snapshots import Snapshots
from modelkeeper.zoo.index.peerage import Peerage
from modelkeeper.zoo.records import ACTIVE, STATES

SAVE_AFTER = 256  # changes, or an eighth of the zoo if that is more


@dataclass(frozen=True)
class Followed:
    """What a process has of a catalog in memory: what is searched, and what decides who is."""

    index: Index
    columns: Columns

    @cached_property
    def peerage(self) -> Peerage:
        """What models are measured by."""
        return Peerage(self.columns)

    @classmethod
    def load(cls, folder: Path, threads: int | None) -> "Followed":
        """Open what was saved.

        Raises:
            InvalidIndex: It is damaged, or of another version.
        """
        return cls(Index.load(folder, threads=threads), Columns.load(folder))

    def save(self, folder: Path) -> None:
        """Write it to a folder."""
        self.index.save(folder)
        self.columns.save(folder)


class Follower:
    """An index, and columns beside it, that follow a catalog. Safe to use from several threads."""

    def __init__(
        self,
        catalog: Catalog,
        snapshots: Snapshots,
        threads: int = 0,
        *,
        index: bool = True,
        columns: bool = True,
    ) -> None:
        """Begin with the newest of the snapshots that can be used, or with an empty index.

        Where the index lies in shards (see `shards`), some follow with the `index`, others with `columns`
        alone; what is not followed stays empty.
        """
        self._catalog, self._snapshots = catalog, snapshots
        self._with_index, self._with_columns = index, columns
        self._lock = threading.Lock()
        saved = snapshots.newest(catalog.clock(), partial(Followed.load, threads=threads or None))
        self._followed, self._seen = saved or (Followed(Index(threads=threads or None), Columns()), 0)
        self._unsaved = 0

    def close(self) -> None:
        """End the work in the background."""
        self._followed.index.close()

    @property
    def columns(self) -> Columns:
        """The columns as they are, whether or not the catalog has changed since."""
        return self._followed.columns

    def index(self) -> Index:
        """The index as of now."""
        return self.followed().index

    def followed(self) -> Followed:
        """Index and columns as of now. As long as nothing changes, nobody waits for anybody."""
        if self._catalog.clock() != self._seen:
            with self._lock:
                while self._follow():
                    pass
        return self._followed

    def _follow(self) -> bool:
        """Take over what changed, as much as goes at a time. Is there more?"""
        changes = self._catalog.changes(self._seen)
        if self._with_index:
            self._index(changes)
        if self._with_columns:
            self._followed.columns.apply(changes)
        self._unsaved += len(changes.rows)
        self._seen = changes.now
        if not changes.more:
            self._save(len(self._followed.index) // 8)
        return changes.more

    def save(self) -> None:
        """Save more often than for this machine alone: for those who begin with what others have saved."""
        with self._lock:
            self._save(len(self._followed.index) // 64)

    def _save(self, least: int) -> None:
        """Save what is followed if more than so many changes are not saved."""
        if self._unsaved > max(SAVE_AFTER, least):
            self._unsaved = 0
            self._snapshots.save(self._seen, self._followed.save)

    def _index(self, changes: Changes) -> None:
        """Bring the index to what changed in the catalog."""
        if not changes.rows:
            return
        index, came = self._followed.index, [row for row in changes.rows if row.state == ACTIVE]
        prepared = self._catalog.prepared([row.graph for row in came if row.key not in index])
        lost = []
        for row in changes.rows:
            if row.state != ACTIVE:
                index.remove(row.key)
            elif row.key not in index:
                if row.graph in prepared:
                    index.add(row.key, self._prepared(row.graph, prepared[row.graph]))
                else:  # a graph that was swept meanwhile had no model any more
                    lost.append(row.key)
        self._catalog.expect_gone(lost, [row.key for row in changes.rows if row.state not in STATES])

    def _prepared(self, digest: str, data: bytes) -> Prepared:
        """What the matcher made of a graph, made anew if it cannot be read."""
        prepared = None
        with contextlib.suppress(InvalidGraph):
            prepared = Prepared.from_bytes(data)
        if prepared is None:  # it is damaged, or another version of the matcher made it
            prepared = prepare(self._catalog.graph(digest))
            with contextlib.suppress(ZooUnusable):  # it was only to save time
                self._catalog.set_prepared(digest, prepared.to_bytes())
        return prepared
