"""The PyTorch front end: a module becomes a Graph, weights come out of it and go into it.

    graph = describe(model)                    one pass on shapes: nothing is computed
    for name, array in read(model): ...        views of the weights, not copies
    load(model, {name: array})                 in place, all or nothing
    difference(model, other)                   do they compute the same?
    recalibrate(model, batches)                statistics of batch norms, from data

Names are those of the user's own code, whatever wraps the model; tied tensors go by their first name.
"""

from modelkeeper.frontends.torch.behaviour import difference, recalibrate
from modelkeeper.frontends.torch.describe import MODEL, describe, example
from modelkeeper.frontends.torch.weights import load, read

__all__ = ["MODEL", "describe", "difference", "example", "load", "read", "recalibrate"]
