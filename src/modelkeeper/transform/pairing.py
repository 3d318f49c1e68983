"""Which space of the child takes from which space of the parent?

Where an alignment pairs two layers, it pairs their tensors (by role) and so their axes: the expressions of
two paired axes say which atoms belong together. A child's space usually meets the same parent's space
everywhere; where it meets several, the one that most parameters speak for is its partner, and nothing on
that space is exact.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Layer, Product, Tensor, leaves
from modelkeeper.graph.vocabulary import PARAMETER
from modelkeeper.patience import go_on

Pairs = Sequence[tuple[int, int]]  # aligned layers: number in the parent, number in the child


@dataclass(frozen=True)
class TensorPair:
    """A tensor of the child, the parent's tensor for it, and which parent's axis each child's axis meets."""

    child: Tensor
    parent: Tensor
    axes: tuple[int | None, ...]  # None: an axis of size one that the parent does not have

    def axis_pairs(self) -> Iterator[tuple[Axis, Axis]]:
        """The axes of the child's tensor that have one in the parent's, each with that one."""
        for child_axis, number in zip(self.child.axes, self.axes, strict=True):
            if number is not None:
                yield child_axis, self.parent.axes[number]

    def parent_axes(self) -> Iterator[int]:
        """The numbers of the parent's axes, in the order of `axis_pairs`."""
        return (number for number in self.axes if number is not None)


def pair_tensors(parent: Layer, child: Layer) -> dict[str, TensorPair]:
    """Pair the tensors of two aligned layers, by the child's names: same role, axes that correspond.

    A bare parameter has its own name as its role, which frameworks may not keep: if it is the only tensor of
    both layers, it is paired whatever it is called.
    """
    bare = parent.kind == child.kind == PARAMETER and len(parent.tensors) == len(child.tensors) == 1
    tensor_pairs: dict[str, TensorPair] = {}
    waiting = [tensor for tensor in parent.tensors if tensor.stored]
    for child_tensor in child.tensors:
        go_on()
        for parent_tensor in waiting:
            used = parent_tensor.live and child_tensor.live
            if (bare or parent_tensor.role == child_tensor.role) and (
                used or parent_tensor.shape == child_tensor.shape
            ):
                axes = pair_axes(parent_tensor, child_tensor)
                if axes is not None:
                    tensor_pairs[child_tensor.name] = TensorPair(child_tensor, parent_tensor, axes)
                    waiting.remove(parent_tensor)
                    break
    return tensor_pairs


def pair_axes(parent: Tensor, child: Tensor) -> tuple[int | None, ...] | None:
    """Pair each axis of the child's tensor with the parent's axis of the same role; None if they differ.

    Kernels of size one may be missing on one side: a 1x1 convolution is a linear layer.
    """
    if [axis.role for axis in parent.axes] == [axis.role for axis in child.axes]:
        return tuple(range(len(child.axes)))
    waiting = list(range(len(parent.axes)))
    axes: list[int | None] = []
    for child_axis in child.axes:
        number = next((n for n in waiting if parent.axes[n].role == child_axis.role), None)
        if number is None and not _may_be_missing(child_axis):
            return None
        if number is not None:
            waiting.remove(number)
        axes.append(number)
    return tuple(axes) if all(_may_be_missing(parent.axes[n]) for n in waiting) else None


def _may_be_missing(axis: Axis) -> bool:
    """Is it a kernel of size one, which the other tensor of a pair need not have?"""
    return axis.role == "kernel" and axis.size == 1


