"""What does a model descend from, and what descends from it? Walks over the lines of a catalog.

A model may have several parents, so its descendants are no tree: a model stands below each of its parents,
but with its own descendants only where the walk met it first. What is told grows with the lines there are,
not with the ways along them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from modelkeeper.coordinator.base import Lineage
from modelkeeper.zoo.records import Record, Registration, Viewer, is_id

if TYPE_CHECKING:
    from modelkeeper.zoo.catalog_reader import CatalogReader

MOST_GENERATIONS = 200  # of descendants; whoever wants more asks for a descendant's


def with_parent_ids(registration: Registration, show: Callable[[str], Record]) -> Registration:
    """The same registration, whose parents are named by their ids, each once."""
    if all(map(is_id, registration.parents)):
        return registration
    named = (name if is_id(name) else show(name).id for name in registration.parents)
    first, *more = dict.fromkeys(named)
    return msgspec.structs.replace(registration, parent=first, more_parents=tuple(more))


def family(catalog: "CatalogReader", record: Record, viewer: Viewer | None) -> Lineage:
    """A model with all that it descends from and all that descends from it, as far as it may be seen.

    Descendants of more than MOST_GENERATIONS are left out: nested so deep, no JSON can be read.
    """
    generations = _generations(catalog, record, viewer)
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
    return Lineage(record, _ancestors(catalog, record, viewer), whole[record.id].descendants)


def _ancestors(catalog: "CatalogReader", record: Record, viewer: Viewer | None) -> tuple[Record, ...]:
    """The models that a model descends from, each once: its parents, theirs, and so on; as far as seen."""
    ancestors: dict[str, Record] = {}
    generation, seen = [record], {record.id}
    while generation:
        named = list(dict.fromkeys(parent for member in generation for parent in member.parents))
        known = catalog.with_ids([parent for parent in named if parent not in seen], viewer)
        seen.update(named)
        generation = [known[parent] for parent in named if parent in known]
        ancestors |= {member.id: member for member in generation}
    return tuple(ancestors.values())


def _generations(catalog: "CatalogReader", record: Record, viewer: Viewer | None) -> list[list[Record]]:
    """A model, its children, their children, and so on; of each model once, as soon as it can be."""
    generations, seen = [[record]], {record.id}
    while generations[-1] and len(generations) <= MOST_GENERATIONS:
        children = catalog.children([member.id for member in generations[-1]], viewer)
        generations.append([child for child in children if child.id not in seen])
        seen |= {child.id for child in children}
    return generations
