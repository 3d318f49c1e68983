"""Which nodes does an ONNX model have? Checked, each after all that it needs, with functions written out."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx.inliner
from onnx import ModelProto, NodeProto, helper

from modelkeeper.errors import InvalidModelFile
from modelkeeper.text import first_line

ONNX = ("", "ai.onnx")  # how the domain of ONNX' own operators is written
_ADVICE = "Check it with onnx.checker.check_model, and export it again"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator on named values."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]  # "": left out
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    proto: NodeProto = field(repr=False)
    captured: tuple[str, ...] = ()  # values that graphs inside of it use

    @property
    def settings(self) -> str:
        """A short text of its attributes, equal if they are; "" if it has none."""
        if not self.attributes:
            return ""
        text = repr(sorted((name, str(value)) for name, value in self.attributes.items()))
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    @property
    def called(self) -> str:
        """The operator with its domain, as notes name it."""
        return f"onnx::{self.op}" if self.domain in ONNX else f"{self.domain}::{self.op}"


def opset_of(proto: ModelProto) -> int:
    """The version of ONNX' operators that a model uses.

    Raises:
        InvalidModelFile: It names none, or one that the installed package does not know.
    """
    versions = [entry.version for entry in proto.opset_import if entry.domain in ONNX]
    known = onnx.defs.onnx_opset_version()
    if not versions or versions[0] < 1:
        raise InvalidModelFile(_called(proto), "it does not say which version of ONNX it uses", _ADVICE)
    if versions[0] > known:
        problem = f"it uses opset {versions[0]}, the installed onnx knows {known}"
        raise InvalidModelFile(
            _called(proto), problem, "Update it (pip install -U onnx), or export with less"
        )
    return int(versions[0])


def nodes_of(proto: ModelProto) -> list[Node]:
    """Every node of a model's graph, each after those that make what it takes.

    Raises:
        InvalidModelFile: Nodes wait for each other, or two make a value of the same name.
    """
    if proto.functions:
        proto = _without_functions(proto)
    nodes = [_node(node) for node in proto.graph.node]
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in makers:
                raise InvalidModelFile(_called(proto), f"two nodes make {name[:200]!r}", _ADVICE)
            makers[name] = number
    return [nodes[number] for number in _in_order(proto, nodes, makers)]


def _in_order(proto: ModelProto, nodes: list[Node], makers: dict[str, int]) -> list[int]:
    """The numbers of nodes so that each comes after those it needs, otherwise as they stand."""
    needs = [{makers[name] for name in (*node.inputs, *node.captured) if name in makers} for node in nodes]
    done: set[int] = set()
    order: list[int] = []
    for start in range(len(nodes)):
        waiting = [start]
        above: set[int] = set()
        while waiting:
            number = waiting[-1]
            if number in done:
                waiting.pop()
                continue
            missing = sorted(needs[number] - done)
            if not missing:
                waiting.pop()
                done.add(number)
                order.append(number)
            elif number in above:
                names = ", ".join(repr(name[:80]) for name in nodes[number].outputs[:1])
                raise InvalidModelFile(_called(proto), f"its graph has a cycle through {names}", _ADVICE)
            else:
                above.add(number)
                waiting.extend(missing)
    return order


def _node(node: NodeProto) -> Node:
    attributes: dict[str, Any] = {}
    captured: list[str] = []
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        attributes[attribute.name] = value.decode(errors="replace") if isinstance(value, bytes) else value
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            captured += _used_in(graph, depth=0)
    return Node(
        node.op_type,
        node.domain,
        node.name,
        tuple(node.input),
        tuple(node.output),
        attributes,
        node,
        tuple(dict.fromkeys(captured)),
    )


def _used_in(graph: Any, depth: int) -> Iterator[str]:
    """Every name that the nodes of a graph inside a node take, those inside of them too."""
    if depth > 32:
        raise InvalidModelFile("the model", "its graphs are nested more than 32 deep", _ADVICE)
    for node in graph.node:
        yield from filter(None, node.input)
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _used_in(inner, depth + 1)
    yield from (output.name for output in graph.output)


def _without_functions(proto: ModelProto) -> ModelProto:
    """The model's graph without its weights, with its own functions written out as nodes."""
    bare = ModelProto(ir_version=proto.ir_version)
    bare.opset_import.extend(proto.opset_import)
    bare.functions.extend(proto.functions)
    bare.graph.name = proto.graph.name
    bare.graph.node.extend(proto.graph.node)
    bare.graph.input.extend(proto.graph.input)
    bare.graph.output.extend(proto.graph.output)
    for tensor in proto.graph.initializer:  # their names must be known
        bare.graph.input.add(name=tensor.name).type.tensor_type.elem_type = tensor.data_type
    try:
        return onnx.inliner.inline_local_functions(bare)
    except Exception as error:  # whatever it finds wrong
        problem = f"its functions cannot be written out: {first_line(error)}"
        raise InvalidModelFile(_called(proto), problem, _ADVICE) from error


def _called(proto: ModelProto) -> str:
    return f"the ONNX model {proto.graph.name[:200]!r}"
