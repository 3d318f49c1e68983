"""Is what we believe of a model's spaces true? Permute the units of every free space and look.

A space is a set of axes that must change together. If that is right, then shuffling the units of a free
space in the same way on all its axes changes nothing that the model computes. If one axis were missing,
or one too many, the outputs would differ.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from modelkeeper.frontends.torch import load, read
from modelkeeper.graph import Atom, Concat, Expression, Fixed, Graph, Product

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


def permute(model: nn.Module, graph: Graph, seed: int = 0) -> int:
    """Shuffle every free space of a model in place. Returns how many spaces that were."""
    rng = np.random.default_rng(seed)
    orders = {
        n: rng.permutation(space.size) if space.free else np.arange(space.size)
        for n, space in enumerate(graph.spaces)
    }
    weights = {}
    for name, array in read(model):
        tensor = graph.tensors[name]
        for axis, each in enumerate(tensor.axes):
            array = np.take(array, order_of(each.of, orders), axis)
        weights[name] = array.copy()
    load(model, weights)
    return sum(space.free for space in graph.spaces)


def randomise(model: nn.Module, seed: int = 0) -> None:
    """Numbers that make every unit matter: statistics, gains and biases that differ from unit to unit."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if not tensor.is_floating_point() or tensor.dim() != 1:
                continue
            noise = torch.rand(tensor.shape, generator=generator).to(tensor.dtype)
            if name.endswith(("running_var", "weight")):
                tensor.copy_(0.5 + noise)
            elif name.endswith(("running_mean", "bias")):
                tensor.copy_(0.2 * (noise - 0.5))


def difference(before: torch.Tensor, after: torch.Tensor) -> float:
    """The largest change, relative to how much the outputs vary."""
    scale = (before - before.mean()).abs().max().item() or 1.0
    return (before - after).abs().max().item() / scale
