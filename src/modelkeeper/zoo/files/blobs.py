"""Where do weights lie? Folders of files in a blob store, one folder for each model.

    blobs = Blobs("zoo/")                  also "memory://", "s3://bucket/prefix": see `stores`
    with blobs.writing("models/17") as folder:
        folder.write("model.safetensors", chunks)
        folder.publish()
    blobs.weights("models/17")             a mapping of tensors, each read when it is asked for

A folder appears whole or not at all (see `folders`). What a crash leaves behind belongs to no record, and is
swept. A file of an object store is read in pieces, each of which has the time that a call to it has.
"""

import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from obstore.exceptions import AlreadyExistsError, NotFoundError, NotSupportedError, PermissionDeniedError
from obstore.exceptions import BaseError as StoreError
from obstore.store import LocalStore

from modelkeeper.errors import CorruptWeights, ModelKeeperError, UnreadableWeights, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.stepping_out import stepped_out
from modelkeeper.weights import Weights, map_file
from modelkeeper.zoo.files import verified
from modelkeeper.zoo.files.folders import STAGING, Folder, LocalFolder, RemoteFolder, create_file
from modelkeeper.zoo.files.opening import is_of_file, open_regular
from modelkeeper.zoo.files.rights import make_folder, make_home
from modelkeeper.zoo.files.signed_urls import SignedUrls
from modelkeeper.zoo.files.stores import Store, is_of_obstore, open_brief, open_store
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.records import model_of

WEIGHTS, CARD, CONFIG, GRAPH = "model.safetensors", "README.md", "config.json", "graph.json"
PROGRAM = "program.json"  # what the model computes, for whoever runs it without its code; not all have one
SIGNATURE = "signature.json"  # who says what of the model: an envelope, see `signing`; not all have one
EVIDENCE = "evidence.safetensors"  # held-out examples to check it on: see `evidence`; few have some
MODELS, VERIFIED = "models", "verified"
UPLOAD = "upload-"  # what an upload under way is called in the staging folder of a local store
UPLOADS_STAY = 3600.0  # seconds: another process receives them, and may wait for the next piece
PIECE = 8 * 2**20  # bytes of an object that are asked for at a time
BRIEF = 2**20  # bytes that come soon, or the store does not answer
_log = logger()
_ADVICE = "Check that it exists, that you may write to it, and that its disk is not full."


