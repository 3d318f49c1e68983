"""What an axis is made of: spaces, and the expressions over them.

A space is a set of tensor axes that must change width together. An axis is not always one whole
space: after a flatten it is channels x 49, after a concatenation it is two spaces end to end.

    Atom(space)      one space                          a conv's outputs
    Product(...)     spaces interleaved, first slowest  heads x head_dim, channels x pixels
    Concat(...)      spaces end to end                  what a dense block feeds on
    Fixed(size)      no space: its width means nothing  a kernel's height, an image's channels

Everything here is a frozen value. Expressions are kept in one normal form, so that equal axes are
equal values: no product directly inside a product, no concatenation directly inside a
concatenation, no composite of fewer than two parts.
"""

import math
from collections.abc import Iterator

from msgspec import Struct

from modelkeeper.graph.vocabulary import Pin


class Space(Struct, frozen=True):
    """A set of axes that must change width together.

    `pins` says why its width cannot change freely (empty: it can). A pin is soft: the axis still
    has units that a parent can lend, but widening by copies is then not exact. `averaged` is set
    where a statistic is taken over the units (layer norm, a mean): copies are exact only in equal
    numbers, and spaces that one statistic is taken over together need the same number. `free` is
    the plain case.
    """

    size: int
    pins: tuple[Pin, ...] = ()
    averaged: bool = False

    @property
    def free(self) -> bool:
        return not self.pins

    def pinned_by(self, code: str) -> bool:
        """Is this one of the reasons why its width is not free?"""
        return any(pin.code == code for pin in self.pins)


class Atom(Struct, frozen=True):
    """One whole space, by its number in `graph.spaces`."""

    space: int
    size: int

    def __str__(self) -> str:
        return f"s{self.space}"


class Fixed(Struct, frozen=True):
    """An axis without units to lend: `origin` says what fixed it (`vocabulary.ORIGINS`)."""

    size: int
    origin: str

    def __str__(self) -> str:
        return str(self.size)


class Product(Struct, frozen=True):
    """Factors interleaved, the first changing slowest, as a reshape lays them out."""

    factors: tuple["Atom | Fixed | Concat", ...]

    @property
    def size(self) -> int:
        return math.prod(factor.size for factor in self.factors)

    def __str__(self) -> str:
        return "x".join(f"({f})" if isinstance(f, Concat) else str(f) for f in self.factors)


class Concat(Struct, frozen=True):
    """Parts end to end, as a concatenation lays them out."""

    parts: tuple[Atom | Fixed | Product, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def __str__(self) -> str:
        return "+".join(str(part) for part in self.parts)


Expression = Atom | Fixed | Product | Concat


def leaves(expression: Expression) -> Iterator[Atom | Fixed]:
    """The atoms and fixed parts of an expression, from left to right."""
    match expression:
        case Product(factors):
            for factor in factors:
                yield from leaves(factor)
        case Concat(parts):
            for part in parts:
                yield from leaves(part)
        case leaf:
            yield leaf
