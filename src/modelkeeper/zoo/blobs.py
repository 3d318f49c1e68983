"""Where do weights lie? Folders of files in a blob store, one folder for each model.

    blobs = Blobs("zoo/")                  also "memory://", "s3://bucket/prefix": see `stores`
    with blobs.writing("models/17") as folder:
        folder.write("model.safetensors", chunks)
        folder.publish()
    blobs.weights("models/17")             a mapping of tensors, each read when it is asked for

A folder appears whole or not at all. In a local store it is written beside, flushed to the disk and renamed;
this is done by hand, since a store of obstore promises that a file is whole but not that it is on the disk.
In an object store each object is whole or not there, and the model becomes visible only by its record in
the catalog. What a crash leaves behind belongs to no record, and is swept.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from obstore.exceptions import BaseError as StoreError
from obstore.exceptions import NotFoundError, PermissionDeniedError
from obstore.store import LocalStore

from modelkeeper.errors import CorruptWeights, ModelKeeperError, UnreadableWeights, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.weights import CHUNK, Weights, map_file
from modelkeeper.zoo import verified
from modelkeeper.zoo.files import is_of_file, open_regular
from modelkeeper.zoo.records import is_id
from modelkeeper.zoo.rights import as_its_folder, make_folder, make_home
from modelkeeper.zoo.stores import Store, open_store
from modelkeeper.zoo.unusable import zoo_unusable

WEIGHTS, CARD, CONFIG, GRAPH = "model.safetensors", "README.md", "config.json", "graph.json"
PROGRAM = "program.json"  # what the model computes, for whoever runs it without its code; not all have one
SIGNATURE = "signature.json"  # who says what of the model: an envelope, see `signing`; not all have one
MODELS, STAGING, VERIFIED = "models", "staging", "verified"
_log = logger()
_ADVICE = "Check that it exists, that you may write to it, and that its disk is not full."


class Written(Struct, frozen=True):
    """How long a file became, and its SHA-256."""

    bytes: int
    checksum: str


class Blobs:
    """The files of a zoo. Safe to use from several threads and processes."""

    def __init__(self, url: str | Path) -> None:
        """Open a local folder, or a store by its URL.

        Raises:
            InvalidSetting: What a package offers for this URL is no store.
            ZooUnusable: There is no such store, or the folder cannot be made.
        """
        self.url = str(url)
        self._root: Path | None = None
        try:
            store = open_store(self.url)
            if isinstance(store, Path):
                self._root = store
                _make_folders(store)
                store = LocalStore(store)
            self._store: Store = store
        except (StoreError, OSError, ValueError) as problem:
            raise zoo_unusable(self.url, _line(problem), _ADVICE, problem) from problem

    @property
    def staging(self) -> Path | None:
        """Where files of a local store lie that are not finished; None: it is not local."""
        return None if self._root is None else self._root / STAGING

    @contextlib.contextmanager
    def writing(self, folder: str) -> Iterator["Folder"]:
        """Write the files of a folder. It appears when it is published; otherwise it never was there."""
        try:
            if self._root is None:
                files: Folder = _RemoteFolder(self._store, folder)
            else:
                files = _LocalFolder(self._root, folder)
            try:
                yield files
            finally:
                files.close()
        except (StoreError, OSError) as problem:
            raise self._failed(f"writing {folder}", problem) from problem

    def delete(self, folder: str) -> None:
        """Delete a folder and all its files; one that is not there is no error."""
        try:
            if self._root is not None:
                doomed = self._root / STAGING / f"gone-{secrets.token_hex(8)}"
                with contextlib.suppress(OSError):  # a note of a file that is gone does no harm
                    self._note(self._root, folder).unlink()
                with contextlib.suppress(FileNotFoundError):
                    try:
                        (self._root / folder).rename(doomed)  # readers that have files open keep them
                    except OSError as problem:
                        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
                            raise
                        doomed = self._root / folder  # there is not even room for another name
                    shutil.rmtree(doomed)
            else:
                paths = [item["path"] for batch in self._store.list(folder + "/") for item in batch]
                if paths:
                    self._store.delete(paths)
        except (StoreError, OSError) as problem:
            raise self._failed(f"deleting {folder}", problem) from problem

    def read(self, path: str) -> bytes:
        """A whole small file.

        Raises:
            FileNotFoundError: It is not there.
        """
        try:
            if self._root is not None:  # without obstore, whose threads do not survive a fork
                with open_regular(self._root / path) as file:
                    return file.read()
            return bytes(self._store.get(path).bytes())
        except (NotFoundError, FileNotFoundError) as problem:
            raise FileNotFoundError(path) from problem
        except (StoreError, OSError) as problem:
            raise self._failed(f"reading {path}", problem) from problem

    def names(self, folder: str) -> list[str]:
        """The names of the files in a model's folder."""
        try:
            if self._root is not None:
                return sorted(entry.name for entry in _scan(self._root / folder))
            found = (str(item["path"]) for batch in self._store.list(folder + "/") for item in batch)
            return sorted(path.rpartition("/")[2] for path in found)
        except (StoreError, OSError) as problem:
            raise self._unreadable(f"{folder}/{WEIGHTS}", problem) from problem

    def weights(self, folder: str, size: int) -> Weights:
        """The tensors of a model, each read when it is asked for; local ones are mapped into memory.

        Raises:
            CorruptWeights: The file is missing, or has another size than it was registered with.
            UnreadableWeights: It cannot be read here, for whatever reason.
        """
        model, path = folder.rpartition("/")[2], f"{folder}/{WEIGHTS}"
        try:
            if self._root is not None:
                with open_regular(self._root / path) as file:
                    actual = os.fstat(file.fileno()).st_size
                    if actual == size:
                        return map_file(file)
            else:
                actual = self._store.head(path)["size"]
                if actual == size:
                    return Weights(lambda offset, length: self._range(path, offset, length), size)
        except (NotFoundError, FileNotFoundError, ValueError) as problem:
            raise CorruptWeights(model, "the file is missing or empty") from problem
        except (StoreError, OSError) as problem:
            raise self._unreadable(path, problem) from problem
        raise CorruptWeights(model, f"the file has {actual:,} bytes, registered were {size:,}")

    def chunks(self, path: str, start: int = 0) -> Iterator[bytes]:
        """The bytes of a model's file from a place on, piece by piece.

        Raises:
            CorruptWeights: The file is missing.
            UnreadableWeights: It cannot be read here.
        """
        try:
            if self._root is not None:
                with open_regular(self._root / path) as file:
                    file.seek(start)
                    while piece := file.read(2**20):
                        yield piece
            else:
                options: dict[str, Any] = {"options": {"range": {"offset": start}}} if start else {}
                yield from (bytes(piece) for piece in self._store.get(path, **options).stream())
        except (NotFoundError, FileNotFoundError) as problem:
            raise CorruptWeights(path.split("/")[-2], f"{path} is missing") from problem
        except (StoreError, OSError) as problem:
            raise self._unreadable(path, problem) from problem

    def checksum(self, folder: str) -> str:
        """The SHA-256 of a model's weights as they are in the store."""
        digest = hashlib.sha256()
        for piece in self.chunks(f"{folder}/{WEIGHTS}"):
            digest.update(piece)
        return digest.hexdigest()

    def intact(self, folder: str, checksum: str) -> bool:
        """Are a model's weights what was registered? What this machine has compared lately is not read again.

        Raises:
            CorruptWeights: The file is missing.
            UnreadableWeights: It cannot be read here.
        """
        if self._root is None:
            return self.checksum(folder) == checksum
        note, path = self._note(self._root, folder), self._root / folder / WEIGHTS
        if verified.holds(note, checksum, path):
            return True
        seen = verified.state(path)
        same = self.checksum(folder) == checksum
        if same:
            verified.remember(note, checksum, path, seen)
        return same

    def folders(self) -> Iterator[tuple[str, float]]:
        """Every model's folder that is there, and when it was last written to."""
        if self._root is not None:
            for entry in _scan(self._root / MODELS):
                with contextlib.suppress(FileNotFoundError):  # another process may sweep, too
                    if is_id(entry.name):
                        yield f"{MODELS}/{entry.name}", entry.stat().st_mtime
            return
        newest: dict[str, float] = {}
        for batch in self._store.list(MODELS + "/"):
            for item in batch:
                name = str(item["path"]).split("/")[1]
                if is_id(name):
                    folder = f"{MODELS}/{name}"
                    newest[folder] = max(newest.get(folder, 0.0), item["last_modified"].timestamp())
        yield from newest.items()

    def sweep_staging(self, older_than: float) -> int:
        """Delete what processes began to write and never finished. How many folders?"""
        swept = 0
        for entry in _scan(self._root / STAGING) if self._root is not None else ():
            with _going_on(f"sweeping {entry.path}"):
                newest = max([entry.stat().st_mtime, *(file.stat().st_mtime for file in _scan(entry))])
                if newest <= older_than:
                    shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)
                    swept += 1
        return swept

    @staticmethod
    def _note(root: Path, folder: str) -> Path:
        """Where it is noted that a model's weights were compared."""
        return root / VERIFIED / folder.rpartition("/")[2]

    def _failed(self, what: str, problem: Exception) -> ZooUnusable:
        """The error for a store that did not do what it was asked for."""
        return zoo_unusable(self.url, f"{what} failed: {_line(problem)}", _ADVICE, problem)

    def _unreadable(self, path: str, problem: Exception) -> ModelKeeperError:
        """The error for a file that was not read: of that file, or of the whole store?"""
        of_file = isinstance(problem, PermissionDeniedError)
        if of_file or (isinstance(problem, OSError) and is_of_file(problem)):
            return UnreadableWeights(path.split("/")[-2], _line(problem))
        return self._failed(f"reading {path}", problem)

    def _range(self, path: str, offset: int, length: int) -> Any:
        if not length:
            return b""
        try:
            return self._store.get_range(path, start=offset, length=length)
        except (StoreError, OSError) as problem:
            raise self._failed(f"reading {path}", problem) from problem


