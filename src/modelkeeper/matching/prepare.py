"""What does a graph look like to the kernel?

`prepare(graph)` makes it once for each registered model: norms folded into the layer before them,
tokens, a canonical order and its regions (`src/native/decompose.hpp`), all as flat arrays. It depends
on structure alone: not on names, nor on the order in which layers or branches were written.

    Prepared.form      order, regions and edges: 16-bit numbers, without widths
    Prepared.tokens    the distinct tokens, as the form numbers them
    Prepared.layers    for each element the layer it stands for, and the norm folded into it
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
from modelkeeper.matching.similarity import EDGE, FIELDS, VERSION, number, shape, token

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
    """Make a graph ready to be aligned.

    Raises:
        TooLargeToMatch: more than MAX_NODES nodes (norms folded) or MAX_EDGES edges.
    """
    users = consumers(graph)
    layers = graph.layers
    unused = tuple(
        v for v, layer in enumerate(layers) if not users[v] and (layer.kind == UNUSED or not layer.inputs)
    )
    outside = set(unused)
    norm_of = _foldable(layers, users)
    folded = {norm: layer for layer, norm in norm_of.items()}
    nodes = [v for v in range(len(layers)) if v not in folded and v not in outside]
    edges = sum(len(layers[v].inputs) for v in nodes)
    if len(nodes) > MAX_NODES or edges > MAX_EDGES:
        raise TooLargeToMatch(*(f"{count:,}" for count in (len(nodes), edges, MAX_NODES, MAX_EDGES)))

    place = {v: i for i, v in enumerate(nodes)}
    place |= {norm: place[layer] for norm, layer in folded.items()}
    known: dict[tuple[int, ...], int] = {}
    seen: dict[object, tuple[int, int, tuple[str, tuple[int, ...]]]] = {}  # layers alike are looked at once
    chosen, content, keys = [], [], []
    offsets, sources, labels = [0], [], []
    stages = _stages(graph)
    for v in nodes:
        layer, norm = layers[v], layers[norm_of[v]] if v in norm_of else None
        described = _content(layer), _content(norm) if norm else None, stages[v]
        if described not in seen:
            number_of = known.setdefault(token(layer, norm, stages[v]), len(known))
            seen[described] = number_of, number(repr(described)), (layer.kind, shape(layer))
        number_of, hashed, key = seen[described]
        chosen.append(number_of)
        content.append(hashed)
        keys.append(key)
        ordered = layer.kind not in COMMUTATIVE
        for position, edge in enumerate(layer.inputs):
            sources.append(place[edge.source])
            labels.append(_label(edge, position if ordered else -1))
        offsets.append(len(sources))
    ranks = {key: i for i, key in enumerate(sorted(set(keys)))}
    form, order, used = _native.decompose(
        np.array(content, np.uint64),
        np.array([ranks[key] for key in keys], np.int32),
        np.array(chosen, np.int32),
        np.array(offsets, np.int32),
        np.array(sources, np.int32),
        np.array(labels, np.uint16),
    )
    distinct = np.array(list(known), np.int64).reshape(-1, FIELDS)
    rows = [(nodes[i], norm_of.get(nodes[i], -1)) if i >= 0 else (-1, -1) for i in order.tolist()]
    weights = distinct[:, 5] + distinct[:, 6]
    return Prepared(
        fingerprint=graph.fingerprint,
        total=int(weights[chosen].sum()) + EDGE * int(form[7]),
        form=form,
        tokens=distinct[used],
        layers=np.array(rows, np.int32).reshape(-1, 2),
        unused=tuple((v, number(repr(_content(layers[v])))) for v in unused),
        size=len(layers),
    )


def _foldable(layers: Sequence[Layer], users: Sequence[Sequence[int]]) -> dict[int, int]:
    """For each layer with a norm directly behind it, and nothing else behind it: that norm."""
    found = {}
    for v, norm in enumerate(layers):
        if norm.kind not in NORMS or len(norm.inputs) != 1 or norm.inputs[0].via or not norm.tensors:
            continue
        layer = layers[norm.inputs[0].source]
        if (
            layer.kind in NORM_FOLDS
            and users[norm.inputs[0].source] == (v,)
            and shape(layer)[:1] == shape(norm)
        ):
            found[norm.inputs[0].source] = v
    return found


def _content(layer: Layer) -> object:
    tensors = tuple((t.role, t.buffer, t.live, t.shape) for t in layer.tensors if t.role != COUNT)
    return layer.kind, tuple(sorted(layer.attributes.items())), tensors


def _stages(graph: Graph) -> list[int]:
    """For each layer, how often its output is halved on the way to the end: on the way where most often."""
    layers, found = graph.layers, [0] * len(graph.layers)
    for place in reversed(range(len(layers))):  # what reads a layer comes behind it
        layer = layers[place]
        stride = layer.attributes.get("stride", ())
        halved = int(layer.kind == CONV and isinstance(stride, tuple) and max(stride, default=1) > 1)
        for edge in layer.inputs:
            pools = 0 if layer.kind in (LINEAR, OUTPUT) else sum(read_step(step).halves for step in edge.via)
            found[edge.source] = max(found[edge.source], found[place] + halved + pools)
    return [0 if layer.kind == INPUT else stage for layer, stage in zip(layers, found, strict=True)]


def _label(edge: Edge, position: int) -> int:
    return number(repr((edge.via, position))) & 0xFFFF
