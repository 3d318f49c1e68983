"""What comes again right behind itself: runs of values, blocks of layers, and graphs with other numbers."""

from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Edge, Graph, Layer, to_json
from modelkeeper.graph.repeats import repeated, runs, stages
from modelkeeper.graph.resize import resize
from modelkeeper.matching import align
from tests.helpers.generated import networks, resnet, transformer, vgg
from tests.helpers.strategies import graphs


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 9))
def test_what_repeats_is_what_stands_before_it(values: list[int], least: int) -> None:
    """Law: runs do not overlap, cover enough, and written out again they give the values."""
    end = 0
    for start, period, again in runs(values, least=least):
        assert start >= end
        assert again * period >= least
        first = values[start : start + period]
        end = start + period * (again + 1)
        assert values[start:end] == first * (again + 1)


def test_what_covers_most_goes_first() -> None:
    assert runs([9, *[1, 2, 3, 4, 5] * 329, 7]) == [(1, 5, 328)]
    assert runs([1, 2, *[1, 2, 1, 2, 3] * 4]) == [
        (2, 5, 3)
    ]  # not the pairs, of which there are more at first
    assert runs([1, 2] * 4, least=8) == []
    assert runs([]) == []


@given(st.one_of(graphs(), networks), st.integers(1, 5))
def test_another_number_of_blocks_is_a_graph_like_it(graph: Graph, count: int) -> None:
    """Law: as many layers more as the blocks have, every name its own, and the same graph on the way back."""
    found = stages(graph)
    end = 0
    for stage in found:
        assert stage.start >= end
        assert stage.count > 1
        end = stage.end
    other = resize(graph, blocks=[stage.count + count for stage in found])
    assert len(other.layers) - len(graph.layers) == sum(stage.period * count for stage in found)
    assert set(graph.tensors) <= set(other.tensors)
    assert align(graph, other).similarity > 0
    for stage in reversed(found):
        more = repeated(graph, stage, stage.count + count)
        grown = type(stage)(stage.start, stage.period, stage.count + count)
        assert repeated(more, grown, stage.count).fingerprint == graph.fingerprint
        fewer = repeated(graph, stage, 1)
        assert len(graph.layers) - len(fewer.layers) == stage.period * (stage.count - 1)
        assert len(to_json(fewer)) <= len(to_json(graph))


def test_networks_of_every_kind_grow() -> None:
    assert resize(vgg((8,) * 4), blocks=[5]).fingerprint == vgg((8,) * 6).fingerprint
    assert resize(resnet((2, 3), 8), blocks=[4, 5]).fingerprint == resnet((4, 6), 8).fingerprint
    assert (
        resize(transformer(2, masked=True), blocks=[3]).fingerprint == transformer(3, masked=True).fingerprint
    )
    assert stages(vgg((8, 16, 32))) == ()


def test_names_go_on_where_they_can() -> None:
    names = [layer.name for layer in repeated(vgg((8,) * 4), stages(vgg((8,) * 4))[0], 4).layers]
    assert len(set(names)) == len(names)
    chain = Graph(
        "test",
        (Layer("input", "input"), *(Layer(f"part.{n}", "gelu", (Edge(n),)) for n in range(3))),
    )
    longer = repeated(chain, stages(chain)[0], 5)
    assert [layer.name for layer in longer.layers] == ["input", *(f"part.{n}" for n in range(5))]


def test_what_is_read_from_further_back_is_left_alone() -> None:
    """A skip over several blocks says nothing of where it would begin if there were more."""
    layers = [Layer("input", "input"), *(Layer(f"part.{n}", "gelu", (Edge(n),)) for n in range(4))]
    layers.append(Layer("add", "add", (Edge(1), Edge(4))))
    assert stages(Graph("test", tuple(layers))) == ()
