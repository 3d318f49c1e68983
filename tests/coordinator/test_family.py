"""Lineage: what a model descends from and what descends from it, with one parent or several."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from modelkeeper.coordinator.base import Lineage
from modelkeeper.coordinator.family import MOST_GENERATIONS
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.matching import prepare
from modelkeeper.settings import Settings
from modelkeeper.zoo.records import Record
from tests.helpers import zoos

GRAPH = zoos.net(4)


class Family:
    """Models of one graph, by numbers; their names are their numbers."""

    def __init__(self, coordinator: LocalCoordinator) -> None:
        self.coordinator = coordinator
        self.first = zoos.register(coordinator, GRAPH, "0", model_id=f"{0:016x}")
        self._graph = coordinator.zoo.catalog.graph_bytes(self.first.graph)
        self._prepared = prepare(GRAPH).to_bytes()

    def add(self, number: int, *parents: int) -> Record:
        ids = [f"{parent:016x}" for parent in parents]
        child = msgspec.structs.replace(
            self.first,
            id=f"{number:016x}",
            name=str(number),
            parent=ids[0] if ids else "",
            more_parents=tuple(ids[1:]),
        )
        return self.coordinator.zoo.catalog.add(child, self._graph, self._prepared)

    def tree(self, number: int) -> Lineage:
        return self.coordinator.tree(f"{number:016x}")


@pytest.fixture
def family() -> Iterator[Family]:
    coordinator = LocalCoordinator(Settings(home=":memory:"))
    yield Family(coordinator)
    coordinator.close()


def below(lineage: Lineage) -> dict[str, object]:
    """Descendants as nested dicts; those that stand elsewhere as well are None."""
    return {each.record.name: None if each.again else below(each) for each in lineage.descendants}


def test_a_descendant_stands_below_each_of_its_parents(family: Family) -> None:
    family.add(1, 0)
    family.add(2)
    family.add(3, 1, 2, 0)  # of a generation that could also be the next
    family.add(4, 3, 2)
    assert below(family.tree(0)) == {"1": {"3": None}, "3": {"4": {}}}
    assert below(family.tree(2)) == {"3": {"4": None}, "4": {}}
    assert [each.name for each in family.tree(4).ancestors] == ["3", "2", "1", "0"]
    assert [each.name for each in family.tree(3).ancestors] == ["1", "2", "0"]


def test_what_is_told_grows_with_the_lines_not_with_the_ways(family: Family) -> None:
    """Generations of two, each from both of the one before: as many ways as there are numbers of 40 bits."""
    family.add(1)
    for number in range(2, 82):
        first = number - 2 - number % 2
        family.add(number, first, first + 1)
    tree = family.tree(0)
    assert len(family.tree(81).ancestors) == 80
    assert [each.name for each in family.tree(81).ancestors[:4]] == ["78", "79", "76", "77"]

    def entries(lineage: Lineage) -> int:
        return 1 + sum(map(entries, lineage.descendants))

    assert entries(tree) == 1 + 2 + 4 * 39
    again = msgspec.json.decode(msgspec.json.encode(tree), type=Lineage)
    assert again == tree


def test_models_that_claim_to_descend_from_each_other(family: Family) -> None:
    family.add(1, 3, 0)
    family.add(2, 1, 2)
    family.add(3, 2)
    assert below(family.tree(1)) == {"2": {"2": None, "3": {}}}
    assert [each.name for each in family.tree(1).ancestors] == ["3", "0", "2"]


def test_a_tree_of_many_generations(family: Family) -> None:
    """Lineage has no end; a tree shows all ancestors, and as many generations below as JSON can nest."""
    for number in range(1, 1200):
        family.add(number, number - 1)
    assert [each.name for each in family.tree(1199).ancestors[:2]] == ["1198", "1197"]
    assert len(family.tree(1199).ancestors) == 1199
    at, depth = family.tree(0), 0
    assert json.dumps(at.to_dict())
    while at.descendants:
        [at] = at.descendants
        depth += 1
    assert depth == MOST_GENERATIONS
