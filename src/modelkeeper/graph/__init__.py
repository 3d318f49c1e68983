"""Graph: a model without its weights. See `structure` for what it holds, `wire` for its bytes."""

from modelkeeper.graph.expressions import Atom, Concat, Expression, Fixed, Product, Space, leaves
from modelkeeper.graph.structure import Axis, Edge, Graph, Layer, Note, Tensor, consumers, walk
from modelkeeper.graph.vocabulary import Pin
from modelkeeper.graph.wire import from_json, to_json

__all__ = [
    "Atom",
    "Axis",
    "Concat",
    "Edge",
    "Expression",
    "Fixed",
    "Graph",
    "Layer",
    "Note",
    "Pin",
    "Product",
    "Space",
    "Tensor",
    "consumers",
    "from_json",
    "leaves",
    "to_json",
    "walk",
]
