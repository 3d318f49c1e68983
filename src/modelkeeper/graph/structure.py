"""A model without its weights: what travels, what is stored, what is compared.

    graph.layers            in topological order
    layer.tensors           what it owns: name, role, dtype, axes
    tensor.axes             for each axis its role (out, in, kernel ...) and its space expression
    graph.notes             what the front end could not understand, and where

A layer is a node of the data flow: one that owns tensors (conv, linear, batch_norm, embedding ...),
one that merges (add, multiply, concat, attention ...), or an input or output. Everything else (an
activation, pooling, a permutation) is folded into the edge that it sits on. A module called twice is
two layers that name the same tensors; tied tensors have one name.

Graphs are frozen and checked when they are built, wherever they come from: after that, nothing
downstream needs to ask whether an index is in range.
"""

import math
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from modelkeeper.errors import InvalidGraph
from modelkeeper.graph.expressions import Atom, Concat, Expression, Fixed, Product, Space, leaves

Attribute = bool | int | float | str | tuple[int, ...]

# What a graph may not exceed, whoever sends it. The largest real classifier (1,202 layers deep) has
# 3,600 layers; the limits leave room and keep every later pass bounded.
MAX_LAYERS = 100_000
MAX_EDGES = 1_000_000
MAX_TENSORS = 500_000
MAX_RANK = 16
MAX_SIZE = 2**48
MAX_TEXT = 1_000
MAX_DEPTH = 32
MAX_LEAVES = 2_000_000  # of the expressions of all axes, and steps on all edges: shared ones count each time
MAX_DEGREE = 1_000

