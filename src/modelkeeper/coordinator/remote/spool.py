"""Where do models wait that are to be sent? A folder for each, until the coordinator has them.

A model is written here first and sent from here: sending can then go on where it broke, in this process or
in another one (`modelkeeper sync`), and a training ends without waiting for a coordinator that is down. The
id is chosen here, so that a model that is sent twice is registered once. Tokens are not kept here.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.graph import Graph, to_json
from modelkeeper.weights import Array, Header, stream, without_nan
from modelkeeper.zoo.records import Registration, is_id, new_id
from modelkeeper.zoo.unusable import zoo_unusable
from modelkeeper.zoo.zoo import stored_tensors

_REQUEST, _WEIGHTS = "request.json", "model.safetensors"


class Waiting(Struct, frozen=True):
    """Where a model is to go, and what goes with it."""

    url: str
    request: UploadRequest


class Entry:
    """One model that waits."""

    def __init__(self, folder: Path, waiting: Waiting) -> None:
        self.folder, self.waiting = folder, waiting

    @property
    def weights(self) -> Path:
        """Its safetensors file."""
        return self.folder / _WEIGHTS

    def forget(self) -> None:
        """It is in the zoo, or never will be."""
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
    ) -> Entry:
        """Write a model into the spool.

        Raises:
            InvalidWeights: A tensor is missing, has another shape than the graph says, or holds NaN.
            ZooUnusable: The spool cannot be written to.
        """
        header = Header.of(stored_tensors(graph), {"format": "pt" if graph.framework == "torch" else "np"})
        identity = model_id or new_id()
        scratch = self.folder / f".{identity}-{secrets.token_hex(4)}"
        digest, size = hashlib.sha256(), 0
        try:
            scratch.mkdir(parents=True, mode=0o700)
            with (scratch / _WEIGHTS).open("xb") as file:
                for chunk in stream(header, without_nan(tensors)):
                    file.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
            request = UploadRequest(
                id=identity,
                graph=msgspec.Raw(to_json(graph)),
                registration=registration,
                size=size,
                checksum=digest.hexdigest(),
                owner=owner,
                program=program,
            )
            waiting = Waiting(url, request)
            (scratch / _REQUEST).write_bytes(msgspec.json.encode(waiting))
            place = self.folder / identity
            if place.exists():
                shutil.rmtree(place)
            scratch.rename(place)
        except OSError as problem:
            advice = "Give another folder: spool=... or MODELKEEPER_SPOOL."
            text = os.strerror(problem.errno or 0)
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

    def entries(self) -> list[Entry]:
        """All that waits, the oldest first."""
        waiting = []
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if is_id(folder.name):
                with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
                    text = (folder / _REQUEST).read_bytes()
                    entry = Entry(folder, msgspec.json.decode(text, type=Waiting))
                    waiting.append((folder.stat().st_mtime, folder.name, entry))
        return [entry for _, _, entry in sorted(waiting, key=lambda aged: aged[:2])]
