"""Version 1 of the format: what zoos of earlier releases hold can be read, and means what it meant."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidGraph
from modelkeeper.graph import Fixed, Pin, from_json
from modelkeeper.graph.vocabulary import ORIGINS, REASONS
from modelkeeper.graph.wire_v1 import read_pin

GOLDEN = (Path(__file__).parent / "golden" / "graph-v1.json").read_bytes()


def document(**fields: object) -> bytes:
    names = ("spaces", "terms", "axes", "paths", "forms", "layers", "notes")
    tables: dict[str, object] = {name: [] for name in names}
    return json.dumps(
        {"format": "modelkeeper.graph", "version": 1, "framework": "torch", **tables, **fields}
    ).encode()


def test_what_version_1_wrote_is_read() -> None:
    """Never renew the file: zoos keep these bytes for years."""
    graph = from_json(GOLDEN)
    assert [layer.kind for layer in graph.layers][2:5] == ["conv", "batch_norm", "embedding"]
    assert graph.layers[3].inputs[0].via == ("relu", "max_pool")
    assert graph.spaces[0].pins == (Pin("other", "", "input"),)
    assert graph.spaces[3].pins == (Pin("output"), Pin("other", "", "rows are looked up"))
    assert [space.averaged for space in graph.spaces] == [False, False, True, True, False, True]
    assert graph.fingerprint == "29300d4237c5ac5cbd381b44788f681f"


@pytest.mark.parametrize("code", REASONS)
def test_a_sentence_is_read_as_the_reason_it_was_written_for(code: str) -> None:
    pin = Pin(code, "conv2d after stage1.unit1.conv1", "12 and 7")
    told = Pin(*read_pin(str(pin)))
    assert told.code == code
    assert str(told) == str(pin)


@given(st.text())
def test_any_sentence_is_kept(text: str) -> None:
    assert str(Pin(*read_pin(text))) == text


def test_names_and_kernels_are_what_they_are_today() -> None:
    paths = [["_softmax[-1]", "layer_norm[64,1e-05,yes]", "mul(_,add[3.0]>hardtanh[0,6])", "relu"]]
    inputs = [{"name": "x", "kind": "input"}, {"name": "y", "kind": "bmm", "inputs": [[0, 0], 0]}]
    graph = from_json(document(paths=paths, layers=inputs))
    assert graph.layers[1].inputs[0].via == (
        "softmax[-1]",
        "layer_norm[64,1e-05]",
        "mul(_,add[3.0]>relu6)",
        "relu",
    )
    assert graph.layers[1].kind == "matmul"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("hardtanh[0.0,6.0]", "relu6"),
        ("clamp_min[0]", "relu"),
        ("clamp[0]", "clamp[0]"),  # at which end it cuts is not known
        ("clamp[-1,lowest]", "clamp[-1,lowest]"),
        ("elu[1.0]", "elu"),
        ("elu[0.5]", "elu[0.5]"),
        ("gelu[tanh]", "gelu[tanh]"),
        ("softplus[1,20]", "softplus"),
        ("max_pool2d[2x2]", "max_pool2d[2x2,2x2]"),
        ("max_pool2d[3,2,1]", "max_pool2d[3x3,2x2,1x1]"),
        ("max_pool2d[3x3,2x2,yes]", "max_pool2d[3x3,2x2,0x0,1x1,yes]"),
        ("avg_pool1d[2,2,0]", "avg_pool1d[2,2]"),
        ("avg_pool2d[2x?]", "avg_pool2d[2x?]"),
    ],
)
def test_numbers_are_written_as_they_are_today(before: str, now: str) -> None:
    layers = [{"name": "x", "kind": "input"}, {"name": "y", "kind": "output", "inputs": [[0, 0]]}]
    graph = from_json(document(paths=[[before]], layers=layers))
    assert graph.layers[1].inputs[0].via == (now,)


def test_what_fixed_an_axis_is_a_code() -> None:
    sentences = ["kernel", "picked by index", "rows made alike in view after a", "something else"]
    terms = [["=", 3, text] for text in sentences]
    layer = {"name": "a", "kind": "linear", "tensors": [[0, 0, 1, 2, 3]]}
    axes = [["other", number] for number in range(len(sentences))]
    graph = from_json(document(terms=terms, axes=axes, forms=[["w", "weight", "float32"]], layers=[layer]))
    fixed = [axis.of for axis in graph.tensors["w"].axes]
    assert fixed == [Fixed(3, "kernel"), Fixed(3, "picked"), Fixed(3, "alike"), Fixed(3, "something else")]
    assert {"kernel", "picked", "alike"} <= ORIGINS.keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"spaces": [[3, [7]]]},
        {"spaces": [[3, "output"]]},
        {"spaces": 7},
        {"terms": [["=", 3]]},
        {"paths": [[3]]},
        {"layers": [3]},
        {"layers": [{"name": "a"}]},
        {"surplus": 1},
    ],
)
def test_what_was_wrong_in_version_1_still_is(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidGraph):
        from_json(document(**fields))
