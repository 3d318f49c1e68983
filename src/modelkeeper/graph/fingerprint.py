"""When are two models the same architecture?

When their fingerprints are equal. A fingerprint depends on structure alone: kinds, attributes,
shapes, wiring, what lies on the edges, which tensors are tied. It does not depend on names, on the
order in which layers or branches were written, on dtypes, on what is frozen, on tensors that only count
(which one framework keeps and another does not), or on notes.

It is a hash of the colours that `_native.colours` gives the nodes: each takes in everything before
and behind it. Operands of a commutative merge have no order; other operands keep their position.
"""

import hashlib

import numpy as np

from modelkeeper import _native
from modelkeeper.graph.structure import Edge, Graph, Layer, Tensor
from modelkeeper.graph.vocabulary import COMMUTATIVE, COUNT, THROUGH

_OF_NO_ACCOUNT = frozenset(
    {"groups", "padding", "eps", THROUGH}
)  # when it is asked what a layer's counterpart is
BUDGET = 20_000_000  # edge visits spent on telling symmetric nodes apart: some 0.1 s


def fingerprint(graph: Graph) -> str:
    """32 hex digits: equal for the same architecture, different for different ones."""
    colours = np.sort(colour_layers(graph))
    return hashlib.blake2b(colours.tobytes(), digest_size=16, person=b"mk.graph.2").hexdigest()


def colour_layers(graph: Graph, *, widths: bool = True) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """A colour for each layer, then one for each tied tensor: a node that all its users feed.

    Without `widths`, layers that differ in their numbers of units (and groups) alone look the same, and so
    do those that differ in what frameworks do on their own (how edges are padded, a norm's epsilon), and in
    what is done to tensors on their way: a scale that follows from the width.
    """
    labels: dict[object, int] = {}
    nodes = [_label(labels, _layer_key(layer, widths)) for layer in graph.layers]
    offsets, sources, edges = [0], [], []
    for layer in graph.layers:
        ordered = layer.kind not in COMMUTATIVE
        for position, edge in enumerate(layer.inputs):
            sources.append(edge.source)
            edges.append(_label(labels, _edge_key(edge, position if ordered else -1)))
        offsets.append(len(sources))
    users: dict[str, list[tuple[int, int]]] = {}  # layer, and which of its tensors
    for number, layer in enumerate(graph.layers):
        for position, tensor in enumerate(_counted(layer)):
            users.setdefault(tensor.name, []).append((number, position))
    for uses in users.values():
        if len(uses) > 1:
            nodes.append(_label(labels, ("tied",)))
            sources.extend(number for number, _ in uses)
            edges.extend(_label(labels, ("use", position)) for _, position in uses)
            offsets.append(len(sources))
    return _native.colours(
        np.array(nodes, np.uint64),
        np.array(offsets, np.int32),
        np.array(sources, np.int32),
        np.array(edges, np.uint64),
        BUDGET,
    )


def _layer_key(layer: Layer, widths: bool) -> object:
    attributes = sorted(
        (key, value) for key, value in layer.attributes.items() if widths or key not in _OF_NO_ACCOUNT
    )
    return layer.kind, attributes, [_tensor_key(tensor, widths) for tensor in _counted(layer)]


def _counted(layer: Layer) -> list[Tensor]:
    """The tensors that make an architecture what it is."""
    return [tensor for tensor in layer.tensors if tensor.role != COUNT]


def _tensor_key(tensor: Tensor, widths: bool) -> object:
    axes = [(axis.role, axis.of.size if widths or axis.role == "kernel" else 0) for axis in tensor.axes]
    return tensor.role, tensor.buffer, tensor.live, axes


def _edge_key(edge: Edge, position: int) -> object:
    return edge.via, position


def _label(labels: dict[object, int], key: object) -> int:
    text = repr(key)
    known = labels.get(text)
    if known is None:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        known = labels[text] = int.from_bytes(digest, "little")
    return known
