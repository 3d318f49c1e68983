"""Small ONNX models, written with onnx.helper, and what onnxruntime computes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, helper, numpy_helper, shape_inference

from modelkeeper.weights import Array

OPSET = 20
FLOAT, INT64 = 1, 7
Shape = Sequence[int | str]


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    tensors: Mapping[str, Array],
    *,
    opset: int = OPSET,
    dtype: int = FLOAT,
) -> ModelProto:
    """A model of these nodes, with initializers by name."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return shape_inference.infer_shapes(model)  # checkers want the shapes of outputs


def drawn(seed: int, **shapes: Sequence[int]) -> dict[str, Array]:
    """Arrays of random numbers by name: `fc_weight` becomes fc.weight."""
    rng = np.random.default_rng(seed)
    return {
        name.replace("_", ".", 1): (rng.normal(size=shape) * 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }


def perceptron(width: int, seed: int = 0) -> ModelProto:
    """5 -> width -> width -> 3: a Gemm of each kind, and a product with a bias of its own."""
    tensors = drawn(
        seed,
        first_weight=(width, 5),
        first_bias=(width,),
        inner_weight=(width, width),
        inner_bias=(width,),
        head_weight=(width, 3),
        head_bias=(3,),
    )
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "inner.weight"], ["c"]),
        helper.make_node("Add", ["inner.bias", "c"], ["d"]),
        helper.make_node("Tanh", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "head.weight", "head.bias"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", 5]}, ["y"], tensors)


def convolutions(width: int, seed: int = 0) -> ModelProto:
    """A residual network with norms: 3 x 8 x 8 -> 3 classes; its last shape is computed by the graph."""
    tensors = drawn(
        seed,
        stem_weight=(width, 3, 3, 3),
        stem_bias=(width,),
        norm_gain=(width,),
        norm_bias=(width,),
        norm_mean=(width,),
        inner_weight=(width, width, 3, 3),
        head_weight=(3, 16 * width),
        head_bias=(3,),
    )
    tensors["norm.variance"] = np.random.default_rng(seed).uniform(0.5, 2, width).astype(np.float32)
    tensors |= {"zero": np.array(0), "all": np.array([-1])}
    norm = ["a", "norm.gain", "norm.bias", "norm.mean", "norm.variance"]
    nodes = [
        helper.make_node("Conv", ["x", "stem.weight", "stem.bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", norm, ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "inner.weight"], ["d"], auto_pad="SAME_UPPER"),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["f"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "first"], ["rows.1"]),
        helper.make_node("Concat", ["rows.1", "all"], ["shape"], axis=0),
        helper.make_node("Reshape", ["f", "shape"], ["g"]),
        helper.make_node("Gemm", ["g", "head.weight", "head.bias"], ["y"], transB=1),
    ]
    tensors["first"] = np.array([0])
    return model_of(nodes, {"x": ["batch", 3, 8, 8]}, ["y"], tensors)


def tokens(width: int, seed: int = 0) -> ModelProto:
    """An embedding, an LSTM, and behind a layer between them a head that is tied to the embedding."""
    tensors = drawn(
        seed,
        table_weight=(7, width),
        cell_weight=(1, 4 * width, width),
        cell_hidden=(1, 4 * width, width),
        cell_bias=(1, 8 * width),
        mix_weight=(width, width),
    )
    nodes = [
        helper.make_node("Gather", ["table.weight", "x"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["b", "cell.weight", "cell.hidden", "cell.bias"], ["c"], hidden_size=width),
        helper.make_node("Squeeze", ["c", "one"], ["d"]),
        helper.make_node("Transpose", ["d"], ["e"], perm=[1, 0, 2]),
        helper.make_node("Transpose", ["table.weight"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "mix.weight"], ["f"]),
        helper.make_node("MatMul", ["f", "turned"], ["y"]),
    ]
    tensors["one"] = np.array([1])
    return model_of(nodes, {"x": ["batch", "words"]}, ["y"], tensors, dtype=INT64)


def computed(model: Any, inputs: Mapping[str, Array]) -> Array:
    """What a model, or the model in a file, computes: its first output."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    source = model.SerializeToString() if isinstance(model, ModelProto) else str(model)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(inputs))[0])
