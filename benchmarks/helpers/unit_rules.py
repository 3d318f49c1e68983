"""Which units would a simple rule keep? The first ones, or those with the largest weights."""

from typing import Any

import numpy as np

from modelkeeper.graph import Atom, Graph
from modelkeeper.transform.units import Shares

Weights = dict[str, np.ndarray[Any, np.dtype[Any]]]


def prefix(graph: Graph, weights: Weights, space: int) -> Shares:
    """The first units matter most."""
    return -np.arange(graph.spaces[space].size, dtype=np.float64)


def group_l1(graph: Graph, weights: Weights, space: int) -> Shares:
    """The absolute weights of each unit, summed over all tensors of the space."""
    found = np.zeros(graph.spaces[space].size)
    for name, tensor in graph.tensors.items():
        for number, axis in enumerate(tensor.axes):
            if isinstance(axis.of, Atom) and axis.of.space == space and not tensor.buffer:
                found += np.abs(np.moveaxis(weights[name], number, 0).reshape(len(found), -1)).sum(1)
    return found
