"""Where are models that are being sent, if the store is a folder of this machine? In its staging area.

Each has a folder. Taking a model in is a link, not a copy, and what nobody finishes is swept with the rest.
Processes that share the staging area take turns by locks on it and on each file, which end with their holder.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidWeights, UnknownModel, ZooUnusable
from modelkeeper.server.upload_store.base import (
    Announced,
    Check,
    Reserved,
    Sending,
    UploadStore,
    make_room,
    read_announced,
)
from modelkeeper.write_buffers import BUFFER_BYTES
from modelkeeper.zoo.files.blobs import UPLOAD
from modelkeeper.zoo.files.folders import Written
from modelkeeper.zoo.files.rights import as_its_folder, make_folder, make_home
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.records import is_id
from modelkeeper.zoo.replicas.parts import IDLE

_REQUEST, _WEIGHTS, _RESERVED = "request.json", "weights", "reserved.json"
_reserved = msgspec.json.Decoder(Reserved)


class FolderUploads(UploadStore):
    """Uploads in a folder that the processes of one machine share."""

    piece = BUFFER_BYTES

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._hashes: dict[
            tuple[str, str], tuple[int, Any]
        ] = {}  # by attempt: how much was hashed, and the hash
        self._announcing = threading.Lock()
        make_home(folder.parent)
        make_folder(folder, exist_ok=True)

    def begin(self, owner: str, request: UploadRequest, check: Check = lambda reserved: None) -> int:
        announced = Announced(owner, request)
        text = msgspec.json.encode(announced)
        reserved = Reserved(request.id, owner, request.size + len(text), secrets.token_hex(8))
        with self._alone():
            place, known = self._place(request.id), self._read(request.id)
            if known is not None and known.owner != owner:
                raise UnknownModel(request.id)
            if known == announced:
                with contextlib.suppress(UnknownModel):  # it ends just now
                    return self._offset(request.id)
            others = [
                (known, time.time() - self._touched(known.id))
                for known in self.open()
                if known.owner == owner and known.id != request.id
            ]
            for gone in make_room(reserved, others, check):
                self.forget(gone.id)
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

    def _touched(self, identity: str) -> float:
        """When somebody last worked on an upload."""
        try:
            return (self._place(identity) / _WEIGHTS).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One announcement at a time, of all processes that keep uploads in this folder."""
        with self._announcing:
            if (
                os.name != "posix"
            ):  # this system has no locks of folders; the threads of this process take turns
                yield
                return
            handle = os.open(self._folder, os.O_RDONLY)
            try:
                _lock(handle)
                yield
            finally:
                os.close(handle)

    def open(self) -> list[Reserved]:
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

    def get(self, identity: str, owner: str | None) -> Sending:
        announced, reserved = self._read(identity), self._reserved(identity)
        if announced is None or reserved is None or owner not in (None, announced.owner):
            raise UnknownModel(identity)
        return Sending(announced.request, announced.owner, reserved.attempt, self._offset(identity))

    def announced_checksum(self, identity: str) -> str:
        announced = self._read(identity)
        return "" if announced is None else announced.request.checksum

    def _offset(self, identity: str) -> int:
        try:
            return (self._place(identity) / _WEIGHTS).stat().st_size
        except FileNotFoundError:
            raise UnknownModel(identity) from None

    def write(self, identity: str, attempt: str, offset: int, data: bytes | memoryview) -> None:
        path = self._place(identity) / _WEIGHTS
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise UnknownModel(identity) from None
        except OSError as problem:
            raise _unusable(problem) from problem
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                _lock(handle)  # until it is closed
                known = self._reserved(identity)  # read when the file is open: else it might be another's
                if known is None or known.attempt != attempt:
                    raise InvalidWeights("file", "another model was announced under its id")
                if file.seek(0, os.SEEK_END) != offset:
                    raise InvalidWeights(
                        "file", f"{file.tell():,} bytes are there, these begin at {offset:,}"
                    )
                rest = memoryview(data)
                while len(rest):
                    rest = rest[file.write(rest) :]
        except OSError as problem:
            raise _unusable(problem) from problem
        hashed, digest = self._hashes.get((identity, attempt), (0, None))
        if digest is None and not offset:
            digest = hashlib.sha256()
        if digest is not None and hashed == offset:
            digest.update(data)
            self._hashes[identity, attempt] = offset + len(data), digest

    def flush(self, identity: str) -> None:
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

    @contextlib.contextmanager
    def staged(self, identity: str) -> Iterator[Staged]:
        path, attempt = self._place(identity) / _WEIGHTS, self.get(identity, None).attempt
        size = self._offset(identity)
        hashed, digest = self._hashes.get((identity, attempt), (0, None))
        if digest is None or hashed != size:  # another process received some of it
            try:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256")
            except FileNotFoundError:
                raise UnknownModel(identity) from None
        yield Staged(path, Written(size, digest.hexdigest()))

    def forget(self, identity: str) -> None:
        shutil.rmtree(self._place(identity), ignore_errors=True)
        for known in [known for known in self._hashes if known[0] == identity]:
            self._hashes.pop(known, None)

    def sweep(self, grace: float) -> int:
        swept = 0
        for known in self.open():
            if self._touched(known.id) < time.time() - max(grace, IDLE):
                self.forget(known.id)
                swept += 1
        return swept

    def touch(self, identities: Collection[str]) -> None:
        for identity in identities:
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._place(identity) / _WEIGHTS, follow_symlinks=False)

    def _read(self, identity: str) -> Announced | None:
        try:
            text = (self._place(identity) / _REQUEST).read_bytes()
            return read_announced(text)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _place(self, identity: str) -> Path:
        if not is_id(identity):  # it becomes part of a path
            raise UnknownModel(identity)
        return self._folder / f"{UPLOAD}{identity}"


def _unusable(problem: OSError) -> ZooUnusable:
    text, advice = problem.strerror or str(problem), "Check that its disk is not full."
    return zoo_unusable("staging", text, advice, problem)


def _lock(handle: int) -> None:
    """Wait until no other process has a file locked; it is ours until it is closed."""
    try:
        import fcntl
    except ImportError:  # this system has no such locks
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
