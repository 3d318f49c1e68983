"""The ONNX front end as one object: what `frontends.protocol` asks for, by the functions of this package."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from onnx import ModelProto

from modelkeeper.frontends.onnx.describe import opened, trace_model
from modelkeeper.frontends.onnx.model_file import OnnxModel
from modelkeeper.frontends.onnx.read_load import load, read
from modelkeeper.frontends.protocol import Frontend
from modelkeeper.tracing.trace import Trace
from modelkeeper.weights import Array, dtype_of

M = TypeVar("M")


class OnnxFrontend:
    """Models are an OnnxModel or an onnx.ModelProto: see `protocol.Frontend`. It runs and trains none."""

    name = "onnx"
    runner = None
    trials = None

    def takes(self, model: object) -> bool:
        """Is it an OnnxModel or a ModelProto?"""
        return isinstance(model, (OnnxModel, ModelProto))

    def trace(self, model: OnnxModel | ModelProto, example_inputs: Any = None) -> Trace:
        """What the model's graph does, with all shapes known."""
        return trace_model(opened(model), example_inputs)

    def read(self, model: OnnxModel | ModelProto) -> Iterator[tuple[str, Array]]:
        """Every tensor of the graph, one at a time."""
        return read(opened(model))

    def load(self, model: M, weights: Mapping[str, Any]) -> M:
        """Write weights into a model, in place; the model that was given."""
        load(opened(model), weights)  # type: ignore[arg-type]
        return model

    def example(self, shape: Iterable[int], dtype: str = "float32") -> Array:
        """An array that takes no memory, whatever its shape."""
        return np.broadcast_to(np.zeros((), dtype_of(dtype)), tuple(shape))


FRONTEND = OnnxFrontend()

if TYPE_CHECKING:
    _typed: Frontend = FRONTEND  # it is what the protocol asks for, and a type checker says so
