"""How does Keras see a value of the trace?

Keras has channels last, the trace has them first. Instead of moving axes back and forth, each symbolic
tensor is known as a way to look at a value of the trace:

    view(permute(view(value, split), order), shape)

Nothing is written down until somebody needs the numbers in Keras' order: a whole network with channels last
becomes one with channels first, without a permutation on its edges. A variable that nobody has used yet is
`Held`: the first operation to use it decides in which layout the graph has it.
"""

from dataclasses import dataclass
from typing import Any

from modelkeeper.tracing.trace import Value


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A value of the trace, as Keras sees it."""

    value: Value
    shape: tuple[int, ...]  # in Keras
    order: tuple[int, ...]  # which axis of `split` each axis is, before the last view
    split: tuple[int, ...]  # the shape in which the value's axes are moved

    @staticmethod
    def plain(value: Value) -> "Seen":
        """Just as it is."""
        return Seen(value, value.shape, tuple(range(len(value.shape))), value.shape)

    @staticmethod
    def moved(value: Value, order: "tuple[int, ...] | list[int] | range") -> "Seen":
        """With other axes first: Keras' axis n is the value's axis order[n]."""
        return Seen(value, tuple(value.shape[n] for n in order), tuple(order), value.shape)

    def through(self, value: Value) -> "Seen":
        """Another value, of the same shape as this one, seen in the same way."""
        assert value.shape == self.value.shape, (value, self.value)
        return Seen(value, self.shape, self.order, self.split)

    @property
    def only_moved(self) -> bool:
        """Are only axes moved? Then axis n is the value's axis order[n]."""
        return self.split == self.value.shape and self.shape == tuple(self.split[n] for n in self.order)

    @property
    def in_order(self) -> bool:
        """Are no axes moved?"""
        return self.order == tuple(range(len(self.order)))

    @property
    def flattened(self) -> bool:
        """Is its last axis made of several, which the value has in another order?"""
        flat = len(self.shape) == 2 and self.value.shape == self.shape and len(self.split) > 2
        return flat and self.order[0] == 0 and self.split[0] == self.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A variable that has not been used yet, in a shape that differs by axes of one unit at most."""

    variable: Any
    shape: tuple[int, ...]


def channels_first(rank: int) -> list[int]:
    """Keras' axis of each axis of the trace, for so many places and channels last."""
    return [0, rank + 1, *range(1, rank + 1)]


def inverse(order: "tuple[int, ...] | list[int]") -> tuple[int, ...]:
    """The order that undoes an order."""
    back = [0] * len(order)
    for n, axis in enumerate(order):
        back[axis] = n
    return tuple(back)
