"""From an ONNX model to its trace: which inputs it is traced on, and what is remembered of it."""

from typing import Any

from onnx import ModelProto

from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.onnx.inputs import given_shapes, guesses
from modelkeeper.frontends.onnx.layouts import Layout
from modelkeeper.frontends.onnx.lowering import Lowered, lower
from modelkeeper.frontends.onnx.model_file import OnnxModel
from modelkeeper.graph import Graph
from modelkeeper.tracing.describe import describe as describe_trace
from modelkeeper.tracing.trace import Trace


def describe(model: OnnxModel | ModelProto, example_inputs: Any = None) -> Graph:
    """The graph of a model, without its weights.

    Args:
        model: It is not changed.
        example_inputs: An array, a tuple of them in the order of the model's inputs, or a dict by name. Only
            shapes count. Default: as the model says, with usual sizes for what it leaves open.

    Raises:
        InvalidModelFile: The model breaks the rules of ONNX.
        CannotDescribe: It does not fit inputs of these shapes; the message says what to pass.
    """
    return describe_trace(trace_model(opened(model), example_inputs))


def trace_model(model: OnnxModel, example_inputs: Any = None) -> Trace:
    """Trace a model as plain data over the vocabulary, and remember where its tensors lie."""
    lowered = _lowered(model, example_inputs)
    model.layouts = lowered.layouts
    return lowered.trace


def layouts_of(model: OnnxModel) -> dict[str, Layout]:
    """Where the tensors of the graph lie in the model's initializers."""
    if model.layouts is None:
        model.layouts = _lowered(model, None).layouts
    return model.layouts


def opened(model: OnnxModel | ModelProto) -> OnnxModel:
    """A model as an OnnxModel."""
    return model if isinstance(model, OnnxModel) else OnnxModel(model)


def _lowered(model: OnnxModel, example_inputs: Any) -> Lowered:
    if example_inputs is not None:
        return lower(model, given_shapes(model.name, model.proto, example_inputs))
    first: CannotDescribe | None = None
    for shapes in guesses(model.name, model.proto):
        try:
            return lower(model, shapes)
        except CannotDescribe as error:
            first = first or error
    assert first is not None  # there is a guess at least
    raise first
