"""What if a convolution of the parent has groups, or is depthwise, and the child's mixes all channels?

A grouped convolution is a dense one whose kernel is zero between groups: its groups stand on the diagonal. So
the parent's weight is spread out before it is gathered, and the child computes the same, exactly:

    parent   (groups x out, in, *kernel)
    spread   (groups x out, groups x in, *kernel)      zero where the groups differ

What is a product of two spaces in the parent (groups x in) may then be one space of the child. Such a space
takes the product's units as a whole, which is exact if it meets that product wherever it is.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from modelkeeper.graph import Atom, Axis, Expression, Graph, Layer, Product, Tensor, walk
from modelkeeper.graph.vocabulary import CONV
from modelkeeper.transform.merge import by_role
from modelkeeper.transform.pairing import TensorPair, pair_axes, spaces_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Spread:
    """A grouped weight of the parent that becomes a dense one."""

    weight: Tensor
    groups: int
    why: str = "its groups stand on the diagonal of a dense convolution"

    def apply(self, tensor: Tensor, source: Callable[[Tensor], Array]) -> Array:
        """Compute the dense weight."""
        roles = [axis.role for axis in self.weight.axes]
        return _spread(source(self.weight), self.groups, roles.index("out"), roles.index("in"))


@dataclass
class Spreads:
    """All convolutions of the child that have no groups where the parent's have."""

    of: dict[str, Spread] = field(default_factory=dict)  # by the parent's tensor
    pairs: dict[str, TensorPair] = field(default_factory=dict)  # by the child's tensor
    whole: dict[int, Product] = field(
        default_factory=dict
    )  # a child's space that is a product of the parent's


def find_spreads(
    parent: Graph, child: Graph, partner: Mapping[int, int], pairs: Mapping[str, TensorPair]
) -> Spreads:
    """Find grouped convolutions that become dense, given which tensor each of the child takes from."""
    spreads = Spreads()
    lent = Counter(pair.parent.name for pair in pairs.values())
    for child_number, parent_number in partner.items():
        parent_layer, child_layer = parent.layers[parent_number], child.layers[child_number]
        groups = _groups(parent_layer)
        if groups < 2 or _groups(child_layer) != 1:
            continue
        weight, child_weight = by_role(parent_layer, "weight"), by_role(child_layer, "weight")
        if weight is None or child_weight is None or lent[weight.name] != 1:
            continue
        pair = pairs.get(child_weight.name)
        dense = _dense(weight, groups)
        axes = None if dense is None else pair_axes(dense, child_weight)
        if pair is not None and pair.parent is weight and dense is not None and axes is not None:
            spreads.of[weight.name] = Spread(weight, groups)
            spreads.pairs[child_weight.name] = TensorPair(child_weight, dense, axes)
    spreads.whole = _whole(child, {**pairs, **spreads.pairs}, spreads.pairs.values())
    return spreads


def _groups(layer: Layer) -> int:
    """How many groups a convolution has; 0 for other layers."""
    groups = layer.attributes.get("groups", 1)
    return groups if layer.kind == CONV and isinstance(groups, int) else 0


def _dense(weight: Tensor, groups: int) -> Tensor | None:
    """A grouped weight as it is once it is spread; None if its groups are not the first of its outputs."""
    out = next(axis.of for axis in weight.axes if axis.role == "out")
    factors = out.factors if isinstance(out, Product) else (out,)
    lead = next((factors[:n] for n in range(1, len(factors) + 1) if _size(factors[:n]) == groups), None)
    if lead is None:
        return None
    axes = (
        msgspec.structs.replace(axis, of=_times(lead, axis.of)) if axis.role == "in" else axis
        for axis in weight.axes
    )
    return msgspec.structs.replace(weight, axes=tuple(axes))


def _size(factors: Iterable[Expression]) -> int:
    return math.prod(factor.size for factor in factors)


def _times(lead: tuple[Any, ...], inputs: Expression) -> Expression:
    """So many groups of so many inputs; where each group has one, just the groups."""
    if inputs.size > 1:
        lead = (*lead, *(inputs.factors if isinstance(inputs, Product) else (inputs,)))
    return lead[0] if len(lead) == 1 else Product(lead)


def _whole(child: Graph, pairs: Mapping[str, TensorPair], spread: Iterable[TensorPair]) -> dict[int, Product]:
    """The child's spaces that are, wherever they are, one and the same product of the parent's."""
    found = {
        ours.of.space: theirs.of
        for pair in spread
        for ours, theirs in pair.axis_pairs()
        if isinstance(ours.of, Atom) and isinstance(theirs.of, Product)
    }
    for _, tensor, axis in walk(child) if found else ():
        for space in found.keys() & set(spaces_of(axis.of)):
            met = _met(pairs.get(tensor.name), axis) if isinstance(axis.of, Atom) else None
            if met != found[space]:
                del found[space]
    return found


def _met(pair: TensorPair | None, axis: Axis) -> Expression | None:
    """What an axis of the child takes from."""
    return next((theirs.of for ours, theirs in pair.axis_pairs() if ours is axis), None) if pair else None


def _spread(array: Array, groups: int, out: int, into: int) -> Array:
    """A grouped weight as a dense one: axes `out` and `into` are those of its units."""
    moved = np.moveaxis(array, (out, into), (0, 1))
    each, inputs = moved.shape[0] // groups, moved.shape[1]
    dense = np.zeros((groups, each, groups, inputs, *moved.shape[2:]), array.dtype)
    diagonal = np.arange(groups)
    dense[diagonal, :, diagonal] = moved.reshape(groups, each, inputs, *moved.shape[2:])
    return np.moveaxis(dense.reshape(groups * each, groups * inputs, *moved.shape[2:]), (0, 1), (out, into))
