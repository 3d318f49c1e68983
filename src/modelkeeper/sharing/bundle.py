"""What does a bundle say that it holds? One JSON document before all files.

    bundle.json                        records, and which files each model has, by SHA-256 and size
    models/ID/graph.json               and so on, in the order of the document: unpacked, a folder for each
    models/ID/model.safetensors        the same bytes stand once, with the first model that has them

Whoever reads a bundle knows before the first file what will come, and nothing else is taken: neither another
name, nor another size, nor another order.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from modelkeeper.errors import InvalidBundle
from modelkeeper.graph.wire import MAX_BYTES as MAX_GRAPH
from modelkeeper.sharing.tar import members
from modelkeeper.signing.envelope import MAX_ENVELOPE
from modelkeeper.zoo.files.blobs import CARD, GRAPH, PROGRAM, SIGNATURE, WEIGHTS
from modelkeeper.zoo.records import ACTIVE, PUBLIC, Record, is_id
from modelkeeper.zoo.zoo import MAX_PROGRAM

FORMAT, VERSION = "modelkeeper.bundle", 1
FIRST = "bundle.json"
MAX_DOCUMENT = 64 * 2**20
MAX_MODELS = 100_000
MOST = {  # bytes of each file that a model may have, in the order in which they stand
    CARD: 2**20,
    GRAPH: MAX_GRAPH,
    PROGRAM: MAX_PROGRAM,
    SIGNATURE: MAX_ENVELOPE,
    WEIGHTS: 2**50,
}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ADVICE = "Do not use it; ask who made it."


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a model."""

    sha256: str
    size: int


class Item(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: what its zoo knew of it, and its files."""

    record: Record
    files: dict[str, File]


class Bundle(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a bundle holds."""

    format: str = FORMAT
    version: int = VERSION
    origin: str = ""  # what who made it calls their zoo
    models: tuple[Item, ...] = ()
    ancestors: tuple[Record, ...] = ()  # of the models, whose weights are not in it

    def places(self) -> Iterator[tuple[Item, str, File, bool]]:
        """Every file of every model in order, and whether it stands there, or did before."""
        there: set[str] = set()
        for item in self.models:
            for name in MOST:
                if name in item.files:
                    file = item.files[name]
                    yield item, name, file, file.sha256 not in there
                    there.add(file.sha256)

    def to_bytes(self) -> bytes:
        """The document."""
        return msgspec.json.encode(self) + b"\n"


class _Head(Struct):
    format: str = ""
    version: int = 0


def told(record: Record) -> Record:
    """What leaves with a model: not who used it, in which project it was, or what else is in its zoo."""
    return msgspec.structs.replace(
        record,
        key=0,
        attempt="",
        notes=(),
        owner_id="",
        project="",
        project_id="",
        visibility=PUBLIC,
        evidence="",
        published=False,
        last_used=record.created,
        hits=0,
        pinned=False,
        state=ACTIVE,
        reason="",
        run="",
        twin="",
        twin_similarity=0.0,
    )


def read_document(data: bytes) -> Bundle:
    """The document of a bundle, if it can be meant.

    Raises:
        InvalidBundle: It cannot, or is of a version that is not known here.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise InvalidBundle("it", "is no bundle of models", "Give what `modelkeeper export` wrote.")
        if head.version != VERSION:
            raise InvalidBundle("it", f"is of version {head.version}", "Update modelkeeper.")
        bundle = msgspec.json.decode(data, type=Bundle)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise InvalidBundle(FIRST, f"cannot be read: {str(problem)[:200]}", _ADVICE) from problem
    ids = [item.record.id for item in bundle.models]
    if len(ids) > MAX_MODELS or len(set(ids)) < len(ids):
        raise InvalidBundle(FIRST, "names a model twice, or too many", _ADVICE)
    sizes: dict[str, int] = {}
    for item in bundle.models:
        _check(item, sizes)
    return bundle


def _check(item: Item, sizes: dict[str, int]) -> None:
    record, files = item.record, item.files
    if not is_id(record.id):
        raise InvalidBundle(FIRST, f"names a model {record.id[:80]!r}", _ADVICE)
    for name, file in files.items():
        sound = name in MOST and 0 <= file.size <= MOST[name] and _DIGEST.fullmatch(file.sha256)
        if not sound or sizes.setdefault(file.sha256, file.size) != file.size:
            raise InvalidBundle(FIRST, f"gives {record.id} a file {name[:80]!r} that cannot be", _ADVICE)
    known = {
        WEIGHTS: (record.checksum, record.bytes),
        GRAPH: (record.graph, None),
        PROGRAM: (record.program, None),
    }
    for name, (digest, size) in known.items():
        said = files.get(name, File("", 0))
        if (said.sha256 != digest) or (size is not None and said.size != size):
            raise InvalidBundle(FIRST, f"the record of {record.id} does not fit its {name}", _ADVICE)


def read_first(file: BinaryIO) -> Bundle:
    """The document at the beginning of a bundle.

    Raises:
        InvalidBundle: There is none.
    """
    for member in members(file):
        if member.name != FIRST or member.size > MAX_DOCUMENT:
            break
        data = b"".join(member.pieces())
        member.pass_over()
        return read_document(data)
    raise InvalidBundle("it", "is no bundle of models", "Give what `modelkeeper export` wrote.")


def is_bundle(path: Path) -> bool:
    """Does a file begin as bundles do?"""
    try:
        with path.open("rb") as file:
            return file.read(len(FIRST) + 1) == FIRST.encode() + b"\0"
    except OSError:
        return False
