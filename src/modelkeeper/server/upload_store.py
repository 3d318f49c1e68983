"""Where are the models that are being sent? One folder for each, which survives a restart.

    uploads.begin(owner, request, check)   announce, and reserve room; how many bytes are there already?
    uploads.write(id, offset, data)        the next bytes
    uploads.staged(id)                     all of it, ready to be taken into the zoo
    uploads.forget(id)

Folders lie in the staging area of the blob store where that is local: taking a model in is then a link, not a
copy, and what nobody finishes is swept with the rest. Who announces more than they may send at once takes the
place of what they began and have not gone on with: a client that has died locks nobody out.
"""

import contextlib
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidWeights, QuotaExceeded, TooManyRequests, UnknownModel, ZooUnusable
from modelkeeper.zoo.blobs import UPLOAD
from modelkeeper.zoo.folders import Written
from modelkeeper.zoo.records import is_id
from modelkeeper.zoo.rights import as_its_folder, make_folder, make_home
from modelkeeper.zoo.staged import Staged
from modelkeeper.zoo.unusable import zoo_unusable

MOST_OPEN = 32  # uploads of one user at a time
IDLE = 10.0  # seconds after which an upload that nobody writes to gives way to another of its user
_REQUEST, _WEIGHTS, _RESERVED = "request.json", "weights", "reserved.json"


class Announced(Struct, frozen=True):
    """An upload: whose it is, and what was said of it."""

    owner: str
    request: UploadRequest


class Reserved(Struct, frozen=True):
    """What an upload takes up: all of it as announced, whether it has come or not."""

    id: str
    owner: str
    bytes: int


# Made while this is imported: two threads that first read a type at the same time crash msgspec.
_announced, _reserved = msgspec.json.Decoder(Announced), msgspec.json.Decoder(Reserved)
Check = Callable[[Sequence[Reserved]], None]  # may one user have all of these under way? Raises if not


