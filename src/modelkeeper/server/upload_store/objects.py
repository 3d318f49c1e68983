"""Where are models that are being sent, if the store is not a folder of this machine? In it, as parts.

See `zoo.replicas.parts`. Any process goes on with an upload that another one began, and takes it in.
"""

import contextlib
import hashlib
import secrets
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

import msgspec

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidWeights, TooManyRequests, UnknownModel
from modelkeeper.server.upload_store.base import (
    Announced,
    Check,
    Reserved,
    Sending,
    UploadStore,
    make_room,
    read_announced,
)
from modelkeeper.zoo.files.blobs import UPLOADS_STAY
from modelkeeper.zoo.files.folders import Written
from modelkeeper.zoo.files.rights import make_folder, make_home
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.replicas.parts import Parts, Sent

_TAKING = "taking-"  # what a file is called that is being taken in
TRIES = 100  # to announce, while others of the same user are announced


class ObjectUploads(UploadStore):
    """Uploads in an object store, with their rows in the catalog."""

    piece = 4 * 2**20

    def __init__(self, parts: Parts, scratch: Path) -> None:
        """`scratch`: a folder for the file that is being taken in."""
        super().__init__()
        self._parts, self._scratch = parts, scratch
        make_home(scratch.parent)
        make_folder(scratch, exist_ok=True)

    def begin(self, owner: str, request: UploadRequest, check: Check = lambda reserved: None) -> int:
        text = msgspec.json.encode(Announced(owner, request))
        attempt = secrets.token_hex(8)
        new = Sent(id=request.id, owner=owner, attempt=attempt, bytes=request.size + len(text), text=text)
        for _ in range(TRIES):
            known = self._parts.find(request.id)
            if known is not None and known.owner != owner:
                raise UnknownModel(request.id)
            if known is not None and known.text == text:
                return known.arrived
            theirs = self._parts.open(owner)
            others = [(_reserved(each), each.idle) for each in theirs if each.id != request.id]
            leaving = {each.id for each in make_room(_reserved(new), others, check)}
            gone = [each for each in theirs if each.id in leaving]
            if self._parts.begin(new, [(each.id, each.attempt) for each in theirs], gone):
                return 0
        raise TooManyRequests("other models of yours are being announced", "Wait for them.", "1")

    def open(self) -> list[Reserved]:
        return [_reserved(each) for each in self._parts.open()]

    def get(self, identity: str, owner: str | None) -> Sending:
        known = self._parts.find(identity)
        if known is None or owner not in (None, known.owner):
            raise UnknownModel(identity)
        return Sending(read_announced(known.text).request, known.owner, known.attempt, known.arrived)

    def announced_checksum(self, identity: str) -> str:
        known = self._parts.find(identity)
        return "" if known is None else read_announced(known.text).request.checksum

    def write(self, identity: str, attempt: str, offset: int, data: bytes | memoryview) -> None:
        if len(data) and not self._parts.add(identity, attempt, offset, data):
            known = self._parts.find(identity)
            if known is None:
                raise UnknownModel(identity)
            raise InvalidWeights("file", f"{known.arrived:,} bytes are there, these begin at {offset:,}")

    def flush(self, identity: str) -> None:
        """A part that is written lasts."""

    @contextlib.contextmanager
    def staged(self, identity: str) -> Iterator[Staged]:
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(
                    tempfile.NamedTemporaryFile(prefix=_TAKING, dir=self._scratch, buffering=0)
                )
                staged = self._gather(identity, file.file)
            except OSError as problem:
                text, advice = problem.strerror or str(problem), "Check that its disk is not full."
                raise zoo_unusable(str(self._scratch), text, advice, problem) from problem
            yield msgspec.structs.replace(staged, path=Path(file.name))

    def _gather(self, identity: str, file: IO[bytes]) -> Staged:
        """Bring all parts into one file, in order."""
        sending, parts = self.get(identity, None), self._parts.all(identity)
        digest, size = hashlib.sha256(), 0
        for data in (piece for part in parts for piece in self._parts.read(identity, part)):
            digest.update(data)
            size += len(data)
            rest = data
            while len(rest):
                rest = rest[file.write(rest) :]
        if size != sending.offset:  # it ended, or grew, meanwhile
            raise UnknownModel(identity)
        source = parts[0].path if len(parts) == 1 else ""
        return Staged(Path(), Written(size, digest.hexdigest()), source)

    def direct_url(self, sending: Sending) -> str:
        return self._parts.direct(sending.request.id, sending.attempt)

    def take_direct(self, sending: Sending) -> bool:
        return self._parts.take_direct(sending.request.id, sending.attempt, sending.request.size)

    def forget(self, identity: str) -> None:
        self._parts.forget(identity)

    def sweep(self, grace: float) -> int:
        """Uploads go with all else that `gc` of the zoo sweeps; here, what a process left that died."""
        old = time.time() - max(grace, UPLOADS_STAY)
        swept = 0
        for path in self._scratch.glob(f"{_TAKING}*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < old:
                    path.unlink()
                    swept += 1
        return swept

    def touch(self, identities: Collection[str]) -> None:
        self._parts.touch(identities)


def _reserved(known: Sent) -> Reserved:
    return Reserved(known.id, known.owner, known.bytes, known.attempt)
