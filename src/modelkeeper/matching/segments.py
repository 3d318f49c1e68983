"""Where do the prepared graphs of a zoo lie?

In segments: columns of flat arrays that only ever grow, so that a reader may use what was there when
it began while a writer goes on. A segment holds architectures, each once, and rows: which model (its
key) has which architecture. Architectures that differ in width alone share one form; equal tokens
are stored once. On disk a segment is one file, mapped into memory and never written again: what comes
later goes to another segment. Files are named by their content, so that processes that save into one
folder do not overwrite each other's.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.errors import InvalidIndex
from modelkeeper.lasting import cached_property
from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.similarity import FIELDS, KNOBS, VERSION

CAPACITY = 2**17  # rows of one segment
MAX_WORDS = 2**28
MAX_TOKENS = 2**20
MAX_CARRIED = 2**24

# Each column: its type, the shape of one entry, how many entries fit.
COLUMNS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "words": (np.uint16, (), MAX_WORDS),  # forms, one after another
    "tokens": (np.int64, (FIELDS,), MAX_TOKENS),  # distinct tokens
    "carried": (np.int32, (), MAX_CARRIED),  # for each architecture its tokens ...
    "counts": (np.uint16, (), MAX_CARRIED),  # ... and how many elements carry each
    "forms": (np.int64, (), CAPACITY),  # for each architecture where its form begins
    "offsets": (np.int64, (), CAPACITY + 1),  # ... where its tokens begin
    "totals": (np.int64, (), CAPACITY),  # ... its score against itself
    "links": (np.uint16, (16,), CAPACITY),  # ... how many edges of each kind
    "fingerprints": (np.uint64, (2,), CAPACITY),
    "keys": (np.int64, (), CAPACITY),  # for each row its model ...
    "kinds": (np.int32, (), CAPACITY),  # ... and its architecture
}
_MAGIC = b"mk.segment.1\n"


class Segment:
    """Columns of architectures and rows. One writer; readers go by the sizes they were given."""

    frozen = False  # loaded, and so never written to
    _saved = (-1, "")  # how many rows the file had that was saved last, and its name

    def __init__(self) -> None:
        # Memory that is not touched is not used: the whole capacity is asked for, once.
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty((size, *shape), dtype) for name, (dtype, shape, size) in COLUMNS.items()
        }
        self.columns["offsets"][0] = 0
        self.rows = self.architectures = self.tokens = self._words = self._carried = 0
        self._row_of: dict[int, int] = {}
        self._kind_of: dict[bytes, int] = {}
        self._form_of: dict[bytes, int] = {}
        self._token_of: dict[bytes, int] = {}

    def add(self, key: int, model: Prepared) -> int | None:
        """Add a row and return its number, or None if the segment is full."""
        if self.rows == CAPACITY:
            return None
        fingerprint = bytes.fromhex(model.fingerprint)
        kind = self._kind_of.get(fingerprint)
        if kind is None:
            kind = self._add_architecture(fingerprint, model)
            if kind is None:
                return None
        self.columns["keys"][self.rows] = key
        self.columns["kinds"][self.rows] = kind
        self._row_of[key] = self.rows
        self.rows += 1
        return self.rows - 1

    def find(self, key: int) -> int:
        """The last row of a model, or -1."""
        if not self.frozen:
            return self._row_of.get(key, -1)
        keys, order = self.columns["keys"], self._order
        at = int(np.searchsorted(keys, key, "right", order)) - 1
        return int(order[at]) if at >= 0 and keys[order[at]] == key else -1

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """The rows of a loaded segment in the order of their keys."""
        return np.argsort(self.columns["keys"], kind="stable")

    def _add_architecture(self, fingerprint: bytes, model: Prepared) -> int | None:
        """Add an architecture and return its number, or None if the segment is full."""
        columns, count, architecture = self.columns, len(model.tokens), self.architectures
        full = self._carried + count > MAX_CARRIED or self.tokens + count > MAX_TOKENS
        if full or self._words + len(model.form) > MAX_WORDS:
            return None
        content = model.form.tobytes()
        start = self._form_of.get(content)
        if start is None:
            start = self._form_of[content] = self._words
            self._words += len(model.form)
            columns["words"][start : self._words] = model.form
        for token in model.tokens:
            token_bytes = token.tobytes()
            number = self._token_of.get(token_bytes)
            if number is None:
                number = self._token_of[token_bytes] = self.tokens
                columns["tokens"][number] = token
                self.tokens += 1
            columns["carried"][self._carried] = number
            self._carried += 1
        columns["counts"][self._carried - count : self._carried] = model.counts
        columns["forms"][architecture], columns["offsets"][architecture + 1] = start, self._carried
        columns["totals"][architecture] = model.total
        columns["links"][architecture] = _native.links(model.form, model.tokens)
        columns["fingerprints"][architecture] = np.frombuffer(fingerprint, np.uint64)
        self._kind_of[fingerprint] = architecture
        self.architectures += 1
        return architecture

    def scan(self, child: Prepared, architectures: int, tokens: int, threads: int) -> _native.Scan:
        """A scan of the child against the first `architectures`, which use the first `tokens` tokens."""
        columns = self.columns
        end = int(columns["offsets"][architectures])
        return _native.Scan(
            columns["words"],
            columns["forms"][:architectures],
            columns["offsets"][: architectures + 1],
            columns["carried"][:end],
            columns["counts"][:end],
            columns["links"][:architectures],
            columns["tokens"][:tokens],
            child.form,
            child.tokens,
            child.counts,
            KNOBS,
            threads,
        )

    def prepared(self, kind: int) -> Prepared:
        """The prepared graph of an architecture as it was added, but for the numbers of its layers."""
        columns = self.columns
        head = columns["words"][columns["forms"][kind] : columns["forms"][kind] + 8]
        words = _form_words(head)
        form = columns["words"][columns["forms"][kind] : columns["forms"][kind] + words]
        carried = columns["carried"][columns["offsets"][kind] : columns["offsets"][kind + 1]]
        fingerprint = columns["fingerprints"][kind].tobytes().hex()
        layers = np.full((int(form[0]), 2), -1, np.int32)
        return Prepared(fingerprint, int(columns["totals"][kind]), form, columns["tokens"][carried], layers)

    @property
    def _sizes(self) -> dict[str, int]:
        """How many entries of each column are in use, in the order of the file."""
        architectures, rows = self.architectures, self.rows
        sizes = {
            "words": self._words,
            "tokens": self.tokens,
            "carried": self._carried,
            "counts": self._carried,
        }
        return sizes | {
            "forms": architectures,
            "offsets": architectures + 1,
            "totals": architectures,
            "links": architectures,
            "fingerprints": architectures,
            "keys": rows,
            "kinds": rows,
        }

    @property
    def nbytes(self) -> int:
        """How many bytes of the columns are in use, dictionaries of the writer aside."""
        return sum(self.columns[name][:size].nbytes for name, size in self._sizes.items())

    def save(self, folder: Path) -> str:
        """Write the segment to a file of the folder, unless it is there; the file's name."""
        rows, name = self._saved
        if rows != self.rows or not (folder / name).exists():
            self._saved = (self.rows, write(folder, ".segment", self._pieces()))
        return self._saved[1]

    def _pieces(self) -> Iterable[bytes | memoryview]:
        """The file of the segment in pieces: a head with the sizes, then the columns, aligned to 64 bytes."""
        sizes = self._sizes
        head = json.dumps({"version": VERSION, "sizes": sizes}).encode()
        yield _MAGIC + len(head).to_bytes(8, "little") + head
        at = len(_MAGIC) + 8 + len(head)
        for name, size in sizes.items():
            column = self.columns[name][:size]
            yield b"\0" * (-at % 64)
            yield column.reshape(-1).view(np.uint8).data
            at += -at % 64 + column.nbytes

    @classmethod
    def load(cls, path: Path) -> "Segment":
        """Load a segment from a file that is mapped into memory, and read as it is used."""
        try:
            raw = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as problem:
            raise InvalidIndex(str(path), str(problem)) from problem
        start = len(_MAGIC) + 8
        if raw[: len(_MAGIC)].tobytes() != _MAGIC:
            raise InvalidIndex(str(path), "it does not begin as one")
        at = start + int.from_bytes(raw[len(_MAGIC) : start].tobytes(), "little")
        try:
            head = json.loads(raw[start:at].tobytes())
            version, sizes = head["version"], {name: int(head["sizes"][name]) for name in COLUMNS}
        except (ValueError, KeyError, TypeError) as problem:
            raise InvalidIndex(str(path), "its head is damaged") from problem
        if version != VERSION:
            raise InvalidIndex(str(path), f"version {version} of the matcher wrote it, this is {VERSION}")
        segment = cls.__new__(cls)
        segment.frozen, segment.columns = True, {}
        for name, size in sizes.items():
            dtype, shape, most = COLUMNS[name]
            at += -at % 64
            end = at + size * int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            if not 0 <= size <= most or end > len(raw):
                raise InvalidIndex(str(path), f"its column {name} ends too soon")
            segment.columns[name] = raw[at:end].view(dtype).reshape(size, *shape)
            at = end
        segment._check(str(path), sizes)
        segment.rows, segment.architectures = sizes["keys"], sizes["forms"]
        segment._words, segment.tokens, segment._carried = sizes["words"], sizes["tokens"], sizes["carried"]
        segment._saved = (segment.rows, path.name)
        return segment

    def _check(self, path: str, sizes: dict[str, int]) -> None:
        """Check what the kernel does not check by itself: that tokens and architectures exist."""
        columns = self.columns
        carried, kinds = columns["carried"], columns["kinds"]
        fits = (
            sizes["offsets"] == sizes["forms"] + 1
            and sizes["counts"] == sizes["carried"]
            and sizes["kinds"] == sizes["keys"]
            and sizes["totals"] == sizes["links"] == sizes["fingerprints"] == sizes["forms"]
            and (not len(carried) or (carried.min() >= 0 and carried.max() < sizes["tokens"]))
            and (not len(kinds) or (kinds.min() >= 0 and kinds.max() < sizes["forms"]))
        )
        if not fits:
            raise InvalidIndex(path, "its columns do not fit one another")

    def copy(self) -> "Segment":
        """A copy of the segment that can grow."""
        segment = Segment()
        for name, size in self._sizes.items():
            segment.columns[name][:size] = self.columns[name][:size]
        segment.rows, segment.architectures = self.rows, self.architectures
        segment._words, segment.tokens, segment._carried = self._words, self.tokens, self._carried
        columns = segment.columns
        segment._row_of = {key: row for row, key in enumerate(columns["keys"][: segment.rows].tolist())}
        segment._kind_of = {
            row.tobytes(): i for i, row in enumerate(columns["fingerprints"][: segment.architectures])
        }
        segment._token_of = {row.tobytes(): i for i, row in enumerate(columns["tokens"][: segment.tokens])}
        for at in np.unique(columns["forms"][: segment.architectures]).tolist():
            words = _form_words(columns["words"][at : at + 8])
            segment._form_of[columns["words"][at : at + words].tobytes()] = at
        return segment


def write(folder: Path, suffix: str, pieces: Iterable[bytes | memoryview]) -> str:
    """Write a file, whole or not at all; its name comes from its content. One writer at a time."""
    digest = hashlib.blake2b(digest_size=16)
    scratch = folder / f"new{suffix}.tmp"
    with scratch.open("wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    name = digest.hexdigest() + suffix
    scratch.replace(folder / name)
    return name


def read(folder: Path, name: str) -> bytes:
    """Read a file that `write` wrote, and check its content against its name."""
    data = (folder / name).read_bytes()
    if hashlib.blake2b(data, digest_size=16).hexdigest() != Path(name).stem:
        raise InvalidIndex(str(folder / name), "its content is not what was written")
    return data


def _form_words(head: NDArray[np.uint16]) -> int:
    """How many words a form takes, by its head of eight words."""
    elements, steps, regions, branches, edges = (int(head[i]) for i in (0, 2, 3, 4, 7))
    return 8 + 4 * elements + 2 + steps + 3 * regions + 1 + 4 * branches + 2 * edges
