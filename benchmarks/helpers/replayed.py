"""Does a model compute the same when it is widened without its constructor?

`widened` runs the recorded steps of a model over wider weights, once for each factor.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from benchmarks.helpers.permutation import difference
from benchmarks.helpers.steps import replay
from benchmarks.helpers.widening import choose, widen
from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.torch.behaviour import run_on_random
from modelkeeper.frontends.torch.describe import TorchAccount, study
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.recorder import tensors_in
from modelkeeper.graph import Atom, Axis, Fixed, Graph, leaves, walk
from modelkeeper.tracing.terms import Straddles

EXACT = 1e-6
GIVEN = ("output", "rows")  # pins of what the task decides: classes, a vocabulary
SETTLED = ("kernel", "input", "spatial", "one")  # and of axes that have no units to copy


def widened(model: nn.Module, inputs: Inputs, factors: Sequence[float], seed: int = 0) -> "Widened":
    """Widen every free space of a model by each factor, and compare what it computes."""
    account = study(model, inputs)
    if any(constant.tensor.is_meta for constant in account.torch.used_constants()):
        account = study(model, inputs, real=True)  # numbers that were made on shapes have no values
    used = [value.owner.names[0] for value in account.torch.trace.owned if value.owner]
    weights = {name: account.torch.tensors[name].detach() for name in used}
    arrays = {name: tensor.numpy() for name, tensor in weights.items() if tensor.is_floating_point()}
    taken = list(tensors_in((inputs.args, dict(inputs.kwargs))))
    old = [space.size for space in account.graph.spaces]
    before = _replayed(account, weights, taken, old)
    nudged = [each * (1 + 1e-15) if each.is_floating_point() else each for each in taken]
    result = Widened(account.graph, before, difference(before, _replayed(account, weights, nudged, old)))
    for factor in factors:
        units = choose(account.graph, factor, seed)
        wide = {name: torch.from_numpy(array) for name, array in widen(account.graph, units, arrays).items()}
        sizes = [len(each.source) for each in units]
        try:
            after = _replayed(account, weights | wide, taken, sizes)
            result.changes[factor] = difference(result.before, after)
        except (RuntimeError, ValueError, Straddles) as error:
            result.failures[factor] = f"{type(error).__name__}: {error}"[:200]
        result.sizes[factor] = sizes
    return result


@dataclass
class Widened:
    """What became of a model whose free spaces were widened, by factor."""

    graph: Graph
    before: Tensor  # the outputs of a replay at the old sizes
    rounding: float  # how much they change when inputs do in their last digit: what rounding alone can do
    changes: dict[float, float] = field(default_factory=dict)
    failures: dict[float, str] = field(default_factory=dict)
    sizes: dict[float, list[int]] = field(default_factory=dict)

    def exact(self, factor: float) -> bool:
        return self.changes.get(factor, math.inf) < EXACT

    def axes(self, factor: float) -> tuple[int, int]:
        """How many axes of parameters became wider, of how many that have units of their own."""
        wider = counted = 0
        for _, tensor, axis in walk(self.graph):
            if tensor.live and not tensor.buffer and not self._given(axis):
                counted += 1
                wider += any(
                    self.sizes[factor][leaf.space] != leaf.size
                    for leaf in leaves(axis.of)
                    if isinstance(leaf, Atom)
                )
        return wider, counted

    def _given(self, axis: Axis) -> bool:
        """Are all parts of an axis decided by the task, or without units?"""
        return all(
            leaf.origin in SETTLED if isinstance(leaf, Fixed) else self._task(leaf)
            for leaf in leaves(axis.of)
        )

    def _task(self, atom: Atom) -> bool:
        return any(pin.code in GIVEN for pin in self.graph.spaces[atom.space].pins)


def _replayed(
    account: TorchAccount, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor], sizes: Sequence[int]
) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in replay(account, tensors, inputs, sizes)])


def run_on_small(model: nn.Module) -> tuple[Inputs, Tensor]:
    """Run on the smallest image that a model takes: the laws of its channels do not depend on it.

    For that, a last pooling of a fixed window becomes one over whatever there is.
    """
    features = getattr(model, "features", None)
    if isinstance(getattr(features, "final_pool", None), nn.AvgPool2d):
        assert isinstance(features, nn.Module)
        features.final_pool = nn.AdaptiveAvgPool2d(1)
    native = getattr(model, "in_size", None)
    for side in (64, 96, 128):
        image = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(side)).double()
        if native is not None and side < native[0]:
            try:
                return run_on_random(model, Inputs((image,)))
            except CannotDescribe:  # not with this size
                continue
    return run_on_random(model)
