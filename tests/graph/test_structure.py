"""What a graph holds: frozen, copied and compared as a value, each tensor once."""

import copy
import pickle

import pytest
from hypothesis import given

from modelkeeper.graph import (
    Graph,
    Tensor,
    consumers,
    walk,
)
from tests.helpers.strategies import graphs


def test_a_graph_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Graph("torch", ()).framework = "keras"  # type: ignore[misc]


@given(graphs())
def test_a_graph_survives_pickle_and_copy(graph: Graph) -> None:
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert again == graph
        assert hash(again) == hash(graph)


@given(graphs())
def test_a_tied_tensor_is_counted_once(graph: Graph) -> None:
    names = [tensor.name for layer in graph.layers for tensor in layer.tensors]
    assert list(graph.tensors) == list(dict.fromkeys(names))
    assert graph.parameters == sum(t.size for t in graph.tensors.values() if not t.buffer)
    assert sum(len(tensor.axes) for tensor in graph.tensors.values()) == len(list(walk(graph)))


@given(graphs())
def test_consumers_are_the_edges_backwards(graph: Graph) -> None:
    forward = {(edge.source, number) for number, layer in enumerate(graph.layers) for edge in layer.inputs}
    backward = consumers(graph)
    assert len(backward) == len(graph.layers)
    assert {(source, number) for source, numbers in enumerate(backward) for number in numbers} == forward
    assert all(list(numbers) == sorted(set(numbers)) for numbers in backward)


def test_a_tensor_of_no_axes_is_one_number() -> None:
    assert Tensor("count", "count", "int64", ()).size == 1
