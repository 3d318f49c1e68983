"""How are the files of a model written, so that its folder appears whole or not at all?

    with blobs.writing("models/17") as folder:     a LocalFolder or a RemoteFolder: see `blobs`
        folder.write("model.safetensors", chunks)
        folder.publish()

In a local store a folder is written beside, flushed to the disk and renamed; this is done by hand, since a
store of obstore promises that a file is whole but not that it is on the disk. A rename takes no folder's
place: what lies there already stays. In an object store each object is whole or not there. Either way nobody
reads a folder before its record in the catalog names it, and no two registrations write to the same one.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from obstore.exceptions import BaseError as StoreError

from modelkeeper.stepping_out import stepped_out
from modelkeeper.weights import CHUNK
from modelkeeper.zoo.files.rights import as_its_folder, make_folder
from modelkeeper.zoo.files.stores import Store, is_of_obstore

STAGING = "staging"
COPIED = 2**30  # bytes that a store copies by itself within the deadline of a call


class Written(Struct, frozen=True):
    """How long a file became, and its SHA-256."""

    bytes: int
    checksum: str


class Folder:
    """A folder that is being written. Nobody sees it before `publish`."""

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> Written:
        """Write a file, piece by piece; nothing but the piece at hand is held."""
        raise NotImplementedError

    def adopt(self, name: str, path: Path, written: Written, source: str = "") -> Written:
        """Take in a file that lies elsewhere, of which it is known what was written; it stays there, too.

        `source`: an object of the store that holds the same bytes.
        """
        with path.open("rb") as file:
            return self.write(name, iter(lambda: file.read(CHUNK), b""))

    def publish(self, *, replace: bool = False) -> None:
        """Put it where it belongs. What lies there stays, which is an error, unless it is to be replaced."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind, unless it was published."""
        raise NotImplementedError


class LocalFolder(Folder):
    """One in a local store: written beside, flushed to the disk, and renamed."""

    def __init__(self, root: Path, folder: str) -> None:
        self._final = root / folder
        self._staged = root / STAGING / f"{self._final.name}-{secrets.token_hex(4)}"
        make_folder(self._staged)

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> Written:
        digest, size = hashlib.sha256(), 0
        with open(self._staged / name, "xb", opener=as_its_folder) as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
        return Written(size, digest.hexdigest())

    def adopt(self, name: str, path: Path, written: Written, source: str = "") -> Written:
        try:
            os.link(path, self._staged / name)  # a second name costs nothing; a copy costs the whole file
        except OSError:  # on another disk, or on a file system without links
            return super().adopt(name, path, written)
        with (self._staged / name).open("rb") as file:
            os.fsync(file.fileno())
        return written

    def publish(self, *, replace: bool = False) -> None:
        now = time.time()
        os.utime(self._staged, (now, now))
        sync_folder(self._staged)
        if replace and self._final.exists():
            self._final.rename(self._staged.with_name(f"gone-{secrets.token_hex(8)}"))
        make_folder(self._final.parent, exist_ok=True)
        self._staged.rename(self._final)
        sync_folder(self._final.parent)

    def close(self) -> None:
        shutil.rmtree(self._staged, ignore_errors=True)


class RemoteFolder(Folder):
    """One in an object store: each file is whole or not there."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store, self._folder = store, folder

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> Written:
        digest, size = hashlib.sha256(), 0

        def watched() -> Iterator[bytes | memoryview]:
            nonlocal size
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        with stepped_out():
            self._store.put(f"{self._folder}/{name}", watched())
        return Written(size, digest.hexdigest())

    def adopt(self, name: str, path: Path, written: Written, source: str = "") -> Written:
        if source and written.bytes <= COPIED and is_of_obstore(self._store):
            with contextlib.suppress(StoreError, OSError), stepped_out():  # else it is sent
                self._store.copy(source, f"{self._folder}/{name}")  # type: ignore[attr-defined]
                return written
        return super().adopt(name, path, written)

    def publish(self, *, replace: bool = False) -> None:
        """The record in the catalog does it."""

    def close(self) -> None:
        """What no record names is swept: whether this one has a record is not known here."""


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where a system can do so."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create_file(root: Path, path: str, content: bytes) -> None:
    """Write a file below the root of a local store, whole and on the disk, unless there is one."""
    scratch = root / STAGING / f"new-{secrets.token_hex(8)}"
    try:
        with open(scratch, "xb", opener=as_its_folder) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(scratch, root / path)  # where a rename would replace what is there
        except FileExistsError:
            return
        except OSError:  # a file system without links
            if not (root / path).exists():
                scratch.rename(root / path)
        sync_folder((root / path).parent)
    finally:
        scratch.unlink(missing_ok=True)
