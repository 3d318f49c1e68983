"""Graphs of ONNX models: what operators become, what a width may do, and what breaks the rules."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

from modelkeeper.errors import CannotDescribe, InvalidModelFile
from modelkeeper.frontends.onnx import OnnxModel, describe, load, read
from modelkeeper.graph import Graph, Layer
from modelkeeper.graph.vocabulary import CONSTANTS
from modelkeeper.warmstart.transfer import transfer
from modelkeeper.weights import Array
from tests.helpers.onnx_models import FLOAT, INT64, Shape, computed, drawn, model_of

Node = tuple[Any, ...]  # operator, inputs, outputs, attributes


def written(
    nodes: Sequence[Node], inputs: dict[str, Shape], tensors: dict[str, Array], **rest: Any
) -> ModelProto:
    """A model of nodes in short: (operator, inputs, outputs, attributes); the last one makes the output."""
    made = [
        helper.make_node(op, taken.split(), given.split(), **(attributes[0] if attributes else {}))
        for op, taken, given, *attributes in nodes
    ]
    return model_of(made, inputs, [nodes[-1][2].split()[0]], tensors, **rest)


def between(
    op: str, *, opset: int = 20, tensors: dict[str, Array] | None = None, more: str = "", **attributes: Any
) -> Layer:
    """The layer behind an operator that stands behind a convolution: its input says what the operator is."""
    nodes: list[Node] = [("Conv", "x w", "a"), (op, f"a {more}", "b", attributes), ("Conv", "b v", "y")]
    kernels = drawn(0, w=(4, 3, 1, 1), v=(4, 4, 1, 1))
    graph = describe(written(nodes, {"x": [2, 3, 8, 8]}, kernels | (tensors or {}), opset=opset))
    assert not [note for note in graph.notes if note.topic != CONSTANTS]
    return graph.layers[2]


def number(value: float) -> Array:
    return np.array(value, np.float32)


@pytest.mark.parametrize(
    ("op", "more", "attributes", "text"),
    [
        ("Relu", "", {}, "relu"),
        ("LeakyRelu", "", {"alpha": 0.01}, "leaky_relu"),
        ("LeakyRelu", "", {"alpha": 0.1}, "leaky_relu[0.1]"),
        ("Elu", "", {}, "elu"),
        ("Selu", "", {}, "selu"),
        ("Gelu", "", {}, "gelu"),
        ("Gelu", "", {"approximate": "tanh"}, "gelu[tanh]"),
        ("HardSwish", "", {}, "hardswish"),
        ("HardSigmoid", "", {"alpha": 1 / 6}, "hardsigmoid"),
        ("Mish", "", {}, "mish"),
        ("Softplus", "", {}, "softplus"),
        ("Clip", "zero six", {}, "relu6"),
        ("Clip", "zero half", {}, "hardtanh[0.0,0.5]"),
        ("Clip", "zero", {}, "relu"),
        ("Mul", "half", {}, "mul[0.5]"),
        ("Div", "six", {}, "div[6.0]"),
        ("Pow", "two", {}, "pow[2]"),
        ("Reciprocal", "", {}, "reciprocal"),
        ("MaxPool", "", {"kernel_shape": [3, 3], "pads": [1] * 4}, "max_pool2d[3x3,1x1,1x1]"),
        ("MaxPool", "", {"kernel_shape": [2, 2], "strides": [2, 2]}, "max_pool2d[2x2,2x2]"),
        (
            "MaxPool",
            "",
            {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
            "max_pool2d[3x3,2x2,0x0,1x1,yes]",
        ),
        ("AveragePool", "", {"kernel_shape": [2, 2], "strides": [2, 2]}, "avg_pool2d[2x2,2x2]"),
        ("GlobalAveragePool", "", {}, "adaptive_avg_pool2d[1x1]"),
        ("ReduceMean", "space", {}, "adaptive_avg_pool2d[1x1]"),
        ("ReduceMax", "space", {}, "amax[2x3,yes]"),
        ("Softmax", "", {"axis": 1}, "softmax[1]"),
        ("Transpose", "", {"perm": [0, 1, 3, 2]}, "permute[0,1,3,2]"),
        ("Pad", "pads", {}, None),  # becomes the padding of the convolution behind it
        ("Pad", "pads", {"mode": "reflect"}, "pad[1x1x1x1,reflect]"),
        ("Resize", "nothing scales", {"mode": "nearest"}, "upsample_nearest2d"),
        ("Resize", "nothing scales", {"mode": "linear"}, "upsample_bilinear2d"),
        ("Slice", "two.i four.i three.i", {}, "slice[3,1/4:1/2]"),
        ("Identity", "", {}, None),
        ("Dropout", "", {}, None),
    ],
)
def test_an_operator_is_written_as_its_counterpart(
    op: str, more: str, attributes: dict[str, Any], text: str | None
) -> None:
    tensors = {"zero": number(0), "six": number(6), "half": number(0.5), "two": number(2)}
    tensors |= {"space": np.array([2, 3]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    tensors |= {"nothing": np.empty(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    tensors |= {"two.i": np.array([2]), "four.i": np.array([4]), "three.i": np.array([3])}
    layer = between(op, more=more, tensors=tensors, **attributes)
    assert layer.inputs[0].via == ((text,) if text else ())
    assert layer.attributes == ({"padding": (1, 1)} if op == "Pad" and text is None else {})


def test_older_versions_have_attributes_where_newer_ones_have_inputs() -> None:
    assert between("Clip", opset=6, min=0.0, max=6.0).inputs[0].via == ("relu6",)
    assert between("ReduceMean", opset=11, axes=[2, 3]).inputs[0].via == ("adaptive_avg_pool2d[1x1]",)
    assert between("Slice", opset=9, starts=[2], ends=[4], axes=[3]).inputs[0].via == ("slice[3,1/4:1/2]",)
    assert between("Pad", opset=10, pads=[0, 0, 1, 1, 0, 0, 1, 1]).attributes == {"padding": (1, 1)}


@pytest.mark.parametrize(
    ("attributes", "padding"),
    [
        ({"pads": [1, 1, 1, 1]}, (1, 1)),
        ({"pads": [0, 1, 2, 1]}, (0, 1, 2, 1)),
        ({"auto_pad": "SAME_UPPER"}, (1, 1)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (0, 0, 1, 1)),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 1, 0, 0)),
        ({"auto_pad": "VALID"}, None),
    ],
)
def test_padding_may_differ_on_both_sides(
    attributes: dict[str, Any], padding: tuple[int, ...] | None
) -> None:
    model = written([("Conv", "x w", "y", attributes)], {"x": [1, 3, 8, 8]}, drawn(0, w=(4, 3, 3, 3)))
    assert describe(model).layers[1].attributes.get("padding") == padding


def test_parts_of_a_sequence_are_parts() -> None:
    nodes: list[Node] = [("Conv", "x w", "a"), ("SplitToSequence", "a half", "s", {"axis": 1})]
    nodes += [("SequenceAt", "s zero", "b"), ("SequenceAt", "s one", "c"), ("Add", "b c", "y")]
    tensors = drawn(0, w=(4, 3, 1, 1)) | {"half": np.array(2), "zero": np.array(0), "one": np.array(1)}
    graph = describe(written(nodes, {"x": [2, 3, 8, 8]}, tensors))
    assert not graph.notes
    assert [edge.via for edge in graph.layers[2].inputs] == [("split", "1/2"), ("split", "2/2")]


# -- what is put together again ---------------------------------------------------------------------------


def kinds(graph: Graph) -> list[str]:
    return [layer.kind for layer in graph.layers]


def test_a_bias_of_its_own_belongs_to_its_layer() -> None:
    nodes: list[Node] = [("MatMul", "x w", "a"), ("Add", "b a", "c"), ("Relu", "c", "y")]
    graph = describe(written(nodes, {"x": [2, 7, 4]}, drawn(0, w=(4, 3), b=(3,))))
    assert kinds(graph) == ["input", "linear", "output"]
    assert [(t.role, t.shape) for t in graph.layers[1].tensors] == [("weight", (3, 4)), ("bias", (3,))]
    nodes = [("Conv", "x w", "a"), ("Add", "a b", "y")]
    graph = describe(written(nodes, {"x": [2, 3, 5, 5]}, drawn(0, w=(4, 3, 1, 1), b=(1, 4, 1, 1))))
    assert [(t.role, t.shape) for t in graph.layers[1].tensors] == [("weight", (4, 3, 1, 1)), ("bias", (4,))]


def test_a_product_that_others_read_keeps_its_bias_apart() -> None:
    nodes: list[Node] = [("MatMul", "x w", "a"), ("Add", "a b", "c"), ("Mul", "c a", "y")]
    graph = describe(written(nodes, {"x": [2, 4]}, drawn(0, w=(4, 3), b=(3,))))
    assert kinds(graph) == ["input", "linear", "shift", "multiply", "output"]


def test_factors_of_a_product_are_steps() -> None:
    nodes: list[Node] = [("Gemm", "x w b", "y", {"alpha": 0.5, "beta": 2.0})]
    graph = describe(written(nodes, {"x": [2, 4]}, drawn(0, w=(4, 3), b=(3,))))
    assert kinds(graph)[:3] == ["input", "linear", "shift"]
    assert graph.layers[2].inputs[0].via == ("mul[0.5]",)


def test_gelu_that_was_written_out_is_gelu() -> None:
    nodes: list[Node] = [
        ("MatMul", "x w", "a"),
        ("Div", "a root", "b"),
        ("Erf", "b", "c"),
        ("Add", "c one", "d"),
    ]
    nodes += [("Mul", "a d", "e"), ("Mul", "e half", "y")]
    tensors = drawn(0, w=(4, 3)) | {"root": number(2**0.5), "one": number(1), "half": number(0.5)}
    graph = describe(written(nodes, {"x": [2, 4]}, tensors))
    assert graph.layers[-1].inputs[0].via == ("gelu",)


def test_a_layer_norm_that_was_written_out_is_one() -> None:
    nodes: list[Node] = [
        ("ReduceMean", "x last", "m"),
        ("Sub", "x m", "c"),
        ("Pow", "c two", "s"),
        ("ReduceMean", "s last", "v"),
    ]
    nodes += [
        ("Add", "v eps", "e"),
        ("Sqrt", "e", "r"),
        ("Div", "c r", "n"),
        ("Mul", "n g", "p"),
        ("Add", "p b", "y"),
    ]
    tensors = drawn(0, g=(6,), b=(6,)) | {"last": np.array([-1]), "two": number(2), "eps": number(1e-6)}
    graph = describe(written(nodes, {"x": [2, 5, 6]}, tensors))
    assert kinds(graph) == ["input", "layer_norm", "output"]
    assert graph.layers[1].attributes == {"eps": 1e-6}
    assert [tensor.role for tensor in graph.layers[1].tensors] == ["gain", "bias"]


def test_attention_of_opset_23_is_attention() -> None:
    nodes: list[Node] = [("MatMul", "x w", "q"), ("MatMul", "x v", "k"), ("MatMul", "x u", "a")]
    nodes += [("Attention", "q k a", "y", {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1})]
    graph = describe(written(nodes, {"x": [2, 5, 6]}, drawn(0, w=(6, 8), v=(6, 8), u=(6, 8)), opset=23))
    assert kinds(graph) == ["input", "linear", "linear", "linear", "attention", "output"]
    assert graph.layers[4].attributes == {"is_causal": True}


def test_masks_and_rotary_positions_are_no_parameters() -> None:
    angles = np.outer(np.arange(5), 0.3 ** np.arange(6)).astype(np.float32)
    tensors = drawn(0, w=(6, 6)) | {
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "mask": np.triu(np.full((5, 6), -np.inf, np.float32), 1),
        "places": np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32),
    }
    nodes: list[Node] = [
        ("MatMul", "x w", "a"),
        ("Mul", "a cos", "b"),
        ("Mul", "a sin", "c"),
        ("Add", "b c", "d"),
    ]
    nodes += [("Add", "d mask", "e"), ("Add", "e places", "f"), ("Add", "f untrained", "y")]
    graph = describe(written(nodes, {"x": [2, 5, 6]}, tensors | {"untrained": np.zeros((5, 6), np.float32)}))
    assert set(graph.tensors) == {"w", "places", "untrained"}


def test_embeddings_that_were_looked_up_before_are_embeddings() -> None:
    rng = np.random.default_rng(0)
    places, types = rng.normal(size=(1, 5, 4)), np.tile(rng.normal(size=4), (2, 5, 1))
    tensors = drawn(0, words=(7, 4)) | {"val_2": places.astype(np.float32), "val_1": types.astype(np.float32)}
    nodes: list[Node] = [("Gather", "words x", "a"), ("Add", "a val_1", "b"), ("Add", "b val_2", "y")]
    model = OnnxModel(written(nodes, {"x": [2, 5]}, tensors, dtype=INT64))
    graph = describe(model)
    assert kinds(graph) == ["input", "embedding", "embedding", "add", "embedding", "add", "output"]
    assert {name: tensor.shape for name, tensor in graph.tensors.items()} == {
        "words": (7, 4),
        "val_1": (1, 4),
        "val_2": (5, 4),
    }
    load(model, {"val_1": np.full((1, 4), 3, np.float32), "val_2": np.ones((5, 4), np.float32)})
    assert np.all(model.array("val_1") == 3)
    assert model.array("val_2").shape == (1, 5, 4)


# -- recurrent layers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_are_widened_exactly(op: str, gates: int, direction: str) -> None:
    """Gates, directions and biases are put back to where they belong: the wider model computes the same."""
    ways = 2 if direction == "bidirectional" else 1

    def make(width: int, seed: int) -> ModelProto:
        tensors = drawn(seed, w=(ways, gates * width, 5), r=(ways, gates * width, width), h=(ways * width, 3))
        tensors |= drawn(seed + 9, b=(ways, 2 * gates * width))
        more = {"linear_before_reset": 1} if op == "GRU" else {}
        nodes: list[Node] = [(op, "x w r b", "a", {"hidden_size": width, "direction": direction} | more)]
        nodes += [
            ("Transpose", "a", "c", {"perm": [0, 2, 1, 3]}),
            ("Reshape", "c whole", "d"),
            ("MatMul", "d h", "y"),
        ]
        return written(nodes, {"x": [7, 2, 5]}, tensors | {"whole": np.array([0, 0, -1])})

    source, target = make(4, 0), make(6, 1)
    tensors = dict(read(OnnxModel(source)))
    assert len(tensors) == 4 * ways + 1
    report = transfer(source, target)
    assert report.exact, report.plan.doubts
    given = {"x": np.random.default_rng(5).normal(size=(7, 2, 5)).astype(np.float32)}
    np.testing.assert_allclose(computed(report.model, given), computed(source, given), rtol=1e-4, atol=1e-6)


def test_layers_of_cells_that_stand_on_each_other_are_one_layer() -> None:
    tensors = drawn(0, w=(1, 16, 5), r=(1, 16, 4), v=(1, 16, 4), s=(1, 16, 4)) | {"one": np.array([1])}
    nodes: list[Node] = [("LSTM", "x w r", "a", {"hidden_size": 4}), ("Squeeze", "a one", "b")]
    nodes += [("LSTM", "b v s", "y", {"hidden_size": 4})]
    graph = describe(written(nodes, {"x": [7, 2, 5]}, tensors))
    assert kinds(graph) == ["input", "lstm", "output"]
    assert graph.layers[1].attributes == {"num_layers": 2}


def test_a_tensor_that_is_used_in_two_orders_is_one_tensor() -> None:
    nodes: list[Node] = [
        ("Gather", "table x", "a"),
        ("Transpose", "table", "t", {"perm": [1, 0]}),
        ("MatMul", "a t", "y"),
    ]
    model = written(nodes, {"x": [2, 5]}, drawn(0, table=(7, 4)), dtype=INT64)
    graph = describe(model)
    assert [(t.name, t.shape) for t in graph.tensors.values()] == [("table", (7, 4))]
    assert [[axis.role for axis in layer.tensors[0].axes] for layer in graph.layers[1:3]] == [
        ["row", "out"],
        ["out", "in"],
    ]
    load(OnnxModel(model), {"table": np.ones((7, 4), np.float32)})
    assert np.all(dict(read(OnnxModel(model)))["table"] == 1)


# -- what is not understood -------------------------------------------------------------------------------


def test_an_operator_that_is_not_understood_is_opaque_and_named() -> None:
    nodes: list[Node] = [("MatMul", "x w", "a"), ("Hardmax", "a", "b"), ("MatMul", "b v", "y")]
    graph = describe(written(nodes, {"x": [2, 4]}, drawn(0, w=(4, 3), v=(3, 2))))
    assert [note.text for note in graph.notes] == ["onnx::Hardmax"]
    assert not any(space.free for space in graph.spaces)


def test_what_depends_on_numbers_is_opaque_with_all_behind_it() -> None:
    nodes: list[Node] = [("MatMul", "x w", "a"), ("NonZero", "a", "b"), ("Cast", "b", "c", {"to": FLOAT})]
    nodes += [("Transpose", "c", "d", {"perm": [1, 0]}), ("MatMul", "d v", "y")]
    graph = describe(written(nodes, {"x": [2, 4]}, drawn(0, w=(4, 3), v=(2, 2))))
    assert {"onnx::NonZero", "onnx::MatMul"} <= {note.text for note in graph.notes}
    assert set(graph.tensors) == {"w", "v"}


def test_branches_are_opaque_and_pin_what_they_use() -> None:
    def branch(op: str) -> Any:
        made = helper.make_tensor_value_info("z", FLOAT, [2, 3])
        return helper.make_graph([helper.make_node(op, ["a"], ["z"])], op, [], [made])

    nodes: list[Node] = [
        ("MatMul", "x w", "a"),
        ("ReduceSum", "a", "s", {"keepdims": 0}),
        ("Greater", "s zero", "c"),
    ]
    nodes += [("If", "c", "y", {"then_branch": branch("Relu"), "else_branch": branch("Tanh")})]
    graph = describe(written(nodes, {"x": [2, 4]}, drawn(0, w=(4, 3)) | {"zero": number(0)}))
    assert "onnx::If" in [note.text for note in graph.notes]
    assert not any(space.free for space in graph.spaces)


def test_functions_of_the_model_are_written_out() -> None:
    opset = [helper.make_opsetid("", 20)]
    body = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    model = written([("Relu", "x", "y")], {"x": [2, 4]}, drawn(0, w=(4, 3)))
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.append(helper.make_node("Dense", ["x", "w"], ["y"], domain="mine"))
    model.functions.append(helper.make_function("mine", "Dense", ["a", "b"], ["d"], body, opset))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    graph = describe(model)
    assert kinds(graph) == ["input", "linear", "output"]
    assert graph.layers[2].inputs[0].via == ("relu",)


# -- what breaks the rules --------------------------------------------------------------------------------


def test_a_cycle_is_an_error() -> None:
    nodes: list[Node] = [("Add", "x c", "a"), ("Relu", "a", "b"), ("Tanh", "b", "c"), ("Relu", "c", "y")]
    with pytest.raises(InvalidModelFile, match="cycle"):
        describe(written(nodes, {"x": [2, 4]}, {}))


def test_nodes_in_another_order_are_put_in_order() -> None:
    nodes: list[Node] = [("Relu", "b", "y"), ("MatMul", "x w", "a"), ("Tanh", "a", "b")]
    model = written(nodes, {"x": [2, 4]}, drawn(0, w=(4, 3)))
    model.graph.output[0].name = "y"
    assert describe(model).layers[2].inputs[0].via == ("tanh", "relu")


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([("Relu", "nobody", "y")], "nothing makes 'nobody'"),
        ([("Relu", "x", "a"), ("Tanh", "x", "a"), ("Relu", "a", "y")], "two nodes make 'a'"),
    ],
)
def test_a_graph_must_hang_together(nodes: list[Node], problem: str) -> None:
    with pytest.raises(InvalidModelFile, match=problem):
        describe(written(nodes, {"x": [2, 4]}, {}))


def test_an_output_that_nothing_makes_is_an_error() -> None:
    model = written([("Relu", "x", "y")], {"x": [2, 4]}, {})
    model.graph.output[0].name = "z"
    with pytest.raises(InvalidModelFile, match="output 'z'"):
        describe(model)


@pytest.mark.parametrize("version", [0, 999])
def test_an_unknown_version_is_an_error(version: int) -> None:
    model = written([("Relu", "x", "y")], {"x": [2, 4]}, {})
    model.opset_import[0].version = version
    with pytest.raises(InvalidModelFile, match=r"opset 999|which version"):
        describe(model)


def test_shapes_that_do_not_fit_are_an_error_that_names_the_node() -> None:
    model = written([("MatMul", "x w", "y")], {"x": [2, 4]}, drawn(0, w=(5, 3)))
    with pytest.raises(CannotDescribe, match=r"MatMul does not fit inputs of the shapes \[2, 4\], \[5, 3\]"):
        describe(model)


def test_a_constant_that_would_be_huge_is_not_computed() -> None:
    nodes: list[Node] = [
        ("ConstantOfShape", "sizes", "a"),
        ("ReduceSum", "a", "b", {"keepdims": 0}),
        ("Add", "x b", "y"),
    ]
    model = written(nodes, {"x": [2, 4]}, {"sizes": np.array([1 << 20, 1 << 20])})
    assert "onnx::ConstantOfShape" in [note.text for note in describe(model).notes]


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        (np.zeros((2, 5)), r"an example of \[2, 5\]"),
        ((np.zeros((2, 4)), np.zeros((2, 4))), "2 inputs are given, it takes 1"),
        ({"z": np.zeros((2, 4))}, "'x' is not given"),
        ("text", "'x' is not given"),
    ],
)
def test_examples_must_be_what_the_model_takes(example: Any, problem: str) -> None:
    model = written([("MatMul", "x w", "y")], {"x": ["batch", 4]}, drawn(0, w=(4, 3)))
    assert describe(model, {"x": np.zeros((7, 4))}).layers[0].kind == "input"
    with pytest.raises(CannotDescribe, match=problem):
        describe(model, example)


def test_sizes_that_are_left_open_are_found_by_trying() -> None:
    """A head that takes a map of 3 x 32 x 32 numbers: 224 wide does not fit."""
    nodes: list[Node] = [("Flatten", "x", "a"), ("MatMul", "a w", "y")]
    model = written(nodes, {"x": ["batch", 3, "height", "width"]}, drawn(0, w=(3 * 32 * 32, 2)))
    assert describe(model).tensors["w"].shape == (2, 3 * 32 * 32)
