"""What does a graph look like to the kernel?

`prepare(graph)` makes it once for each registered model: norms folded into the layer before them,
tokens, a canonical order and its regions (`src/native/decompose.hpp`), all as flat arrays. It depends
on structure alone: not on names, nor on the order in which layers or branches were written.

    Prepared.form      order, regions and edges: 16-bit numbers, without widths
    Prepared.tokens    the distinct tokens, as the form numbers them
    Prepared.layers    for each element the layer it stands for, and the norm folded into it
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.errors import InvalidGraph, TooLargeToMatch
from modelkeeper.graph import Edge, Graph, Layer, consumers
from modelkeeper.graph.rules import MAX_LAYERS
from modelkeeper.graph.vocabulary import (
    COMMUTATIVE,
    CONV,
    COUNT,
    INPUT,
    LINEAR,
    NORM_FOLDS,
    NORMS,
    OUTPUT,
    UNUSED,
    read_step,
)
from modelkeeper.lasting import cached_property
from modelkeeper.matching.similarity import EDGE, FIELDS, VERSION, attributes, number, shape, token

# A pair of graphs takes one table cell for each pair of nodes. At the limit that is 0.3 GB and some
# seconds; the largest network we know (a ResNet of 1,202 layers) has 3,000 nodes.
MAX_NODES = 8192
MAX_EDGES = 65_000

_HEAD = struct.Struct("<8sHH32sqIIII")
_MAGIC = b"mk.match"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A graph as flat arrays, ready to be aligned with others. Immutable; safe to share."""

    fingerprint: str
    total: int  # the score of the graph against itself
    form: NDArray[np.uint16]
    tokens: NDArray[np.int64]  # (distinct tokens, FIELDS)
    layers: NDArray[np.int32]  # (elements, 2): a layer and its norm, or -1
    unused: tuple[tuple[int, int], ...] = ()  # layers outside the data flow: number, hash of content
    size: int = 0  # how many layers the graph has

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """How many elements carry each token."""
        elements = int(self.form[0])
        carried = self.form[8 : 8 + elements]
        return np.bincount(carried[carried != 0xFFFF], minlength=len(self.tokens)).astype(np.int32)

    @property
    def edges(self) -> int:
        """How many edges there are between nodes."""
        return int(self.form[7])

    def to_bytes(self) -> bytes:
        """All of it as bytes, for a catalog."""
        head = _HEAD.pack(
            _MAGIC,
            VERSION,
            FIELDS,
            self.fingerprint.encode(),
            self.total,
            self.size,
            len(self.form),
            len(self.tokens),
            len(self.unused),
        )
        unused = np.array(self.unused, np.int64).reshape(-1, 2)
        arrays = (self.tokens, unused, self.layers, self.form)
        return head + b"".join(array.tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Prepared | None":
        """What `to_bytes` wrote, or None if another version of the matcher wrote it: prepare anew."""
        if len(data) < _HEAD.size or not data.startswith(_MAGIC):
            raise InvalidGraph("prepared graph", "its bytes do not begin as one")
        _, version, fields, fingerprint, total, size, words, tokens, unused = _HEAD.unpack_from(data)
        if (version, fields) != (VERSION, FIELDS):
            return None
        at = _HEAD.size
        parts: list[NDArray[Any]] = []
        elements = (len(data) - at - 2 * words - 8 * FIELDS * tokens - 16 * unused) // 8
        for dtype, count in (
            (np.int64, FIELDS * tokens),
            (np.int64, 2 * unused),
            (np.int32, 2 * elements),
            (np.uint16, words),
        ):
            width = np.dtype(dtype).itemsize * count
            if count < 0 or at + width > len(data):
                raise InvalidGraph("prepared graph", "its bytes end too soon")
            parts.append(np.frombuffer(data, dtype, count, at))
            at += width
        form = parts[3].astype(np.uint16, copy=False)
        whole = at == len(data) and _native.valid_form(form) and form[0] == elements and form[1] == tokens
        named = int(parts[2].max(initial=-1)) < size <= MAX_LAYERS and int(parts[2].min(initial=-1)) >= -1
        if not whole or not named or not fingerprint.isalnum():
            raise InvalidGraph("prepared graph", "its bytes are damaged")
        return cls(
            fingerprint.decode(),
            total,
            form,
            parts[0].astype(np.int64, copy=False).reshape(-1, FIELDS),
            parts[2].astype(np.int32, copy=False).reshape(-1, 2),
            tuple((int(a), int(b)) for a, b in parts[1].reshape(-1, 2)),
            size,
        )


def prepare(graph: Graph) -> Prepared:
    """Make a graph ready to be aligned; once for each graph, which keeps it.

    Raises:
        TooLargeToMatch: more than MAX_NODES nodes (norms folded) or MAX_EDGES edges.
    """
    prepared: Prepared | None = graph.__dict__.get("prepared")
    if prepared is None:
        prepared = graph.__dict__["prepared"] = _prepare(graph)
    return prepared


def _prepare(graph: Graph) -> Prepared:
    layers, readers = graph.layers, consumers(graph)
    unused = _unused(layers, readers)
    norm_of = _foldable(layers, readers)
    left_out = {*unused, *norm_of.values()}
    nodes = [place for place in range(len(layers)) if place not in left_out]
    _check_size(layers, nodes)
    described = _describe(graph, nodes, norm_of)
    offsets, sources, labels = _edges(layers, nodes, norm_of)
    form, order, used = _native.decompose(
        np.array(described.contents, np.uint64),
        np.array(described.ranks, np.int32),
        np.array(described.tokens, np.int32),
        np.array(offsets, np.int32),
        np.array(sources, np.int32),
        np.array(labels, np.uint16),
    )
    tokens = np.array(described.distinct, np.int64).reshape(-1, FIELDS)
    weights = tokens[:, 5] + tokens[:, 6]
    elements = [(nodes[i], norm_of.get(nodes[i], -1)) if i >= 0 else (-1, -1) for i in order.tolist()]
    return Prepared(
        fingerprint=graph.fingerprint,
        total=int(weights[described.tokens].sum()) + EDGE * int(form[7]),
        form=form,
        tokens=tokens[used],
        layers=np.array(elements, np.int32).reshape(-1, 2),
        unused=tuple((layer, number(repr(_content(layers[layer])))) for layer in unused),
        size=len(layers),
    )


def _unused(layers: Sequence[Layer], readers: Sequence[Sequence[int]]) -> list[int]:
    """The layers outside the data flow: unused ones, and those that nothing reads and nothing runs into."""
    return [
        place
        for place, layer in enumerate(layers)
        if not readers[place] and (layer.kind == UNUSED or not layer.inputs)
    ]


def _check_size(layers: Sequence[Layer], nodes: Sequence[int]) -> None:
    """Refuse graphs that are too large for the tables of an alignment."""
    edges = sum(len(layers[node].inputs) for node in nodes)
    if len(nodes) > MAX_NODES or edges > MAX_EDGES:
        raise TooLargeToMatch(*(f"{count:,}" for count in (len(nodes), edges, MAX_NODES, MAX_EDGES)))


@dataclass(frozen=True)
class _Described:
    """What the kernel is told of each node, apart from its edges: three numbers a node."""

    contents: list[int]  # a hash of all that a layer and its norm hold, and of their stage
    ranks: list[int]  # the place of its kind and shape among all kinds and shapes: orders nodes
    tokens: list[int]  # the place of its token in `distinct`
    distinct: list[tuple[int, ...]]  # the tokens of the graph, each once


def _describe(graph: Graph, nodes: Sequence[int], norm_of: Mapping[int, int]) -> _Described:
    """Describe the nodes of a graph; layers that are alike are looked at once."""
    layers, stages = graph.layers, _stages(graph)
    token_numbers: dict[tuple[int, ...], int] = {}
    known: dict[object, tuple[int, tuple[str, tuple[int, ...]], int]] = {}
    rows = []  # of each node: hash of content, kind and shape, number of its token
    for node in nodes:
        layer, norm = layers[node], layers[norm_of[node]] if node in norm_of else None
        content = _content(layer), _content(norm) if norm else None, stages[node]
        if content not in known:
            token_number = token_numbers.setdefault(token(layer, norm, stages[node]), len(token_numbers))
            known[content] = number(repr(content)), (layer.kind, shape(layer)), token_number
        rows.append(known[content])
    rank_of = {kind_and_shape: rank for rank, kind_and_shape in enumerate(sorted({row[1] for row in rows}))}
    return _Described(
        contents=[content_hash for content_hash, _, _ in rows],
        ranks=[rank_of[kind_and_shape] for _, kind_and_shape, _ in rows],
        tokens=[token_number for _, _, token_number in rows],
        distinct=list(token_numbers),
    )


def _edges(
    layers: Sequence[Layer], nodes: Sequence[int], norm_of: Mapping[int, int]
) -> tuple[list[int], list[int], list[int]]:
    """The edges into each node: where those of a node begin, the node each comes from, and its label."""
    place = {node: position for position, node in enumerate(nodes)}
    place |= {norm: place[layer] for layer, norm in norm_of.items()}  # what reads a norm reads its layer
    offsets, sources, labels = [0], [], []
    for node in nodes:
        ordered = layers[node].kind not in COMMUTATIVE
        for position, edge in enumerate(layers[node].inputs):
            sources.append(place[edge.source])
            labels.append(_label(edge, position if ordered else -1))
        offsets.append(len(sources))
    return offsets, sources, labels


def _foldable(layers: Sequence[Layer], readers: Sequence[Sequence[int]]) -> dict[int, int]:
    """For each layer with a norm directly behind it, and nothing else behind it: that norm."""
    norm_of = {}
    for place, norm in enumerate(layers):
        if norm.kind not in NORMS or len(norm.inputs) != 1 or norm.inputs[0].via or not norm.tensors:
            continue
        source = norm.inputs[0].source
        layer = layers[source]
        if layer.kind in NORM_FOLDS and readers[source] == (place,) and shape(layer)[:1] == shape(norm):
            norm_of[source] = place
    return norm_of


def _content(layer: Layer) -> object:
    """All of a layer that matching looks at: kind, attributes and the form of its tensors."""
    tensors = tuple((t.role, t.buffer, t.live, t.shape) for t in layer.tensors if t.role != COUNT)
    return layer.kind, attributes(layer), layer.attributes.get("groups"), tensors


def _stages(graph: Graph) -> list[int]:
    """The stage of each layer: how often its output is halved up to the end, on the way where most often."""
    layers, stages = graph.layers, [0] * len(graph.layers)
    for place in reversed(range(len(layers))):  # what reads a layer comes behind it
        layer = layers[place]
        stride = layer.attributes.get("stride", ())
        halved = int(layer.kind == CONV and isinstance(stride, tuple) and max(stride, default=1) > 1)
        for edge in layer.inputs:
            pools = 0 if layer.kind in (LINEAR, OUTPUT) else sum(read_step(step).halves for step in edge.via)
            stages[edge.source] = max(stages[edge.source], stages[place] + halved + pools)
    return [0 if layer.kind == INPUT else stage for layer, stage in zip(layers, stages, strict=True)]


def _label(edge: Edge, position: int) -> int:
    """A hash, of 16 bits, of what happens on an edge and of its place among the inputs (-1: any)."""
    return number(repr((edge.via, position))) & 0xFFFF
