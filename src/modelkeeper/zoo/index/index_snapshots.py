"""Where do saved indexes lie, and which of them can be believed?

    snapshots = Snapshots(folder)
    snapshots.newest(clock, Index.load)     the newest that is whole, and how many changes it holds; or None
    snapshots.save(clock, index.save)       unless one with as many changes is there

Saved indexes are derived: lost, damaged or of another version, they are made anew. A folder is called by the
count of changes that it holds and a checksum of its files. What lies in it is for those to say who load and
write it; they raise InvalidIndex if they cannot read it.
"""

import contextlib
import errno
import os
import secrets
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from modelkeeper.errors import InvalidIndex
from modelkeeper.logs import logger
from modelkeeper.zoo.files.rights import as_its_folder, give_to_folder, make_folder, make_home

if sys.platform != "win32":
    import fcntl

TURN = 120.0  # seconds
LEFT = 3600.0  # seconds after which nobody is still saving what was begun
_log = logger()
_T = TypeVar("_T")


class Snapshots:
    """The saved indexes of a zoo, which several processes may share."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is where they lie; None: nowhere, and nothing is saved."""
        self._folder = folder

    def newest(self, now: int, load: Callable[[Path], _T]) -> tuple[_T, int] | None:
        """The newest that is whole and holds no more than `now` changes, loaded, and how many it holds."""
        for clock, path in self._folders():
            if clock <= now and path.name == _name(clock, path):
                with contextlib.suppress(InvalidIndex):
                    return load(path), clock
            _remove(path)  # unusable, or of a catalog that is no more
        return None

    def save(self, clock: int, write: Callable[[Path], None]) -> None:
        """Save beside and rename: whoever opens an index finds a whole one."""
        if self._folder is None:
            return
        scratch = self._folder / f"tmp-{secrets.token_hex(4)}"
        try:
            older = self._folders()
            if older and older[0][0] >= clock:
                return  # another process has saved as much
            make_home(self._folder.parent)
            make_folder(self._folder, exist_ok=True)
            make_folder(scratch)
            write(scratch)
            for path in scratch.iterdir():
                give_to_folder(path)
            scratch.rename(self._folder / _name(clock, scratch))
        except OSError as problem:  # it was only to save time
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another has just saved it
                _log.warning("the search index could not be saved in %s: %s", self._folder, problem)
            _remove(scratch)
            return
        except BaseException:
            _remove(scratch)
            raise
        for before, path in older[1:]:  # a process may be about to open the newest of them
            if before < clock:
                _remove(path)
        self.sweep(time.time() - LEFT)  # a replica that does not lead has nobody else to do so

    @property
    def latest(self) -> tuple[int, Path] | None:
        """The newest by its name: how many changes it should hold, and its folder."""
        folders = self._folders()
        return folders[0] if folders else None

    @contextlib.contextmanager
    def turn(self, seconds: float = TURN) -> Iterator[None]:
        """Let processes of one home open an index one after another: the first makes it, the others map it.

        Nobody waits for longer than so many seconds, nor where a system or a folder cannot lock.
        """
        with contextlib.ExitStack() as stack:
            if self._folder is not None and sys.platform != "win32":
                with contextlib.suppress(OSError):
                    make_home(self._folder.parent)
                    make_folder(self._folder, exist_ok=True)
                    file = stack.enter_context(open(self._folder / "turn", "w", opener=as_its_folder))
                    _lock(file, time.monotonic() + seconds)
            yield

    def sweep(self, older_than: float) -> int:
        """Delete what processes began to save and never finished. How many folders?"""
        swept = 0
        for path in self._folder.glob("tmp-*") if self._folder is not None else ():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime <= older_than:
                    _remove(path)
                    swept += 1
        return swept

    def drop(self) -> None:
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


def _lock(file: IO[str], end: float) -> None:
    """Lock a file until it is closed; or nobody does, when it is too late."""
    while sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return
            time.sleep(0.02)
        else:
            return


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
