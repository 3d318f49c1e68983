"""Which space of the child takes from which space of the parent?

Where an alignment pairs two layers, it pairs their tensors (by role) and so their axes: the expressions of
two paired axes say which atoms belong together. A child's space usually meets the same parent's space
everywhere; where it meets several, the one that most parameters speak for is its partner, and nothing on
that space is exact.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from modelkeeper.graph import Atom, Axis, Concat, Expression, Layer, Product, Tensor, leaves

Pairs = Sequence[tuple[int, int]]  # aligned layers: number in the parent, number in the child


@dataclass(frozen=True)
class TensorPair:
    """A tensor of the child, the parent's tensor for it, and which parent's axis each child's axis meets."""

    child: Tensor
    parent: Tensor
    axes: tuple[int | None, ...]  # None: an axis of size one that the parent does not have

    def expressions(self) -> Iterator[tuple[Axis, Axis]]:
        for axis, number in zip(self.child.axes, self.axes, strict=True):
            if number is not None:
                yield axis, self.parent.axes[number]

    def parents(self) -> Iterator[int]:
        """The numbers of the parent's axes, in the order of `expressions`."""
        return (number for number in self.axes if number is not None)


def pair_tensors(parent: Layer, child: Layer) -> dict[str, TensorPair]:
    """The tensors of two aligned layers, by the child's names: same role, axes that correspond."""
    found: dict[str, TensorPair] = {}
    waiting = [tensor for tensor in parent.tensors if tensor.stored]
    for tensor in child.tensors:
        for candidate in waiting:
            used = candidate.live and tensor.live
            if candidate.role == tensor.role and (used or candidate.shape == tensor.shape):
                axes = pair_axes(candidate, tensor)
                if axes is not None:
                    found[tensor.name] = TensorPair(tensor, candidate, axes)
                    waiting.remove(candidate)
                    break
    return found


def pair_axes(parent: Tensor, child: Tensor) -> tuple[int | None, ...] | None:
    """For each axis of the child's tensor the parent's axis of the same role, in order; None if they differ.

    Kernels of size one may be missing on one side: a 1x1 convolution is a linear layer.
    """
    waiting = list(range(len(parent.axes)))
    axes: list[int | None] = []
    for axis in child.axes:
        number = next((n for n in waiting if parent.axes[n].role == axis.role), None)
        if number is None and not (axis.role == "kernel" and axis.size == 1):
            return None
        if number is not None:
            waiting.remove(number)
        axes.append(number)
    left = [parent.axes[n] for n in waiting]
    return tuple(axes) if all(axis.role == "kernel" and axis.size == 1 for axis in left) else None


class Partners:
    """For each space of the child, the parent's space that it takes its units from."""

    def __init__(self, tensor_pairs: Mapping[str, TensorPair]) -> None:
        self._votes: dict[int, Counter[int]] = {}
        self._inherited: dict[int, int] = {}
        for producing in (True, False):  # who makes a unit says what it is; readers of concatenations follow
            for pair in tensor_pairs.values():
                for ours, theirs in pair.expressions():
                    if (ours.role != "in") == producing:
                        for mine, other in self.atoms(ours.of, theirs.of):
                            self._votes.setdefault(mine, Counter())[other] += max(1, pair.child.size)

    def of(self, space: int) -> int | None:
        """The parent's space for a child's space, or None."""
        votes = self._votes.get(space)
        if not votes:
            return self._inherited.get(space)
        return min(votes, key=lambda other: (-votes[other], other))

    def certain(self, space: int) -> bool:
        """Does this space meet one and the same parent's space everywhere?"""
        return len(self._votes.get(space, ())) <= 1

    def inherit(self, space: int, other: int) -> None:
        """A space that no aligned layer knows takes the partner of the one it continues."""
        self._inherited.setdefault(space, other)

    def atoms(self, ours: Expression, theirs: Expression) -> Iterator[tuple[int, int]]:
        """The atoms of two expressions that stand in the same place."""
        for mine, other in self.parts(ours, theirs):
            if isinstance(mine, Atom) and isinstance(other, Atom):
                yield mine.space, other.space

    def parts(
        self, ours: Expression, theirs: Expression | None
    ) -> Iterator[tuple[Expression, Expression | None]]:
        """Two expressions taken apart as long as they have the same form."""
        match ours, theirs:
            case Product(mine), Product(others) if len(mine) == len(others):
                for a, b in zip(mine, others, strict=True):
                    yield from self.parts(a, b)
            case Concat(parts), Concat() | Atom() | Product():
                there = pieces(theirs)
                for part, number in zip(parts, self.concatenated(parts, there), strict=True):
                    yield from self.parts(part, there[number] if number is not None else None)
            case _:
                yield ours, theirs

    def concatenated(self, mine: Sequence[Expression], others: Sequence[Expression]) -> list[int | None]:
        """For each part of a concatenation the number of the parent's part: its partner, or by place."""
        free = set(range(len(others)))
        found: list[int | None] = []
        for place, part in enumerate(mine):
            wanted = {self.of(space) for space in spaces_of(part)}
            number = next((n for n in sorted(free) if wanted and set(spaces_of(others[n])) == wanted), None)
            if number is None and wanted <= {None} and len(mine) == len(others) and place in free:
                number = place
            free.discard(-1 if number is None else number)
            found.append(number)
        return found


def pieces(expression: Expression) -> tuple[Expression, ...]:
    """The parts of a concatenation; anything else is its own only part."""
    return expression.parts if isinstance(expression, Concat) else (expression,)


def spaces_of(expression: Expression) -> list[int]:
    """The spaces of its atoms, in order."""
    return [leaf.space for leaf in leaves(expression) if isinstance(leaf, Atom)]
