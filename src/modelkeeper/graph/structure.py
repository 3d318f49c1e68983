"""A model without its weights: what travels, what is stored, what is compared.

    graph.layers            in topological order
    layer.tensors           what it owns: name, role, dtype, axes
    tensor.axes             for each axis its role (out, in, kernel ...) and its space expression
    graph.notes             what the front end could not understand, and where

A layer is a node of the data flow: one that owns tensors (conv, linear, batch_norm, embedding ...),
one that merges (add, multiply, concat, attention ...), or an input or output. Everything else (an
activation, pooling, a permutation) is folded into the edge that it sits on. A module called twice is
two layers that name the same tensors; tied tensors have one name.

Graphs are frozen and checked when they are built, wherever they come from (`rules`): after that,
nothing downstream needs to ask whether an index is in range.
"""

import math
from collections.abc import Iterator

from msgspec import Struct

from modelkeeper.graph.expressions import Expression, Space
from modelkeeper.lasting import cached_property

Attribute = bool | int | float | str | tuple[int, ...]
MOST_SHOWN = 200  # layers in a notebook


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
    """A remark of the front end on the graph: `topic` for programs, `text` for people."""

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
        from modelkeeper.graph.rules import check

        check(self)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor once, by name, as its first user sees it."""
        tensors: dict[str, Tensor] = {}
        for layer in self.layers:
            for tensor in layer.tensors:
                tensors.setdefault(tensor.name, tensor)
        return tensors

    @cached_property
    def parameters(self) -> int:
        """How many numbers training can change or has changed: all tensors but buffers."""
        return sum(tensor.size for tensor in self.tensors.values() if not tensor.buffer)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the structure alone: see `modelkeeper.graph.fingerprint`."""
        from modelkeeper.graph.fingerprint import fingerprint

        return fingerprint(self)

    @cached_property
    def as_json(self) -> bytes:
        """As `to_json` writes it: for whoever sends one several times."""
        from modelkeeper.graph.wire import to_json

        return to_json(self)

    @cached_property
    def takers(self) -> tuple[tuple[int, ...], ...]:
        """See `consumers`."""
        takers: list[dict[int, None]] = [{} for _ in self.layers]
        for number, layer in enumerate(self.layers):
            for edge in layer.inputs:
                takers[edge.source][number] = None
        return tuple(tuple(layers) for layers in takers)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _repr_html_(self) -> str:
        """In a notebook: its layers, and what they are made of."""
        from modelkeeper.drawings import table

        free = sum(space.free for space in self.spaces)
        said = f"{self.framework}: {len(self.layers):,} layers, {self.parameters:,} parameters, "
        said += f"{len(self.spaces):,} spaces ({free:,} free), fingerprint {self.fingerprint[:16]}"
        rows: list[tuple[object, ...]] = [
            (
                number,
                layer.name,
                layer.kind,
                ", ".join(
                    f"{tensor.role} {'×'.join(map(str, tensor.shape)) or '1'}" for tensor in layer.tensors
                ),
                ", ".join(str(edge.source) for edge in layer.inputs),
            )
            for number, layer in enumerate(self.layers[:MOST_SHOWN])
        ]
        left_out = len(self.layers) - len(rows)
        rows += [("", f"and {left_out:,} more", "", "", "")] if left_out else []
        return table(("#", "layer", "kind", "tensors", "fed by"), rows, said)


def consumers(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """For each layer, the layers that take its output, each once, in order."""
    return graph.takers


def walk(graph: Graph) -> Iterator[tuple[Layer, Tensor, Axis]]:
    """Every axis of every tensor, each tensor once."""
    seen: set[str] = set()
    for layer in graph.layers:
        for tensor in layer.tensors:
            if tensor.name not in seen:
                seen.add(tensor.name)
                for axis in tensor.axes:
                    yield layer, tensor, axis
