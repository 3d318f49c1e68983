"""How do models leave a zoo in one file?

    export = Export(coordinator, ["resnet20"], ancestors=True)
    export.bundle.models                 what would leave: look at it first
    export.write(file)                   a bundle, streamed; or
    export.save(path)                    a file that goes on where an earlier call was stopped

The same models make the same bytes, so a bundle that was begun is compared with what it would be, file by
file, and written from there on.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from modelkeeper.coordinator.base import Coordinator
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.errors import CorruptWeights, UnknownModel
from modelkeeper.sharing.bundle import FIRST, Bundle, File, Item, told
from modelkeeper.sharing.tar import BLOCK, END, PIECE, header, padding
from modelkeeper.zoo import card
from modelkeeper.zoo.files.blobs import CARD, GRAPH, PROGRAM, SIGNATURE, WEIGHTS
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.records import STORED, Record, checked_name

Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Member:
    """One file of a bundle that is being written."""

    name: str
    size: int
    sha256: str
    pieces: Callable[[], Iterable[bytes]]

    @property
    def room(self) -> int:
        """How many bytes it takes up."""
        return BLOCK + self.size + len(padding(self.size))


class Export:
    """Models of a zoo, about to leave it."""

    def __init__(
        self, coordinator: Coordinator, names: Sequence[str], *, ancestors: bool = False, origin: str = ""
    ) -> None:
        """Look up what would leave; nothing is written yet.

        Args:
            coordinator: The zoo that they are in.
            names: Names or ids of models.
            ancestors: Do the models that they descend from go along, as far as they are there?
            origin: What the zoo is called for those who import it.

        Raises:
            UnknownModel: One of them is not there, or not any more.
        """
        self._coordinator = coordinator
        self.remarks: list[str] = []
        chosen: dict[str, Record] = {}
        above: dict[str, Record] = {}
        for name in names:
            lineage = coordinator.tree(name)
            if lineage.record.state not in STORED:
                raise UnknownModel(name)
            chosen[lineage.record.id] = lineage.record
            above |= _ancestors(coordinator, lineage)
        if ancestors:
            chosen |= {key: record for key, record in above.items() if record.state in STORED}
        self._records = dict(sorted(chosen.items()))
        self.bundle = Bundle(
            origin=checked_name("origin", origin),
            models=tuple(self._item(record) for record in self._records.values()),
            ancestors=tuple(told(above[key]) for key in sorted(above.keys() - chosen.keys())),
        )

    @property
    def length(self) -> int:
        """How long the bundle will be."""
        return sum(member.room for member in self._members()) + len(END)

    def write(self, out: BinaryIO, progress: Progress | None = None) -> None:
        """Write the bundle, from its beginning to its end.

        Raises:
            CorruptWeights: The files of a model are not what was registered.
        """
        self._write(out, self._members(), 0, progress)

    def save(self, path: Path, progress: Progress | None = None) -> None:
        """Write the bundle to a file; it appears when it is whole.

        Raises:
            CorruptWeights: The files of a model are not what was registered.
            ZooUnusable: It cannot be written.
        """
        part = path.with_name(path.name + ".part")
        try:
            with open(part, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                members, at = list(self._members()), 0
                file.seek(0)
                while members and _stands(file, members[0]):
                    at = file.tell()
                    members.pop(0)
                file.seek(at)
                file.truncate(at)
                self._write(file, members, at, progress)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as problem:
            text = problem.strerror or str(problem)
            raise zoo_unusable(str(path), text, "Choose another place.", problem) from problem

    def _write(self, out: BinaryIO, members: Iterable[Member], at: int, progress: Progress | None) -> None:
        total = self.length if progress is not None else 0
        for member in members:
            out.write(header(member.name, member.size))
            written = 0
            for piece in member.pieces():
                out.write(piece)
                written += len(piece)
                if progress is not None:
                    progress(at + written, total)
            if written != member.size:
                raise CorruptWeights(member.name, f"it has {written:,} bytes, not {member.size:,}")
            out.write(padding(member.size))
            at += member.room
        out.write(END)

    def _members(self) -> Iterator[Member]:
        document = self.bundle.to_bytes()
        yield Member(FIRST, len(document), hashlib.sha256(document).hexdigest(), lambda: [document])
        for item, name, file, first in self.bundle.places():
            if first:
                record = self._records[item.record.id]

                def pieces(record: Record = record, name: str = name, file: File = file) -> Iterator[bytes]:
                    return _checked(record.id, name, file.sha256, self._pieces(record, name))

                yield Member(f"models/{record.id}/{name}", file.size, file.sha256, pieces)

    def _item(self, record: Record) -> Item:
        files = {WEIGHTS: File(record.checksum, record.bytes)}
        for name in (CARD, GRAPH, PROGRAM, SIGNATURE):
            data = b"".join(self._pieces(record, name))
            if name == SIGNATURE and data and record.evidence:
                self.remarks.append(f"{record.name}: its evidence stays here, and so does its signature")
                data = b""
            if data:
                files[name] = File(hashlib.sha256(data).hexdigest(), len(data))
        kept = told(record)
        if PROGRAM not in files or SIGNATURE not in files:
            program = files[PROGRAM].sha256 if PROGRAM in files else ""
            signer = kept.signer if SIGNATURE in files else ""
            kept = msgspec.structs.replace(kept, program=program, signer=signer)
        return Item(record=kept, files=files)

    def _pieces(self, record: Record, name: str) -> Iterable[bytes]:
        if name == WEIGHTS:
            return self._coordinator.weights_bytes(record)
        if name == GRAPH:
            return [self._coordinator.graph_bytes(record)]
        if name == PROGRAM:
            return [self._coordinator.program(record) or b""]
        if name == SIGNATURE:
            return [self._coordinator.signature(record) or b""]
        return [card.card(told(record))]


def _checked(model: str, name: str, sha256: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, compared with their checksum at the end."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest.hexdigest() != sha256:
        raise CorruptWeights(model, f"its {name} is not what was registered")


def _stands(file: BinaryIO, member: Member) -> bool:
    """Is the file at this place of a bundle the one that would be written there?"""
    if file.read(BLOCK) != header(member.name, member.size):
        return False
    digest, left = hashlib.sha256(), member.size
    while left and (piece := file.read(min(PIECE, left))):
        digest.update(piece)
        left -= len(piece)
    behind = padding(member.size)
    return digest.hexdigest() == member.sha256 and file.read(len(behind)) == behind


def _ancestors(coordinator: Coordinator, lineage: Lineage) -> dict[str, Record]:
    """All ancestors of a model by id, also where a lineage has left some out."""
    above = {record.id: record for record in lineage.ancestors}
    asked = {lineage.record.id}
    while lineage.more_ancestors:
        named = {parent for record in above.values() for parent in record.parents}
        missing = named - above.keys() - asked
        if not missing:
            break
        asked.add(parent := min(missing))
        with contextlib.suppress(UnknownModel):  # then nobody knows more of it
            further = coordinator.tree(parent)
            above |= {record.id: record for record in (further.record, *further.ancestors)}
    return above
