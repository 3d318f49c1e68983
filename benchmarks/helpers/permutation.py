"""Is what we believe of a model's spaces true? Permute the units of every free space and look.

A space is a set of axes that must change together. If that is right, then shuffling the units of a free
space in the same way on all its axes changes nothing that the model computes. If one axis were missing,
or one too many, the outputs would differ.
"""

import torch
from torch import nn

from benchmarks.helpers.orders import shuffled
from modelkeeper.frontends.torch import load, read
from modelkeeper.graph import Graph


def permute(model: nn.Module, graph: Graph, seed: int = 0) -> int:
    """Shuffle every free space of a model in place. Returns how many spaces that were."""
    load(model, shuffled(graph, dict(read(model)), seed))
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
