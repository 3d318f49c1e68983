"""May queries and keys be compared by more units than before?

Attention multiplies a query with a key unit by unit, sums, and divides by the root of the number of units.
When a unit is copied in both, its products must still sum to what they were, and the sum be larger by as much
as it is now divided by more: with shares that sum to one, each copy of a unit is made, in both, by

    f,   f² = share · √(units now / units before)

times what it was; without the root if the model scales by a number of its own. Both sides take the same
factor, so it does not matter which of them a tensor makes, and no unit is left at zero, where it would stay.

That is exact where nothing but moving axes happens between the layers that make queries and keys and where
they meet: not with rotary positions or norms of queries and keys, which know how many units there are.
"""

import math

from modelkeeper.graph import Atom, Axis, Concat, Edge, Expression, Graph, consumers, leaves
from modelkeeper.graph.vocabulary import ATTENTION, PROJECTIONS, read_step


def growth(graph: Graph, space: int, parent_size: int) -> float | None:
    """What the squared factors of a unit's copies must sum to; None if its copies cannot be exact."""
    size, pins = graph.spaces[space].size, graph.spaces[space].pins
    if not pins or not all(pin.code == "attention_scale" for pin in pins):
        return None
    readers, sums = consumers(graph), set()
    for number, layer in enumerate(graph.layers):
        axes = [
            axis for tensor in layer.tensors if tensor.live for axis in tensor.axes if _holds(axis.of, space)
        ]
        if not axes:
            continue
        if {axis.role for axis in axes} != {"out"} or layer.kind not in PROJECTIONS:
            return None
        if layer.attributes.get("groups", 1) != 1:
            return None
        for reader in readers[number]:
            meeting = graph.layers[reader]
            for place, edge in enumerate(meeting.inputs):
                if edge.source == number and not _compares(meeting.kind, place, edge, axes[0], space):
                    return None
            sums.add(1.0 if "scale" in meeting.attributes else math.sqrt(size / parent_size))
    return sums.pop() if len(sums) == 1 else None


def _compares(kind: str, place: int, edge: Edge, axis: Axis, space: int) -> bool:
    """Does what arrives over an edge become queries or keys, as it was made? Or is it something else?"""
    if kind != ATTENTION or not all(read_step(step).has("places") for step in edge.via):
        return False
    return place < 2 or not _holds(_part(axis.of, edge), space)


def _part(expression: Expression, edge: Edge) -> Expression:
    """The part of several, end to end, that an edge takes; all of them if that is not known."""
    for step in edge.via:
        part = read_step(step).part
        if part and isinstance(expression, Concat) and len(expression.parts) == part[1]:
            return expression.parts[part[0] - 1]
    return expression


def _holds(expression: Expression, space: int) -> bool:
    """Is a space among the atoms of an expression?"""
    return any(isinstance(leaf, Atom) and leaf.space == space for leaf in leaves(expression))
