"""What can its neighbours take over from a layer of the parent that the child does not have?

Cheap, and exact in evaluation mode, are batch norms and biases next to a projection:

    the child has no norm behind it    g (Wx + b - m) / σ + c  becomes  (g W / σ) x + (b - m) g / σ + c
    the child has no bias before it    the norm takes it out of its mean: m - b
    the child has a new norm behind    that is the identity, and takes the bias for its own

Everything else that nothing takes is dropped, and the plan says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modelkeeper.graph import Graph, Layer, Tensor, consumers
from modelkeeper.graph.vocabulary import BATCH_NORM, COUNT, NORM_FOLDS
from modelkeeper.transform.pairing import TensorPair

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Merge:
    """A projection of the parent and the batch norm behind it, of which one takes over from the other."""

    projection: Layer
    norm: Layer

    @property
    def why(self) -> str:
        """The merge in words, for the plan."""
        return f"with {self.projection.name} and {self.norm.name} in one"

    def apply(self, tensor: Tensor, source: Callable[[Tensor], Array]) -> Array:
        """Compute a tensor of the projection or the norm, with the other one's part in it."""
        projection_tensors = {t.role: t for t in self.projection.tensors}
        norm = {t.role: source(t).astype(np.float64) for t in self.norm.tensors if t.role != COUNT}
        array = source(tensor)
        bias = source(projection_tensors["bias"]).astype(np.float64) if "bias" in projection_tensors else 0.0
        if tensor.role == "mean":
            return (norm["mean"] - bias).astype(array.dtype)
        factor = norm.get("gain", 1.0) / np.sqrt(norm["variance"] + epsilon_of(self.norm))
        if tensor.role == "bias":
            return ((bias - norm["mean"]) * factor + norm.get("bias", 0.0)).astype(array.dtype)
        out = next(number for number, axis in enumerate(tensor.axes) if axis.role == "out")
        shape = [-1 if number == out else 1 for number in range(array.ndim)]
        return (array * factor.reshape(shape)).astype(array.dtype)


@dataclass
class Merges:
    """All merges between two graphs."""

    of: dict[str, Merge] = field(default_factory=dict)  # by the parent's tensor that changes
    pairs: dict[str, TensorPair] = field(default_factory=dict)  # tensors of the child that take over
    gone: dict[int, int] = field(default_factory=dict)  # a norm of the parent -> the projection it went into
    taken: set[str] = field(default_factory=set)  # tensors of the parent whose part is in another


def find_merges(parent: Graph, child: Graph, partner: Mapping[int, int]) -> Merges:
    """Find merges of norms and biases, given which layer of the parent each layer of the child takes from."""
    merges, lent = Merges(), {parent_number: child_number for child_number, parent_number in partner.items()}
    parent_norms, child_norms = norm_behind(parent), norm_behind(child)
    for parent_number, parent_layer in enumerate(parent.layers):
        child_number = lent.get(parent_number)
        if child_number is None:
            continue
        child_layer = child.layers[child_number]
        if parent_layer.kind not in NORM_FOLDS or child_layer.kind not in NORM_FOLDS:
            continue
        child_bias, parent_bias = by_role(child_layer, "bias"), by_role(parent_layer, "bias")
        parent_norm, child_norm = parent_norms.get(parent_number), child_norms.get(child_number)
        if parent_norm is not None and parent_norm not in lent and child_bias is not None:
            _into_projection(
                merges, parent_number, parent_layer, parent_norm, parent.layers[parent_norm], child_bias
            )
        elif parent_bias is not None and child_bias is None and child_norm is not None:
            if parent_norm is not None and lent.get(parent_norm) == child_norm:
                mean = by_role(parent.layers[parent_norm], "mean")
                if mean is not None:
                    merges.of[mean.name] = Merge(parent_layer, parent.layers[parent_norm])
                    merges.taken.add(parent_bias.name)
            elif parent_norm is None and child_norm not in partner:
                child_norm_bias = by_role(child.layers[child_norm], "bias")
                if child_norm_bias is not None:
                    merges.pairs[child_norm_bias.name] = TensorPair(child_norm_bias, parent_bias, (0,))
    return merges


def _into_projection(
    merges: Merges,
    projection_number: int,
    projection: Layer,
    norm_number: int,
    norm: Layer,
    child_bias: Tensor,
) -> None:
    """Merge a norm of the parent into the projection before it: the child has a bias, but no such norm."""
    weight, parent_bias = by_role(projection, "weight"), by_role(projection, "bias") or by_role(norm, "bias")
    if weight is None or parent_bias is None or by_role(norm, "variance") is None:
        return
    if parent_bias.shape not in [(axis.size,) for axis in weight.axes if axis.role == "out"]:
        return  # a transposed convolution in groups: a column of its weight serves a unit of each
    merges.of[weight.name] = merges.of[parent_bias.name] = Merge(projection, norm)
    merges.pairs[child_bias.name] = TensorPair(child_bias, parent_bias, (0,))
    merges.gone[norm_number] = projection_number
    merges.taken.update(tensor.name for tensor in norm.tensors)


def norm_behind(graph: Graph) -> dict[int, int]:
    """For each layer that a batch norm alone reads, with nothing between: the number of that norm."""
    norms: dict[int, int] = {}
    for number, readers in enumerate(consumers(graph)):
        if len(readers) == 1:
            layer = graph.layers[readers[0]]
            if layer.kind == BATCH_NORM and [(e.source, e.via) for e in layer.inputs] == [(number, ())]:
                norms[number] = readers[0]
    return norms


def epsilon_of(norm: Layer) -> float:
    """What a norm adds to variances."""
    value = norm.attributes.get("eps", 0.0)
    return float(value) if isinstance(value, (int, float)) else 0.0


def by_role(layer: Layer, role: str) -> Tensor | None:
    """The tensor of a role that is stored and used; None if a layer has none, or several."""
    tensors = [tensor for tensor in layer.tensors if tensor.role == role and tensor.stored and tensor.live]
    return tensors[0] if len(tensors) == 1 else None
