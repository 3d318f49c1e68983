"""Graphs as bytes: what is written is what is read, and every version of the format can be read for ever."""

from pathlib import Path

from hypothesis import given

from modelkeeper.graph import (
    Atom,
    Axis,
    Concat,
    Edge,
    Fixed,
    Graph,
    Layer,
    Note,
    Pin,
    Product,
    Space,
    Tensor,
    from_json,
    to_json,
)
from modelkeeper.graph.structure import Attribute
from tests.helpers.strategies import graphs

GOLDEN = Path(__file__).parent / "golden"


@given(graphs())
def test_what_is_written_is_what_is_read(graph: Graph) -> None:
    read = from_json(to_json(graph))
    assert read == graph
    assert to_json(read) == to_json(graph)
    assert read.fingerprint == graph.fingerprint


@given(graphs())
def test_text_reads_like_bytes(graph: Graph) -> None:
    assert from_json(to_json(graph).decode()) == graph


def test_equal_graphs_are_equal_bytes() -> None:
    one = Graph("torch", (Layer("fc", "linear", attributes={"bias": True, "groups": 1}),))
    two = Graph("torch", (Layer("fc", "linear", attributes={"groups": 1, "bias": True}),))
    assert one == two
    assert hash(one.layers[0]) == hash(two.layers[0])
    assert to_json(one) == to_json(two)


def test_version_2_is_held_byte_for_byte() -> None:
    """Zoos keep these bytes for years. Never renew the file: a new format is a new version and a new file."""
    golden = (GOLDEN / "graph-v2.json").read_bytes()
    assert to_json(everything()) == golden
    assert from_json(golden) == everything()


def test_fingerprints_of_version_2_are_held() -> None:
    """Zoos keep fingerprints too, to find the same architecture again."""
    assert everything().fingerprint == "29300d4237c5ac5cbd381b44788f681f"
    assert Graph("torch", ()).fingerprint == "1afa624a6accae4879bbd68d99867440"


def everything() -> Graph:
    """A graph that uses all of the format: every kind of term, role, flag, attribute and reference."""
    image, stem, stream, classes = Atom(0, 3), Atom(1, 8), Atom(2, 16), Atom(3, 10)
    heads, head_dim = Atom(4, 4), Atom(5, 4)
    taken, made, pixel = Axis("in", image, ((0, 1),)), Axis("out", stem), Axis("kernel", Fixed(3, "kernel"))
    joined = Concat((stem, Product((heads, head_dim)), Fixed(0, "nothing")))
    mixed = Axis("in", joined, ((1, 1), (4, -1)))
    flat = Product((Concat((stem, stream)), Fixed(49, "pixels")))
    shared = Tensor("tokens.weight", "weight", "bfloat16", (Axis("row", classes), Axis("out", stream)))
    kernel = Tensor("features.0.weight", "weight", "float32", (made, taken, pixel, pixel))
    bias = Tensor("features.0.bias", "bias", "float32", (made,), trainable=False)
    mean = Tensor("norm.mean", "mean", "float32", (made,), trainable=False, buffer=True)
    count = Tensor("norm.count", "count", "int64", (), trainable=False, buffer=True, live=False, stored=False)
    gain = Tensor("elsewhere.gain", "gain", "float32", (made,), live=False)
    mix = Tensor("mix.weight", "weight", "float16", (Axis("out", stream), mixed))
    unfold = Tensor("mix.flat", "weight", "float16", (Axis("other", flat), Axis("in", joined)))
    options: dict[str, Attribute] = {
        "stride": (2, 2),
        "groups": 1,
        "transposed": False,
        "scale": 0.5,
        "padding": "same",
    }
    return Graph(
        framework="torch",
        layers=(
            Layer("", "input"),
            Layer("ids", "input", attributes={"position": 1}),
            Layer("features.0", "conv", (Edge(0),), (kernel, bias), options),
            Layer(
                "norm", "batch_norm", (Edge(2, ("relu", "max_pool")),), (mean, count, gain), {"eps": 1e-05}
            ),
            Layer("tokens", "embedding", (Edge(1),), (shared,)),
            Layer("", "concat", (Edge(3), Edge(4, ("gelu",)), Edge(3, ("gelu",)))),
            Layer("mix", "linear", (Edge(5), Edge(4, ("relu", "max_pool"))), (mix, unfold)),
            Layer("", "add", (Edge(6), Edge(4))),
            Layer("été.出力", "linear", (Edge(7),), (shared,)),
            Layer("", "output", (Edge(8, ("softmax",)),)),
        ),
        spaces=(
            Space(3, (Pin("other", "", "input"),)),
            Space(8),
            Space(16, (), averaged=True),
            Space(10, (Pin("output"), Pin("picked", "index after tokens")), averaged=True),
            Space(4),
            Space(4, averaged=True),
        ),
        notes=(
            Note("opaque", "features.0", "aten.frobnicate has no rule"),
            Note("fallback", "", 'a "quoted" text, and a\nnew line'),
        ),
    )