class Blobs:
    """The files of a zoo. Safe to use from several threads and processes."""

    def __init__(self, url: str | Path, public: str = "") -> None:
        """Open a local folder, or a store by its URL; `public`: what clients call it, see `signed_urls`.

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
            self._brief: Store = open_brief(self.url, store)
            self._urls = SignedUrls(self.url, store, public)
        except (StoreError, OSError, ValueError) as problem:
            raise zoo_unusable(self.url, _line(problem), _ADVICE, problem) from problem

    @property
    def staging(self) -> Path | None:
        """Where files of a local store lie that are not finished; None: it is not local."""
        return None if self._root is None else self._root / STAGING

    @property
    def objects(self) -> Store | None:
        """The store itself; None: it is a folder of this machine."""
        return self._store if self._root is None else None

    @contextlib.contextmanager
    def writing(self, folder: str) -> Iterator["Folder"]:
        """Write the files of a folder. It appears when it is published; otherwise it never was there."""
        try:
            if self._root is None:
                files: Folder = RemoteFolder(self._store, folder)
            else:
                files = LocalFolder(self._root, folder)
            try:
                yield files
            finally:
                files.close()
        except (StoreError, OSError) as problem:
            raise self.failed(f"writing {folder}", problem) from problem

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
                with self.waiting():
                    paths = [item["path"] for batch in self._store.list(folder + "/") for item in batch]
                    if paths:
                        self._store.delete(paths)
        except (StoreError, OSError) as problem:
            raise self.failed(f"deleting {folder}", problem) from problem

    def read(self, path: str) -> bytes:
        """A whole small file.

        Raises:
            FileNotFoundError: It is not there.
        """
        try:
            if self._root is not None:  # without obstore, whose threads do not survive a fork
                with open_regular(self._root / path) as file:
                    return file.read()
            with self.waiting():
                return bytes(self._brief.get(path).bytes())
        except (NotFoundError, FileNotFoundError) as problem:
            raise FileNotFoundError(path) from problem
        except (StoreError, OSError) as problem:
            raise self.failed(f"reading {path}", problem) from problem

    def create(self, path: str, content: bytes) -> None:
        """Write a small file, unless there is one: whoever is first wins, and nobody is told who that was."""
        try:
            if self._root is not None:
                create_file(self._root, path, content)
                return
            with self.waiting():
                self._create(path, content)
        except (StoreError, OSError) as problem:
            raise self.failed(f"writing {path}", problem) from problem

    def _create(self, path: str, content: bytes) -> None:
        with contextlib.suppress(NotFoundError, FileNotFoundError):
            self._brief.head(path)
            return
        try:
            if not is_of_obstore(self._store):
                raise NotSupportedError("it is no store of obstore")
            self._store.put(path, iter([content]), mode="create")  # type: ignore[call-arg]
        except AlreadyExistsError:
            return
        except NotSupportedError:  # not every server of S3 knows conditions
            self._store.put(path, iter([content]))

    def sign(self, method: Literal["GET", "PUT"], path: str) -> str:
        """A URL for just one file, which needs no other right; "": the store cannot sign."""
        with self.waiting():  # keys may have to be fetched
            return self._urls.sign(method, path)

    def ask(self) -> None:
        """Return when the store has answered anything."""
        with contextlib.suppress(FileNotFoundError):
            self.read(f"{MODELS}/none")

    def waiting(self) -> AbstractContextManager[None]:
        """What waits for a store that is not on this machine takes nobody's place."""
        return contextlib.nullcontext() if self._root is not None else stepped_out()

    def names(self, folder: str) -> list[str]:
        """The names of the files in a model's folder."""
        try:
            if self._root is not None:
                return sorted(entry.name for entry in _scan(self._root / folder))
            with self.waiting():
                found = [str(item["path"]) for batch in self._store.list(folder + "/") for item in batch]
            return sorted(path.rpartition("/")[2] for path in found)
        except (StoreError, OSError) as problem:
            raise self._unreadable(f"{folder}/{WEIGHTS}", problem) from problem

    def weights(self, folder: str, size: int) -> Weights:
        """The tensors of a model, each read when it is asked for; local ones are mapped into memory.

        Raises:
            CorruptWeights: The file is missing, or has another size than it was registered with.
            UnreadableWeights: It cannot be read here, for whatever reason.
        """
        model, path = model_of(folder), f"{folder}/{WEIGHTS}"
        try:
            if self._root is not None:
                with open_regular(self._root / path) as file:
                    actual = os.fstat(file.fileno()).st_size
                    if actual == size:
                        return map_file(file)
            else:
                with self.waiting():
                    actual = self._brief.head(path)["size"]
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
                with self.waiting():
                    size = self._brief.head(path)["size"]
                for at in range(start, size, PIECE):
                    with self.waiting():
                        piece = bytes(self._store.get_range(path, start=at, length=min(PIECE, size - at)))
                    yield piece
        except (NotFoundError, FileNotFoundError) as problem:
            raise CorruptWeights(_model_at(path), f"{path} is missing") from problem
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

    def folders(self, under: str = MODELS) -> Iterator[tuple[str, float]]:
        """Every folder under this one (of models: theirs), and when it was last written to.

        Raises:
            ZooUnusable: The store cannot be listed.
        """
        yield from ((folder, written) for folder, written, _ in self.listed(under))

    def listed(self, under: str = MODELS) -> Iterator[tuple[str, float, int | None]]:
        """The same, and how large its file of weights is; -1: there is none; None: the list does not say.

        Raises:
            ZooUnusable: The store cannot be listed.
        """
        if self._root is not None:
            for entry in _scan(self._root / under):
                with contextlib.suppress(FileNotFoundError):  # another process may sweep, too
                    if under != MODELS or model_of(entry.name):
                        yield f"{under}/{entry.name}", entry.stat().st_mtime, None
            return
        found: dict[str, tuple[float, int | None]] = {}
        try:
            with self.waiting():
                for item in itertools.chain.from_iterable(self._store.list(under + "/")):
                    _, name, *rest = str(item["path"]).split("/")
                    if under != MODELS or model_of(name):
                        newest, size = found.get(f"{under}/{name}", (0.0, -1))
                        newest = max(newest, item["last_modified"].timestamp())
                        found[f"{under}/{name}"] = newest, item.get("size") if rest == [WEIGHTS] else size
        except (StoreError, OSError) as problem:
            raise self.failed(f"listing {under}", problem) from problem
        for folder, (newest, size) in found.items():
            yield folder, newest, size

    def sweep_staging(self, older_than: float, abandoned: Callable[[str], bool] = lambda folder: True) -> int:
        """Delete what processes began to write and never finished. How many folders?

        `abandoned` says of the folder of a model that nobody writes it any more.
        """
        swept = 0
        for entry in _scan(self._root / STAGING) if self._root is not None else ():
            with _going_on(f"sweeping {entry.path}"):
                newest = max([entry.stat().st_mtime, *(file.stat().st_mtime for file in _scan(entry))])
                if entry.name.startswith(UPLOAD):
                    newest += UPLOADS_STAY
                folder = f"{MODELS}/{entry.name.rpartition('-')[0]}"
                if newest <= older_than and (not model_of(folder) or abandoned(folder)):
                    # Renamed first: else a folder that is published while it is being deleted would be
                    # acknowledged and lose its files. So one of the two finds it gone.
                    doomed = Path(entry.path).with_name(f"gone-{secrets.token_hex(8)}")
                    os.rename(entry, doomed)
                    shutil.rmtree(doomed) if entry.is_dir(follow_symlinks=False) else os.unlink(doomed)
                    swept += 1
        return swept

    @staticmethod
    def _note(root: Path, folder: str) -> Path:
        """Where it is noted that a model's weights were compared."""
        return root / VERIFIED / folder.rpartition("/")[2]

    def failed(self, what: str, problem: Exception) -> ZooUnusable:
        """The error for a store that did not do what it was asked for."""
        return zoo_unusable(self.url, f"{what} failed: {_line(problem)}", _ADVICE, problem)

    def _unreadable(self, path: str, problem: Exception) -> ModelKeeperError:
        """The error for a file that was not read: of that file, or of the whole store?"""
        of_file = isinstance(problem, PermissionDeniedError)
        if of_file or (isinstance(problem, OSError) and is_of_file(problem)):
            return UnreadableWeights(_model_at(path), _line(problem))
        return self.failed(f"reading {path}", problem)

    def _range(self, path: str, offset: int, length: int) -> Any:
        if not length:
            return b""
        try:
            with self.waiting():
                store = self._brief if length <= BRIEF else self._store
                return store.get_range(path, start=offset, length=length)
        except (NotFoundError, FileNotFoundError) as problem:  # it was removed while it was read
            raise CorruptWeights(_model_at(path), f"{path} is missing") from problem
        except (StoreError, OSError) as problem:
            raise self.failed(f"reading {path}", problem) from problem


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


def _model_at(path: str) -> str:
    """The id of the model that a file belongs to."""
    return model_of(path.rpartition("/")[0])


def _line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).partition("\n")[0][:300]
