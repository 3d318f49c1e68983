"""The prepared graphs of a zoo, kept so that they can be searched at any moment.

    index = Index()
    index.add(17, prepare(graph))
    index.search(prepare(other)).matches      the most similar models, exactly
    index.save(folder); Index.load(folder)    mapped into memory: opens at once

Adding and removing never rebuild anything. One writer at a time (a lock sees to it); readers search
snapshots, which do not change. The index is derived from the catalog: if its files are lost or of
another version, it is made anew.
"""

import json
import os
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modelkeeper.errors import InvalidIndex, InvalidSetting
from modelkeeper.matching.clusters import cluster
from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.search import Clusters, Found, Part, Snapshot
from modelkeeper.matching.segments import CAPACITY, Segment

MANIFEST = "index.json"


class Index:
    """The models of a zoo by similarity.

    Args:
        threads: How many threads a search uses. Default: as many as there are cores.
        cluster_from: Once the zoo holds so many models, clusters are made in the background, and again
            whenever a quarter of the zoo has changed. Default: never by itself; see `refresh_clusters`.
    """

    def __init__(self, *, threads: int | None = None, cluster_from: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1
        self._cluster_from = cluster_from
        self._writing = threading.Lock()
        self._snapshot = Snapshot()
        self._row_of: dict[int, tuple[int, int]] | None = {}  # None: not read from the segments yet
        self._growing = False  # can the last segment be written to?
        self._saved: dict[int, str] = {}  # full segments that are on disk
        self._changes = 0
        self._clustering: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._snapshot)

    def __contains__(self, key: int) -> bool:
        with self._writing:
            return key in self._rows()

    @property
    def snapshot(self) -> Snapshot:
        """The index as it is now. It stays so, whatever is added or removed."""
        return self._snapshot

    def search(
        self,
        child: Prepared,
        *,
        buckets: int = 1,
        floor: float = 0.0,
        among: Collection[int] | NDArray[np.int64] | None = None,
        budget: int | None = None,
    ) -> Found:
        """Search the index as it is now: see `Snapshot.search`."""
        return self._snapshot.search(
            child, buckets=buckets, floor=floor, among=among, budget=budget, threads=self.threads
        )

    def add(self, key: int, model: Prepared) -> None:
        """Add a model, or replace the one with this key."""
        with self._writing:
            if key in self._rows():
                self._remove(key)
            parts = list(self._snapshot.parts)
            self._append(parts, key, model)
            self._publish(parts)

    def remove(self, key: int) -> bool:
        """Remove a model. Was it there?"""
        with self._writing:
            if key not in self._rows():
                return False
            self._remove(key)
            return True

    def refresh_clusters(self, count: int = 24, sample: int = 128, seed: int = 0) -> None:
        """Group the architectures around `count` medoids, chosen on a sample of them."""
        snapshot, changes = self._snapshot, self._changes
        made = cluster(snapshot, count, sample, seed, self.threads)
        with self._writing:
            self._snapshot = Snapshot(self._snapshot.parts, Clusters(made.medoids, made.labels, changes))

    def save(self, folder: Path) -> None:
        """Write the index to a folder. A crash on the way leaves the one that was there.

        If more models were removed than are left, those that are left are first moved together.
        """
        with self._writing:
            folder.mkdir(parents=True, exist_ok=True)
            if sum(part.rows for part in self._snapshot.parts) > 2 * len(self._rows()) + CAPACITY // 64:
                self._compact()
            names = []
            for number, part in enumerate(self._snapshot.parts):
                full = part.rows == CAPACITY or number < len(self._snapshot.parts) - 1
                name = self._saved.get(number, f"{number}-{part.rows}-{part.architectures}.segment")
                if not (folder / name).exists():
                    part.segment.save(folder / name)
                if full:
                    self._saved[number] = name
                names.append(name)
            gone = [np.flatnonzero(~part.alive[: part.rows]).tolist() for part in self._snapshot.parts]
            scratch = folder / (MANIFEST + ".tmp")
            with scratch.open("w") as file:
                json.dump({"segments": names, "gone": gone}, file)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(folder / MANIFEST)
            for file_path in folder.glob("*.segment"):
                if file_path.name not in names:
                    file_path.unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path, *, threads: int | None = None, cluster_from: int | None = None) -> "Index":
        """Open a saved index.

        Raises:
            InvalidIndex: there is none, it is damaged, or another version wrote it. Make it anew.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
            names, gone = list(manifest["segments"]), list(manifest["gone"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise InvalidIndex(str(folder), str(problem)) from problem
        index = cls(threads=threads, cluster_from=cluster_from)
        parts = []
        for name, rows in zip(names, gone, strict=True):
            part = _part(Segment.load(folder / str(name)))
            part.alive[: part.rows] = True
            part.alive[np.array(rows, np.int64)] = False
            parts.append(part)
        index._snapshot = Snapshot(tuple(parts))
        index._row_of = None
        index._saved = {number: str(name) for number, name in enumerate(names[:-1])}
        return index

    def _rows(self) -> dict[int, tuple[int, int]]:
        if self._row_of is None:
            self._row_of = {}
            for number, part in enumerate(self._snapshot.parts):
                alive = np.flatnonzero(part.alive[: part.rows])
                places = ((number, row) for row in alive.tolist())
                self._row_of.update(zip(part.keys[alive].tolist(), places, strict=True))
        return self._row_of

    def _open(self, parts: list[Part]) -> Part:
        """The part that takes new rows; the last one loaded is first copied into memory."""
        if not parts or parts[-1].rows == CAPACITY:
            parts.append(_part(Segment()))
        elif not self._growing:
            last = parts[-1]
            parts[-1] = _part(last.segment.writable(), last.alive)
        self._growing = True
        return parts[-1]

    def _append(self, parts: list[Part], key: int, model: Prepared) -> None:
        row = self._open(parts).segment.add(key, model)
        if row is None:
            parts.append(_part(Segment()))
            row = parts[-1].segment.add(key, model)
            if row is None:
                raise InvalidSetting(
                    "model", f"{len(model.form)} words", "it does not fit into an empty segment"
                )
        last = parts[-1]
        last.alive[row] = True
        parts[-1] = _part(last.segment, last.alive)
        self._rows()[key] = len(parts) - 1, row

    def _remove(self, key: int) -> None:
        number, row = self._rows().pop(key)
        parts = list(self._snapshot.parts)
        part = parts[number]
        alive = part.alive.copy()  # snapshots keep theirs
        alive[row] = False
        parts[number] = replace(part, alive=alive)
        self._publish(parts)

    def _compact(self) -> None:
        """Start anew with the models that are left; snapshots keep what they have."""
        old, rows = self._snapshot.parts, sorted(self._rows().items(), key=lambda item: item[1])
        parts: list[Part] = []
        self._row_of, self._saved, self._growing = {}, {}, False
        for key, (number, row) in rows:
            segment = old[number].segment
            self._append(parts, key, segment.prepared(int(segment.columns["kinds"][row])))
        self._snapshot = Snapshot(tuple(parts))

    def _publish(self, parts: list[Part]) -> None:
        clusters = self._snapshot.clusters
        self._snapshot = Snapshot(tuple(parts), clusters)
        self._changes += 1
        if self._cluster_from is None or len(self._row_of or ()) < self._cluster_from:
            return
        stale = clusters is None or self._changes - clusters.changes > max(1, len(self._row_of or ()) // 4)
        if stale and (self._clustering is None or not self._clustering.is_alive()):
            self._clustering = threading.Thread(
                target=self.refresh_clusters, name="modelkeeper-clusters", daemon=True
            )
            self._clustering.start()


def _part(segment: Segment, alive: NDArray[np.bool_] | None = None) -> Part:
    """All that a segment holds now."""
    alive = np.zeros(CAPACITY, np.bool_) if alive is None else alive
    return Part(segment, segment.rows, segment.architectures, segment.tokens, alive)
