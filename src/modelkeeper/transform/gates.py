"""How does a gate begin that the parent does not have, such as a squeeze-and-excitation?

    y = x * sigmoid(W r(..x..) + b)

It must let everything through at first, and be able to learn. A sigmoid is never one, and nearly one it
hardly learns; but with W = 0 and b = 0 it is a half, where it is steepest. So the gate begins half open, and
what it gates is twice as large: the norm or projection that makes x is doubled, or the one that reads y.
Exact, also in floating point.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from modelkeeper.graph import Edge, Graph, consumers
from modelkeeper.graph.vocabulary import MULTIPLY, NORMS, PROJECTIONS, read_step
from modelkeeper.patience import go_on


@dataclass(frozen=True)
class Gate:
    """A new gate: the product, which of its inputs is gated, and the layers that decide how far it opens."""

    product: int
    main: int  # number of the input that is gated
    last: int  # the projection that is zero at first
    branch: frozenset[int]  # layers that only the gate needs
    doubled: frozenset[str]  # tensors that make up for the other half


def find_gates(graph: Graph, matched: Mapping[int, int], ancestors: list[int]) -> list[Gate]:
    """Find the products of a child that gate what its parent has by what its parent has not."""
    readers = consumers(graph)
    uses = Counter(tensor.name for layer in graph.layers for tensor in layer.tensors)
    found = []
    for number, layer in enumerate(graph.layers):
        if number in matched or layer.kind != MULTIPLY or len(layer.inputs) != 2:
            continue
        go_on()
        for main in (0, 1):
            gated, gate = layer.inputs[main], layer.inputs[1 - main]
            if gated.source not in matched or not _opens_half(graph, gate, matched):
                continue
            way = (ancestors[gate.source] | 1 << gate.source) & ~(ancestors[gated.source] | 1 << gated.source)
            branch = frozenset(n for n in range(number) if way >> n & 1)
            private = all(set(readers[n]) <= branch | {number} for n in branch)
            doubled = _doubled(graph, matched, readers, number, gated, branch)
            if (
                private
                and not branch & matched.keys()
                and doubled
                and all(uses[name] == 1 for name in doubled)
            ):
                found.append(Gate(number, main, gate.source, branch, doubled))
                break
    return found


def _opens_half(graph: Graph, gate: Edge, matched: Mapping[int, int]) -> bool:
    """Is a gate a half if the new projection that it comes from is zero?"""
    steps = [read_step(step) for step in gate.via]
    bends = [step for step in steps if not step.has("keeps_zero")]
    only_last = (
        bool(steps) and bends == steps[-1:] and not steps[-1].function and steps[-1].has("half_at_zero")
    )
    return only_last and gate.source not in matched and graph.layers[gate.source].kind in PROJECTIONS


def _doubled(
    graph: Graph,
    matched: Mapping[int, int],
    readers: tuple[tuple[int, ...], ...],
    product: int,
    gated: Edge,
    branch: frozenset[int],
) -> frozenset[str]:
    """The tensors to double: of what makes the gated values for the gate alone, or of all that read them."""
    maker = graph.layers[gated.source]
    roles = (
        {"gain", "bias"}
        if maker.kind in NORMS
        else {"weight", "bias"}
        if maker.kind in PROJECTIONS
        else set()
    )
    made = {tensor.role: tensor.name for tensor in maker.tensors if tensor.role in roles}
    if (
        not gated.via
        and made.keys() & {"gain", "weight"}
        and set(readers[gated.source]) <= branch | {product}
    ):
        return frozenset(made.values())
    names = set()
    for number in readers[product]:
        reader = graph.layers[number]
        weight = next((tensor.name for tensor in reader.tensors if tensor.role == "weight"), None)
        plain = reader.kind in PROJECTIONS and len(reader.inputs) == 1
        if (
            number not in matched
            or not plain
            or weight is None
            or not all(map(_scales, reader.inputs[0].via))
        ):
            return frozenset()
        names.add(weight)
    return frozenset(names)


def _scales(step: str) -> bool:
    """Does an operation make half as much of half as much?"""
    return read_step(step).has("homogeneous") or read_step(step).has("linear")
