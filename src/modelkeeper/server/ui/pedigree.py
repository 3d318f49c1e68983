"""Which relatives of a model are shown, in which order, and what did each gain? From a lineage to rows."""

from collections.abc import Iterator

from msgspec import Struct

from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.server.ui.lanes import Row, draw
from modelkeeper.zoo.history.children import gain
from modelkeeper.zoo.records import Record

MOST = 300  # models in one picture


class Kin(Struct, frozen=True):
    """A row of a lineage."""

    record: Record
    row: Row
    self: bool  # is it the model whose lineage it is?
    gain: float | None  # over its parent, above 0 is better; None: they cannot be compared


def pedigree(tree: Lineage) -> tuple[list[Kin], int]:
    """The rows of a lineage, and how many models, at least, had to be left out of it."""
    later = {record.id: record for record in _descendants(tree)}
    ancestors = {record.id: record for record in reversed(tree.ancestors)}
    near = {record.id: record for record in tree.ancestors[: MOST // 2]}  # the nearest generations
    records = {
        **{key: record for key, record in ancestors.items() if key in near},
        tree.record.id: tree.record,
    }
    room = MOST - len(records)
    records |= dict(list(later.items())[:room])
    order = _behind_parents(records)
    drawn = draw(order, {key: record.parents for key, record in records.items()})
    kin = [
        Kin(
            records[row.id],
            row,
            row.id == tree.record.id,
            gain(records[row.id], records.get(records[row.id].parent)),
        )
        for row in drawn
    ]
    more = tree.more_ancestors + tree.more_descendants
    return kin, len(ancestors.keys() | later.keys() | {tree.record.id}) - len(kin) + more


def _descendants(tree: Lineage) -> Iterator[Record]:
    """All descendants, one generation after the other, of each the newest first."""
    generation = tree.children
    while generation:
        yield from sorted((member.record for member in generation), key=lambda record: -record.key)
        generation = tuple(child for member in generation for child in member.children)


def _behind_parents(records: dict[str, Record]) -> list[str]:
    """The same models, each behind all its parents; else in the order in which they came."""
    order: dict[str, None] = {}
    waiting = sorted(records.values(), key=lambda record: record.key)
    while waiting:
        ready = [r for r in waiting if all(p in order or p not in records for p in r.parents)]
        for record in ready or waiting[:1]:  # what descends from itself cannot be, and must not hang a page
            order[record.id] = None
        waiting = [record for record in waiting if record.id not in order]
    return list(order)
