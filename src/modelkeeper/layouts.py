"""In which order does a model store its tensors, and how do they become those of its graph?

A framework has an order of its own: kernels as (height, width, in, out), dense ones as (in, out), heads
apart, gates in another sequence. The graph has one order for all frameworks. A `Layout` says how the one
becomes the other:

    canonical = take(stored.reshape(first), regroup).transpose(order).reshape(last)

It is plain data and knows no framework. Whoever makes weights for a model can write them where they will
stand in its memory, and hand them over as `Laid`: nobody has to move them again.

    Layout.moved((3, 3, 16, 32), (3, 2, 0, 1)).canonical(kernel).shape     (32, 16, 3, 3)
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelkeeper.weights import Array


@dataclass(frozen=True, slots=True)
class Layout:
    """The way from a stored array to the tensor of the graph. `stored(canonical(a))` is `a`."""

    first: tuple[int, ...]  # the stored array is seen in this shape,
    order: tuple[int, ...]  # its axes are put in this order,
    last: tuple[int, ...]  # and the result has this shape: the one in the graph
    regroup: tuple[int, tuple[int, ...]] | None = None  # before: an axis of `first`, and its parts in order

    def __post_init__(self) -> None:
        assert sorted(self.order) == list(range(len(self.first))), self
        assert math.prod(self.first) == math.prod(self.last), self
        assert self.regroup is None or sorted(self.regroup[1]) == list(range(self.first[self.regroup[0]]))

    @staticmethod
    def plain(shape: Iterable[int]) -> "Layout":
        """The layout of a tensor that the graph has just as it is stored."""
        shape = tuple(shape)
        return Layout(shape, tuple(range(len(shape))), shape)

    @staticmethod
    def moved(shape: Iterable[int], order: Iterable[int]) -> "Layout":
        """The layout of a tensor whose axes the graph has in another order."""
        shape, order = tuple(shape), tuple(order)
        return Layout(shape, order, tuple(shape[n] for n in order))

    @property
    def is_plain(self) -> bool:
        """Does the memory hold the numbers in the order of the graph?"""
        wide = [n for n in self.order if self.first[n] != 1]
        return self.regroup is None and wide == sorted(wide)

    def canonical(self, stored: Array) -> Array:
        """The tensor of the graph; a view of the stored array where that is possible."""
        array = stored.reshape(self.first)
        if self.regroup is not None:
            array = np.take(array, self.regroup[1], self.regroup[0])
        return array.transpose(self.order).reshape(self.last)

    def stored(self, canonical: Array, shape: Sequence[int]) -> Array:
        """The array to store in this shape; a view of the tensor of the graph where that is possible."""
        array = canonical.reshape([self.first[n] for n in self.order]).transpose(np.argsort(self.order))
        if self.regroup is not None:
            array = np.take(array, np.argsort(self.regroup[1]), self.regroup[0])
        return array.reshape(tuple(shape))

    def offsets(self) -> list[Array]:
        """For each axis of the graph's tensor, where its units lie in stored memory, in elements.

        The number at (i, j, ...) of the tensor is at offsets[0][i] + offsets[1][j] + ... of what is stored.
        """
        strides = [math.prod(self.first[n + 1 :]) for n in range(len(self.first))]
        steps = [np.arange(size) * stride for size, stride in zip(self.first, strides, strict=True)]
        if self.regroup is not None:
            axis, parts = self.regroup
            steps[axis] = steps[axis][list(parts)]
        moved = [steps[n] for n in self.order]
        offsets: list[Array] = []
        for size in self.last:
            units: Array = np.zeros(1, np.int64)
            while len(units) < size:  # several axes became one
                units = (units[:, None] + moved.pop(0)).reshape(-1)
            assert len(units) == size, self  # an axis that is split in two has no offsets of its own
            offsets.append(units)
        while moved and len(moved[0]) == 1:
            moved.pop(0)
        assert not moved, self
        return offsets

    def in_memory(self) -> list[tuple[int, Array]] | None:
        """The axes of the graph's tensor, from the slowest in stored memory to the fastest.

        Each with its units in the order in which they lie there. None: the parts of an axis lie apart.
        """
        offsets = self.offsets()
        units = [np.argsort(places, kind="stable") for places in offsets]
        steps = [
            int(np.diff(places[order]).min(initial=math.prod(self.first)))
            for places, order in zip(offsets, units, strict=True)
        ]
        axes = sorted(range(len(self.last)), key=lambda axis: -steps[axis])
        behind = 1
        for axis in reversed(axes):
            if len(units[axis]) > 1:
                if (np.diff(offsets[axis][units[axis]]) != behind).any():
                    return None
                behind *= len(units[axis])
        return [(axis, units[axis]) for axis in axes]


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A tensor of the graph whose numbers stand in memory as a model stores them."""

    array: Array  # in the shape of `layout.first`; nobody else has its memory
    layout: Layout

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The tensor of the graph, for who does not look at layouts."""
        return np.array(self.layout.canonical(self.array), dtype, copy=copy)
