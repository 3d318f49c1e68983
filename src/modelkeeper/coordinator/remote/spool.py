"""Where do models wait that are to be sent? A folder for each, until the coordinator has them.

A model is written here first and sent from here: sending can then go on where it broke, in this process or
in another one (`modelkeeper sync`), and a training ends without waiting for a coordinator that is down. The
id is chosen here, so that a model that is sent twice is registered once. Tokens are not kept here; a seal
that only who has the token can make says that a model was to be sent to its address with that token, so that
whoever can write into a spool cannot have a token sent elsewhere.

A folder that is being written is locked: what a process left behind that died meanwhile is swept by the next.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import httpx
import msgspec
from msgspec import Struct

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.graph import Graph, to_json
from modelkeeper.settings import is_loopback
from modelkeeper.weights import Array, Header, stream, without_nan
from modelkeeper.zoo.files.rights import as_its_folder, make_folder, make_home
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.incoming import drafted, with_files
from modelkeeper.zoo.records import Registration, is_id, new_id
from modelkeeper.zoo.signatures import Sign
from modelkeeper.zoo.zoo import stored_tensors

YOUNG = 60.0  # seconds in which a folder may not have been locked yet
FORGOTTEN = 86400.0  # seconds after which nobody writes any more, where there are no locks
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_REQUEST, _WEIGHTS = "request.json", "model.safetensors"


class Waiting(Struct, frozen=True):
    """Where a model is to go, and what goes with it."""

    url: str
    request: UploadRequest
    seal: str = ""

    def sealed(self, token: str) -> bool:
        """Was it to be sent to its address with this token?"""
        return bool(token) and hmac.compare_digest(self.seal, _seal(self.url, self.request, token))


def _seal(url: str, request: UploadRequest, token: str) -> str:
    """What only who has the token can say of a model and its address."""
    said = "\n".join((url, request.id, request.checksum)).encode()
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest() if token else ""


class Entry:
    """One model that waits."""

    def __init__(self, folder: Path, waiting: Waiting) -> None:
        self.folder, self.waiting = folder, waiting

    @property
    def weights(self) -> Path:
        """Its safetensors file."""
        return self.folder / _WEIGHTS

    def may_get(self, token: str, trusted: Collection[str]) -> bool:
        """May it be sent to its address with this token, whoever wrote it? These addresses are trusted."""
        url = self.waiting.url
        if url in trusted or token:
            return url in trusted or self.waiting.sealed(token)
        try:
            return is_loopback(httpx.URL(url).host)
        except httpx.InvalidURL:
            return False

    def open(self) -> BinaryIO:
        """Its safetensors file, to be read; not one that a link leads to."""
        return open(self.weights, "rb", opener=lambda path, flags: os.open(path, flags | _NO_LINK))

    def forget(self) -> None:
        """It is in the zoo, or never will be."""
        gone = self.folder.with_name(f".gone-{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            self.folder.rename(gone)  # half of a folder is nobody's
        shutil.rmtree(gone, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Is nobody else sending it? While the block runs, nobody else will."""
        try:
            import fcntl
        except ImportError:  # not on this system; sending twice does no harm
            yield True
            return
        try:
            file = (self.folder / _REQUEST).open("rb")
        except FileNotFoundError:
            yield False
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield self.weights.exists()


class Spool:
    """The models that wait in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, folder: str | Path | None) -> "Spool":
        """The spool in a folder; of whoever does not say which, the one in ~/.modelkeeper."""
        return cls(Path(folder).expanduser() if folder else Path.home() / ".modelkeeper" / "spool")

    def keep(
        self,
        url: str,
        graph: Graph,
        registration: Registration,
        tensors: Iterable[tuple[str, Array]],
        owner: str,
        model_id: str,
        program: bytes = b"",
        token: str = "",
        signature: bytes = b"",
        evidence: bytes = b"",
        sign: Sign | None = None,
        parents: Mapping[str, str] | None = None,
    ) -> Entry:
        """Write a model into the spool, to be sent to the address with the token.

        `sign` makes its signature, with what is known of the weights of its `parents`.

        Raises:
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            ZooUnusable: The spool cannot be written to.
        """
        header = Header.of(stored_tensors(graph), {"format": "pt" if graph.framework == "torch" else "np"})
        identity = model_id or new_id()
        scratch, place = self.folder / f".{identity}-{secrets.token_hex(4)}", self.folder / identity
        try:
            make_home(self.folder)
            self.sweep()
            make_folder(scratch)
            with locked(scratch):
                size, checksum = _write(scratch / _WEIGHTS, stream(header, without_nan(tensors)))
                graph_json = to_json(graph)
                if sign is not None and not signature:
                    draft = drafted(graph, graph_json, registration, owner, identity)
                    signature = sign(with_files(draft, size, checksum, program, evidence), parents or {})
                request = UploadRequest(
                    id=identity,
                    graph=msgspec.Raw(graph_json),
                    registration=registration,
                    size=size,
                    checksum=checksum,
                    owner=owner,
                    program=program,
                    signature=signature,
                    evidence=evidence,
                )
                waiting = Waiting(url, request, _seal(url, request, token))
                with open(scratch / _REQUEST, "xb", opener=as_its_folder) as file:
                    file.write(msgspec.json.encode(waiting))
                if place.exists():
                    Entry(place, waiting).forget()
                scratch.rename(place)
        except OSError as problem:
            text, advice = os.strerror(problem.errno or 0), "Give another: spool=... or MODELKEEPER_SPOOL."
            raise zoo_unusable(str(self.folder), text, advice, problem) from problem
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._forget_versions_before(identity, registration)
        return Entry(place, waiting)

    def _forget_versions_before(self, identity: str, registration: Registration) -> None:
        """Forget earlier versions of a training that wait: a later one takes their place."""
        if not registration.run:
            return
        for entry in self.entries():
            request = entry.waiting.request
            if request.registration.run == registration.run and request.id != identity:
                with entry.alone() as free:
                    if free:
                        entry.forget()

    def sweep(self) -> int:
        """Delete what processes began to write and never finished. How many folders?"""
        swept = 0
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            with contextlib.suppress(OSError):  # another process may sweep, too
                age = time.time() - folder.stat().st_mtime
                if folder.name.startswith(".") and age > YOUNG and _abandoned(folder, age):
                    shutil.rmtree(folder)
                    swept += 1
        return swept

    def entries(self) -> list[Entry]:
        """All that waits, the oldest first."""
        self.sweep()
        waiting = []
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if is_id(folder.name):
                with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
                    text = (folder / _REQUEST).read_bytes()
                    entry = Entry(folder, msgspec.json.decode(text, type=Waiting))
                    if entry.waiting.request.id == folder.name:
                        waiting.append((folder.stat().st_mtime, folder.name, entry))
        return [entry for _, _, entry in sorted(waiting, key=lambda aged: aged[:2])]


def _write(path: Path, chunks: Iterable[bytes | memoryview]) -> tuple[int, str]:
    """Write a new file, piece by piece. How long is it, and what is its SHA-256?"""
    digest, size = hashlib.sha256(), 0
    with open(path, "xb", opener=as_its_folder) as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Was nobody else's lock on a folder? While the block runs, it is locked, also if it is renamed."""
    try:
        import fcntl
    except ImportError:  # this system has no such locks
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _abandoned(folder: Path, age: float) -> bool:
    """Is nobody writing to a folder any more?"""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return age > FORGOTTEN
    with locked(folder) as free:
        return free
