"""How is a family of models told: what one descends from, and what descends from it?"""

from typing import Any

from msgspec import Struct

from modelkeeper.zoo.records import Record


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
