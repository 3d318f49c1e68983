"""Graphs and bytes made to be slow or to do harm are refused, or dealt with in the time stated."""

import random
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkeeper.errors import InvalidGraph, TooLargeToMatch
from modelkeeper.graph import Edge, Graph, Layer
from modelkeeper.matching import Prepared, align, prepare
from modelkeeper.matching.prepare import MAX_NODES
from tests.helpers import generated as net

SECONDS = 30  # stated for one pair: some 5 s on an idle machine


def merges(sources: list[list[int]]) -> Graph:
    kinds = ["add" if inputs else "input" for inputs in sources]
    edges = [tuple(Edge(source) for source in inputs) for inputs in sources]
    return Graph(
        "test",
        tuple(Layer(str(i), kind, inputs) for i, (kind, inputs) in enumerate(zip(kinds, edges, strict=True))),
    )


def nested(depth: int) -> list[list[int]]:
    sources: list[list[int]] = [[]]
    for _ in range(depth):
        sources += [[len(sources) - 1], [len(sources) - 1]]
    for level in range(depth):
        sources.append([len(sources) - 1, 2 * (depth - 1 - level)])
    return sources


def tangled(size: int) -> list[list[int]]:
    rng = random.Random(0)
    return [[], *(sorted(rng.sample(range(i), min(i, 3))) for i in range(1, size))]


def test_a_graph_of_a_hundred_thousand_layers_is_refused() -> None:
    start = perf_counter()
    with pytest.raises(TooLargeToMatch, match="100,000 layers"):
        prepare(merges([[], *([i] for i in range(99_999))]))
    assert perf_counter() - start < SECONDS


@pytest.mark.parametrize(
    "sources",
    [
        [[], *([i] for i in range(MAX_NODES - 1))],
        [list(range(i)) for i in range(360)],
        nested(1300),
        [[], *([[0]] * 8_000), list(range(1, 8_001))],
        tangled(4000),
        [[] for _ in range(3000)],
        [[], [0], *([0, 1] for _ in range(2000))],
    ],
    ids=["long", "dense", "nested", "broad", "tangled", "apart", "all outputs"],
)
def test_graphs_made_to_be_slow_take_seconds(sources: list[list[int]]) -> None:
    start = perf_counter()
    model = prepare(merges(sources))
    longer = prepare(merges([*sources, [len(sources) - 1]]) if len(sources) < MAX_NODES else net.vgg())
    alignment = align(model, longer)
    assert 0.0 <= alignment.similarity < 1.0
    assert perf_counter() - start < SECONDS


def test_regions_nested_deeper_than_we_look_still_align() -> None:
    graph = merges(nested(100))
    assert align(graph, net.shuffled(graph, random.Random(0))[0]).similarity == 1.0


@given(st.binary(max_size=300))
def test_bytes_that_are_no_prepared_graph_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidGraph):
        Prepared.from_bytes(data)


@given(st.data())
@settings(max_examples=60)
def test_damaged_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    content = bytearray(prepare(net.darts(2)).to_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = Prepared.from_bytes(bytes(content))
    except (InvalidGraph, UnicodeDecodeError):
        return
    if model is not None:
        align(model, prepare(net.resnet((1, 1))))


def test_bytes_of_another_version_are_made_anew() -> None:
    content = bytearray(prepare(net.vgg()).to_bytes())
    content[8] += 1
    assert Prepared.from_bytes(bytes(content)) is None


@given(net.networks)
def test_a_prepared_graph_survives_its_bytes(graph: Graph) -> None:
    made = prepare(graph)
    again = Prepared.from_bytes(made.to_bytes())
    assert again is not None
    assert again.to_bytes() == made.to_bytes()
    assert align(again, made).similarity == 1.0
    assert again.total == made.total
    assert np.array_equal(again.counts, made.counts)
