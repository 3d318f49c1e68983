"""Twins: the same but for their widths. Every layer has its counterpart, in whatever order layers come."""

import random

from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Graph
from modelkeeper.matching.twins import twin_pairs
from tests.helpers import generated as net

seeds = st.integers(0, 2**32)
IN_ANY_ORDER = ("add", "multiply", "concat")


def fed_alike(parent: Graph, child: Graph, pairs: tuple[tuple[int, int], ...]) -> bool:
    """Does every child's layer take from the partners of what its partner takes from?"""
    partner = {child_number: parent_number for parent_number, child_number in pairs}
    for parent_number, child_number in pairs:
        sources = [edge.source for edge in parent.layers[parent_number].inputs]
        fed = [partner[edge.source] for edge in child.layers[child_number].inputs]
        if child.layers[child_number].kind in IN_ANY_ORDER:
            sources, fed = sorted(sources), sorted(fed)
        if sources != fed:
            return False
    return True


@given(net.networks, seeds)
def test_a_network_is_its_own_twin_in_any_order(graph: Graph, seed: int) -> None:
    shuffled, _ = net.shuffled(graph, random.Random(seed))
    pairs = twin_pairs(graph, shuffled)
    assert pairs is not None
    assert sorted(parent_number for parent_number, _ in pairs) == list(range(len(graph.layers)))
    assert [child_number for _, child_number in pairs] == list(range(len(graph.layers)))
    assert all(
        graph.layers[parent_number].kind == shuffled.layers[child_number].kind
        for parent_number, child_number in pairs
    )
    assert fed_alike(graph, shuffled, pairs)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(2, 40), st.integers(2, 40))
def test_other_widths_are_twins_and_pair_in_place(blocks: list[int], width: int, other: int) -> None:
    parent, child = net.resnet(tuple(blocks), width), net.resnet(tuple(blocks), other)
    pairs = twin_pairs(parent, child)
    assert pairs is not None
    assert fed_alike(parent, child, pairs)
    assert twin_pairs(child, parent) == tuple(
        sorted((child_number, parent_number) for parent_number, child_number in pairs)
    )


@given(st.integers(1, 4), st.integers(1, 4))
def test_other_depths_are_no_twins(depth: int, other: int) -> None:
    one, two = net.resnet((depth, 1)), net.resnet((other, 1))
    assert (twin_pairs(one, two) is None) == (depth != other)


def test_as_many_layers_of_other_kinds_or_wiring_are_no_twins() -> None:
    def merged(kind: str, crossed: bool) -> Graph:
        b = net.Builder()
        source = b.add("input")
        left, right = b.conv(source, 8, 3, norm=False), b.conv(source, 8, 3, norm=False)
        deep = b.conv(left, 8, 8, norm=False)
        b.add("output", b.add(kind, *((right, deep) if crossed else (deep, right))))
        return b.graph()

    for kind, ordered in (("add", False), ("multiply", False), ("attention", True), ("divide", True)):
        assert twin_pairs(merged(kind, False), merged(kind, False)) is not None
        assert (twin_pairs(merged(kind, False), merged(kind, True)) is None) == ordered
    assert twin_pairs(merged("add", False), merged("multiply", False)) is None
    assert twin_pairs(net.vgg((8,)), net.vgg((8, 8))) is None
