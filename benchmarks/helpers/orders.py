"""How are the units of an axis shuffled or copied, when those of its spaces are?"""

from typing import Any

import numpy as np

from modelkeeper.graph import Atom, Concat, Expression, Fixed, Graph, Product
from modelkeeper.weights import Array

Order = np.ndarray[Any, np.dtype[np.int64]]


def order_of(expression: Expression, orders: dict[int, Order]) -> Order:
    """How the units of an axis are shuffled when those of its spaces are."""
    match expression:
        case Atom(space):
            return orders[space]
        case Fixed(size):
            return np.arange(size)
        case Product(factors):
            result = np.zeros(1, np.int64)
            for factor in factors:
                result = (result[:, None] * factor.size + order_of(factor, orders)[None, :]).reshape(-1)
            return result
        case Concat(parts):
            offset, pieces = 0, []
            for part in parts:
                pieces.append(order_of(part, orders) + offset)
                offset += part.size
            return np.concatenate(pieces)


def shuffled(graph: Graph, weights: dict[str, Array], seed: int = 0) -> dict[str, Array]:
    """The weights with the units of every free space shuffled, in the same way on all its axes."""
    rng = np.random.default_rng(seed)
    orders = {
        n: rng.permutation(space.size) if space.free else np.arange(space.size)
        for n, space in enumerate(graph.spaces)
    }
    changed = {}
    for name, array in weights.items():
        for axis, each in enumerate(graph.tensors[name].axes):
            array = np.take(array, order_of(each.of, orders), axis)
        changed[name] = array.copy()
    return changed
