"""How does a graph of ONNX become a trace? One node after the other.

A node of inputs that are known is computed: so chains that work out a shape are gone. Each of the others
becomes the steps that its operator is in the vocabulary. A node whose operator is not in OPERATORS, or whose
shapes depend on numbers that are not known, is opaque.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modelkeeper.errors import CannotDescribe, InvalidModelFile, ModelKeeperError
from modelkeeper.frontends.onnx.inference import Inference, Known, Made, can_evaluate
from modelkeeper.frontends.onnx.layouts import Layout, Part
from modelkeeper.frontends.onnx.lowering.entries import (
    Call,
    Entry,
    NotLowered,
    Stored,
    graph_name,
    plain_number,
)
from modelkeeper.frontends.onnx.lowering.moves import permuted, viewed
from modelkeeper.frontends.onnx.model_file import OnnxModel
from modelkeeper.frontends.onnx.nodes import ONNX, Node, nodes_of, opset_of
from modelkeeper.frontends.onnx.tensor_data import dtype_name, shape_of
from modelkeeper.text import first_line
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.trace import OwnedTensor, Trace, Value
from modelkeeper.weights import Array, dtype_of

Operator = Callable[["Lowering", "Call"], "Entry | Sequence[Entry]"]
OPERATORS: dict[str, Operator] = {}  # by the name that ONNX gives them
_OPAQUE_SHAPE = (1,)  # of what is made by a node whose shapes are not known


def lowers(*names: str) -> Callable[[Operator], Operator]:
    """Say which operators a function lowers."""

    def remember(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return remember


@dataclass(frozen=True, slots=True)
class Lowered:
    """A trace, and where its tensors lie in the file."""

    trace: Trace
    layouts: dict[str, Layout]  # by name of the tensor of the graph


def lower(model: OnnxModel, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> Lowered:
    """The trace of a model on inputs of these shapes and types, by name.

    Raises:
        InvalidModelFile: The graph breaks the rules of ONNX.
        CannotDescribe: It cannot be run on inputs of these shapes.
    """
    return Lowering(model, inputs).run()


@dataclass(slots=True)
class Lowering:
    """The state of one walk."""

    model: OnnxModel
    given: Mapping[str, tuple[tuple[int, ...], str]]
    build: TraceBuilder = field(default_factory=lambda: TraceBuilder("onnx"))
    opset: int = 0
    _entries: dict[str, Entry] = field(default_factory=dict)
    _readers: Counter[int] = field(default_factory=Counter)  # of values, by number
    _layouts: dict[str, Layout] = field(default_factory=dict)
    sequences: dict[str, Sequence[Entry]] = field(default_factory=dict)  # of values, by name
    _unknown: set[int] = field(default_factory=set)  # values whose shape is made up
    _node: Node | None = None
    _names: Counter[str] = field(default_factory=Counter)  # how many nodes read each

    def run(self) -> Lowered:
        """Walk over all nodes."""
        proto = self.model.proto
        self.opset = opset_of(proto)
        inference = Inference(proto.opset_import, proto.ir_version)
        nodes = nodes_of(proto)
        self._names.update(name for node in nodes for name in (*node.inputs, *node.captured) if name)
        self._names.update(output.name for output in proto.graph.output)
        for name, tensor in self.model.tensors.items():
            self._entries[name] = self._stored(name, shape_of(tensor), dtype_name(tensor.data_type))
        for name, (shape, dtype) in self.given.items():
            self._name(name, self.build.input(shape, dtype, name))
        for node in nodes:
            if node.outputs[:1] != () and node.outputs[0] in self._entries and node.op == "Constant":
                continue  # its numbers are known already
            self._node = node
            entries = self._run(node, inference)
            for name, entry in zip(node.outputs, entries, strict=False):
                if name:
                    self._name(name, entry)
        missing = [output.name for output in proto.graph.output if output.name not in self._entries]
        if missing:
            advice = "Export it again"
            raise InvalidModelFile(self.model.name, f"nothing makes its output {missing[0][:200]!r}", advice)
        outputs = [self.value(self._entries[output.name]) for output in proto.graph.output]
        trace = self.build.trace(outputs)
        trace.tensors = [value.owner for value in trace.owned if value.owner is not None]
        kept = {owned.names[0] for owned in trace.tensors}
        return Lowered(trace, {name: layout for name, layout in self._layouts.items() if name in kept})

    # -- what operators ask for -----------------------------------------------------------------

    def step(self, name: str, call: Call, /, **arguments: Any) -> Value:
        """A step of the vocabulary that makes what a node makes."""
        return self.build.step(name, call.shape, dtype=call.dtype, **arguments)

    def value(self, entry: Entry) -> Value:
        """An entry as a value: an initializer is then a parameter, in the order it has."""
        if isinstance(entry, Value):
            return entry
        if isinstance(entry, Stored):
            return self.tensor(entry)
        return self.build.constant(entry)

    def tensor(
        self,
        stored: Stored,
        shape: tuple[int, ...] | None = None,
        *,
        parameter: bool = True,
        part: Part = (),
        gates: tuple[int, ...] = (),
        repeated: bool = False,
        suffix: str = "",
    ) -> Value:
        """An initializer as a tensor of the model.

        Args:
            stored: In the order of axes that the graph should have it in.
            shape: Of the tensor of the graph, if axes of one are to be left out.
            parameter: Is it a parameter, or a buffer?
            part: What of the initializer it is, if not all.
            gates: The order of the gates of a recurrent layer.
            repeated: Is the tensor one row, of which the initializer is many?
            suffix: Behind the name of the initializer, if it is several tensors.
        """
        name = graph_name(stored.name) + suffix
        shape = stored.shape if shape is None else shape
        order = () if _plain(stored.order) else stored.order
        wanted = Layout(stored.name, shape, order, part, gates, repeated)
        layout = self._layouts.setdefault(name, wanted)
        owned = OwnedTensor(
            (name,), layout.shape, stored.dtype, parameter, parameter, module=self._module(name)
        )
        value = self.build.tensor(owned)
        if layout == wanted:
            return value
        if (layout.part, layout.gates, layout.repeated) != (part, gates, repeated):
            raise NotLowered
        if layout.order == wanted.order:
            return viewed(self.build, value, shape)
        if len(layout.shape) != len(shape):
            raise NotLowered
        old, new = (order or tuple(range(len(shape))) for order in (layout.order, wanted.order))
        return permuted(self.build, value, [old.index(axis) for axis in new])

    def array(self, entry: Entry | None) -> Array | None:
        """The numbers of an entry; None: they are not known."""
        if isinstance(entry, Stored):
            found = self.model.array(entry.name)
            return found.transpose(entry.order) if entry.order else found
        return entry if isinstance(entry, np.ndarray) else None

    def numbers_of(self, value: Value) -> Array:
        """The numbers of a tensor of the model, as they are stored."""
        assert value.owner is not None
        return self.model.array(self._layouts[value.owner.names[0]].initializer)

    def numbers(self, call: Call, attribute: str, number: int) -> list[int] | None:
        """Whole numbers that older versions take as an attribute, newer ones as an input; None: left out."""
        if call.get(attribute) is not None:
            given = call.get(attribute)
            return [int(n) for n in (given if isinstance(given, (list, tuple)) else [given])]
        entry = call[number]
        if entry is None:
            return None
        array = self.array(entry)
        if array is None:
            raise NotLowered
        return [int(n) for n in array.reshape(-1)]

    def number(self, entry: Entry | None) -> float | int | None:
        """The one number that an entry is; None: it is no single known number."""
        if entry is None or isinstance(entry, Value) or math.prod(entry.shape) != 1:
            return None
        array = self.array(entry)
        return None if array is None else plain_number(array.reshape(-1)[0])

    def alone(self, value: Value) -> bool:
        """Does one node alone read a value?"""
        return self._readers[value.number] <= 1

    def reads(self, value: Value) -> bool:
        """Does any node read a value?"""
        return self._readers[value.number] > 0

    def is_read(self, name: str) -> bool:
        """Does any node read what is called so?"""
        return self._names[name] > 0

    def view(self, value: Value, shape: Sequence[int]) -> Value:
        """The same numbers in another shape."""
        return viewed(self.build, value, tuple(shape))

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        """The axes of a value in another order."""
        return permuted(self.build, value, order)

    # -- one node -------------------------------------------------------------------------------

    def _run(self, node: Node, inference: Inference) -> Sequence[Entry]:
        """What a node makes; whatever goes wrong with it is one error that names it."""
        lost = [name for name in node.inputs if name and name not in self._entries]
        if lost:
            problem = f"nothing makes {lost[0][:200]!r}, which {node.op} takes"
            raise InvalidModelFile(self.model.name, problem, "Export it again")
        names = (*node.inputs, *node.captured)
        present = {name: self._entries[name] for name in names if name in self._entries}
        try:
            return self._made(node, present, inference)
        except ModelKeeperError:
            raise
        except Exception as error:  # attributes and shapes may be anyone's
            place = f"{node.op} {node.name[:100]!r}" if node.name else node.op
            shapes = ", ".join(str(list(entry.shape)) for entry in present.values())
            problem = f"{place} does not fit inputs of the shapes {shapes}: {first_line(error)}"
            advice = "Pass example_inputs of the shapes that it takes (on the command line --input)"
            raise CannotDescribe(self.model.name, problem, advice) from error

    def _made(self, node: Node, present: Mapping[str, Entry], inference: Inference) -> Sequence[Entry]:
        """Numbers, if all that a node takes is known; otherwise what its operator is in the vocabulary."""
        if node.op == "SequenceAt" and node.inputs[0] in self.sequences:
            place = self.number(self._entries[node.inputs[1]])
            if place is not None:
                return [self.sequences[node.inputs[0]][int(place)]]
        if any(isinstance(entry, Value) and entry.number in self._unknown for entry in present.values()):
            return self._opaque(node, present, [Made(None, "float32")] * len(node.outputs))
        taken = tuple(self._entries[name] if name else None for name in node.inputs)
        if node.op in ("Shape", "Size") and taken and taken[0] is not None:
            return [_measure(node, taken[0].shape)]
        made = inference.outputs(node, {name: self._known(entry) for name, entry in present.items()})
        arrays = {name: self._constant(entry) for name, entry in present.items()}
        known = {name: array for name, array in arrays.items() if array is not None}
        if len(known) == len(arrays) and can_evaluate(node, made):
            return inference.evaluate(node, known)
        operator = OPERATORS.get(node.op) if node.domain in ONNX else None
        if operator is not None:
            try:
                results = operator(self, Call(node, taken, tuple(made), self.opset))
                entries = results if isinstance(results, (list, tuple)) else [results]
                if not any(self.is_read(name) for name in node.outputs[len(entries) :]):
                    return entries  # type: ignore[return-value]
            except NotLowered:
                pass  # it is opaque
        return self._opaque(node, present, made)

    def _opaque(self, node: Node, present: Mapping[str, Entry], made: Sequence[Made]) -> Sequence[Entry]:
        """A step that nothing is known of: it pins all that it takes."""
        inputs = [self.value(entry) for entry in present.values() if entry.shape and not _whole(entry)]
        shapes = [_OPAQUE_SHAPE if output.shape is None else output.shape for output in made]
        name = f"{node.called}#{node.settings}" if node.settings else node.called
        values = self.build.results(name, shapes, dtype=made[0].dtype if made else None, inputs=inputs)
        self._unknown.update(
            value.number for value, output in zip(values, made, strict=True) if output.shape is None
        )
        return values

    def _name(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry
        if isinstance(entry, Value):
            self._readers[entry.number] += self._names[name]

    def _stored(self, name: str, shape: tuple[int, ...], dtype: str) -> Entry:
        floating = "float" in dtype and dtype != "opaque"
        return Stored(name, shape, dtype) if floating else self.model.array(name)

    def _known(self, entry: Entry) -> Known:
        if isinstance(entry, np.ndarray):
            return Known(entry.shape, entry.dtype, entry)
        few = isinstance(entry, Stored) and math.prod(entry.shape) <= 16  # scales of a resizing
        return Known(entry.shape, dtype_of(entry.dtype), self.array(entry) if few else None)

    def _constant(self, entry: Entry) -> Array | None:
        """The numbers of an entry that is no parameter by itself."""
        single = isinstance(entry, Stored) and math.prod(entry.shape) <= 1
        return self.array(entry) if single or isinstance(entry, np.ndarray) else None

    def _module(self, name: str) -> str:
        """Whose a tensor is that has no dots in its name: the node's that takes it first."""
        if "." in name or self._node is None or not self._node.name:
            return ""
        parts = [part for part in self._node.name.split("/") if part]
        if len(parts) > 1 and parts[-1].startswith(self._node.op):
            parts.pop()
        return graph_name(".".join(parts))


def _plain(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))


def _whole(entry: Entry) -> bool:
    """Is it a table of whole numbers?"""
    return isinstance(entry, np.ndarray) and entry.dtype.kind in "iub"


def _measure(node: Node, shape: tuple[int, ...]) -> Array:
    """What Shape and Size make."""
    if node.op == "Size":
        return np.asarray(math.prod(shape), np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.asarray(shape[slice(start, end)], np.int64)
