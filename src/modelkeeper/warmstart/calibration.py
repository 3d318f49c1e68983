"""Which layer of a child should be fitted to which activations of its parent?

For each projection (conv, linear) and norm of the child that a plan gives weights to:

    where   its output is compared: behind the batch norm that it goes straight into, and behind the sum
            that a branch ends in, if the other operand is there by then: so it fits what the shortcut leaves
    with    what the parent's counterparts of its readers read. That is the same layer where both models are
            alike; the end of the last block where the child has fewer, and the sum where only the parent has
            shortcuts. If the readers do not say: the parent's layer that lends the weights. A layer that
            still does what its lender does is left alone
    units   those that the plan's unit maps choose, so that all layers on a space follow the same ones

Heads that the plan leaves fresh can be fitted to labels. Tensors that several layers share are left alone.

`calibrated` does it all: it chooses units by what they do on the examples, carries the plan out with them,
and has the front end fit the layers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitStart, FitTarget, FitTask, Progress
from modelkeeper.frontends.protocol import Examples, Runner
from modelkeeper.graph import Atom, Axis, Graph, Layer, Tensor, consumers
from modelkeeper.graph.vocabulary import ADD, BATCH_NORM, CONV, OUTPUT, PROJECTIONS, REFITTED
from modelkeeper.transform.apply import apply
from modelkeeper.transform.importance import Importance
from modelkeeper.transform.plan import Plan
from modelkeeper.warmstart.lender import Lender
from modelkeeper.weights import Array


def calibrated(
    runner: Runner,
    target: Any,
    lender: Lender,
    parent: Any,
    examples: Examples,
    *,
    budget: Budget,
    progress: Progress | None = None,
) -> Calibration | None:
    """Fit the layers of `target`, which holds the weights of a plan, in place; what the front end reports.

    Args:
        runner: Of the target's front end.
        target: The child.
        lender: With the plan that was carried out on the child. If it is exact there is nothing to fit, and
            the answer is None.
        parent: The parent's program, or the parent itself.
        examples: That both models can run on.
        budget: How much it may take.
        progress: Called before each layer.

    Raises:
        CannotCalibrate, NoProgram, InvalidProgram: See `Runner.calibrate`.
    """
    if lender.plan.exact:
        return None
    planner = PlannedFits(lender.plan, lender.tensors)
    return runner.calibrate(
        target, planner, parent, lender.tensors, examples, budget=budget, progress=progress
    )


class PlannedFits:
    """What a plan lets be fitted: the `FitPlanner` that a front end asks when it has ranked the units."""

    def __init__(self, plan: Plan, tensors: Mapping[str, Array]) -> None:
        self._plan, self._tensors = plan, tensors
        self.reads = reads(plan.parent)

    def start(self, ranks: Mapping[int, Array]) -> FitStart:
        """The plan carried out with units chosen by their ranks, or by weight where there are none."""
        by_weight = Importance(self._plan.parent, self._tensor)
        anew = msgspec.structs.replace(self._plan, maps=self._plan.maps.anew())

        def importance(space: int) -> Array:
            return ranks[space] if space in ranks else by_weight(space)

        weights = dict(apply(anew, self._tensors, importance=importance))
        return FitStart(weights, fit_tasks(anew, importance), self._plan.frozen)

    def _tensor(self, tensor: Tensor) -> Array:
        try:
            return self._tensors[tensor.name]
        except KeyError:
            raise InvalidWeights(tensor.name, "the parent's weights do not hold it") from None


def reads(graph: Graph) -> tuple[tuple[str, int], ...]:
    """The layers that read one whole space with weights, and that space."""
    return tuple(
        (layer.name, axis.of.space)
        for layer in graph.layers
        if layer.kind in PROJECTIONS
        for tensor in layer.tensors
        if tensor.role == "weight"
        for axis in tensor.axes
        if axis.role == "in" and isinstance(axis.of, Atom)
    )


def fit_tasks(plan: Plan, importance: Callable[[int], Array]) -> tuple[FitTask, ...]:
    """What can be fitted, in the child's order. `importance`: of the units of the parent's spaces."""
    return tuple(_Tasks(plan, importance).all())


class _Tasks:
    def __init__(self, plan: Plan, importance: Callable[[int], Array]) -> None:
        self._plan, self._importance = plan, importance
        self._readers = consumers(plan.child), consumers(plan.parent)
        self._owner = {
            t.name: n for n, layer in reversed([*enumerate(plan.parent.layers)]) for t in layer.tensors
        }
        self._inserted = {entry.tensor for entry in plan.entries if entry.action == "inserted"}
        self._uses = Counter(t.name for layer in plan.child.layers for t in layer.tensors)

    def all(self) -> Iterator[FitTask]:
        behind: set[int] = set()  # norms that are fitted together with what feeds them
        for number, layer in enumerate(self._plan.child.layers):
            task = None
            if layer.kind in PROJECTIONS:
                task = self._projection(number, layer, behind)
            elif layer.kind in REFITTED and number not in behind:
                task = self._norm(number, layer)
            if task is not None:
                yield task

    def _projection(self, number: int, layer: Layer, behind: set[int]) -> FitTask | None:
        child = self._plan.child
        weight = self._own(layer, "weight")
        if weight is None or len([t for t in layer.tensors if t.role == "weight"]) != 1:
            return None
        roles = [axis.role for axis in weight.axes]
        if sorted(roles[:2]) != ["in", "out"] or (layer.kind == CONV and roles[0] != "out"):
            return None
        bias = self._own(layer, "bias")
        if bias is None and any(t.role == "bias" for t in layer.tensors):
            return None
        rest: dict[str, Any] = {
            "weight": weight.name,
            "bias": bias.name if bias else "",
            "flipped": roles[0] == "in",
        }
        axis = weight.axes[roles.index("out")]
        lender = self._lender(weight)
        head = any(child.layers[reader].kind == OUTPUT for reader in self._readers[0][number])
        if lender is None and head:
            return FitTask(layer.name, "head", end=layer.name, **rest)
        if lender is None and weight.name in self._inserted:
            return None  # it passes through or adds zero
        norm = self._straight(0, number, (BATCH_NORM,))
        own = self._norm_tensors(norm) if norm is not None else ()
        norm = norm if own else None
        if norm is not None:
            behind.add(norm)
        end = number if norm is None else norm
        total = self._straight(0, end, (ADD,))
        end = end if total is None else total
        targets = self._read(end)
        if lender is not None:
            targets += self._lent(lender, sum_too=end == total)
        return FitTask(
            layer.name,
            "projection",
            norm="" if norm is None else child.layers[norm].name,
            norm_tensors=own,
            end=child.layers[end].name,
            targets=self._targets(axis, targets),
            **rest,
        )

    def _norm(self, number: int, layer: Layer) -> FitTask | None:
        gain, bias = self._own(layer, "gain"), self._own(layer, "bias")
        lender = self._lender(gain) if gain is not None else None
        if gain is None or gain.buffer:
            return None
        if lender is None:
            own = self._norm_tensors(number) if layer.kind == BATCH_NORM else ()
            new = bool(own) and gain.name in self._inserted
            return FitTask(layer.name, "inserted", gain.name, norm_tensors=own) if new else None
        if self._plan.parent.layers[lender].kind != layer.kind:
            return None
        own = self._norm_tensors(number) if layer.kind == BATCH_NORM else ()
        targets = self._targets(gain.axes[0], [lender]) if len(gain.axes) == 1 else ()
        name = bias.name if bias is not None else ""
        return FitTask(layer.name, "norm", gain.name, name, norm_tensors=own, end=layer.name, targets=targets)

    # -- where, with what, which units ----------------------------------------------------------

    def _own(self, layer: Layer, role: str) -> Tensor | None:
        """The layer's tensor of a role, if it is stored, no other layer's, and not frozen."""
        tensor = next((t for t in layer.tensors if t.role == role), None)
        if tensor is None or tensor.name in self._plan.frozen:
            return None
        return tensor if tensor.stored and self._uses[tensor.name] == 1 else None

    def _norm_tensors(self, number: int) -> tuple[tuple[str, str], ...]:
        """A batch norm's tensors by role, if it has all four to itself."""
        layer = self._plan.child.layers[number]
        held = [(role, self._own(layer, role)) for role in ("gain", "bias", "mean", "variance")]
        return tuple((role, t.name) for role, t in held if t is not None) if all(t for _, t in held) else ()

    def _straight(self, side: int, number: int, kinds: tuple[str, ...]) -> int | None:
        """The only reader of a layer, if it is of these kinds and takes the output as it is."""
        graph = (self._plan.child, self._plan.parent)[side]
        readers = self._readers[side][number]
        if len(readers) != 1 or graph.layers[readers[0]].kind not in kinds:
            return None
        inputs = graph.layers[readers[0]].inputs
        wanted = 2 if graph.layers[readers[0]].kind == ADD else 1
        plain = [edge for edge in inputs if edge.source == number and not edge.via]
        return readers[0] if len(plain) == 1 and len(inputs) == wanted else None

    def _lender(self, tensor: Tensor) -> int | None:
        pair = self._plan.pairs.get(tensor.name)
        return self._owner[pair.parent.name] if pair is not None else None

    def _read(self, number: int) -> list[int]:
        """What the parent's counterparts of a child's readers read, the most frequent first."""
        votes: Counter[int] = Counter()
        child, parent = self._plan.child, self._plan.parent
        for reader in self._readers[0][number]:
            layer = child.layers[reader]
            lenders = {self._lender(tensor) for tensor in layer.tensors if tensor.role in ("weight", "gain")}
            if len(lenders) == 1 and len(layer.inputs) == 1:
                lender = lenders.pop()
                if lender is not None and len(parent.layers[lender].inputs) == 1:
                    same = parent.layers[lender].inputs[0].via == layer.inputs[0].via
                    votes[parent.layers[lender].inputs[0].source] += 1 + same
        return [source for source, _ in votes.most_common()]

    def _lent(self, lender: int, sum_too: bool) -> list[int]:
        """The layer that lends, behind its norm, and behind its sum if the child has one as well."""
        norm = self._straight(1, lender, (BATCH_NORM,))
        end = lender if norm is None else norm
        total = self._straight(1, end, (ADD,))
        return [total, end] if sum_too and total is not None else [end]

    def _targets(self, axis: Axis, layers: list[int]) -> tuple[FitTarget, ...]:
        targets = []
        for number in dict.fromkeys(layers):
            parent_axis = _units_of(self._plan.parent, number)
            if parent_axis is not None:
                units, factor = self._plan.maps.gather(axis, parent_axis, self._importance)
                name = self._plan.parent.layers[number].name
                targets.append(FitTarget(name, np.where(units < 0, -1, units), factor))
        return tuple(targets)


def _units_of(graph: Graph, number: int) -> Axis | None:
    """The axis of the units that a layer puts out."""
    layer = graph.layers[number]
    while layer.kind == ADD:
        plain = [edge for edge in layer.inputs if not edge.via]
        if not plain:
            return None
        layer = graph.layers[plain[0].source]
    for tensor in layer.tensors:
        for axis in tensor.axes:
            if axis.role == "out":
                return axis
    return None