class UploadStore:
    """The models that are being sent. One thread at a time may write to one of them."""

    def __init__(self, folder: Path, in_use: Callable[[str], bool] = lambda identity: False) -> None:
        """`in_use`: does a request work on this upload right now?"""
        self._folder, self._in_use = folder, in_use
        self._hashes: dict[str, tuple[int, Any]] = {}  # by id: how much was hashed, and the hash
        self._announcing = threading.Lock()
        make_home(folder.parent)
        make_folder(folder, exist_ok=True)

    def begin(self, owner: str, request: UploadRequest, check: Check = lambda reserved: None) -> int:
        """Announce a model, and reserve room for it. How many bytes of it are there already?

        Args:
            owner: Whose model it is.
            request: The announcement; one that is repeated goes on, another one under its id begins anew.
            check: Is told all that the owner would have under way; what is idle goes until it agrees.

        Raises:
            UnknownModel: Another user sends a model under this id.
            TooManyRequests: The user sends too many models at once.
        """
        text = msgspec.json.encode(Announced(owner, request))
        reserved = Reserved(request.id, owner, request.size + len(text))
        with self._alone():
            place = self._place(request.id)
            if place.is_dir():
                _, offset = self.get(request.id, owner)
                if (place / _REQUEST).read_bytes() == text:
                    return offset
            self._make_room(reserved, check)
            self.forget(request.id)
            scratch = place.with_name(place.name + ".new")
            try:
                shutil.rmtree(scratch, ignore_errors=True)
                make_folder(scratch)
                for name, content in (
                    (_WEIGHTS, b""),
                    (_REQUEST, text),
                    (_RESERVED, msgspec.json.encode(reserved)),
                ):
                    with open(scratch / name, "xb", opener=as_its_folder) as file:
                        file.write(content)
                scratch.rename(place)
            except OSError as problem:
                shutil.rmtree(scratch, ignore_errors=True)
                raise _unusable(problem) from problem
        return 0

    def _make_room(self, new: Reserved, check: Check) -> None:
        """Forget uploads of the same user that nobody goes on with, the oldest first, until there is room."""

        def allowed(others: Sequence[Reserved]) -> None:
            if len(others) >= MOST_OPEN:
                problem = f"{MOST_OPEN} models are being sent already"
                raise TooManyRequests(problem, "Finish or delete some first, or wait.", f"{IDLE:g}")
            check([*others, new])

        allowed([])  # or nobody's going would help
        others = [known for known in self.open() if known.owner == new.owner and known.id != new.id]
        while True:
            try:
                return allowed(others)
            except QuotaExceeded:
                idle = [
                    (since, known)
                    for known in others
                    if (since := self._idle_since(known.id)) is not None and since < time.time() - IDLE
                ]
                if not idle:
                    raise
                _, oldest = min(idle, key=lambda pair: pair[0])
                self.forget(oldest.id)
                others.remove(oldest)

    def _idle_since(self, identity: str) -> float | None:
        """When an upload was last written to; None: a request works on it."""
        if self._in_use(identity):
            return None
        try:
            return (self._place(identity) / _WEIGHTS).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One announcement at a time, of all processes that keep uploads in this folder."""
        with self._announcing:
            try:
                import fcntl
            except ImportError:  # this system has no such locks; the threads of this process take turns
                yield
                return
            handle = os.open(self._folder, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)

    def open(self) -> list[Reserved]:
        """What all that is announced and not finished takes up."""
        uploads = []
        for place in self._folder.glob(f"{UPLOAD}*"):
            identity = place.name.removeprefix(UPLOAD)
            if is_id(identity) and (reserved := self._reserved(identity)) is not None:
                uploads.append(reserved)
        return uploads

    def _reserved(self, identity: str) -> Reserved | None:
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return _reserved.decode((self._place(identity) / _RESERVED).read_bytes())
        announced = self._read(identity)  # as an older version announced it
        return None if announced is None else Reserved(identity, announced.owner, announced.request.size)

    def get(self, identity: str, owner: str | None) -> tuple[Announced, int]:
        """What was announced, and how many bytes are there. `owner` None may see everyone's.

        Raises:
            UnknownModel: There is no such upload, or it is somebody else's.
        """
        announced = self._read(identity)
        if announced is None or owner not in (None, announced.owner):
            raise UnknownModel(identity)
        return announced, self.offset(identity)

    def announced_checksum(self, identity: str) -> str:
        """The checksum that was announced for an upload; "": there is none."""
        announced = self._read(identity)
        return "" if announced is None else announced.request.checksum

    def offset(self, identity: str) -> int:
        """How many bytes are there?"""
        try:
            return (self._place(identity) / _WEIGHTS).stat().st_size
        except FileNotFoundError:
            raise UnknownModel(identity) from None

    def write(self, identity: str, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end, which must be at `offset`."""
        path = self._place(identity) / _WEIGHTS
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise UnknownModel(identity) from None
        except OSError as problem:
            raise _unusable(problem) from problem
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                if file.seek(0, os.SEEK_END) != offset:
                    raise InvalidWeights(
                        "file", f"{file.tell():,} bytes are there, these begin at {offset:,}"
                    )
                rest = memoryview(data)
                while len(rest):
                    rest = rest[file.write(rest) :]
        except OSError as problem:
            raise _unusable(problem) from problem
        hashed, digest = self._hashes.get(identity, (0, None))
        if digest is None and not offset:
            digest = hashlib.sha256()
        if digest is not None and hashed == offset:
            digest.update(data)
            self._hashes[identity] = offset + len(data), digest

    def flush(self, identity: str) -> None:
        """Bring to the disk what is there, while more comes."""
        try:
            handle = os.open(self._place(identity) / _WEIGHTS, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as problem:
            raise _unusable(problem) from problem
        try:
            os.fsync(handle)
        except OSError as problem:
            raise _unusable(problem) from problem
        finally:
            os.close(handle)

    def staged(self, identity: str) -> Staged:
        """The whole file."""
        path = self._place(identity) / _WEIGHTS
        size = self.offset(identity)
        hashed, digest = self._hashes.get(identity, (0, None))
        if digest is None or hashed != size:  # another process received the beginning
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        return Staged(path, Written(size, digest.hexdigest()))

    def forget(self, identity: str) -> None:
        """Delete an upload; one that is not there is no error."""
        shutil.rmtree(self._place(identity), ignore_errors=True)
        self._hashes.pop(identity, None)

    def sweep(self, grace: float) -> int:
        """Delete what nobody has written to for so many seconds. How many?"""
        swept = 0
        for known in self.open():
            since = self._idle_since(known.id)
            if since is not None and since < time.time() - grace:
                self.forget(known.id)
                swept += 1
        return swept

    def _read(self, identity: str) -> Announced | None:
        try:
            text = (self._place(identity) / _REQUEST).read_bytes()
            return _announced.decode(text)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _place(self, identity: str) -> Path:
        if not is_id(identity):  # it becomes part of a path
            raise UnknownModel(identity)
        return self._folder / f"{UPLOAD}{identity}"


def _unusable(problem: OSError) -> ZooUnusable:
    text, advice = problem.strerror or str(problem), "Check that its disk is not full."
    return zoo_unusable("staging", text, advice, problem)
