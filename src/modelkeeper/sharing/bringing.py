"""How do models of a bundle come into a zoo? Each whole or not at all, if the rules of the zoo let it in.

    for outcome in import_bundle(file, coordinator, Rules(licences=("MIT",)), owner="ada"): ...

A bundle is a stranger's: what it says that it holds is looked at first (`bundle`), then just that is taken,
each file compared with its checksum before anything is done with it, and each model registered as any other:
its graph, its tensors, NaN, its signature. Nothing of a bundle chooses where a file lies. What is in the zoo
already is skipped, so that an import that was stopped goes on.
"""

import hashlib
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from modelkeeper.coordinator.base import Coordinator
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidBundle, InvalidSignature, ModelKeeperError, UnknownModel
from modelkeeper.graph import Graph, from_json
from modelkeeper.meta import retold
from modelkeeper.sharing.bundle import MOST, Bundle, Item, read_first
from modelkeeper.sharing.tar import Member, members
from modelkeeper.text import size
from modelkeeper.weights import Header, open_file
from modelkeeper.zoo.files.blobs import GRAPH, PROGRAM, SIGNATURE, WEIGHTS
from modelkeeper.zoo.files.folders import Written
from modelkeeper.zoo.files.staged import Staged
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.records import PUBLIC, STORED, Record
from modelkeeper.zoo.signatures import signed_by
from modelkeeper.zoo.zoo import stored_tensors

IMPORTED, HERE, REFUSED, WOULD = "imported", "here", "refused", "would import"


