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
from modelkeeper.graph.vocabulary import BATCH_NORM, COUNT, PROJECTIONS
from modelkeeper.transform.pairing import TensorPair

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Merge:
    """A projection of the parent and the batch norm behind it, of which one takes over from the other."""

    projection: Layer
    norm: Layer

    @property
    def why(self) -> str:
        """In words."""
        return f"with {self.projection.name} and {self.norm.name} in one"

    def apply(self, tensor: Tensor, source: Callable[[Tensor], Array]) -> Array:
        """A tensor of either, as it is with the other one's part in it."""
        own = {t.role: t for t in self.projection.tensors}
        norm = {t.role: source(t).astype(np.float64) for t in self.norm.tensors if t.role != COUNT}
        array = source(tensor)
        bias = source(own["bias"]).astype(np.float64) if "bias" in own else 0.0
        if tensor.role == "mean":
            return (norm["mean"] - bias).astype(array.dtype)
        epsilon = self.norm.attributes.get("eps", 0.0)
        assert isinstance(epsilon, (int, float))
        factor = norm.get("gain", 1.0) / np.sqrt(norm["variance"] + epsilon)
        if tensor.role == "bias":
            return ((bias - norm["mean"]) * factor + norm.get("bias", 0.0)).astype(array.dtype)
        out = next(number for number, axis in enumerate(tensor.axes) if axis.role == "out")
        shape = [-1 if number == out else 1 for number in range(array.ndim)]
        return (array * factor.reshape(shape)).astype(array.dtype)


@dataclass
class Merges:
    """All of them, between two graphs."""

    of: dict[str, Merge] = field(default_factory=dict)  # by the parent's tensor that changes
    pairs: dict[str, TensorPair] = field(default_factory=dict)  # tensors of the child that take over
    gone: dict[int, int] = field(default_factory=dict)  # a norm of the parent -> the projection it went into
    taken: set[str] = field(default_factory=set)  # tensors of the parent whose part is in another


def find_merges(parent: Graph, child: Graph, partner: Mapping[int, int]) -> Merges:
    """What can be taken over, given which layer of the parent each layer of the child takes from."""
    found, lent = Merges(), {theirs: ours for ours, theirs in partner.items()}
    behind = norm_behind(parent), norm_behind(child)
    for theirs, layer in enumerate(parent.layers):
        ours = lent.get(theirs)
        if ours is None or layer.kind not in PROJECTIONS or child.layers[ours].kind not in PROJECTIONS:
            continue
        own, bias = (by_role(each, "bias") for each in (child.layers[ours], layer))
        norm, new = behind[0].get(theirs), behind[1].get(ours)
        if norm is not None and norm not in lent and own is not None:
            _into_projection(found, theirs, layer, norm, parent.layers[norm], own)
        elif bias is not None and own is None and new is not None:
            if norm is not None and lent.get(norm) == new:
                mean = by_role(parent.layers[norm], "mean")
                if mean is not None:
                    found.of[mean.name] = Merge(layer, parent.layers[norm])
                    found.taken.add(bias.name)
            elif norm is None and new not in partner:
                shift = by_role(child.layers[new], "bias")
                if shift is not None:
                    found.pairs[shift.name] = TensorPair(shift, bias, (0,))
    return found


def _into_projection(found: Merges, theirs: int, layer: Layer, number: int, norm: Layer, own: Tensor) -> None:
    weight, bias = by_role(layer, "weight"), by_role(layer, "bias") or by_role(norm, "bias")
    if weight is None or bias is None or by_role(norm, "variance") is None:
        return
    found.of[weight.name] = found.of[bias.name] = Merge(layer, norm)
    found.pairs[own.name] = TensorPair(own, bias, (0,))
    found.gone[number] = theirs
    found.taken.update(tensor.name for tensor in norm.tensors)


def norm_behind(graph: Graph) -> dict[int, int]:
    """The batch norm that alone takes what a layer makes, as it is."""
    found: dict[int, int] = {}
    for number, readers in enumerate(consumers(graph)):
        if len(readers) == 1:
            layer = graph.layers[readers[0]]
            if layer.kind == BATCH_NORM and [(e.source, e.via) for e in layer.inputs] == [(number, ())]:
                found[number] = readers[0]
    return found


def by_role(layer: Layer, role: str) -> Tensor | None:
    """The one stored tensor of a role with live numbers."""
    tensors = [tensor for tensor in layer.tensors if tensor.role == role and tensor.stored and tensor.live]
    return tensors[0] if len(tensors) == 1 else None