DTYPES = (
    frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"})
    | frozenset({"float16", "bfloat16", "float32", "float64", "complex64", "complex128"})
    | frozenset({"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "opaque"})
)
AXIS_ROLES = frozenset({"out", "in", "kernel", "row", "other"})

# Merges whose operands may be written in any order.
COMMUTATIVE = frozenset({"add", "multiply", "concat"})


class Axis(Struct, frozen=True):
    """One axis of a tensor.

    `role`: out (units it makes), in (units it takes), kernel (a window), row (looked up by identity:
    a vocabulary), other. `degrees` says, for a space in `of`, how much of a copied unit's share this
    axis carries (pairs of space and degree; a space not named has degree 0).
    """

    role: str
    of: Expression
    degrees: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        return self.of.size


class Tensor(Struct, frozen=True):
    """A parameter or buffer as one layer uses it. The same name elsewhere is the same tensor."""

    name: str
    role: str  # weight, bias, gain, mean, variance, count ...
    dtype: str
    axes: tuple[Axis, ...]
    trainable: bool = True
    buffer: bool = False
    live: bool = True  # False: the model never uses it
    stored: bool = True  # False: the model computes it anew and keeps it out of its weights
    aliases: tuple[str, ...] = ()  # further names of the same tensor in the user's model

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.of.size for axis in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Edge(Struct, frozen=True):
    """Data that flows into a layer: from which layer, and through which operations on the way."""

    source: int
    via: tuple[str, ...] = ()


class Layer(Struct, frozen=True):
    """A node of the data flow."""

    name: str
    kind: str
    inputs: tuple[Edge, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    attributes: dict[str, Attribute] = {}  # msgspec copies it for each struct

    def __hash__(self) -> int:
        return hash((self.name, self.kind, self.inputs, self.tensors, frozenset(self.attributes.items())))


class Note(Struct, frozen=True):
    """Something the front end wants known: `topic` for programs, `text` for people."""

    topic: str  # opaque, approximate, conflict, dead, fallback
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.where}: {self.text}" if self.where else f"{self.topic}: {self.text}"


class Graph(Struct, frozen=True, dict=True):
    """A model without its weights."""

    framework: str
    layers: tuple[Layer, ...]
    spaces: tuple[Space, ...] = ()
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor once, by name, as its first user sees it."""
        found: dict[str, Tensor] = {}
        for layer in self.layers:
            for tensor in layer.tensors:
                found.setdefault(tensor.name, tensor)
        return found

    @cached_property
    def parameters(self) -> int:
        """How many numbers training can change or has changed: all tensors but buffers."""
        return sum(tensor.size for tensor in self.tensors.values() if not tensor.buffer)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the structure alone: see `modelkeeper.graph.fingerprint`."""
        from modelkeeper.graph.fingerprint import fingerprint

        return fingerprint(self)

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _check(graph: Graph) -> None:
    """Raise InvalidGraph unless every rule holds. Linear in the size of the graph.

    Axes and edges share expressions and paths, and a document of a few kB can share a long one a
    million times: each object is checked once, what it unfolds to is counted at every use.
    """
    _text(graph.framework, "framework")
    _demand(len(graph.layers) <= MAX_LAYERS, "layers", f"{len(graph.layers)} of them; at most {MAX_LAYERS:,}")
    for number, space in enumerate(graph.spaces):
        _demand(0 <= space.size <= MAX_SIZE, f"space {number}", f"its size is {space.size}")
        for pin in space.pins:
            _text(pin, f"space {number}")
    for note in graph.notes:
        for text in (note.topic, note.where, note.text):
            _text(text, "notes", least=0)
    seen: dict[str, Tensor] = {}
    axes: dict[int, _Extent] = {}
    paths: set[int] = set()
    edges = tensors = steps = leaves = 0
    for number, layer in enumerate(graph.layers):
        where = f"layer {number} ({layer.name[:80]!r})"
        _text(layer.name, where, least=0)
        _text(layer.kind, where)
        edges += len(layer.inputs)
        tensors += len(layer.tensors)
        _demand(edges <= MAX_EDGES, where, f"more than {MAX_EDGES:,} edges in all")
        _demand(tensors <= MAX_TENSORS, where, f"more than {MAX_TENSORS:,} tensors in all")
        for edge in layer.inputs:
            earlier = 0 <= edge.source < number
            _demand(earlier, where, f"takes input from layer {edge.source}, not an earlier one")
            steps += len(edge.via)
            _demand(steps <= MAX_LEAVES, where, f"more than {MAX_LEAVES:,} steps on the edges in all")
            if id(edge.via) not in paths:
                paths.add(id(edge.via))
                for step in edge.via:
                    _text(step, where)
        for key, value in layer.attributes.items():
            _text(key, where)
            _attribute(value, f"{where}, attribute {key!r}")
        for tensor in layer.tensors:
            leaves += _tensor(tensor, graph, where, axes)
            _demand(leaves <= MAX_LEAVES, where, f"the axes unfold to more than {MAX_LEAVES:,} leaves in all")
            first = seen.setdefault(tensor.name, tensor)
            same = first.dtype == tensor.dtype and [a.of for a in first.axes] == [a.of for a in tensor.axes]
            _demand(same, where, f"tensor {tensor.name!r} was described differently before")


class _Extent(Struct, frozen=True):
    """What an expression comes to."""

    size: int
    leaves: int


def _tensor(tensor: Tensor, graph: Graph, where: str, known: dict[int, _Extent]) -> int:
    """Check one tensor. Returns how many leaves its axes have."""
    _text(tensor.name, where)
    undotted = not tensor.name.startswith(".")
    _demand(undotted, where, f"a tensor named {tensor.name[:40]!r}: a dot may not come first")
    where = f"{where}, tensor {tensor.name!r}"
    _text(tensor.role, where)
    for alias in tensor.aliases:
        _text(alias, where)
    _demand(tensor.dtype in DTYPES, where, f"unknown dtype {tensor.dtype[:40]!r}")
    _demand(len(tensor.axes) <= MAX_RANK, where, f"{len(tensor.axes)} axes; at most {MAX_RANK}")
    size, leaves = 1, 0
    for axis in tensor.axes:
        extent = known.get(id(axis))
        if extent is None:
            extent = known[id(axis)] = _axis(axis, graph, where)
        size *= extent.size
        leaves += extent.leaves
    _demand(size <= MAX_SIZE, where, "more elements than any machine holds")
    return leaves


def _axis(axis: Axis, graph: Graph, where: str) -> _Extent:
    _demand(axis.role in AXIS_ROLES, where, f"unknown axis role {axis.role[:40]!r}")
    extent = _expression(axis.of, graph, where, 0)
    named = {leaf.space for leaf in leaves(axis.of) if isinstance(leaf, Atom)} if axis.degrees else set()
    for space, degree in axis.degrees:
        _demand(space in named, where, f"a degree for space {space}, which the axis does not hold")
        _demand(abs(degree) <= MAX_DEGREE, where, f"space {space} has degree {degree}")
    return extent


def _expression(expression: Expression, graph: Graph, where: str, depth: int) -> _Extent:
    _demand(depth < MAX_DEPTH, where, f"an axis expression nested deeper than {MAX_DEPTH}")
    match expression:
        case Atom(space, size):
            _demand(0 <= space < len(graph.spaces), where, f"refers to space {space} of {len(graph.spaces)}")
            _demand(graph.spaces[space].size == size, where, f"gives space {space} another size ({size})")
            return _Extent(size, 1)
        case Fixed(size, origin):
            _demand(0 <= size <= MAX_SIZE, where, f"a fixed axis of size {size}")
            _text(origin, where, least=0)
            return _Extent(size, 1)
        case Product(parts) | Concat(parts):
            _demand(len(parts) >= 2, where, "a composite axis of fewer than two parts")
            product = isinstance(expression, Product)
            size, leaves = int(product), 0
            for part in parts:
                _demand(type(part) is not type(expression), where, "a composite axis that is not flat")
                extent = _expression(part, graph, where, depth + 1)
                size = size * extent.size if product else size + extent.size
                leaves += extent.leaves
                _demand(size <= MAX_SIZE, where, "an axis longer than any machine holds")
                _demand(leaves <= MAX_LEAVES, where, f"an axis of more than {MAX_LEAVES:,} leaves")
            return _Extent(size, leaves)


def _attribute(value: Attribute, where: str) -> None:
    match value:
        case str():
            _text(value, where, least=0)
        case tuple():
            _demand(len(value) <= MAX_RANK, where, "too long")
            for item in value:
                _demand(type(item) is int, where, f"{item!r} among its numbers is no integer")
                _attribute(item, where)
        case bool():
            pass
        case int() | float():
            _demand(-(2**63) <= value < 2**63, where, f"its value is {value}")


def _text(text: str, where: str, least: int = 1) -> None:
    allowed = least <= len(text) <= MAX_TEXT
    _demand(allowed, where, f"a text of {len(text)} characters ({text[:40]!r}); at most {MAX_TEXT}")
    _demand(text.isascii() or _encodable(text), where, f"{text[:40]!r} holds half a surrogate pair")


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _demand(holds: bool, where: str, problem: str) -> None:
    if not holds:
        raise InvalidGraph(where, problem)


def consumers(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """For each layer, the layers that take its output, each once, in order."""
    found: list[dict[int, None]] = [{} for _ in graph.layers]
    for number, layer in enumerate(graph.layers):
        for edge in layer.inputs:
            found[edge.source][number] = None
    return tuple(tuple(each) for each in found)


def walk(graph: Graph) -> Iterator[tuple[Layer, Tensor, Axis]]:
    """Every axis of every tensor, each tensor once."""
    seen: set[str] = set()
    for layer in graph.layers:
        for tensor in layer.tensors:
            if tensor.name not in seen:
                seen.add(tensor.name)
                for axis in tensor.axes:
                    yield layer, tensor, axis
