"""What becomes of inserted layers: a branch adds nothing, a layer on the way hands on what it is given."""

from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Edge, Graph, Layer
from modelkeeper.transform.depth import Depth, ancestors, signature
from tests.helpers import generated as net
from tests.helpers.perceptrons import chain


@given(net.networks | net.tangles())
def test_ancestors_are_all_that_a_layer_depends_on(graph: Graph) -> None:
    sets = ancestors(graph)
    for number, layer in enumerate(graph.layers):
        direct = {edge.source for edge in layer.inputs}
        before = {earlier for earlier in range(len(graph.layers)) if sets[number] >> earlier & 1}
        assert direct <= before
        assert all(earlier < number for earlier in before)
        assert before == direct.union(
            *({n for n in range(earlier) if sets[earlier] >> n & 1} for earlier in direct)
        )


def test_a_signature_is_the_make_of_a_layer_and_not_its_name() -> None:
    graph = chain(4, 4, 5)
    assert signature(graph, 2) == signature(chain(4, 4), 2)
    assert signature(graph, 1) != signature(graph, 2) != signature(graph, 3)


@given(net.networks)
def test_where_everything_has_a_partner_nothing_is_inserted(graph: Graph) -> None:
    depth = Depth(graph, {number: number for number in range(len(graph.layers))})
    assert depth.layers == {}
    assert depth.silent == set()
    for layer in graph.layers:
        for edge in layer.inputs:
            assert depth.stream(edge)[0] == edge.source


def test_an_inserted_layer_of_the_same_width_is_the_identity_and_data_flows_through_it() -> None:
    child = chain(4, 4)
    depth = Depth(child, {0: 0, 1: 1, 3: 2, 4: 3})
    assert depth.layers[2].value == "identity"
    assert depth.layers[2].exact
    assert depth.harmless(2)
    assert depth.stream(child.layers[3].inputs[0]) == (1, ("relu",)), "a rectifier once is a rectifier twice"


def test_an_inserted_branch_ends_in_zero_and_the_sum_is_its_other_operand() -> None:
    parent, child = net.resnet((1,)), net.resnet((2,))
    first = len(parent.layers) - 2  # the linear layer and the output come last in both
    matched = {number: number for number in range(first)} | {
        len(child.layers) - 2: first,
        len(child.layers) - 1: first + 1,
    }
    depth = Depth(child, matched)
    inserted = {number for number in range(len(child.layers)) if number not in matched}
    (total,) = (number for number in inserted if child.layers[number].kind == "add")
    assert inserted - {total} <= depth.silent
    assert all(depth.harmless(number) for number in inserted)
    assert depth.stream(Edge(total))[0] == first - 1
    assert "zero" in {depth.layers[number].value for number in depth.silent if number in depth.layers}


@given(st.integers(1, 3))
def test_what_feeds_on_nothing_is_left_alone(count: int) -> None:
    inputs = tuple(Layer(f"in{number}", "input") for number in range(count))
    depth = Depth(Graph("test", inputs), {})
    assert depth.layers == {}
    assert not any(depth.harmless(number) for number in range(count))
