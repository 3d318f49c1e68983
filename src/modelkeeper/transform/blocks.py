"""Which units of a child belong to which of several parents that lie in it side by side?

    blocks = find_blocks(child, wishes, needs)      from how many units each parent has for each space
    blocks.narrower(0)                              the child as the first parent alone would fill it
    blocks.places(axis.of, 0)                       where the units of that narrower axis are on the child's

A space is shared out where there is room: its first units are the first parent's, the next ones the second's,
and what is left over widens them. Other spaces are common: all parents use all of their units. So it is with
outputs, rows of a vocabulary, the channels of pictures, and, of several spaces that make up one axis together
(groups x units of a group), with all but the first that can be shared out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modelkeeper.graph import Atom, Concat, Expression, Graph, Product, leaves
from modelkeeper.graph.resize import with_sizes
from modelkeeper.transform.units import Index

Needs = Mapping[int, int]  # by space of the child: how many units a parent has for it


@dataclass(frozen=True, eq=False)
class Blocks:
    """For each space that is shared out, how many units each parent gets, in order."""

    child: Graph
    sizes: dict[int, tuple[int, ...]]  # by space

    def shares_out(self, expression: Expression) -> bool:
        """Is any space of an expression shared out?"""
        return any(isinstance(leaf, Atom) and leaf.space in self.sizes for leaf in leaves(expression))

    def parts(self, expression: Expression) -> bool:
        """Has every unit of an axis one parent that it belongs to?"""
        match expression:
            case Atom(space):
                return space in self.sizes
            case Product(factors):
                return any(map(self.parts, factors))
            case Concat(parts):
                return all(map(self.parts, parts))
        return False

    def places(self, expression: Expression, parent: int) -> Index:
        """Where the units of one parent are on an axis of the child, in order."""
        match expression:
            case Atom(space) if space in self.sizes:
                start = sum(self.sizes[space][:parent])
                return np.arange(start, start + self.sizes[space][parent])
            case Product(factors):
                found = np.zeros(1, np.int64)
                for factor in factors:
                    found = (found[:, None] * factor.size + self.places(factor, parent)).reshape(-1)
                return found
            case Concat(parts):
                starts = np.cumsum([0, *(part.size for part in parts)])
                return np.concatenate(
                    [start + self.places(part, parent) for start, part in zip(starts, parts, strict=False)]
                )
        return np.arange(expression.size)

    def narrower(self, parent: int) -> Graph:
        """The child with only those units that one parent gets."""
        return with_sizes(self.child, {space: sizes[parent] for space, sizes in self.sizes.items()})


def find_blocks(
    child: Graph, wishes: Sequence[Needs], needs: Sequence[Needs], *, parts: bool = False
) -> Blocks | None:
    """Share out the spaces of a child among parents; None if there is no room for all of them anywhere.

    Args:
        child: The graph in which they are to lie.
        wishes: How many units each of them has, by the child's spaces; one that is not there has no partner.
        needs: The same without what it can do without.
        parts: Where not all units of all parents have room, may the later ones bring a part of theirs?
    """
    sizes: dict[int, tuple[int, ...]] = {}
    for number, space in enumerate(child.spaces):
        if space.pins:
            continue
        shares = _shared([wish.get(number) for wish in wishes], space.size)
        if shares is None:
            shares = _shared([need.get(number) for need in needs], space.size, parts)
        if shares is not None:
            sizes[number] = shares
    for tensor in child.tensors.values():  # of a product one factor is enough, and no unit is then nobody's
        for axis in tensor.axes:
            for product in _products(axis.of):
                first, *others = [
                    spaces for spaces in map(_spaces, product.factors) if spaces & sizes.keys()
                ] or [set[int]()]
                for further in set[int]().union(*others) - first:
                    sizes.pop(further, None)
    return Blocks(child, sizes) if sizes else None


def _shared(needs: list[int | None], size: int, parts: bool = False) -> tuple[int, ...] | None:
    """How many of so many units each parent gets: what it needs, and its share of the rest; None: no room.

    Who has no partner for the space needs some units all the same: as many as the others, if they are there.
    """
    known = [need for need in needs if need]
    unknown = len(needs) - len(known)
    spare = max(1, min((size - sum(known)) // max(1, unknown), max(known, default=size)))
    wanted = [need or spare for need in needs]
    if parts and sum(wanted) > size:
        for position in range(1, len(wanted)):
            wanted[position] = min(
                wanted[position], size - sum(wanted[:position]) - len(wanted[position + 1 :])
            )
    rest = size - sum(wanted)
    if rest < 0 or min(wanted) < 1:
        return None
    shares = [want + rest * want // sum(wanted) for want in wanted]
    return (shares[0] + size - sum(shares), *shares[1:])


def _spaces(expression: Expression) -> set[int]:
    """The spaces of an expression."""
    return {leaf.space for leaf in leaves(expression) if isinstance(leaf, Atom)}


def _products(expression: Expression) -> list[Product]:
    """All products within an expression."""
    match expression:
        case Product(factors):
            return [expression, *(found for factor in factors for found in _products(factor))]
        case Concat(parts):
            return [found for part in parts for found in _products(part)]
    return []
