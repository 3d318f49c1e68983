"""Graphs as bytes: what is written is what is read, and version 1 of the format stays as it is."""

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
    Product,
    Space,
    Tensor,
    from_json,
    to_json,
)
from modelkeeper.graph.structure import Attribute
from tests.helpers.strategies import graphs

GOLDEN = Path(__file__).parent / "golden" / "graph-v1.json"


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


def test_version_1_is_held_byte_for_byte() -> None:
    """Zoos keep these bytes for years. Never renew the file: a new format is a new version and a new file."""
    assert to_json(everything()) == GOLDEN.read_bytes()
    assert from_json(GOLDEN.read_bytes()) == everything()


def test_fingerprints_of_version_1_are_held() -> None:
    """Zoos keep fingerprints too, to find the same architecture again."""
    assert everything().fingerprint == "6b4e2e83e0ffa0d83aad7967cdcb9454"
    assert Graph("torch", ()).fingerprint == "dc9349423cade745195d7fc45029db83"


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
            Space(3, ("input",)),
            Space(8),
            Space(16, (), averaged=True),
            Space(10, ("output", "rows are looked up"), averaged=True),
            Space(4),
            Space(4, averaged=True),
        ),
        notes=(
            Note("opaque", "features.0", "aten.frobnicate has no rule"),
            Note("fallback", "", 'a "quoted" text, and a\nnew line'),
        ),
    )
