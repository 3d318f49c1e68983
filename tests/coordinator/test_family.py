"""Lineage: what a model descends from and what descends from it, with one parent or several."""

import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rich.console import Console

from modelkeeper.cli.tables import lineage
from modelkeeper.coordinator.family import MOST_GENERATIONS
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.matching import prepare
from modelkeeper.settings import Settings
from modelkeeper.sharing.exporting import _ancestors
from modelkeeper.zoo.records import Record, Viewer
from tests.helpers import zoos

GRAPH = zoos.net(4)


class Family:
    """Models of one graph, by numbers; their names are their numbers."""

    def __init__(self, coordinator: LocalCoordinator) -> None:
        self.coordinator = coordinator
        self.first = zoos.register(coordinator, GRAPH, "0", model_id=f"{0:016x}")
        self._graph = coordinator.zoo.catalog.graph_bytes(self.first.graph)
        self._prepared = prepare(GRAPH).to_bytes()

    def add(self, number: int, *parents: int, **more: Any) -> Record:
        ids = [f"{parent:016x}" for parent in parents]
        child = msgspec.structs.replace(
            self.first,
            id=f"{number:016x}",
            name=str(number),
            parent=ids[0] if ids else "",
            more_parents=tuple(ids[1:]),
            **more,
        )
        return self.coordinator.zoo.catalog.add(child, self._graph, self._prepared)

    def tree(self, number: int) -> Lineage:
        return self.coordinator.tree(f"{number:016x}")


@pytest.fixture
def family() -> Iterator[Family]:
    coordinator = LocalCoordinator(Settings(home=":memory:"))
    yield Family(coordinator)
    coordinator.close()


def below(tree: Lineage) -> dict[str, object]:
    """Descendants as nested dicts; those that stand elsewhere as well are None."""
    return {each.record.name: None if each.again else below(each) for each in tree.descendants}


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

    def entries(told: Lineage) -> int:
        return 1 + sum(map(entries, told.descendants))

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
    """Lineage has no end; a tree shows as many generations each way as JSON can nest."""
    for number in range(1, 500):
        family.add(number, number - 1)
    last = family.tree(499)
    assert [each.name for each in last.ancestors] == [str(498 - far) for far in range(MOST_GENERATIONS)]
    assert (last.more_ancestors, last.more_descendants) == (299, 0)
    at, depth = family.tree(0), 0
    assert (at.more_ancestors, at.more_descendants) == (0, 299)
    assert json.dumps(at.to_dict())
    while at.descendants:
        [at] = at.descendants
        depth += 1
    assert depth == MOST_GENERATIONS
    exact = family.tree(MOST_GENERATIONS)
    assert (len(exact.ancestors), exact.more_ancestors) == (MOST_GENERATIONS, 0)
    above = _ancestors(family.coordinator, last)  # who needs all of them asks on
    assert len(above) == 499


def test_a_large_family_shows_its_nearest_and_newest(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkeeper.coordinator.family.MOST_RELATIVES", 10)
    for number in range(1, 4):
        family.add(number, 0)
    for number in range(4, 24):
        family.add(number, number % 3 + 1, 0 if number == 4 else 1)
    tree = family.tree(0)
    children = [each.record.name for each in tree.descendants]
    assert children == ["1", "2", "3", "4"]  # a generation that fits is whole
    grandchildren = {each.record.name for child in tree.descendants for each in child.descendants}
    assert grandchildren == {"4", *(str(number) for number in range(18, 24))}
    assert tree.more_descendants == 19 - 6
    with monkeypatch.context() as narrow:  # more lines than are looked at: the same, generation by generation
        narrow.setattr("modelkeeper.coordinator.family.MOST_LINES", 5)
        assert family.tree(0) == tree
    family.add(30, *range(16, 24))  # eight parents, of whom at most five are told
    assert len(family.tree(30).ancestors) == 5
    assert family.tree(30).more_ancestors == 3 + 4
    assert family.tree(30).more_descendants == 0
    said = io.StringIO()
    Console(file=said, width=200).print(lineage(tree), lineage(family.tree(30)))
    assert "At least 13 more descendants are left out." in said.getvalue()
    assert "At least 7 more ancestors are left out." in said.getvalue()


def test_whoever_may_see_less_is_told_of_less(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkeeper.coordinator.family.MOST_RELATIVES", 3)
    for number in range(1, 7):
        family.add(number, 0, visibility="private" if number % 2 else "public")
    tree = family.coordinator.tree(f"{0:016x}", Viewer(user="eve"))
    assert [each.record.name for each in tree.descendants] == ["2", "4", "6"]
    assert tree.more_descendants == 0
    assert family.tree(0).more_descendants == 3
