"""What does a node make, and what does it come to if all it takes is known? Node by node, by onnx itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from modelkeeper.frontends.onnx.nodes import ONNX, Node
from modelkeeper.frontends.onnx.tensor_data import dtype_name
from modelkeeper.weights import Array

MOST_NUMBERS = 1 << 24  # of a constant that is computed
_FEW = 1 << 12  # numbers that the inference of shapes may want to know
_RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}


@dataclass(frozen=True, slots=True)
class Made:
    """What a node makes: the shape and type of one output."""

    shape: tuple[int, ...] | None  # None: it depends on numbers that are not known
    dtype: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an input of a node."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    numbers: Array | None = None


class Inference:
    """Asks onnx for shapes and constants, for the operators of one model."""

    def __init__(self, imports: Sequence[onnx.OperatorSetIdProto], ir_version: int) -> None:
        self._versions = {"" if entry.domain in ONNX else entry.domain: entry.version for entry in imports}
        self._imports = [helper.make_opsetid(domain, version) for domain, version in self._versions.items()]
        self._ir_version = ir_version

    def outputs(self, node: Node, inputs: Mapping[str, Known]) -> list[Made]:
        """What a node makes of what it takes.

        Raises:
            onnx.shape_inference.InferenceError: Its inputs do not fit each other.
        """
        domain = "" if node.domain in ONNX else node.domain
        unknown = [Made(None, "opaque")] * len(node.outputs)
        version = self._versions.get(domain)
        if version is None or not onnx.defs.has(node.op, version, domain):
            return unknown
        schema = onnx.defs.get_schema(node.op, version, domain)
        if schema.deprecated:  # onnx infers nothing of it
            return unknown
        types = {name: _type(known) for name, known in inputs.items()}
        data = {
            name: numpy_helper.from_array(np.array(known.numbers))
            for name, known in inputs.items()
            if known.numbers is not None and known.numbers.size <= _FEW
        }
        made = onnx.shape_inference.infer_node_outputs(
            schema,
            node.proto,
            types,
            data,
            opset_imports=self._imports,
            ir_version=self._ir_version,
        )
        return [_made(made[name]) if name in made else unknown[0] for name in node.outputs]

    def evaluate(self, node: Node, inputs: Mapping[str, Array]) -> list[Array]:
        """What a node makes of inputs that are all known."""
        taken = [helper.make_tensor_value_info(name, 0, None) for name in inputs]
        given = [helper.make_tensor_value_info(name, 0, None) for name in filter(None, node.outputs)]
        graph = helper.make_graph([node.proto], "constant", taken, given)
        model = helper.make_model(graph, opset_imports=self._imports, ir_version=self._ir_version)
        results = iter(ReferenceEvaluator(model).run(None, dict(inputs)))
        return [np.asarray(next(results)) if name else np.empty(0) for name in node.outputs]


def can_evaluate(node: Node, made: Sequence[Made]) -> bool:
    """May a node be computed whose inputs are known? Not if it draws numbers, or makes too many of them."""
    if node.op in _RANDOM or node.domain not in ONNX or node.captured:
        return False
    return all(output.shape is None or math.prod(output.shape) <= MOST_NUMBERS for output in made)


def _type(known: Known) -> TypeProto:
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(known.dtype), known.shape)


def _made(kind: TypeProto) -> Made:
    if not kind.HasField("tensor_type"):
        return Made(None, "opaque")
    tensor = kind.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    known = tensor.HasField("shape") and None not in sizes
    return Made(tuple(sizes) if known else None, dtype_name(tensor.elem_type))  # type: ignore[arg-type]
