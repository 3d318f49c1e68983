"""How is a SQLite catalog read where nothing may be written, not even the files beside it that SQLite makes?

    source = ReadOnly(Path("/mnt/zoo/catalog.db"))
    source.connect()          a connection that reads, and creates nothing there

SQLite shares what was written last (`-wal`) by a file beside (`-shm`). If both are there, they are read as
they are; if nothing waits in `-wal`, the database alone is all there is to read; else it is read from a copy.
"""

import os
import shutil
import sqlite3
import tempfile
import weakref
from pathlib import Path

BUSY = 60.0  # seconds to wait for other writers


def may_write(path: Path) -> bool:
    """May this process write to a database: is it not there yet, or can it and its folder be written to?"""
    there = os.path.exists(path)  # one that may not even be looked for is not there; SQLite says why
    return not there or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))


class ReadOnly:
    """A database of SQLite in a file that is only read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copied: tuple[list[tuple[int, int]], Path] | None = None
        self._scratch: weakref.finalize[[str], ReadOnly] | None = None

    def connect(self) -> sqlite3.Connection:
        """A connection that sees all that was committed up to now."""
        uri = self._path.absolute().as_uri()
        if not self._waiting():
            return _checked(f"{uri}?immutable=1")
        try:
            return _checked(f"{uri}?mode=ro")
        except sqlite3.OperationalError:  # there is no -shm, and none can be made
            return _checked(self.copy().absolute().as_uri())

    def copy(self) -> Path:
        """A copy of it elsewhere, which may be written to; the same one as long as nothing has changed."""
        now = [(file.stat().st_mtime_ns, file.stat().st_size) for file in self._files()]
        if self._copied is None or self._copied[0] != now:
            folder = tempfile.mkdtemp(prefix="modelkeeper-catalog-")
            self.close()
            self._scratch = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            for file in self._files():
                shutil.copyfile(file, Path(folder) / file.name)
            self._copied = now, Path(folder) / self._path.name
        return self._copied[1]

    def close(self) -> None:
        """Delete the copy, if there is one."""
        if self._scratch is not None:
            self._scratch()

    def _waiting(self) -> bool:
        """Has something been committed that is not in the database's own file yet?"""
        wal = self._files()[1:]
        return bool(wal and wal[0].stat().st_size)

    def _files(self) -> list[Path]:
        wal = self._path.with_name(self._path.name + "-wal")
        return [self._path, *([wal] if wal.exists() else [])]


def _checked(uri: str) -> sqlite3.Connection:
    """A connection by which something could be read."""
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").close()
    except sqlite3.Error:
        connection.close()
        raise
    return connection
