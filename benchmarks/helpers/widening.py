"""How does a model look with every free space wider? Units are copied, and what reads them shares.

For each space of a graph: how many units it gets, which old unit each of them copies, and by which share it
stands for it. The shares of the copies of a unit are unequal and sum to one. A tensor then follows without
another thought: it is gathered along each of its axes, and multiplied by share ** degree for each space on
them, as the graph's `degrees` say. If spaces and degrees are right, the wider model computes the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.helpers.orders import Order, order_of
from modelkeeper.graph import Atom, Axis, Concat, Expression, Fixed, Graph, Product, Space

Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Units:
    """The units of a wider space: which old unit each one copies, and its share of it."""

    source: Order
    share: Numbers


def choose(graph: Graph, factor: float, seed: int = 0) -> list[Units]:
    """New units for every space: at least its old ones, in random order, with random shares."""
    rng = np.random.default_rng(seed)
    return [copies(space.size, new_size(space, factor), rng) for space in graph.spaces]


def new_size(space: Space, factor: float) -> int:
    """What the laws allow: any size for a free space, whole multiples where a statistic is taken."""
    if not space.free:
        return space.size
    return space.size * int(factor) if space.averaged else max(space.size, round(space.size * factor))


def copies(old: int, new: int, rng: np.random.Generator) -> Units:
    """Units that copy `old` ones, each as often as the others, give or take one."""
    if new == old:
        return Units(np.arange(old), np.ones(old))
    whole, rest = divmod(new, old)
    source = np.concatenate([*[np.arange(old)] * whole, rng.permutation(old)[:rest]])
    rng.shuffle(source)
    weight = rng.uniform(0.25, 1.0, new)
    return Units(source, weight / np.bincount(source, weight, old)[source])


def widen(graph: Graph, units: Sequence[Units], weights: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """The weights of the wider model. Those that the graph does not know or never uses stay as they are."""
    spaces = {n: each.source for n, each in enumerate(units)}
    wide = {}
    for name, array in weights.items():
        tensor = graph.tensors.get(name)
        for n, axis in enumerate(tensor.axes if tensor is not None and tensor.live else ()):
            array = np.take(array, order_of(axis.of, spaces), n)
            if axis.degrees:
                array = array * shares(axis, units).reshape([-1 if n == m else 1 for m in range(array.ndim)])
        wide[name] = array
    return wide


def shares(axis: Axis, units: Sequence[Units]) -> Numbers:
    """What each unit of a wider axis is multiplied by."""
    degrees = dict(axis.degrees)

    def share(expression: Expression) -> Numbers:
        match expression:
            case Atom(space):
                return units[space].share ** degrees.get(space, 0)
            case Fixed(size):
                return np.ones(size)
            case Product(factors):
                result = np.ones(1)
                for factor in factors:
                    result = (result[:, None] * share(factor)[None, :]).reshape(-1)
                return result
            case Concat(parts):
                return np.concatenate([share(part) for part in parts])

    return share(axis.of)
