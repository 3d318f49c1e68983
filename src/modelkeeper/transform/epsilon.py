"""What if a batch norm of the child adds another epsilon to variances than the parent's?

Frameworks differ in it (1e-5, 1e-3), and small variances feel it. A norm divides by the root of v + ε, so a
gain that is larger by as much makes up for it, exactly, whatever the variance is:

    g' = g √((v + ε') / (v + ε))

Statistics stay what they are: of the activations. So the child computes the same also where it normalises by
the statistics of a batch that are like those the parent has seen, and after they are estimated anew. A norm
without a gain can only pretend another variance, v' = v + ε - ε', which is exact where that is not negative:
for certain only if ε ≥ ε'. Other norms take their statistics from each example, and nothing makes up for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modelkeeper.graph import Graph, Layer, Tensor
from modelkeeper.graph.vocabulary import BATCH_NORM
from modelkeeper.transform.merge import by_role, epsilon_of
from modelkeeper.transform.pairing import TensorPair

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class OtherEpsilon:
    """A batch norm of the parent whose partner in the child adds another epsilon."""

    gain: Tensor | None
    variance: Tensor
    parent_epsilon: float
    child_epsilon: float

    @property
    def why(self) -> str:
        """What is made up for, for the plan."""
        return f"makes up for epsilon {self.child_epsilon:g}, not {self.parent_epsilon:g}"

    def apply(self, role: str, source: Callable[[Tensor], Array]) -> Array:
        """The gain or variance that the child is to have, in the parent's units."""
        stored = source(self.variance)
        variance = stored.astype(np.float64)
        if role == "variance":
            moved = variance + (self.parent_epsilon - self.child_epsilon)
            return np.maximum(moved, 0.0).astype(stored.dtype)
        gain = np.ones_like(stored) if self.gain is None else source(self.gain)
        divided_by = variance + self.parent_epsilon
        ratio = np.divide(
            variance + self.child_epsilon, divided_by, out=np.ones_like(variance), where=divided_by > 0
        )
        return (gain.astype(np.float64) * np.sqrt(ratio)).astype(gain.dtype)


@dataclass
class Epsilons:
    """All batch norms of the child that add another epsilon than their partners."""

    of: dict[str, OtherEpsilon] = field(default_factory=dict)  # by the child's tensor that makes up for it
    pairs: dict[str, TensorPair] = field(default_factory=dict)  # gains that the parent does not have
    exact: set[int] = field(default_factory=set)  # layers of the child for which it is made up


def find_epsilons(
    parent: Graph, child: Graph, partner: Mapping[int, int], pairs: Mapping[str, TensorPair]
) -> Epsilons:
    """Find batch norms of other epsilons, given which tensor of the parent each of the child takes from."""
    epsilons = Epsilons()
    uses: dict[str, list[tuple[int, Tensor, OtherEpsilon | None]]] = {}  # norms may share their tensors
    for child_number, parent_number in partner.items():
        child_layer, parent_layer = child.layers[child_number], parent.layers[parent_number]
        tensor = by_role(child_layer, "gain") or by_role(child_layer, "variance")
        if parent_layer.kind == child_layer.kind == BATCH_NORM and tensor is not None:
            other = _other_epsilon(parent_layer, child_layer, pairs.get(tensor.name), tensor)
            uses.setdefault(tensor.name, []).append((child_number, tensor, other))
    for name, users in uses.items():
        _, tensor, other = users[0]
        if other is None or any(another != other for *_, another in users):
            continue  # nothing to make up for, or nothing that suits all of them
        epsilons.of[name] = other
        if tensor.role == "gain" and other.gain is None:
            epsilons.pairs[name] = TensorPair(tensor, other.variance, (0,))
        if tensor.role == "gain" or other.parent_epsilon >= other.child_epsilon:
            epsilons.exact.update(number for number, *_ in users)
    return epsilons


def _other_epsilon(
    parent_layer: Layer, child_layer: Layer, pair: TensorPair | None, tensor: Tensor
) -> OtherEpsilon | None:
    """What a tensor of the child has to make up for, and how; None where it has not to, or cannot."""
    epsilons = epsilon_of(parent_layer), epsilon_of(child_layer)
    gain, variance = by_role(parent_layer, "gain"), by_role(parent_layer, "variance")
    if epsilons[0] == epsilons[1] or variance is None or by_role(child_layer, "variance") is None:
        return None
    taken = gain if tensor.role == "gain" else variance
    if (pair.parent.name if pair else "") != (taken.name if taken else ""):
        return None  # tied to another norm, from which it takes
    return OtherEpsilon(gain, variance, *epsilons)
