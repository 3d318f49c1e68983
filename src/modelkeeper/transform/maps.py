"""How is one axis of the child gathered from one axis of the parent?

`Maps.judge` says what happens on an axis and whether it is exact; `Maps.gather` gives the indices and
factors to do it. Both take two expressions apart in the same way: atom against atom is a unit map, products
and concatenations are built from those of their parts, and forms that do not correspond are mapped unit by
unit as a whole, which is never exact.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Graph, Product, Tensor, leaves
from modelkeeper.graph.vocabulary import ORIGINS
from modelkeeper.transform import scores, units
from modelkeeper.transform.fill import MEANS, Fill, Fills
from modelkeeper.transform.pairing import Partners, pieces
from modelkeeper.transform.positions import Matrix, resampling, square
from modelkeeper.transform.units import MEAN, NOTHING, Index, Shares, UnitMap

Importance = Callable[[int], Shares]  # of each unit of a parent's space


@dataclass(frozen=True)
class Verdict:
    """What happens to the units of an axis."""

    action: str  # copied, widened, narrowed, resized
    exact: bool
    why: str = ""


COPIED = Verdict("copied", True)


class Maps:
    """The unit maps between two graphs, each made once."""

    def __init__(self, parent: Graph, child: Graph, partners: Partners, fills: Fills, seed: int) -> None:
        self._parent, self._child, self._partners, self._seed = parent, child, partners, seed
        self._fills = fills
        self._spaces: dict[tuple[int, int], UnitMap] = {}

    def anew(self) -> "Maps":
        """The same, with no unit map made yet: for another importance."""
        return Maps(self._parent, self._child, self._partners, self._fills, self._seed)

    # -- judging --------------------------------------------------------------------------------

    def judge(self, ours: Axis, theirs: Axis) -> Verdict:
        """The worst that happens on any part of an axis."""
        verdicts = [self._judge(mine, other) for mine, other in self._partners.parts(ours.of, theirs.of)]
        changed = [verdict for verdict in verdicts if verdict.action != "copied"]
        if len({verdict.action for verdict in changed}) > 1:
            first = next((verdict for verdict in changed if not verdict.exact), changed[0])
            changed = [Verdict("resized", first.exact, first.why)]
        whole = next((v for v in verdicts if not v.exact), None)
        if not changed:
            return whole or COPIED
        return Verdict(changed[0].action, whole is None, whole.why if whole else changed[0].why)

    def _judge(self, ours: Expression, theirs: Expression | None) -> Verdict:
        match ours, theirs:
            case Atom(space, size), Atom(other, parents):
                return self._judge_space(space, size, other, parents)
            case Fixed(size, origin), Fixed(parents):
                if size == parents:
                    return COPIED
                return Verdict(
                    _action(size, parents),
                    False,
                    f"{ORIGINS.get(origin, origin) or 'fixed'} size {parents} became {size}",
                )
            case _, None:
                return Verdict("widened", True, "a part that the parent does not have is not read")
            case _:
                assert theirs is not None
                action = _action(ours.size, theirs.size)
                return Verdict(action, False, f"{ours} is made up differently from the parent's {theirs}")

    def _judge_space(self, space: int, size: int, other: int, parents: int) -> Verdict:
        ours, theirs = self._child.spaces[space], self._parent.spaces[other]
        if self._partners.of(space) != other or not self._partners.certain(space):
            return Verdict(_action(size, parents), False, "the space meets several of the parent's")
        if size == parents:
            return COPIED
        if size < parents:
            return Verdict("narrowed", False, f"{parents} units became {size}")
        pins = (*ours.pins, *theirs.pins)
        if self._growth(space, other) is not None:
            return Verdict("widened", True, f"queries and keys are compared by {size} units, not {parents}")
        if pins:
            return Verdict("widened", False, f"{parents} units became {size}, but: {pins[0]}")
        if (ours.averaged or theirs.averaged) and size % parents:
            fill = self._fill(space, other)
            doubt = fill.doubt if fill else "a statistic is taken over them"
            if fill and not doubt:
                return Verdict("widened", True, f"{parents} units became {size}, filled with {fill.new}")
            return Verdict("widened", False, f"{parents} units became {size}, no multiple, but: {doubt}")
        return Verdict("widened", True, f"{parents} units became {size}")

    # -- gathering ------------------------------------------------------------------------------

    def gather(self, ours: Axis, theirs: Axis, importance: Importance) -> tuple[Index, Shares]:
        """For each unit of a child's axis the parent's unit on that axis, and the factor it takes."""
        return self._gather(ours.of, theirs.of, dict(ours.degrees), ours.role, importance)

    def identical(self, ours: Expression, theirs: Expression) -> bool:
        """Is every unit of an axis the parent's unit in the same place? (Found out without making a map.)"""
        if ours.size != theirs.size:
            return False
        match ours, theirs:
            case Product(mine), Product(others) if len(mine) == len(others):
                return all(map(self.identical, mine, others))
            case Concat(mine), Concat() | Atom() | Product():
                there = pieces(theirs)
                places = self._partners.concatenated(mine, there)
                return places == [*range(len(there))] and all(map(self.identical, mine, there))
        return True  # whatever else there is, it changes only with its size

    def resampled(self, tensor: Tensor, ours: Axis, theirs: Axis) -> Matrix | None:
        """How more or fewer positions follow from the old ones; None for an axis that has none."""
        bare = (
            tensor.role not in ("weight", "gain") and len(tensor.axes) > 1 and ours.role in ("out", "other")
        )
        if not bare or ours.size == theirs.size or 0 in (ours.size, theirs.size):
            return None
        match ours.of, theirs.of:
            case Fixed(size), Fixed(parents):
                return resampling(parents, size)
            case Atom(space, size), Atom(other, parents):
                pins = (*self._child.spaces[space].pins, *self._parent.spaces[other].pins)
                offsets = any(pin.code == "picked" for pin in pins)  # a table of them, on a grid
                if offsets and ours.role == "other" and square(size) and square(parents):
                    return resampling(parents, size)
        return None

    def _gather(
        self,
        ours: Expression,
        theirs: Expression | None,
        degrees: dict[int, int],
        role: str,
        importance: Importance,
    ) -> tuple[Index, Shares]:
        match ours, theirs:
            case _, None:
                return np.full(ours.size, NOTHING), np.ones(ours.size)
            case Atom(space), Atom(other):
                found = self.space(space, other, importance)
                degree = degrees.get(space, 0)
                if not degree:
                    return found.source, np.ones(len(found.source)) if found.made is None else found.made
                return found.source if found.read is None else found.read, found.share**degree
            case Fixed(size, origin), Fixed(parents):
                found = _fixed(origin, role, parents, size)
                return found.source, found.share if role == "in" else np.ones(size)
            case Product(mine), Product(others) if len(mine) == len(others):
                index, factor = np.zeros(1, np.int64), np.ones(1)
                for a, b in zip(mine, others, strict=True):
                    inner, share = self._gather(a, b, degrees, role, importance)
                    both = index[:, None] * b.size + inner
                    nothing = (index[:, None] < 0) | (inner < 0)
                    index = np.where(nothing, NOTHING, both).reshape(-1)
                    factor = (factor[:, None] * share).reshape(-1)
                return index, factor
            case Concat(mine), Concat() | Atom() | Product():
                return self._concat(mine, theirs, degrees, role, importance)
            case _:
                assert theirs is not None
                found = self._whole(ours, theirs)
                return found.source, found.share if role == "in" else np.ones(ours.size)

    def _concat(
        self,
        mine: tuple[Atom | Fixed | Product, ...],
        theirs: Expression,
        degrees: dict[int, int],
        role: str,
        importance: Importance,
    ) -> tuple[Index, Shares]:
        others = pieces(theirs)
        starts = np.cumsum([0, *(other.size for other in others)])
        indices, factors = [], []
        for part, number in zip(mine, self._partners.concatenated(mine, others), strict=True):
            found = others[number] if number is not None else None
            index, factor = self._gather(part, found, degrees, role, importance)
            indices.append(
                np.where(index < 0, NOTHING, index + (starts[number] if number is not None else 0))
            )
            factors.append(factor)
        return np.concatenate(indices), np.concatenate(factors)

    def dropping(self, ours: Axis, theirs: Axis, importance: Importance) -> Iterator[tuple[int, Index]]:
        """The parent's spaces that an axis reads and that lose units, with the units that are kept."""
        for space, other in self._partners.atoms(ours.of, theirs.of):
            child, parent = self._child.spaces[space], self._parent.spaces[other]
            if (
                dict(theirs.degrees).get(other, 0)
                and child.size < parent.size
                and not child.pinned_by("rows")
            ):
                yield other, self.space(space, other, importance).source

    def partner(self, space: int) -> int | None:
        """The parent's space for a child's space."""
        return self._partners.of(space)

    def space(self, space: int, other: int, importance: Importance) -> UnitMap:
        """The unit map of two spaces."""
        known = self._spaces.get((space, other))
        if known is None:
            known = self._spaces[space, other] = self._make(space, other, importance)
        return known

    def _make(self, space: int, other: int, importance: Importance) -> UnitMap:
        ours, theirs = self._child.spaces[space], self._parent.spaces[other]
        if ours.size == theirs.size:
            return units.identity(ours.size)
        if ours.pinned_by("rows"):
            return units.rows(theirs.size, ours.size)
        if ours.size < theirs.size:
            return units.narrow(importance(other), ours.size)
        growth = self._growth(space, other)
        if growth is not None:
            return units.compare(theirs.size, ours.size, (self._seed, space, other), growth)
        if ours.pins:
            return units.padded(theirs.size, ours.size)
        fill = self._fill(space, other)
        if fill is not None:
            seed = (self._seed, space, other)
            return units.fill(theirs.size, ours.size, seed, mean=fill.new == MEANS)
        evenly = ours.averaged or theirs.averaged
        return units.widen(theirs.size, ours.size, (self._seed, space, other), evenly=evenly)

    def scale(self, tensor: Tensor) -> float:
        """What all of a child's tensor is multiplied by, for the sake of units that fill a space."""
        power = 1.0
        for axis, space, other, fill in self._filled(tensor):
            parents, size = self._parent.spaces[other].size, self._child.spaces[space].size
            exponent = fill.exponent(tensor, dict(axis.degrees).get(space, 0))
            power *= math.sqrt(size // parents * parents / size) ** exponent
        return power

    def unread(self, tensor: Tensor) -> bool:
        """Are the numbers of new units in this tensor of no account at first?"""
        return any(tensor.name in fill.unread for *_, fill in self._filled(tensor))

    def _filled(self, tensor: Tensor) -> Iterator[tuple[Axis, int, int, Fill]]:
        for axis in tensor.axes:
            for space in {leaf.space for leaf in leaves(axis.of) if isinstance(leaf, Atom)}:
                other = self._partners.of(space)
                fill = None if other is None else self._fill(space, other)
                if other is not None and fill is not None:
                    yield axis, space, other, fill

    def _growth(self, space: int, other: int) -> float | None:
        """What the squares of copies sum to, where queries are compared with keys by them; else None."""
        size, parents = self._child.spaces[space].size, self._parent.spaces[other].size
        if size <= parents or scores.growth(self._parent, other, parents) is None:
            return None
        return scores.growth(self._child, space, parents)

    def _fill(self, space: int, other: int) -> Fill | None:
        """How a space is filled that grows to no multiple under a statistic; None: it is not."""
        ours, theirs = self._child.spaces[space], self._parent.spaces[other]
        grows = ours.size > theirs.size > 0 and ours.size % theirs.size
        if not grows or ours.pins or not (ours.averaged or theirs.averaged):
            return None
        return self._fills.of(space)

    def _whole(self, ours: Expression, theirs: Expression) -> UnitMap:
        if ours.size == theirs.size:
            return units.identity(ours.size)
        if ours.size < theirs.size:
            return units.nearest(theirs.size, ours.size)
        return units.widen(theirs.size, ours.size, (self._seed, ours.size, theirs.size))


def _fixed(origin: str, role: str, parents: int, size: int) -> UnitMap:
    if size == parents:
        return units.identity(size)
    if role == "kernel":
        return units.centred(parents, size)
    if role == "in" and origin == "input":
        return units.cyclic(parents, size)
    return units.nearest(parents, size)


def _action(size: int, parents: int) -> str:
    return "copied" if size == parents else "widened" if size > parents else "narrowed"


__all__ = ["MEAN", "NOTHING", "Importance", "Maps", "Verdict"]
