"""Where are the models that are being sent? One folder for each, which survives a restart.

    uploads.begin(owner, request)          announce; how many bytes are there already?
    uploads.write(id, offset, data)        the next bytes
    uploads.staged(id)                     all of it, ready to be taken into the zoo
    uploads.forget(id)

Folders lie in the staging area of the blob store where that is local: taking a model in is then a link, not a
copy, and what nobody finishes is swept with the rest.
"""

import hashlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidWeights, TooManyRequests, UnknownModel, ZooUnusable
from modelkeeper.zoo.blobs import Written
from modelkeeper.zoo.records import is_id
from modelkeeper.zoo.staged import Staged
from modelkeeper.zoo.unusable import zoo_unusable

MOST_OPEN = 32  # uploads of one user at a time
_PREFIX, _REQUEST, _WEIGHTS = "upload-", "request.json", "weights"


class Announced(Struct, frozen=True):
    """An upload: whose it is, and what was said of it."""

    owner: str
    request: UploadRequest


class UploadStore:
    """The models that are being sent. One thread at a time may write to one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, tuple[int, Any]] = {}  # by id: how much was hashed, and the hash
        self._announcing = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, owner: str, request: UploadRequest) -> int:
        """Announce a model. How many bytes of it are there already?

        Raises:
            UnknownModel: Another user sends a model under this id.
            TooManyRequests: The user sends too many models at once.
        """
        text = msgspec.json.encode(Announced(owner, request))
        with self._announcing:
            place = self._place(request.id)
            if place.is_dir():
                known, offset = self.get(request.id, owner)
                if msgspec.json.encode(known) == text:
                    return offset
                self.forget(request.id)  # another announcement under the same id: begin anew
            if sum(announced.owner == owner for announced in self.open()) >= MOST_OPEN:
                problem = f"{MOST_OPEN} models are being sent already"
                raise TooManyRequests(problem, "Finish or delete some first, or wait.", "60")
            scratch = place.with_name(place.name + ".new")
            try:
                shutil.rmtree(scratch, ignore_errors=True)
                scratch.mkdir()
                (scratch / _WEIGHTS).touch()
                (scratch / _REQUEST).write_bytes(text)
                scratch.rename(place)
            except OSError as problem:
                raise _unusable(problem) from problem
        return 0

    def has(self, identity: str, owner: str) -> bool:
        """Has this user announced a model under this id?"""
        known = self._read(identity)
        return known is not None and known.owner == owner

    def open(self) -> list[Announced]:
        """All that is announced and not finished."""
        uploads = []
        for place in self._folder.glob(f"{_PREFIX}*"):
            identity = place.name.removeprefix(_PREFIX)
            if is_id(identity) and (announced := self._read(identity)) is not None:
                uploads.append(announced)
        return uploads

    def get(self, identity: str, owner: str | None) -> tuple[Announced, int]:
        """What was announced, and how many bytes are there. `owner` None may see everyone's.

        Raises:
            UnknownModel: There is no such upload, or it is somebody else's.
        """
        announced = self._read(identity)
        if announced is None or owner not in (None, announced.owner):
            raise UnknownModel(identity)
        return announced, self.offset(identity)

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
        for announced in self.open():
            place = self._place(announced.request.id)
            try:
                old = (place / _WEIGHTS).stat().st_mtime < time.time() - grace
            except FileNotFoundError:
                continue
            if old:
                self.forget(announced.request.id)
                swept += 1
        return swept

    def _read(self, identity: str) -> Announced | None:
        try:
            text = (self._place(identity) / _REQUEST).read_bytes()
            return msgspec.json.decode(text, type=Announced)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _place(self, identity: str) -> Path:
        if not is_id(identity):  # it becomes part of a path
            raise UnknownModel(identity)
        return self._folder / f"{_PREFIX}{identity}"


def _unusable(problem: OSError) -> ZooUnusable:
    text, advice = problem.strerror or str(problem), "Check that its disk is not full."
    return zoo_unusable("staging", text, advice, problem)
