"""Keep a search index in step with the catalog, in every process that shares a zoo.

    follower = Follower(catalog, folder)
    follower.index()        the index with all that was registered up to now, by whichever process

The catalog counts changes; a process asks for the count before each search, and reads just what changed
since. Now and then the index is saved beside the zoo, so that the next process opens it at once and reads
only the rest. The files are derived: lost, damaged or of another version, the index is made anew.
"""

import contextlib
import logging
import os
import secrets
import shutil
import threading
from pathlib import Path

from modelkeeper.errors import InvalidIndex
from modelkeeper.matching import Index, Prepared, prepare
from modelkeeper.zoo.catalog import Catalog
from modelkeeper.zoo.records import ACTIVE

SAVE_AFTER = 256  # changes, or an eighth of the zoo if that is more
_log = logging.getLogger("modelkeeper")


class Follower:
    """An index that follows a catalog. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, folder: Path | None, threads: int = 0) -> None:
        """`folder` is where the index is saved; None: nowhere."""
        self._catalog, self._folder, self._threads = catalog, folder, threads or None
        self._lock = threading.Lock()
        self._index, self._seen = self._saved()
        self._unsaved = 0

    def close(self) -> None:
        """End the work in the background."""
        self._index.close()

    def index(self) -> Index:
        """The index as of now."""
        with self._lock:
            now, changes = self._catalog.changes(self._seen)
            if changes:
                known = self._catalog.prepared([graph for _, state, graph in changes if state == ACTIVE])
                for key, state, graph in changes:
                    if state == ACTIVE:
                        self._index.add(key, self._prepared(graph, known[graph]))
                    else:
                        self._index.remove(key)
                self._unsaved += len(changes)
            self._seen = now
            if self._unsaved > max(SAVE_AFTER, len(self._index) // 8):
                self._save()
            return self._index

    def _prepared(self, digest: str, data: bytes) -> Prepared:
        found = Prepared.from_bytes(data)
        if found is None:  # another version of the matcher made it
            found = prepare(self._catalog.graph(digest))
            self._catalog.set_prepared(digest, found.to_bytes())
        return found

    def _saved(self) -> tuple[Index, int]:
        now = self._catalog.clock()
        for clock, path in self._folders():
            if clock <= now:
                with contextlib.suppress(InvalidIndex):
                    return Index.load(path, threads=self._threads), clock
            _remove(path)  # unusable, or of a catalog that is no more
        return Index(threads=self._threads), 0

    def _save(self) -> None:
        """Save beside and rename: whoever opens an index finds a whole one."""
        self._unsaved = 0
        if self._folder is None:
            return
        scratch = self._folder / f"tmp-{secrets.token_hex(4)}"
        try:
            self._index.save(scratch)
            older = self._folders()
            scratch.rename(self._folder / str(self._seen))
        except OSError as problem:  # it was only to save time
            _log.warning("the search index could not be saved in %s: %s", self._folder, problem)
            _remove(scratch)
            return
        for clock, path in older[1:]:  # a process may be about to open the newest of them
            if clock < self._seen:
                _remove(path)

    def _folders(self) -> list[tuple[int, Path]]:
        """Saved indexes, the newest first."""
        if self._folder is None or not self._folder.is_dir():
            return []
        named = [(entry.name, Path(entry.path)) for entry in os.scandir(self._folder)]
        return sorted(((int(name), path) for name, path in named if name.isdecimal()), reverse=True)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