class Partners:
    """For each space of the child, the parent's space that it takes its units from."""

    def __init__(self, tensor_pairs: Mapping[str, TensorPair]) -> None:
        self._votes: dict[int, dict[int, int]] = {}
        self._inherited: dict[int, int] = {}
        reading: list[tuple[Expression, Expression, int]] = []
        # Who makes a unit says what it is; readers of concatenations follow.
        for pair in tensor_pairs.values():
            weight = max(1, pair.child.size)
            for child_axis, parent_axis in pair.axis_pairs():
                if child_axis.role == "in":
                    reading.append((child_axis.of, parent_axis.of, weight))
                else:
                    self._vote(child_axis.of, parent_axis.of, weight)
        for each in reading:
            self._vote(*each)

    def _vote(self, child_expression: Expression, parent_expression: Expression, weight: int) -> None:
        for child_space, parent_space in self.atoms(child_expression, parent_expression):
            votes = self._votes.setdefault(child_space, {})
            votes[parent_space] = votes.get(parent_space, 0) + weight

    def of(self, child_space: int) -> int | None:
        """The parent's space for a child's space, or None."""
        votes = self._votes.get(child_space)
        if not votes:
            return self._inherited.get(child_space)
        if len(votes) == 1:
            return next(iter(votes))
        return min(votes, key=lambda parent_space: (-votes[parent_space], parent_space))

    def voted(self, child_space: int) -> int | None:
        """The parent's space that aligned layers speak for; None if there is none, or it was inherited."""
        return self.of(child_space) if self._votes.get(child_space) else None

    def certain(self, child_space: int) -> bool:
        """Does this space meet one and the same parent's space everywhere?"""
        return len(self._votes.get(child_space, ())) <= 1

    def inherit(self, child_space: int, parent_space: int) -> None:
        """Set the partner of a child's space that no aligned layer knows, unless it has one already."""
        self._inherited.setdefault(child_space, parent_space)

    def atoms(self, child_expression: Expression, parent_expression: Expression) -> Iterator[tuple[int, int]]:
        """The spaces of two expressions that stand in the same place, as (child's, parent's)."""
        for child_part, parent_part in self.parts(child_expression, parent_expression):
            if isinstance(child_part, Atom) and isinstance(parent_part, Atom):
                yield child_part.space, parent_part.space

    def parts(
        self, child_expression: Expression, parent_expression: Expression | None
    ) -> Iterator[tuple[Expression, Expression | None]]:
        """Take two expressions apart into pairs of parts, as long as they have the same form."""
        if isinstance(child_expression, Atom | Fixed):  # most are
            yield child_expression, parent_expression
            return
        match child_expression, parent_expression:
            case Product(child_factors), Product(parent_factors) if len(child_factors) == len(parent_factors):
                for child_factor, parent_factor in zip(child_factors, parent_factors, strict=True):
                    yield from self.parts(child_factor, parent_factor)
            case Concat(child_parts), Concat() | Atom() | Product():
                parent_parts = pieces(parent_expression)
                for child_part, number in zip(
                    child_parts, self.concatenated(child_parts, parent_parts), strict=True
                ):
                    yield from self.parts(child_part, parent_parts[number] if number is not None else None)
            case _:
                yield child_expression, parent_expression

    def concatenated(
        self, child_parts: Sequence[Expression], parent_parts: Sequence[Expression]
    ) -> list[int | None]:
        """For each part of a concatenation the number of the parent's part: its partner, or by place."""
        free = set(range(len(parent_parts)))
        numbers: list[int | None] = []
        for place, child_part in enumerate(child_parts):
            go_on()
            wanted = {self.of(space) for space in spaces_of(child_part)}
            number = next(
                (n for n in sorted(free) if wanted and set(spaces_of(parent_parts[n])) == wanted),
                None,
            )
            if (
                number is None
                and wanted <= {None}
                and len(child_parts) == len(parent_parts)
                and place in free
            ):
                number = place
            free.discard(-1 if number is None else number)
            numbers.append(number)
        return numbers


def pieces(expression: Expression) -> tuple[Expression, ...]:
    """The parts of a concatenation; anything else is its own only part."""
    return expression.parts if isinstance(expression, Concat) else (expression,)


def spaces_of(expression: Expression) -> list[int]:
    """The spaces of the atoms of an expression, in order."""
    return [leaf.space for leaf in leaves(expression) if isinstance(leaf, Atom)]
