"""Settled pairs are as good as those of the alignment, and leave inserted blocks whole."""

from hypothesis import example, given
from hypothesis import strategies as st

from modelkeeper.graph import Graph
from modelkeeper.matching import align
from modelkeeper.transform.depth import ancestors
from modelkeeper.transform.whole_blocks import settle
from tests.helpers import generated as net

both = st.tuples(net.networks, net.networks)
ALL = ["conv3"] * 6
# Where a merge has all its operands in another place, but more readers where it is.
CELLS = (
    net.bench201([[*ALL[:5], "none"], [*ALL[:3], "conv1", "conv3", "none"], ALL], 4),
    net.bench201([[*ALL[:5], "none"], ["conv3", "conv1", "conv3", "conv3", "conv1", "conv1"], ALL], 4),
)


def kept_edges(parent: Graph, child: Graph, pairs: list[tuple[int, int]]) -> int:
    """How many edges of the parent have an image that is an edge of the child."""
    lent = dict(pairs)
    parent_edges = {
        (edge.source, number) for number, layer in enumerate(parent.layers) for edge in layer.inputs
    }
    child_edges = {
        (edge.source, number) for number, layer in enumerate(child.layers) for edge in layer.inputs
    }
    return sum((lent.get(source), lent.get(number)) in child_edges for source, number in parent_edges)


@given(both)
def test_as_many_layers_are_paired_each_once_and_with_its_kind(graphs: tuple[Graph, Graph]) -> None:
    parent, child = graphs
    before = align(parent, child).pairs
    after = settle(parent, child, before)
    assert len(after) == len(before)
    assert (
        len({parent_number for parent_number, _ in after})
        == len({child_number for _, child_number in after})
        == len(after)
    )
    kinds = sorted(parent.layers[parent_number].kind for parent_number, _ in before)
    assert sorted(parent.layers[parent_number].kind for parent_number, _ in after) == kinds
    assert [child_number for _, child_number in after] == sorted(child_number for _, child_number in after)


@given(both)
@example(CELLS)
def test_nothing_is_paired_against_the_data_flow_and_no_edge_is_lost(graphs: tuple[Graph, Graph]) -> None:
    parent, child = graphs
    before = list(align(parent, child).pairs)
    after = settle(parent, child, before)
    parent_ancestors, child_ancestors = ancestors(parent), ancestors(child)
    for one, first in after:
        for other, second in after:
            assert not (parent_ancestors[one] >> other & 1 and child_ancestors[second] >> first & 1)
    assert kept_edges(parent, child, after) >= kept_edges(parent, child, before)


@given(net.networks)
def test_a_model_and_itself_are_settled(graph: Graph) -> None:
    pairs = [(number, number) for number in range(len(graph.layers))]
    assert settle(graph, graph, pairs) == pairs


@given(st.integers(1, 3), st.integers(1, 4))
def test_inserted_residual_blocks_are_new_as_a_whole(blocks: int, more: int) -> None:
    parent, child = net.resnet((blocks,)), net.resnet((blocks + more,))
    pairs = settle(parent, child, align(parent, child).pairs)
    paired = {child_number for _, child_number in pairs}
    assert len(pairs) == len(parent.layers)
    convolutions = [number for number, layer in enumerate(child.layers) if layer.kind == "conv"]
    for number in convolutions:
        (norm,) = (n for n, layer in enumerate(child.layers) if any(e.source == number for e in layer.inputs))
        assert (number in paired) == (norm in paired), "a convolution and its norm come together"
