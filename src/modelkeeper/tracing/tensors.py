"""How does a tensor of the model look in the graph? Its axes, their roles, spaces and degrees.

Spaces are numbered as they are first met, so that the same model always gives the same graph.
"""

from collections.abc import Sequence
from typing import Any

from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Product, Space, Tensor
from modelkeeper.graph.vocabulary import OPAQUE, Pin
from modelkeeper.tracing import terms
from modelkeeper.tracing.terms import Solver, Term
from modelkeeper.tracing.trace import OwnedTensor, Value

Degrees = dict[tuple[int, int], dict[int, int]]  # (value, axis) -> degree of each atom

MOST_PINS = 4  # reasons that are kept for each space, those of opaque operations first


class Tensors:
    """Writes the tensors of one model, and collects its spaces."""

    def __init__(self, solver: Solver, degrees: Degrees) -> None:
        self.spaces: list[Space] = []
        self._solver = solver
        self._degrees = degrees
        self.numbers: dict[int, int] = {}  # atom -> space
        self._expressions: dict[int, Expression] = {}
        self._axes: dict[Axis, Axis] = {}

    def tensor(
        self, value: Value, role: str, roles: Sequence[str], direct: bool = True, used: Value | None = None
    ) -> Tensor:
        assert value.owner is not None
        if not direct and used is not None and value.shape != used.shape:
            role = "factor"
        axes = []
        for n, axis in enumerate(value.axes):
            expression = self._expression(axis)
            degrees = self._degrees.get((value.number, n), {})
            pairs = sorted(
                (self._space(atom), degrees[atom.number])
                for atom in self._solver.atoms(axis)
                if degrees.get(atom.number)
            )
            made = Axis(roles[n] if n < len(roles) else "other", expression, tuple(dict.fromkeys(pairs)))
            axes.append(self._axes.setdefault(made, made))
        return write_tensor(value.owner, role, tuple(axes))

    def _expression(self, term: Term) -> Expression:
        term = self._solver.resolve(term)
        known = self._expressions.get(term.number)
        if known is None:
            known = self._expressions[term.number] = self._express(term)
        return known

    def _express(self, term: Term) -> Expression:
        parts: Any
        match term.kind:
            case terms.ATOM:
                return Atom(self._space(term), term.size)
            case terms.FIXED:
                return Fixed(term.size, term.origin)
            case terms.PRODUCT:
                parts = tuple(self._expression(part) for part in term.parts)
                return Product(parts)
            case _:
                parts = tuple(self._expression(part) for part in term.parts)
                return Concat(parts)

    def _space(self, atom: Term) -> int:
        number = self.numbers.get(atom.number)
        if number is None:
            number = self.numbers[atom.number] = len(self.spaces)
            self.spaces.append(Space(atom.size, _pins(atom), atom.averaged))
        return number


def _pins(atom: Term) -> tuple[Pin, ...]:
    chosen = sorted(atom.pins, key=lambda pin: pin.code not in OPAQUE)[:MOST_PINS]
    return tuple(Pin(pin.code, pin.where[:300], pin.detail[:300]) for pin in chosen)


def write_tensor(owned: OwnedTensor, role: str, axes: tuple[Axis, ...], live: bool = True) -> Tensor:
    """A tensor with the axes it has been given."""
    return Tensor(
        name=owned.names[0],
        role=role,
        dtype=owned.dtype,
        axes=axes,
        trainable=owned.trainable,
        buffer=not owned.parameter,
        live=live,
        stored=owned.stored,
    )


def carry_roles(tensor: Value, used: Value, roles: Sequence[str]) -> list[str]:
    """The axis roles of a tensor, from those of the operand it was turned into.

    Moving axes hands terms on as they are, so an axis is found again by identity. A tensor that was
    computed with keeps its axes in place.
    """
    by_term = {id(term): role for term, role in zip(used.axes, roles, strict=False) if term.size != 1}
    placed = list(roles) if len(tensor.axes) == len(used.axes) else ["other"] * len(tensor.axes)
    return [
        by_term.get(id(term), placed[n] if n < len(placed) else "other") for n, term in enumerate(tensor.axes)
    ]
