"""What does a model descend from, and what descends from it? Walks over the lines of a catalog.

A model may have several parents, so its descendants are no tree: a model stands below each of its parents,
but with its own descendants only where the walk met it first. What is told grows with the lines there are,
not with the ways along them, up to a bound: the nearest generations, and of the last one the newest models.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.zoo.history.relatives import Relatives
from modelkeeper.zoo.records import Record, Registration, Viewer, is_id

if TYPE_CHECKING:
    from modelkeeper.zoo.catalog.catalog_reader import CatalogReader

MOST_GENERATIONS = 200  # each way; whoever wants more asks for a relative's
MOST_RELATIVES = 500  # of which at most half are ancestors
MOST_LINES = 2_000  # each way that are looked at


def with_parent_ids(registration: Registration, show: Callable[[str], Record]) -> Registration:
    """The same registration, whose parents are named by their ids, each once."""
    if all(map(is_id, registration.parents)):
        return registration
    named = (name if is_id(name) else show(name).id for name in registration.parents)
    first, *more = dict.fromkeys(named)
    return msgspec.structs.replace(registration, parent=first, more_parents=tuple(more))


def family(catalog: "CatalogReader", record: Record, viewer: Viewer | None) -> Lineage:
    """A model with what it descends from and what descends from it, as far as it may be seen.

    At most MOST_GENERATIONS each way, since nested deeper no JSON can be read, and MOST_RELATIVES in all.
    """
    with catalog.database.reading() as connection:
        kin = Relatives(connection, viewer, catalog.damaged)
        above, more_ancestors = _generations(kin, record, MOST_RELATIVES // 2, up=True)
        room = MOST_RELATIVES - sum(map(len, above))
        below, more_descendants = _generations(kin, record, room, up=False)
        known = kin.records(sorted({key for keys in (*above, *below) for key in keys}))
    known[record.key] = record
    return Lineage(
        record,
        _nearest_first(record, {known[key].id: known[key] for keys in above for key in keys if key in known}),
        _descendants(record, [[known[key] for key in keys if key in known] for keys in below]),
        more_ancestors=more_ancestors,
        more_descendants=more_descendants,
    )


def _generations(kin: Relatives, record: Record, most: int, *, up: bool) -> tuple[list[list[int]], int]:
    """The keys of parents, their parents, and so on, or of children, and how many more there are at least.

    Of each model once, as soon as it can be; of the last generation that has room the newest.
    """
    wide = not up and kin.count_children([record.id]) > most
    lines = [] if wide else kin.lines(record.key, up=up, most=MOST_LINES)
    if wide or (len(lines) == MOST_LINES and not up):
        return _by_generation(kin, record, most)
    further: dict[int, list[int]] = {}
    for near, far in lines:
        further.setdefault(near, []).append(far)
    generations: list[list[int]] = []
    last, seen, left = [record.key], {record.key}, 0
    while last := sorted({far for near in last for far in further.get(near, ())} - seen):
        seen.update(last)
        kept = last[-most:] if most and len(generations) < MOST_GENERATIONS else []
        if kept:
            generations.append(kept)
        most, left = most - len(kept), left + len(last) - len(kept)
        if left:  # none of the next generation has room
            most = 0
    return generations, left


def _by_generation(kin: Relatives, record: Record, most: int) -> tuple[list[list[int]], int]:
    """The same of a model with so many descendants that only the newest of a generation are looked at."""
    generations: list[list[int]] = []
    last, known, left = {record.key: record.id}, {record.key}, 0
    while last and not left:
        room = most + 1 - len(known) if len(generations) < MOST_GENERATIONS else 0
        of, last = list(last.values()), kin.children(list(last.values()), most=room, but=known)
        if len(last) == room:
            left = kin.count_children(of, but=known) - len(last)
        known.update(last)
        generations.append(sorted(last))
    return generations, left


def _nearest_first(record: Record, ancestors: dict[str, Record]) -> tuple[Record, ...]:
    """Ancestors, in the order in which each generation names its parents."""
    order, generation = {record.id: record}, [record]
    while generation:
        named = dict.fromkeys(parent for member in generation for parent in member.parents)
        generation = [ancestors[each] for each in named if each in ancestors and each not in order]
        order |= {member.id: member for member in generation}
    return tuple(order.values())[1:]


def _descendants(record: Record, generations: list[list[Record]]) -> tuple[Lineage, ...]:
    """What descends from a model, each generation below the one before."""
    generations = [[record], *generations]
    children: dict[str, list[Record]] = {}
    for child in sorted((each for later in generations[1:] for each in later), key=lambda each: each.key):
        for parent in dict.fromkeys(child.parents):
            children.setdefault(parent, []).append(child)
    homes: dict[str, str] = {}  # of each descendant the parent below which its own descendants stand
    for generation in generations[:-1]:
        for member in generation:
            for child in children.get(member.id, ()):
                homes.setdefault(child.id, member.id)
    whole: dict[str, Lineage] = {}  # from the last generation up, so that all below are there
    for generation in reversed(generations):
        for member in generation:
            below = (
                whole[child.id] if homes.get(child.id) == member.id else Lineage(child, (), (), again=True)
                for child in children.get(member.id, ())
            )
            whole[member.id] = Lineage(member, (), tuple(below))
    return whole[record.id].descendants
