"""Where do the prepared graphs of a zoo lie?

In segments: columns of flat arrays that only ever grow, so that a reader may use what was there when
it began while a writer goes on. A segment holds architectures, each once, and rows: which model (its
key) has which architecture. Architectures that differ in width alone share one form; equal tokens
are stored once. A full segment is never written again; on disk it is one file, mapped into memory.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.errors import InvalidIndex
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

    def __init__(self) -> None:
        # Memory that is not touched is not used: the whole capacity is asked for, once.
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty((size, *shape), dtype) for name, (dtype, shape, size) in COLUMNS.items()
        }
        self.columns["offsets"][0] = 0
        self.rows = self.architectures = self.tokens = self._words = self._carried = 0
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
        self.rows += 1
        return self.rows - 1

    def _add_architecture(self, fingerprint: bytes, model: Prepared) -> int | None:
        c, count, here = self.columns, len(model.tokens), self.architectures
        full = self._carried + count > MAX_CARRIED or self.tokens + count > MAX_TOKENS
        if full or self._words + len(model.form) > MAX_WORDS:
            return None
        content = model.form.tobytes()
        at = self._form_of.get(content)
        if at is None:
            at = self._form_of[content] = self._words
            self._words += len(model.form)
            c["words"][at : self._words] = model.form
        for token in model.tokens:
            raw = token.tobytes()
            number = self._token_of.get(raw)
            if number is None:
                number = self._token_of[raw] = self.tokens
                c["tokens"][number] = token
                self.tokens += 1
            c["carried"][self._carried] = number
            self._carried += 1
        c["counts"][self._carried - count : self._carried] = model.counts
        c["forms"][here], c["offsets"][here + 1] = at, self._carried
        c["totals"][here], c["links"][here] = model.total, _native.links(model.form, model.tokens)
        c["fingerprints"][here] = np.frombuffer(fingerprint, np.uint64)
        self._kind_of[fingerprint] = here
        self.architectures += 1
        return here

    def scan(self, child: Prepared, architectures: int, tokens: int, threads: int) -> _native.Scan:
        """The child against the first so many architectures, which use the first so many tokens."""
        c = self.columns
        end = int(c["offsets"][architectures])
        return _native.Scan(
            c["words"],
            c["forms"][:architectures],
            c["offsets"][: architectures + 1],
            c["carried"][:end],
            c["counts"][:end],
            c["links"][:architectures],
            c["tokens"][:tokens],
            child.form,
            child.tokens,
            child.counts,
            KNOBS,
            threads,
        )

    def prepared(self, kind: int) -> Prepared:
        """An architecture as it was added, but for the numbers of its layers."""
        c = self.columns
        head = c["words"][c["forms"][kind] : c["forms"][kind] + 8]
        words = _form_words(head)
        form = c["words"][c["forms"][kind] : c["forms"][kind] + words]
        carried = c["carried"][c["offsets"][kind] : c["offsets"][kind + 1]]
        fingerprint = c["fingerprints"][kind].tobytes().hex()
        layers = np.full((int(form[0]), 2), -1, np.int32)
        return Prepared(fingerprint, int(c["totals"][kind]), form, c["tokens"][carried], layers)

    @property
    def _sizes(self) -> dict[str, int]:
        a, r = self.architectures, self.rows
        sizes = {
            "words": self._words,
            "tokens": self.tokens,
            "carried": self._carried,
            "counts": self._carried,
        }
        return sizes | {
            "forms": a,
            "offsets": a + 1,
            "totals": a,
            "links": a,
            "fingerprints": a,
            "keys": r,
            "kinds": r,
        }

    @property
    def nbytes(self) -> int:
        """What is in use, dictionaries of the writer aside."""
        return sum(self.columns[name][:size].nbytes for name, size in self._sizes.items())

    def save(self, path: Path) -> None:
        """Write the segment to a file, whole or not at all."""
        sizes = self._sizes
        head = json.dumps({"version": VERSION, "sizes": sizes}).encode()
        scratch = path.with_suffix(".tmp")
        with scratch.open("wb") as file:
            file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
            for name, size in sizes.items():
                file.write(b"\0" * (-file.tell() % 64))
                self.columns[name][:size].tofile(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Segment":
        """A segment mapped into memory, read as it is used. Writing to it copies it first."""
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
        made = cls.__new__(cls)
        made.columns = {}
        for name, size in sizes.items():
            dtype, shape, most = COLUMNS[name]
            at += -at % 64
            end = at + size * int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            if not 0 <= size <= most or end > len(raw):
                raise InvalidIndex(str(path), f"its column {name} ends too soon")
            made.columns[name] = raw[at:end].view(dtype).reshape(size, *shape)
            at = end
        made._check(str(path), sizes)
        made.rows, made.architectures = sizes["keys"], sizes["forms"]
        made._words, made.tokens, made._carried = sizes["words"], sizes["tokens"], sizes["carried"]
        return made

    def _check(self, path: str, sizes: dict[str, int]) -> None:
        """What the kernel does not check by itself: that tokens and architectures exist."""
        c = self.columns
        carried, kinds = c["carried"], c["kinds"]
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

    def writable(self) -> "Segment":
        """A copy in memory that can grow, of a segment that was loaded."""
        made = Segment()
        for name, size in self._sizes.items():
            made.columns[name][:size] = self.columns[name]
        made.rows, made.architectures = self.rows, self.architectures
        made._words, made.tokens, made._carried = self._words, self.tokens, self._carried
        made._kind_of = {row.tobytes(): i for i, row in enumerate(self.columns["fingerprints"])}
        made._token_of = {row.tobytes(): i for i, row in enumerate(self.columns["tokens"])}
        for at in np.unique(self.columns["forms"]).tolist():
            words = _form_words(self.columns["words"][at : at + 8])
            made._form_of[self.columns["words"][at : at + words].tobytes()] = at
        return made


def _form_words(head: NDArray[np.uint16]) -> int:
    elements, steps, regions, branches, edges = (int(head[i]) for i in (0, 2, 3, 4, 7))
    return 8 + 4 * elements + 2 + steps + 3 * regions + 1 + 4 * branches + 2 * edges
