"""How is a family of models told: what one descends from, and what descends from it?"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from modelkeeper.drawings import Picture, TreeRow, rows
from modelkeeper.zoo.records import REPLACED, Record


class Lineage(Struct, frozen=True):
    """A model, its ancestors (each once, the nearest generation first) and its descendants.

    Of a large family it has the nearest generations, and of the last of these the newest models.
    """

    record: Record
    ancestors: tuple[Record, ...]
    descendants: tuple["Lineage", ...]
    again: bool = False  # its descendants stand below another of its parents
    more_ancestors: int = 0  # at least so many are left out; 0: none is
    more_descendants: int = 0

    @property
    def children(self) -> tuple["Lineage", ...]:
        """What people are shown of the next generation: no versions that a later one of the same training
        replaced, unless something started from them."""
        return tuple(
            child for child in self.descendants if child.descendants or child.record.state != REPLACED
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {
            "record": self.record.to_dict(),
            "ancestors": [ancestor.to_dict() for ancestor in self.ancestors],
            "descendants": [descendant.to_dict() for descendant in self.descendants],
            "again": self.again,
            "more_ancestors": self.more_ancestors,
            "more_descendants": self.more_descendants,
        }

    def plot(self) -> Picture:
        """A picture: the oldest ancestor first, then the model, then what descends from it. An SVG."""
        above = [
            TreeRow(depth, record.full_name, _note(record))
            for depth, record in enumerate(self.ancestors[::-1])
        ]
        below = list(self._rows(len(above)))
        left_out = self.more_ancestors + self.more_descendants
        more = f"; at least {left_out:,} more" if left_out else ""
        relatives = len(above) + len(below) - 1
        said = f"{self.record.full_name} and {relatives:,} relatives{more}"
        return rows([*above, *below], said)

    def _rows(self, depth: int, within: bool = False) -> Iterator[TreeRow]:
        note = _note(self.record) + (" (see above)" if self.again else "")
        yield TreeRow(depth, self.record.full_name, note, meant=not within)
        for descendant in self.children:
            yield from descendant._rows(depth + 1, within=True)

    def _repr_svg_(self) -> str:
        return self.plot().svg


def _note(record: Record) -> str:
    """How good a model is, and how similar its parent was."""
    known = [] if record.value is None else [f"{record.metric} {record.value:.4g}"]
    known += [] if record.similarity is None else [f"similarity {record.similarity:.2f}"]
    return ", ".join(known)
