"""What of a model and of a query travels to another organisation?

    coarse_graph(graph)             kinds, widths and edges; no name that anybody gave
    coarse_query(query, "coarse")   how similar is enough, and nothing else that was said

Only the graph travels, never weights. Names of layers and tensors are numbers there, notes and the places
that pins name are left out, and of the words on edges and in attributes only those of the vocabulary travel:
an operation that somebody registered under a name of their own is `opaque`. The parent that comes back is a
whole model with names of its own, so nothing has to be translated back.
"""

import re
from functools import lru_cache

import msgspec

from modelkeeper.graph import Graph
from modelkeeper.graph.expressions import Atom, Concat, Expression, Fixed, Product, Space
from modelkeeper.graph.structure import Attribute, Axis, Edge, Layer, Tensor
from modelkeeper.graph.vocabulary import KINDS, OPERATIONS, ORIGINS, REASONS, THROUGH, Pin
from modelkeeper.meta import Query
from modelkeeper.settings import COARSE, FULL

ANY, OPAQUE = "any", "opaque"
_ROLES = frozenset("weight bias gain mean variance count factor".split())
# What stands on edges and in attributes besides names of operations.
_WORDS = frozenset(
    "yes most corners lowest highest smallest inside none inf same valid zeros reflect replicate circular "
    "nearest bilinear bicubic trilinear area".split()
)
_NUMBER = re.compile(r"[0-9]+(x[0-9]+)*|[0-9]+e[0-9]*|e[0-9]+|_")
_ATTRIBUTES = frozenset(
    "stride padding dilation groups output_padding dim is_causal scale eps num_layers bidirectional alpha "
    "by".split()
)


def coarse_graph(graph: Graph) -> Graph:
    """The same architecture without anybody's names."""
    names: dict[str, str] = {}
    shared: dict[int, Axis] = {}  # axes are shared by many tensors, and stay so

    def tensor(given: Tensor) -> Tensor:
        return msgspec.structs.replace(
            given,
            name=names.setdefault(given.name, f"t{len(names)}"),
            role=given.role if given.role in _ROLES else "weight",
            axes=tuple(shared.setdefault(id(axis), _axis(axis)) for axis in given.axes),
        )

    layers = tuple(
        Layer(
            f"l{number}",
            layer.kind if layer.kind in KINDS or layer.kind in OPERATIONS else OPAQUE,
            tuple(Edge(edge.source, tuple(map(_step, edge.via))) for edge in layer.inputs),
            tuple(map(tensor, layer.tensors)),
            _attributes(layer.attributes),
        )
        for number, layer in enumerate(graph.layers)
    )
    return Graph(ANY, layers, tuple(map(_space, graph.spaces)))


def coarse_query(query: Query, privacy: str) -> Query:
    """What is said of the parents that would do; names of models are of this zoo, and say nothing there."""
    asked = Query(minimum_similarity=query.minimum_similarity)
    if privacy == COARSE:
        return asked
    words = {name: getattr(query, name) for name in ("data", "fold", "task", "tags")}
    return msgspec.structs.replace(asked, **words)


def travelling(graph: Graph, privacy: str) -> Graph:
    """The graph that goes to an upstream."""
    return graph if privacy == FULL else coarse_graph(graph)


def _attributes(given: dict[str, Attribute]) -> dict[str, Attribute]:
    return {
        key: value
        for key, value in given.items()
        if key in _ATTRIBUTES and key != THROUGH and not (isinstance(value, str) and not _known(value))
    }


def _axis(axis: Axis) -> Axis:
    return Axis(axis.role, _expression(axis.of), axis.degrees)


def _expression(of: Expression) -> Expression:
    match of:
        case Atom():
            return of
        case Fixed(size, origin):
            return Fixed(size, origin if origin in ORIGINS or origin in ORIGINS.values() else "")
        case Product(parts):
            return Product(tuple(map(_expression, parts)))  # type: ignore[arg-type]
        case Concat(parts):
            return Concat(tuple(map(_expression, parts)))  # type: ignore[arg-type]


def _space(space: Space) -> Space:
    codes = dict.fromkeys(pin.code if pin.code in REASONS else "other" for pin in space.pins)
    return Space(space.size, tuple(map(Pin, codes)), space.averaged)


@lru_cache(maxsize=4096)
def _step(text: str) -> str:
    return text if _known(text) else OPAQUE


def _known(text: str) -> bool:
    """Is every word of a text one of the vocabulary's, or a number?"""
    words = re.findall(r"\w+", text)
    return "…" not in text and all(
        word in OPERATIONS or word in KINDS or word in _WORDS or _NUMBER.fullmatch(word) for word in words
    )
