"""The prepared graphs of a zoo, kept so that they can be searched at any moment.

Adding and removing never rebuild anything. One writer at a time (a lock sees to it); readers search
snapshots, which do not change. The index is derived from the catalog: if its files are lost or of
another version, it is made anew; if they are older than the catalog, what is missing is added.
"""

import json
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from modelkeeper.errors import InvalidIndex, InvalidSetting
from modelkeeper.matching.clusters import cluster, from_bytes, to_bytes
from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.search import Clusters, Found, Part, Snapshot, Wanted
from modelkeeper.matching.segments import CAPACITY, Segment, read, write

if sys.platform != "win32":
    import fcntl

MANIFEST = "index.json"
# Architectures. At 4,000, clusters find nothing within a budget that bounds alone do not, and take seconds to
# make: benchmarks/results/matching.json.
CLUSTER_FROM = 20_000


class Index:
    """The models of a zoo by similarity. Safe for many threads; a model is known by a whole number.

    With `catalog`, a dict of graphs by number, and `child`, a graph:

        >>> index = Index()
        >>> for key, graph in catalog.items():
        ...     index.add(key, prepare(graph))
        >>> index.save(folder)

    Several processes may share a folder: each opens what was saved last, adds what the catalog has got
    since, and may save. No file of a saved index is written again, so that one process can save while
    others read; the last to save is what the next one opens. To open an index (it is mapped into memory),
    to add some models and to search among those a user may see takes milliseconds:

        >>> index = Index.load(folder)
        >>> registered = np.array(sorted(catalog))
        >>> for key in np.setdiff1d(registered, index.keys):
        ...     index.add(int(key), prepare(catalog[key]))
        >>> for key in np.setdiff1d(index.keys, registered):
        ...     removed = index.remove(int(key))
        >>> found = index.search(prepare(child), among=[1, 2, 3], buckets=2, floor=0.3)
        >>> found.matches[0]
        Match(key=2, similarity=1.0)

    `found.matches` holds every model of the top buckets with its exact similarity, best first. A catalog
    keeps `prepare(graph).to_bytes()` beside each graph, so that nothing is prepared twice.

    Args:
        threads: How many threads a search uses. Default: as many as there are cores.
        cluster_from: Once the zoo holds so many architectures, clusters are made in the background, and
            again whenever a quarter of the zoo has changed. None: never; see `refresh_clusters`.
    """

    def __init__(self, *, threads: int | None = None, cluster_from: int | None = CLUSTER_FROM) -> None:
        self.threads = threads or os.cpu_count() or 1
        self._cluster_from = cluster_from
        self._writing = threading.Lock()
        self._snapshot = Snapshot()
        self._changes = 0
        self._stop = threading.Event()
        self._background: list[threading.Thread] = []
        # Also when it is garbage, and before the interpreter ends: a thread inside the kernel must not be
        # cut off.
        self._halt = weakref.finalize(self, _halt, self._stop, self._background)

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, key: int) -> bool:
        with self._writing:
            return self._find(self._snapshot.parts, key) is not None

    @property
    def keys(self) -> NDArray[np.int64]:
        """The models it holds now, in no order."""
        return self._snapshot.keys

    @property
    def snapshot(self) -> Snapshot:
        """The index as it is now. It stays so, whatever is added or removed."""
        return self._snapshot

    def search(self, child: Prepared, **wanted: Unpack[Wanted]) -> Found:
        """Search the index as it is now: see `Snapshot.search`."""
        return self._snapshot.search(child, threads=self.threads, **wanted)

    def add(self, key: int, model: Prepared) -> None:
        """Add a model, or replace the one with this key."""
        with self._writing:
            parts = list(self._snapshot.parts)
            self._remove(parts, key)
            _append(parts, key, model)
            self._publish(parts)

    def remove(self, key: int) -> bool:
        """Remove a model. Was it there?"""
        with self._writing:
            parts = list(self._snapshot.parts)
            removed = self._remove(parts, key)
            if removed:
                self._publish(parts)
            return removed

    def close(self) -> None:
        """End the work in the background. The index can still be used, but makes no more clusters."""
        self._halt()

    def refresh_clusters(self, count: int = 24, sample: int = 128, seed: int = 0) -> None:
        """Group the architectures around `count` medoids, chosen on a sample of them, now."""
        snapshot, changes = self._snapshot, self._changes
        made = cluster(snapshot, count, sample, seed, self.threads)
        if made is not None:
            self._take(snapshot, made, changes)

    def save(self, folder: Path) -> None:
        """Write the index to a folder. A crash on the way leaves the one that was there.

        A segment that has grown as large as half of the one before is put together with it; and if more
        models were removed than are left, those that are left are moved together.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with self._writing, _alone(folder):
            self._tidy()
            parts, clusters = self._snapshot.parts, self._snapshot.clusters
            names = [part.segment.save(folder) for part in parts]
            gone = [np.flatnonzero(~part.alive[: part.rows]).tolist() for part in parts]
            manifest = {"segments": names, "gone": gone, "clusters": None, "changes": 0}
            if clusters is not None:
                named = write(folder, ".clusters", [to_bytes(clusters)])
                manifest |= {"clusters": named, "changes": self._changes - clusters.changes}
                names = [*names, named]
            (folder / write(folder, ".json", [json.dumps(manifest).encode()])).replace(folder / MANIFEST)
            for path in folder.iterdir():
                if path.suffix in (".segment", ".clusters", ".tmp") and path.name not in names:
                    path.unlink()

    @classmethod
    def load(
        cls, folder: Path, *, threads: int | None = None, cluster_from: int | None = CLUSTER_FROM
    ) -> "Index":
        """Open a saved index.

        Raises:
            InvalidIndex: there is none, it is damaged, or another version wrote it. Make it anew.
        """
        while True:
            index = cls(threads=threads, cluster_from=cluster_from)
            content = _manifest(folder)
            try:
                index._read(folder, content)
            except InvalidIndex:
                if content == _manifest(folder):  # else: another process saved, and the files are new ones
                    raise
            else:
                return index

    def _read(self, folder: Path, content: bytes) -> None:
        """Load the segments and clusters that a manifest names."""
        try:
            manifest = json.loads(content)
            parts = []
            for name, rows in zip(manifest["segments"], manifest["gone"], strict=True):
                part = _part(Segment.load(folder / str(name)))
                part.alive[: part.rows] = True
                part.alive[np.array(rows, np.int64)] = False
                parts.append(part)
            named, self._changes = manifest["clusters"], int(manifest["changes"])
            clusters = None if named is None else from_bytes(read(folder, str(named)))
        except (OSError, ValueError, KeyError, TypeError, IndexError) as problem:
            raise InvalidIndex(str(folder), str(problem)) from problem
        self._snapshot = Snapshot(tuple(parts), clusters)

    def _find(self, parts: Sequence[Part], key: int) -> tuple[int, int] | None:
        """In which part and row is a model?"""
        for number in reversed(range(len(parts))):
            row = parts[number].segment.find(key)
            if 0 <= row < parts[number].rows and parts[number].alive[row]:
                return number, row
        return None

    def _remove(self, parts: list[Part], key: int) -> bool:
        """Take a model out of the parts. Was it there?"""
        place = self._find(parts, key)
        if place is None:
            return False
        part = parts[place[0]]
        alive = part.alive.copy()  # snapshots keep theirs
        alive[place[1]] = False
        parts[place[0]] = replace(part, alive=alive)
        return True

    def _tidy(self) -> None:
        """Put small segments together, and leave out rows that are gone if they are the most."""
        parts = list(self._snapshot.parts)
        if sum(part.rows for part in parts) > 2 * len(self) + CAPACITY // 64:
            old, parts = parts, []
            for part in old:
                _move(part, parts)
        while len(parts) > 1 and parts[-2].rows <= 2 * parts[-1].rows:
            if parts[-2].rows + parts[-1].rows > CAPACITY:
                break
            both = [_part(parts[-2].segment.copy(), parts[-2].alive.copy())]
            _move(parts[-1], both)
            if len(both) > 1:  # too much for one, though not in rows
                break
            parts[-2:] = both
        self._snapshot = _follow(self._snapshot, parts)

    def _publish(self, parts: list[Part]) -> None:
        """Make the parts what searches see from now on; make clusters if it is time to."""
        self._snapshot = Snapshot(tuple(parts), self._snapshot.clusters)
        self._changes += 1
        size = sum(part.architectures for part in parts)
        if self._cluster_from is None or size < self._cluster_from or self._stop.is_set():
            return
        clusters = self._snapshot.clusters
        if clusters is not None and self._changes - clusters.changes <= size // 4:
            return
        if not any(thread.is_alive() for thread in self._background):
            work = threading.Thread(
                target=_refresh,
                args=(weakref.ref(self), self._stop),
                name="modelkeeper-clusters",
                daemon=True,
            )
            self._background[:] = [work]
            work.start()

    def _take(self, snapshot: Snapshot, made: Clusters, changes: int) -> None:
        """Use the clusters that were made of a snapshot."""
        with self._writing:
            fresh = Snapshot(snapshot.parts, replace(made, changes=changes))
            self._snapshot = _follow(fresh, self._snapshot.parts)


def _refresh(index_of: "weakref.ref[Index]", stop: threading.Event) -> None:
    """Make clusters in the background thread, which keeps no index alive while it works."""
    index = index_of()
    if index is None:
        return
    snapshot, changes = index.snapshot, index._changes
    del index
    made = cluster(snapshot, threads=1, stop=stop)
    index = index_of()
    if made is not None and index is not None:
        index._take(snapshot, made, changes)


def _halt(stop: threading.Event, background: list[threading.Thread]) -> None:
    """End the background thread, and wait for it."""
    stop.set()
    for thread in background:
        if thread is not threading.current_thread():  # it may be the last to let go of its index
            thread.join()


def _follow(old: Snapshot, parts: Sequence[Part]) -> Snapshot:
    """A snapshot of the parts, with the clusters of an older one as far as they hold the same segments."""
    clusters, same = old.clusters, 0
    while same < min(len(parts), len(old.parts)) and parts[same].segment is old.parts[same].segment:
        same += 1
    return Snapshot(tuple(parts), clusters and replace(clusters, labels=clusters.labels[:same]))


def _append(parts: list[Part], key: int, model: Prepared) -> None:
    """Add a model to the last part, or to a new one if that is full or frozen."""
    growing = parts and not parts[-1].segment.frozen
    row = parts[-1].segment.add(key, model) if growing else None
    if row is None:
        parts.append(_part(Segment()))
        row = parts[-1].segment.add(key, model)
        if row is None:
            raise InvalidSetting("model", f"{len(model.form)} words", "it does not fit into an empty segment")
    last = parts[-1]
    last.alive[row] = True
    parts[-1] = _part(last.segment, last.alive)


def _move(part: Part, parts: list[Part]) -> None:
    """Append the models of a part that are not gone to other parts."""
    for row in np.flatnonzero(part.alive[: part.rows]).tolist():
        _append(parts, int(part.keys[row]), part.segment.prepared(int(part.kinds[row])))


def _part(segment: Segment, alive: NDArray[np.bool_] | None = None) -> Part:
    """A part of all that a segment holds now."""
    alive = np.zeros(CAPACITY, np.bool_) if alive is None else alive
    return Part(segment, segment.rows, segment.architectures, segment.tokens, alive)


def _manifest(folder: Path) -> bytes:
    """Read what names the files of a saved index."""
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError as problem:
        raise InvalidIndex(str(folder), str(problem)) from problem


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder: while this process saves, no other sweeps away files that no manifest names yet.

    There are no such locks on Windows: there, only one process at a time may save into a folder.
    """
    with (folder / "lock").open("w") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