class Folder:
    """A folder that is being written. Nobody sees it before `publish`."""

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> Written:
        """Write a file, piece by piece; nothing but the piece at hand is held."""
        raise NotImplementedError

    def adopt(self, name: str, path: Path, written: Written) -> Written:
        """Take in a file that lies elsewhere, of which it is known what was written; it stays there, too."""
        with path.open("rb") as file:
            return self.write(name, iter(lambda: file.read(CHUNK), b""))

    def publish(self) -> None:
        """Put it where its model's folder belongs. What lay there belonged to no record, and goes."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind, unless it was published."""
        raise NotImplementedError


class _LocalFolder(Folder):
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

    def adopt(self, name: str, path: Path, written: Written) -> Written:
        try:
            os.link(path, self._staged / name)  # a second name costs nothing; a copy costs the whole file
        except OSError:  # on another disk, or on a file system without links
            return super().adopt(name, path, written)
        with (self._staged / name).open("rb") as file:
            os.fsync(file.fileno())
        return written

    def publish(self) -> None:
        now = time.time()
        os.utime(self._staged, (now, now))
        _sync_folder(self._staged)
        if self._final.exists():  # a registration with the same id died between its files and its record
            self._final.rename(self._staged.with_name(f"gone-{secrets.token_hex(8)}"))
        self._staged.rename(self._final)
        _sync_folder(self._final.parent)

    def close(self) -> None:
        shutil.rmtree(self._staged, ignore_errors=True)


class _RemoteFolder(Folder):
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

        self._store.put(f"{self._folder}/{name}", watched())
        return Written(size, digest.hexdigest())

    def publish(self) -> None:
        """The record in the catalog does it."""

    def close(self) -> None:
        """What no record names is swept; it may as well belong to the same registration, sent twice."""


def _make_folders(root: Path) -> None:
    """Make what a store consists of; one that may only be read has it."""
    try:
        make_home(root)
        for name in (MODELS, STAGING):
            make_folder(root / name, exist_ok=True)
    except OSError:
        if not (root / MODELS).is_dir():
            raise


@contextlib.contextmanager
def _going_on(what: str) -> Iterator[None]:
    """Where something cannot be done, go on to the next; another process may have done it, too."""
    try:
        yield
    except FileNotFoundError:
        return
    except OSError as problem:
        _log.warning("%s failed: %s", what, _line(problem))


def _scan(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where a system can do so."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).partition("\n")[0][:300]
