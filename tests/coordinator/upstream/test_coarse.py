"""What travels: the architecture, and nothing that anybody named."""

import re

import torch
from hypothesis import given
from hypothesis import settings as examples
from torch import nn

from modelkeeper.coordinator.upstream.coarse import ANY, coarse_graph, coarse_query, travelling
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph, from_json, to_json
from modelkeeper.graph.structure import Edge, Layer, Note
from modelkeeper.graph.vocabulary import Pin
from modelkeeper.matching import align
from modelkeeper.meta import Query
from modelkeeper.settings import COARSE, FULL, WORDS
from tests.helpers import zoos
from tests.helpers.strategies import graphs

SECRET = "secret_project_x"


def renamed(graph: Graph) -> Graph:
    """The same model, as somebody would have written it who names everything after a secret."""
    text = to_json(graph).decode()
    text = re.sub(r'"name":"', f'"name":"{SECRET}.', text)
    return from_json(text)


@given(graphs())
@examples(max_examples=50)
def test_the_architecture_travels_and_no_name_does(graph: Graph) -> None:
    """The coarse form of a model is the same architecture, and says nothing of names."""
    coarse = coarse_graph(renamed(graph))
    assert SECRET not in to_json(coarse).decode()
    assert [layer.name for layer in coarse.layers] == [f"l{n}" for n in range(len(graph.layers))]
    assert all(re.fullmatch(r"t[0-9]+", name) for name in coarse.tensors)
    assert coarse.framework == ANY
    assert [tensor.shape for tensor in coarse.tensors.values()] == [
        tensor.shape for tensor in graph.tensors.values()
    ]
    assert coarse_graph(coarse) == coarse
    if "opaque" not in to_json(coarse).decode():  # all of its words are of the vocabulary
        assert align(graph, coarse).similarity >= 0.9


def test_a_usual_network_is_found_by_its_coarse_form_as_by_itself() -> None:
    graph = zoos.net(8, 16)
    assert coarse_graph(graph).fingerprint == graph.fingerprint
    assert align(graph, coarse_graph(graph)).similarity == 1.0
    assert travelling(graph, FULL) is graph


def test_words_of_ones_own_do_not_travel() -> None:
    graph = describe(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), torch.zeros(2, 6))
    first, second, *rest = graph.layers
    steps = (f"{SECRET}[3]", "relu", f"mul(_,{SECRET})", "max_pool2d[3x3,2x2]", f"gelu[{SECRET}]")
    changed = Layer(
        second.name,
        SECRET,
        (Edge(0, steps),),
        second.tensors,
        {SECRET: 1, "stride": (2, 2), "padding": SECRET, "by": "div"},
    )
    space = graph.spaces[0]
    pinned = type(space)(space.size, (Pin("reshape", SECRET, SECRET), Pin(SECRET)), space.averaged)
    spaces, note = (pinned, *graph.spaces[1:]), Note("dead", SECRET, SECRET)
    coarse = coarse_graph(Graph("torch", (first, changed, *rest), spaces, (note,)))
    assert SECRET not in to_json(coarse).decode()
    assert coarse.layers[1].inputs[0].via == ("opaque", "relu", "opaque", "max_pool2d[3x3,2x2]", "opaque")
    assert coarse.layers[1].attributes == {"stride": (2, 2), "by": "div"}
    assert coarse.spaces[0].pins == (Pin("reshape"), Pin("other"))
    assert coarse.notes == ()


def test_of_a_query_only_what_the_setting_allows_travels() -> None:
    query = Query(data="scans", task="tumours", tags=("x",), parents=("ours",), exclude=("theirs",), fold="2")
    assert coarse_query(query, COARSE) == Query()
    said = coarse_query(query, WORDS)
    assert (said.data, said.task, said.tags, said.fold) == ("scans", "tumours", ("x",), "2")
    assert said.parents == said.exclude == ()