class Rules(Struct, frozen=True, kw_only=True):
    """What may come in, and as what."""

    signers: tuple[str, ...] | None = None  # ids of keys of which one must have signed; None: nobody need
    licences: tuple[str, ...] = ()  # of which a model must have one; (): any, or none
    most_bytes: int | None = None  # of the weights of one model
    project: str = ""
    visibility: str = PUBLIC

    def against(self, record: Record) -> str:
        """Why a model may not come in; "" if it may."""
        if self.signers is not None and record.signer not in self.signers:
            return f"it is signed by {record.signer[:16]}" if record.signer else "nobody has signed it"
        if self.licences and record.licence not in self.licences:
            return f"its licence is {record.licence}" if record.licence else "it has no licence"
        if self.most_bytes is not None and record.bytes > self.most_bytes:
            return f"it has {size(record.bytes)}, at most {size(self.most_bytes)} are allowed"
        return ""


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of one model."""

    id: str
    name: str
    status: str
    reason: str = ""
    parameters: int = 0
    bytes: int = 0
    data: str = ""
    licence: str = ""
    signer: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


def import_bundle(
    file: BinaryIO,
    coordinator: Coordinator,
    rules: Rules,
    *,
    owner: str = "",
    origin: str = "",
    dry_run: bool = False,
) -> Iterator[Outcome]:
    """Take the models of a bundle into a zoo; of each, what became of it.

    Args:
        file: The bundle, read from here on, once.
        coordinator: The zoo.
        rules: What may come in.
        owner: Who imports it; a coordinator with users knows better.
        origin: What the zoo is called that it comes from. Default: as the bundle says.
        dry_run: Say what would be done, by what the bundle says.

    Raises:
        InvalidBundle: It is none, or not what it says. What was imported before stays, each model whole.
    """
    bundle = read_first(file)
    waiting: dict[str, Item] = {}
    for item in bundle.models:
        problem = rules.against(item.record)
        status = REFUSED if problem else ""
        if not problem:
            status, problem = _known(coordinator, item.record)
        if status:
            yield _outcome(item, status, problem)
        else:
            waiting[item.record.id] = item
    if dry_run:
        for item in waiting.values():
            yield _outcome(item, WOULD)
        return
    taking = _Taking(coordinator, rules, bundle, owner, origin or bundle.origin or "a bundle")
    yield from taking.run(file, waiting)


def _known(coordinator: Coordinator, record: Record) -> tuple[str, str]:
    """Is a model in the zoo already, or can it never be? What is to be said of it then."""
    try:
        known = coordinator.show(record.id)
    except UnknownModel:
        return "", ""
    if known.checksum != record.checksum:
        return REFUSED, "another model of this zoo has its id"
    if known.state not in STORED:
        return REFUSED, f"it was here before, and is {known.state}"
    return HERE, ""


def _outcome(item: Item, status: str, reason: str = "") -> Outcome:
    record = item.record
    shared = {
        name: getattr(record, name) for name in ("id", "name", "parameters", "bytes", "data", "licence")
    }
    return Outcome(**shared, signer=record.signer, status=status, reason=reason)


@dataclass
class _Taking:
    """One import on its way."""

    coordinator: Coordinator
    rules: Rules
    bundle: Bundle
    owner: str
    origin: str
    _files: dict[str, Path] = field(default_factory=dict)  # what has come and is still needed, by SHA-256

    def run(self, file: BinaryIO, waiting: dict[str, Item]) -> Iterator[Outcome]:
        needed = {item_file.sha256 for item in waiting.values() for item_file in item.files.values()}
        arriving = members(file)
        with tempfile.TemporaryDirectory(prefix="modelkeeper-", dir=self._place()) as scratch:
            for item, name, item_file, first in self.bundle.places():
                if first:
                    member = next(arriving, None)
                    self._expect(member, f"models/{item.record.id}/{name}", item_file.size)
                    assert member is not None
                    if item_file.sha256 in needed:
                        self._receive(member, item_file.sha256, Path(scratch))
                last = next(reversed([each for each in _ORDER if each in item.files]))
                if name == last and item.record.id in waiting:
                    yield self._register(waiting.pop(item.record.id))
                    self._forget({f.sha256 for later in waiting.values() for f in later.files.values()})
            if next(arriving, None) is not None:
                raise InvalidBundle("it", "holds more than it says", "Do not use it; ask who made it.")

    def _place(self) -> str | None:
        """Where files lie while they come: on the zoo's own disk, if it is here."""
        if isinstance(self.coordinator, LocalCoordinator):
            folder = self.coordinator.upload_folder()
            folder.mkdir(parents=True, exist_ok=True)
            return str(folder)
        return None

    def _expect(self, member: Member | None, name: str, length: int) -> None:
        if member is None or (member.name, member.size) != (name, length):
            found = "nothing" if member is None else f"{member.name[:80]!r} of {member.size:,} bytes"
            problem = f"holds {found} instead of {name} of {length:,} bytes"
            raise InvalidBundle("it", problem, "Do not use it; ask who made it.")

    def _receive(self, member: Member, sha256: str, scratch: Path) -> None:
        digest, path = hashlib.sha256(), scratch / sha256
        try:
            with path.open("xb") as out:
                for piece in member.pieces():
                    digest.update(piece)
                    out.write(piece)
        except OSError as problem:
            text = problem.strerror or str(problem)
            raise zoo_unusable(str(scratch), text, "Make room there.", problem) from problem
        if digest.hexdigest() != sha256:
            raise InvalidBundle(member.name, "is damaged", "Fetch the bundle again.")
        self._files[sha256] = path

    def _forget(self, needed: Collection[str]) -> None:
        for sha256 in self._files.keys() - needed:
            self._files.pop(sha256).unlink()

    def _read(self, item: Item, name: str) -> bytes:
        return self._files[item.files[name].sha256].read_bytes() if name in item.files else b""

    def _register(self, item: Item) -> Outcome:
        record, weights = item.record, item.files[WEIGHTS]
        try:
            graph = from_json(self._read(item, GRAPH))
            signature = self._read(item, SIGNATURE)
            if (signed_by(signature, record).signer if signature else "") != record.signer:
                raise InvalidSignature(record.id, "it is not signed as it says", "Ask who made the bundle.")
            staged = Staged(self._files[weights.sha256], Written(weights.size, weights.sha256))
            self._send(item, graph, staged, signature)
        except ModelKeeperError as problem:
            return _outcome(item, REFUSED, str(problem))
        return _outcome(item, IMPORTED)

    def _send(self, item: Item, graph: Graph, staged: Staged, signature: bytes) -> None:
        record, rules = item.record, self.rules
        said = retold(record, origin=self.origin, project=rules.project, visibility=rules.visibility)
        more: dict[str, Any] = {
            "owner": self.owner,
            "model_id": record.id,
            "program": self._read(item, PROGRAM),
            "signature": signature,
        }
        if isinstance(self.coordinator, LocalCoordinator):
            accounts = self.coordinator.accounts
            project = accounts.project_id(rules.project) if rules.project else ""
            self.coordinator.register(graph, said, staged, project_id=project, **more)
            return
        form = {"format": "pt" if graph.framework == "torch" else "np"}
        header = Header.of(stored_tensors(graph), form)
        staged.check(header)
        found = open_file(staged.path)
        if found.header.to_bytes() != header.to_bytes():
            problem = "its weights are laid out otherwise than a client sends them"
            raise InvalidBundle(record.id, problem, "Import it where the zoo is: --zoo FOLDER.")
        self.coordinator.register(graph, said, found.items(), **more)


_ORDER = tuple(MOST)
