"""How is one axis of the child gathered from one axis of the parent?

`Maps.judge` says what happens on an axis and whether it is exact; `Maps.gather` gives the indices and
factors to do it. Both take two expressions apart in the same way: atom against atom is a unit map, products
and concatenations are built from those of their parts, and forms that do not correspond are mapped unit by
unit as a whole, which is never exact.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Graph, Product, Tensor, leaves
from modelkeeper.graph.vocabulary import ORIGINS, THROUGH, WEIGHT_NORM
from modelkeeper.transform import scores, units
from modelkeeper.transform.fill import MEANS, Fill, Fills
from modelkeeper.transform.pairing import Partners, pieces
from modelkeeper.transform.positions import Matrix, resampling, square
from modelkeeper.transform.units import MEAN, NOTHING, Index, Shares, UnitMap

Importance = Callable[[int], Shares]  # of each unit of a parent's space


@dataclass(frozen=True)
class Verdict:
    """What happens to the units of an axis, and whether that is exact."""

    action: str  # copied, widened, narrowed, resized
    exact: bool
    why: str = ""


COPIED = Verdict("copied", True)


class Maps:
    """The unit maps between two graphs, each made once."""

    def __init__(
        self,
        parent: Graph,
        child: Graph,
        partners: Partners,
        fills: Fills,
        seed: int,
        whole: Mapping[int, Product],  # the child's spaces that are products of the parent's: see `spread`
    ) -> None:
        self._parent, self._child, self._partners, self._seed = parent, child, partners, seed
        self._fills, self._products = fills, whole
        self._spaces: dict[tuple[int, int], UnitMap] = {}
        self._judged: dict[tuple[int, int], Verdict] = {}  # by the spaces of the child and the parent
        self._directions: set[tuple[str, Expression]] | None = None

    def anew(self) -> "Maps":
        """The maps of the same two graphs, with no unit map made yet: for another importance."""
        return Maps(self._parent, self._child, self._partners, self._fills, self._seed, self._products)

    # -- judging --------------------------------------------------------------------------------

    def judge(self, child_axis: Axis, parent_axis: Axis) -> Verdict:
        """Judge what happens on an axis: the action of all its parts together; exact if each of them is."""
        if isinstance(child_axis.of, Atom | Fixed):  # its own only part, as most are
            return self._judge(child_axis.of, parent_axis.of)
        verdicts = [
            self._judge(child_part, parent_part)
            for child_part, parent_part in self._partners.parts(child_axis.of, parent_axis.of)
        ]
        changed = [verdict for verdict in verdicts if verdict.action != "copied"]
        doubt = next((verdict for verdict in verdicts if not verdict.exact), None)
        if not changed:
            return doubt or COPIED
        one = len({verdict.action for verdict in changed}) == 1
        return Verdict(changed[0].action if one else "resized", doubt is None, (doubt or changed[0]).why)

    def _judge(self, child_expression: Expression, parent_expression: Expression | None) -> Verdict:
        """Judge one part of an axis: atoms, fixed sizes, or forms that do not correspond."""
        match child_expression, parent_expression:
            case Atom(child_space, child_size), Atom(parent_space, parent_size):
                key = child_space, parent_space
                if key not in self._judged:
                    self._judged[key] = self._judge_space(child_space, child_size, parent_space, parent_size)
                return self._judged[key]
            case Fixed(child_size, origin), Fixed(parent_size):
                if child_size == parent_size:
                    return COPIED
                why = f"{ORIGINS.get(origin, origin) or 'fixed'} size {parent_size} became {child_size}"
                return Verdict(_action(child_size, parent_size), False, why)
            case _, None:
                return Verdict("widened", True, "a part that the parent does not have is not read")
            case Atom(child_space), Product() if self._products.get(child_space) == parent_expression:
                return self._judge_product(child_space, parent_expression)
            case _:
                assert parent_expression is not None
                action = _action(child_expression.size, parent_expression.size)
                why = f"{child_expression} is made up differently from the parent's {parent_expression}"
                return Verdict(action, False, why)

    def _judge_space(self, child_space: int, child_size: int, parent_space: int, parent_size: int) -> Verdict:
        """Judge what happens to the units of a child's space that takes from a parent's space."""
        child, parent = self._child.spaces[child_space], self._parent.spaces[parent_space]
        if self._partners.of(child_space) != parent_space or not self._partners.certain(child_space):
            return Verdict(_action(child_size, parent_size), False, "the space meets several of the parent's")
        if child_size == parent_size:
            return COPIED
        change = f"{parent_size} units became {child_size}"
        if child_size < parent_size:
            return Verdict("narrowed", False, change)
        pins = (*child.pins, *parent.pins)
        if self._growth(child_space, parent_space) is not None:
            why = f"queries and keys are compared by {child_size} units, not {parent_size}"
            return Verdict("widened", True, why)
        if pins:
            return Verdict("widened", False, f"{change}, but: {pins[0]}")
        if (child.averaged or parent.averaged) and not (parent_size and child_size % parent_size == 0):
            fill = self._fill(child_space, parent_space)
            doubt = fill.doubt if fill else "a statistic is taken over them"
            if fill and not doubt:
                return Verdict("widened", True, f"{change}, filled with {fill.new}")
            return Verdict("widened", False, f"{change}, no multiple, but: {doubt}")
        return Verdict("widened", True, change)

    def _judge_product(self, child_space: int, product: Product) -> Verdict:
        """Judge what happens to the units of a product of the parent that are one space in the child."""
        space = self._child.spaces[child_space]
        if space.size == product.size:
            return COPIED
        action, change = _action(space.size, product.size), f"{product.size} units became {space.size}"
        return Verdict(action, action == "widened" and not space.pins and not space.averaged, change)

    # -- gathering ------------------------------------------------------------------------------

    def gather(self, child_axis: Axis, parent_axis: Axis, importance: Importance) -> tuple[Index, Shares]:
        """For each unit of a child's axis the parent's unit on that axis, and the factor it takes."""
        degrees = dict(child_axis.degrees)
        return self._gather(child_axis.of, parent_axis.of, degrees, child_axis.role, importance)

    def identical(self, child_expression: Expression, parent_expression: Expression) -> bool:
        """Is every unit of an axis the parent's unit in the same place? (Answered without making a map.)"""
        if child_expression.size != parent_expression.size:
            return False
        match child_expression, parent_expression:
            case Product(child_factors), Product(parent_factors) if len(child_factors) == len(parent_factors):
                return all(map(self.identical, child_factors, parent_factors))
            case Concat(child_parts), Concat() | Atom() | Product():
                parent_parts = pieces(parent_expression)
                in_place = self._partners.concatenated(child_parts, parent_parts) == [
                    *range(len(parent_parts))
                ]
                return in_place and all(map(self.identical, child_parts, parent_parts))
        return True  # whatever else there is, it changes only with its size

    def resampled(self, tensor: Tensor, child_axis: Axis, parent_axis: Axis) -> Matrix | None:
        """The matrix that resamples learned positions along an axis; None for an axis that has none."""
        may_hold_positions = (
            tensor.role not in ("weight", "gain")
            and len(tensor.axes) > 1
            and child_axis.role in ("out", "other")
        )
        sizes = child_axis.size, parent_axis.size
        if not may_hold_positions or sizes[0] == sizes[1] or 0 in sizes:
            return None
        match child_axis.of, parent_axis.of:
            case Fixed(child_size), Fixed(parent_size):
                return resampling(parent_size, child_size)
            case Atom(child_space, child_size), Atom(parent_space, parent_size):
                pins = (*self._child.spaces[child_space].pins, *self._parent.spaces[parent_space].pins)
                offsets = any(pin.code == "picked" for pin in pins)  # a table of them, on a grid
                if offsets and child_axis.role == "other" and square(child_size) and square(parent_size):
                    return resampling(parent_size, child_size)
        return None

    def _gather(
        self,
        child_expression: Expression,
        parent_expression: Expression | None,
        degrees: dict[int, int],
        role: str,
        importance: Importance,
    ) -> tuple[Index, Shares]:
        """The indices and factors of one part of an axis, built from those of its own parts."""
        match child_expression, parent_expression:
            case _, None:
                return np.full(child_expression.size, NOTHING), np.ones(child_expression.size)
            case Atom(child_space), Atom(parent_space):
                unit_map = self.space(child_space, parent_space, importance)
                degree = degrees.get(child_space, 0)
                if degree:
                    index = unit_map.source if unit_map.read is None else unit_map.read
                    return index, unit_map.share**degree
                factor = np.ones(len(unit_map.source)) if unit_map.made is None else unit_map.made
                return unit_map.source, factor
            case Fixed(child_size, origin), Fixed(parent_size):
                unit_map = _fixed(origin, role, parent_size, child_size)
                return unit_map.source, unit_map.share if role == "in" else np.ones(child_size)
            case Product(child_factors), Product(parent_factors) if len(child_factors) == len(parent_factors):
                index, factor = np.zeros(1, np.int64), np.ones(1)
                for child_factor, parent_factor in zip(child_factors, parent_factors, strict=True):
                    inner, share = self._gather(child_factor, parent_factor, degrees, role, importance)
                    combined = index[:, None] * parent_factor.size + inner
                    nothing = (index[:, None] < 0) | (inner < 0)
                    index = np.where(nothing, NOTHING, combined).reshape(-1)
                    factor = (factor[:, None] * share).reshape(-1)
                return index, factor
            case Concat(child_parts), Concat() | Atom() | Product():
                return self._concat(child_parts, parent_expression, degrees, role, importance)
            case Atom(child_space), Product() if self._products.get(child_space) == parent_expression:
                unit_map = self._whole(child_expression, parent_expression)
                return unit_map.source, unit_map.share ** degrees.get(child_space, 0)
            case _:
                assert parent_expression is not None
                unit_map = self._whole(child_expression, parent_expression)
                return unit_map.source, unit_map.share if role == "in" else np.ones(child_expression.size)

    def _concat(
        self,
        child_parts: tuple[Atom | Fixed | Product, ...],
        parent_expression: Expression,
        degrees: dict[int, int],
        role: str,
        importance: Importance,
    ) -> tuple[Index, Shares]:
        """The indices and factors of a concatenation: those of its parts, end to end."""
        parent_parts = pieces(parent_expression)
        starts = np.cumsum([0, *(piece.size for piece in parent_parts)])
        indices, factors = [], []
        numbers = self._partners.concatenated(child_parts, parent_parts)
        for child_part, number in zip(child_parts, numbers, strict=True):
            parent_part = parent_parts[number] if number is not None else None
            start = starts[number] if number is not None else 0
            index, factor = self._gather(child_part, parent_part, degrees, role, importance)
            indices.append(np.where(index < 0, NOTHING, index + start))
            factors.append(factor)
        return np.concatenate(indices), np.concatenate(factors)

    def dropping(
        self, child_axis: Axis, parent_axis: Axis, importance: Importance
    ) -> Iterator[tuple[int, Index]]:
        """The parent's spaces that an axis reads and that lose units, with the units that are kept."""
        for child_space, parent_space in self._partners.atoms(child_axis.of, parent_axis.of):
            child, parent = self._child.spaces[child_space], self._parent.spaces[parent_space]
            if (
                dict(parent_axis.degrees).get(parent_space, 0)
                and child.size < parent.size
                and not child.pinned_by("rows")
            ):
                yield parent_space, self.space(child_space, parent_space, importance).source

    def partner(self, child_space: int) -> int | None:
        """The parent's space for a child's space."""
        return self._partners.of(child_space)

    def needs(self, *, inherited: bool = True) -> dict[int, int]:
        """How many units the parent has for each of the child's spaces.

        `inherited`: also for those that only new layers know, which may do with fewer if nobody reads them.
        """
        partner = self._partners.of if inherited else self._partners.voted
        found = {space: partner(space) for space in range(len(self._child.spaces))}
        return {
            space: self._parent.spaces[theirs].size for space, theirs in found.items() if theirs is not None
        }

    def space(self, child_space: int, parent_space: int, importance: Importance) -> UnitMap:
        """The unit map of two spaces."""
        unit_map = self._spaces.get((child_space, parent_space))
        if unit_map is None:
            unit_map = self._make(child_space, parent_space, importance)
            self._spaces[child_space, parent_space] = unit_map
        return unit_map

    def _make(self, child_space: int, parent_space: int, importance: Importance) -> UnitMap:
        """Make the unit map of two spaces: which rule applies depends on sizes, pins and statistics."""
        child, parent = self._child.spaces[child_space], self._parent.spaces[parent_space]
        if child.size == parent.size:
            return units.identity(child.size)
        if child.pinned_by("rows"):
            return units.rows(parent.size, child.size)
        if child.size < parent.size:
            return units.narrow(importance(parent_space), child.size)
        growth = self._growth(child_space, parent_space)
        if growth is not None:
            return units.compare(parent.size, child.size, (self._seed, child_space, parent_space), growth)
        if child.pins:
            return units.padded(parent.size, child.size)
        fill = self._fill(child_space, parent_space)
        if fill is not None:
            seed = (self._seed, child_space, parent_space)
            return units.fill(parent.size, child.size, seed, mean=fill.new == MEANS)
        evenly = child.averaged or parent.averaged
        return units.widen(parent.size, child.size, (self._seed, child_space, parent_space), evenly=evenly)

    def scale(self, tensor: Tensor) -> float:
        """What all of a child's tensor is multiplied by, for the sake of units that fill a space."""
        factor = 1.0
        for axis, child_space, parent_space, fill in self._filled(tensor):
            parent_size = self._parent.spaces[parent_space].size
            child_size = self._child.spaces[child_space].size
            exponent = fill.exponent(tensor, dict(axis.degrees).get(child_space, 0))
            factor *= math.sqrt(child_size // parent_size * parent_size / child_size) ** exponent
        return factor

    def unread(self, tensor: Tensor) -> bool:
        """Are the numbers of new units in this tensor of no account at first?"""
        return any(tensor.name in fill.unread for *_, fill in self._filled(tensor))

    def never_zero(self, tensor: Tensor, axis: Axis) -> bool:
        """Is each unit of an axis divided by its length, so that a zero would become NaN?

        So it is with the directions of a weight norm. Their lengths are another tensor, which may be zero.
        """
        if self._directions is None:
            self._directions = {
                (weight.name, length.of)
                for layer in self._child.layers
                if WEIGHT_NORM in str(layer.attributes.get(THROUGH, ""))
                for weight in layer.tensors
                for factor in layer.tensors
                if (weight.role, factor.role) == ("weight", "factor")
                for length in factor.axes
                if length.size > 1
            }
        return (tensor.name, axis.of) in self._directions

    def _filled(self, tensor: Tensor) -> Iterator[tuple[Axis, int, int, Fill]]:
        """The filled spaces of a child's tensor, as (its axis, the child's space, the parent's, the fill)."""
        for axis in tensor.axes:
            for child_space in {leaf.space for leaf in leaves(axis.of) if isinstance(leaf, Atom)}:
                parent_space = self._partners.of(child_space)
                fill = None if parent_space is None else self._fill(child_space, parent_space)
                if parent_space is not None and fill is not None:
                    yield axis, child_space, parent_space, fill

    def _growth(self, child_space: int, parent_space: int) -> float | None:
        """What the squares of copies sum to, where queries are compared with keys by them; else None."""
        child_size, parent_size = self._child.spaces[child_space].size, self._parent.spaces[parent_space].size
        if child_size <= parent_size or scores.growth(self._parent, parent_space, parent_size) is None:
            return None
        return scores.growth(self._child, child_space, parent_size)

    def _fill(self, child_space: int, parent_space: int) -> Fill | None:
        """How a space is filled that grows to no multiple under a statistic; None: it is not."""
        child, parent = self._child.spaces[child_space], self._parent.spaces[parent_space]
        grows = child.size > parent.size > 0 and child.size % parent.size
        if not grows or child.pins or not (child.averaged or parent.averaged):
            return None
        return self._fills.of(child_space)

    def _whole(self, child_expression: Expression, parent_expression: Expression) -> UnitMap:
        """The unit map of two forms that do not correspond: unit by unit, as a whole."""
        if child_expression.size == parent_expression.size:
            return units.identity(child_expression.size)
        if child_expression.size < parent_expression.size:
            return units.nearest(parent_expression.size, child_expression.size)
        return units.widen(
            parent_expression.size,
            child_expression.size,
            (self._seed, child_expression.size, parent_expression.size),
        )


def _fixed(origin: str, role: str, parent_size: int, child_size: int) -> UnitMap:
    """The unit map of an axis whose size is fixed: a kernel, channels of the input, positions."""
    if child_size == parent_size:
        return units.identity(child_size)
    if role == "kernel":
        return units.centred(parent_size, child_size)
    if role == "in" and origin == "input":
        return units.cyclic(parent_size, child_size)
    return units.nearest(parent_size, child_size)


def _action(child_size: int, parent_size: int) -> str:
    """What happens to an axis by its sizes alone: copied, widened or narrowed."""
    return "copied" if child_size == parent_size else "widened" if child_size > parent_size else "narrowed"


__all__ = ["MEAN", "NOTHING", "Importance", "Maps", "Verdict"]
