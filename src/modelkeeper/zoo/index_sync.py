"""Keep a search index in step with the catalog, in every process that shares a zoo.

    follower = Follower(catalog, folder)
    follower.index()        the index with all that was registered up to now, by whichever process

The catalog counts changes; a process asks for the count before each search, and reads just what changed
since. Now and then the index is saved beside the zoo, so that the next process opens it at once and reads
only the rest. The files are derived: lost, damaged or of another version, the index is made anew. A folder
is called by the count of changes that it holds and a checksum of its files.
"""

import contextlib
import errno
import os
import secrets
import shutil
import threading
import zlib
from pathlib import Path

from modelkeeper.errors import InvalidGraph, InvalidIndex, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.matching import Index, Prepared, prepare
from modelkeeper.zoo.catalog import Catalog
from modelkeeper.zoo.records import ACTIVE, STATES
from modelkeeper.zoo.rights import give_to_folder, make_folder, make_home

SAVE_AFTER = 256  # changes, or an eighth of the zoo if that is more
_log = logger()


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
                prepared = self._catalog.prepared([graph for _, state, graph in changes if state == ACTIVE])
                for key, state, graph in changes:
                    if state == ACTIVE and graph in prepared:
                        self._index.add(key, self._prepared(graph, prepared[graph]))
                    else:  # a graph that was swept meanwhile had no model any more
                        self._index.remove(key)
                self._catalog.expect_gone(
                    [key for key, state, graph in changes if state == ACTIVE and graph not in prepared],
                    [key for key, state, _ in changes if state not in STATES],
                )
                self._unsaved += len(changes)
            self._seen = now
            if self._unsaved > max(SAVE_AFTER, len(self._index) // 8):
                self._save()
            return self._index

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

    def _saved(self) -> tuple[Index, int]:
        """The newest index that was saved and is whole, and how many changes it holds; else an empty one."""
        now = self._catalog.clock()
        for clock, path in self._folders():
            if clock <= now and path.name == _name(clock, path):
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
            older = self._folders()
            if older and older[0][0] >= self._seen:
                return  # another process has saved as much
            make_home(self._folder.parent)
            make_folder(self._folder, exist_ok=True)
            make_folder(scratch)
            self._index.save(scratch)
            for path in scratch.iterdir():
                give_to_folder(path)
            scratch.rename(self._folder / _name(self._seen, scratch))
        except OSError as problem:  # it was only to save time
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another has just saved it
                _log.warning("the search index could not be saved in %s: %s", self._folder, problem)
            _remove(scratch)
            return
        for clock, path in older[1:]:  # a process may be about to open the newest of them
            if clock < self._seen:
                _remove(path)

    def sweep(self, older_than: float) -> int:
        """Delete what processes began to save and never finished. How many folders?"""
        swept = 0
        for path in self._folder.glob("tmp-*") if self._folder is not None else ():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime <= older_than:
                    _remove(path)
                    swept += 1
        return swept

    def drop_saved(self) -> None:
        """Delete what was saved, to make room: it can be made again."""
        for _, path in self._folders():
            _remove(path)

    def _folders(self) -> list[tuple[int, Path]]:
        """Saved indexes, the newest first."""
        if self._folder is None or not self._folder.is_dir():
            return []
        named = [(entry.name.partition("-")[0], Path(entry.path)) for entry in os.scandir(self._folder)]
        return sorted(((int(clock), path) for clock, path in named if clock.isdecimal()), reverse=True)


def _name(clock: int, folder: Path) -> str:
    """What a folder with these files is called."""
    checksum = 0
    with contextlib.suppress(OSError):  # another process may remove it, or it is no folder
        for path in sorted(folder.iterdir()):
            checksum = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), checksum))
    return f"{clock}-{checksum:08x}"


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
