"""How does a backup lie on a disk?

    backup/
      files/ab/ab34...        a file of a model, named by its SHA-256: one that is there is not copied again
      snapshots/TIME.jsonl    a catalog at one moment, and which files its models have; its last line is a
                              checksum of the others
      tmp/                    what is being written at this moment

Files and snapshots appear whole or not at all, and are never written again; an interrupted backup goes on
with the files that it has.
"""

import contextlib
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidBackup
from modelkeeper.zoo.files.folders import sync_folder
from modelkeeper.zoo.files.opening import open_regular
from modelkeeper.zoo.files.rights import as_its_folder, make_folder, make_home
from modelkeeper.zoo.files.unusable import zoo_unusable

if sys.platform != "win32":
    import fcntl

FORMAT = 1
PIECE = 2**20
_ANOTHER = "Restore another one: --at names it, and the folder `snapshots` holds them."


class Archive:
    """The folder of a backup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._files, self._snapshots = self.folder / "files", self.folder / "snapshots"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only one that writes to it.

        Raises:
            InvalidBackup: Another process does.
            ZooUnusable: It cannot be written to.
        """
        try:
            make_home(self.folder)
            for folder in (self._files, self._snapshots, self.folder / "tmp"):
                make_folder(folder, exist_ok=True)
            with open(self.folder / "lock", "w", opener=as_its_folder) as lock:
                if sys.platform != "win32":
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError as problem:
                        busy = "another process is writing to it"
                        raise InvalidBackup(str(self.folder), busy, "Wait for its end.") from problem
                for left in (self.folder / "tmp").iterdir():
                    left.unlink()
                yield
        except OSError as problem:
            advice = "Check that it can be written to, and that its disk is not full."
            raise zoo_unusable(str(self.folder), str(problem), advice, problem) from problem

    # -- files ----------------------------------------------------------------------------------

    def has(self, checksum: str, size: int) -> bool:
        """Is a file with this checksum there, of this length?"""
        try:
            return self.path(checksum).stat().st_size == size
        except OSError:
            return False

    def path(self, checksum: str) -> Path:
        """Where a file with this checksum lies, if it is there."""
        return self._files / checksum[:2] / checksum

    def add(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Add a file; gives its checksum and length. One that is there stays."""
        with self._new() as (scratch, file):
            digest, size = hashlib.sha256(), 0
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
                size += len(piece)
            checksum = digest.hexdigest()
            _to_disk(file)
            if not self.has(checksum, size):
                make_folder(self.path(checksum).parent, exist_ok=True)
                scratch.replace(self.path(checksum))
                sync_folder(self.path(checksum).parent)
        return checksum, size

    def pieces(self, checksum: str) -> Iterator[bytes]:
        """The bytes of a file, compared with its checksum at the end.

        Raises:
            InvalidBackup: It is missing, or is not what was written.
        """
        digest = hashlib.sha256()
        try:
            with open_regular(self.path(checksum)) as file:
                while piece := file.read(PIECE):
                    digest.update(piece)
                    yield piece
        except OSError as problem:
            raise self._broken(f"the file {checksum} cannot be read: {problem.strerror}") from problem
        if digest.hexdigest() != checksum:
            raise self._broken(f"the file {checksum} is damaged")

    # -- snapshots ------------------------------------------------------------------------------

    def snapshots(self) -> list[str]:
        """The names of all snapshots, the newest last."""
        with contextlib.suppress(OSError):
            return sorted(path.stem for path in self._snapshots.glob("*.jsonl"))
        return []

    def add_snapshot(self, lines: Iterable[dict[str, Any]]) -> str:
        """Add a snapshot; gives its name."""
        with self._new() as (scratch, file):
            digest = hashlib.sha256()
            for line in lines:
                text = json.dumps(line).encode() + b"\n"
                digest.update(text)
                file.write(text)
            file.write(json.dumps({"sha256": digest.hexdigest()}).encode() + b"\n")
            _to_disk(file)
            now = time.time()
            name = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
            scratch.replace(self._snapshots / f"{name}.jsonl")
            sync_folder(self._snapshots)
        return name

    def read(self, name: str) -> Iterator[dict[str, Any]]:
        """The lines of a snapshot, after it was compared with its checksum as a whole.

        Raises:
            InvalidBackup: There is no such snapshot, or it is damaged.
        """
        path = self._snapshots / f"{Path(name).name}.jsonl"
        try:
            digest, last = hashlib.sha256(), b""
            with open_regular(path) as file:
                for line in file:
                    digest.update(last)
                    last = line
            if json.loads(last or b"{}").get("sha256") != digest.hexdigest():
                raise ValueError("its checksum is another")
            with open_regular(path) as file:
                for text in file:
                    if text != last:
                        yield json.loads(text)
        except FileNotFoundError as problem:
            there = ", ".join(self.snapshots()[-5:]) or "none"
            missing = f"there is no snapshot {name}"
            raise InvalidBackup(str(self.folder), missing, f"The newest: {there}.") from problem
        except (OSError, ValueError, AttributeError) as problem:
            raise self._broken(f"the snapshot {name} is damaged: {problem}") from problem

    def prune(self, keep: int) -> int:
        """Delete all but so many of the newest snapshots, and files that none names. How many files?"""
        for name in self.snapshots()[:-keep]:
            (self._snapshots / f"{name}.jsonl").unlink()
        named = {
            checksum
            for name in self.snapshots()
            for line in self.read(name)
            for checksum, _ in line.get("files", {}).values()
        }
        doomed = [path for path in self._files.glob("*/*") if path.name not in named]
        for path in doomed:
            path.unlink()
        return len(doomed)

    @contextlib.contextmanager
    def _new(self) -> Iterator[tuple[Path, Any]]:
        scratch = self.folder / "tmp" / secrets.token_hex(8)
        try:
            with open(scratch, "xb", opener=as_its_folder) as file:
                yield scratch, file
        finally:
            scratch.unlink(missing_ok=True)

    def _broken(self, problem: str) -> InvalidBackup:
        return InvalidBackup(str(self.folder), problem, _ANOTHER)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
