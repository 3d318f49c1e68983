"""What if a plain chain of the parent is longer than the child's?

    parent   x -> first, norm, relu -> second, norm -> ...
    child    x -> only, norm -> ...

A skipped layer cannot just be left out: who reads the second one's units would be given the first one's. So
the child's only layer takes the product of the two, in which the activation between them is made linear as
best it can be. The norm before it says what arrives there: about N(bias, gain²), so that

    f(z) ~ E f + slope (z - bias)      with slope = E f(z) (z - bias) / gain²

The kernel of the product is larger, and its middle is taken; what is constant goes into the next bias or out
of the next mean. Of several layers in a row the last one lends its norm, and all others go into its weight.
Never exact, but near: without it such a child starts as if its layers had been shuffled.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from modelkeeper.graph import Axis, Fixed, Graph, Layer, Tensor, consumers
from modelkeeper.graph.vocabulary import COUNT, PROJECTIONS, read_step
from modelkeeper.transform.merge import by_role, epsilon_of, norm_behind
from modelkeeper.transform.pairing import Pairs, TensorPair, pair_axes

Array = np.ndarray[Any, np.dtype[Any]]
CURVES: dict[str, Callable[[Array], Array]] = {
    "rectifier": lambda x: np.maximum(x, 0),
    "sigmoid linear": lambda x: x / (1 + np.exp(-x)),
    "gaussian linear": lambda x: x / (1 + np.exp(-1.702 * x)),
    "hyperbolic tangent": np.tanh,
}
Run = list[tuple[int, int]]  # projections of the parent one behind the other, each with its norm
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def curve(via: tuple[str, ...]) -> Callable[[Array], Array] | None:
    """What lies on an edge as a function of numbers, if it is nothing or one plain activation."""
    if not via:
        return lambda x: x
    return CURVES.get(read_step(via[0]).curve or "") if len(via) == 1 else None


@dataclass(frozen=True)
class Link:
    """A projection whose units only the next projection reads, behind a norm and an activation."""

    projection: Layer
    norm: Layer
    activation: tuple[str, ...]


@dataclass(frozen=True)
class Composite:
    """Projections in a row that become one: all but the last go into its weight."""

    links: tuple[Link, ...]
    last: Layer
    kernel: tuple[int, ...]  # of the child's: what lies outside of it is left out on the way

    @property
    def why(self) -> str:
        """The composition in words, for the plan."""
        names = " and ".join(link.projection.name for link in self.links)
        return f"with {names} in one, as if what lies between were linear"

    def apply(self, tensor: Tensor, source: Callable[[Tensor], Array]) -> Array:
        """Compute the last weight with the others in it, or the bias or mean that takes what is constant."""
        weight = by_role(self.last, "weight")
        assert weight is not None
        product, constant = _out_first(weight, source(weight).astype(np.float64)), 0.0
        for link in reversed(self.links):
            slope, shift = _linear(link, source)
            constant = constant + product.sum(tuple(range(2, product.ndim))) @ shift
            link_weight = by_role(link.projection, "weight")
            assert link_weight is not None
            product = _composed(
                product * slope.reshape(-1, *[1] * (product.ndim - 2)),
                _out_first(link_weight, source(link_weight)),
            )
            product = _cropped(product, self.kernel)
        if tensor.role == "weight":
            return product.astype(source(weight).dtype)
        array = source(tensor)
        return (array + (constant if tensor.role == "bias" else -constant)).astype(array.dtype)


def _out_first(weight: Tensor, array: Array) -> Array:
    """Transpose a weight to (out, in, *kernel)."""
    roles = [axis.role for axis in weight.axes]
    order = [roles.index("out"), roles.index("in"), *(n for n, role in enumerate(roles) if role == "kernel")]
    return array.transpose(order)


def _linear(link: Link, source: Callable[[Tensor], Array]) -> tuple[Array, Array]:
    """Make norm and activation linear, unit by unit: a factor on what comes before them, and a shift."""
    norm = {t.role: source(t).astype(np.float64) for t in link.norm.tensors if t.role != COUNT}
    sigma = np.sqrt(norm["variance"] + epsilon_of(link.norm))
    gain, bias = norm.get("gain", np.ones_like(sigma)), norm.get("bias", np.zeros_like(sigma))
    activation = curve(link.activation)
    assert activation is not None
    activated = activation(bias[:, None] + np.abs(gain)[:, None] * _NODES)
    spread = np.maximum(np.abs(gain), 1e-12)
    slope = (activated * _NODES) @ _WEIGHTS / spread * gain / sigma
    bias_tensor = by_role(link.projection, "bias")
    projection_bias = source(bias_tensor).astype(np.float64) if bias_tensor is not None else 0.0
    return slope, activated @ _WEIGHTS + slope * (projection_bias - norm["mean"])


def _cropped(array: Array, kernel: tuple[int, ...]) -> Array:
    """Crop the kernel of a weight to its middle, where it is larger than `kernel`."""
    for axis, most in enumerate(kernel, start=2):
        size = array.shape[axis]
        first = max(0, size - most) // 2
        array = array.take(np.arange(first, first + min(size, most)), axis)
    return array


def _composed(later: Array, earlier: Array) -> Array:
    """The kernel of two convolutions, one behind the other: (o, m, *k) and (m, i, *l) to (o, i, *k+l-1)."""
    kernel = [a + b - 1 for a, b in zip(later.shape[2:], earlier.shape[2:], strict=True)]
    made = np.zeros((later.shape[0], earlier.shape[1], *kernel))
    for place in np.ndindex(*later.shape[2:]):
        window = tuple(slice(at, at + size) for at, size in zip(place, earlier.shape[2:], strict=True))
        made[(slice(None), slice(None), *window)] += np.tensordot(later[(..., *place)], earlier, 1)
    return made


@dataclass
class Composites:
    """All compositions between two graphs."""

    pairs: list[tuple[int, int]]  # layers: the last of each row lends
    of: dict[str, Composite] = field(default_factory=dict)  # by the parent's tensor that changes
    weights: dict[str, TensorPair] = field(default_factory=dict)  # by the child's tensor
    within: dict[int, Composite] = field(default_factory=dict)  # by the number of a layer that went into one


def find_composites(parent: Graph, child: Graph, pairs: Pairs) -> Composites:
    """Find rows of the parent of which the child has one layer, connected in the child as their ends are."""
    lent = dict(pairs)
    composites = Composites(list(pairs))
    runs = [run for row in _rows(parent) for run in _runs(row, lent)]
    # Who feeds or reads a run may itself be skipped, and stand for the layer that the child has there.
    stands = dict(lent)
    for run in runs:
        lender, parent_norm = next(unit for unit in run if unit[0] in lent)
        stands |= {run[0][0]: lent[lender], run[-1][1]: lent.get(parent_norm, -1)}
    child_norms, parent_readers, child_readers = norm_behind(child), consumers(parent), consumers(child)
    for run in runs:
        lender, parent_norm = next(unit for unit in run if unit[0] in lent)
        child_number, child_norm = lent[lender], lent.get(parent_norm)
        if child_norm is not None and child_norms.get(child_number) == child_norm:
            read_by = {stands.get(number) for number in parent_readers[run[-1][1]]}
            if read_by & set(child_readers[child_norm]) and _fed_alike(
                parent, child, run, stands, child_number
            ):
                _compose(parent, child, run, lent, composites)
    composites.pairs = sorted(lent.items(), key=lambda pair: pair[1])
    return composites


def _rows(graph: Graph) -> Iterator[Run]:
    """Find rows: projections of a graph one behind the other, each with its norm."""
    behind, readers = norm_behind(graph), consumers(graph)
    uses = Counter(tensor.name for layer in graph.layers for tensor in layer.tensors)
    shared = {name for name, count in uses.items() if count > 1}
    following: dict[int, int] = {}
    for number, norm in behind.items():
        if len(readers[norm]) == 1 and _plain(graph.layers[number], shared):
            reader = graph.layers[readers[norm][0]]
            via = reader.inputs[0].via
            same = reader.kind == graph.layers[number].kind and len(reader.inputs) == 1
            if (
                same
                and curve(via) is not None
                and _plain(reader, shared, stride=True)
                and readers[norm][0] in behind
            ):
                following[number] = readers[norm][0]
    for number in sorted(following.keys() - set(following.values())):
        row = [number]
        while row[-1] in following:
            row.append(following[row[-1]])
        yield [(projection, behind[projection]) for projection in row]


def _plain(layer: Layer, shared: set[str], stride: bool = False) -> bool:
    """Is it a product with one weight, of every unit with every unit, at every place?"""
    weight = by_role(layer, "weight")
    if layer.kind not in PROJECTIONS or weight is None or weight.name in shared:
        return False
    allowed = {"padding", "stride"} if stride else {"padding"}
    return {"out", "in"} <= {axis.role for axis in weight.axes} and layer.attributes.keys() <= allowed


def _runs(row: Run, lent: Mapping[int, int]) -> Iterator[Run]:
    """Split a row into runs of which just one lends: up to each that does; the rest goes to the last run."""
    run: Run = []
    runs = []
    for unit in row:
        run.append(unit)
        if unit[0] in lent:
            runs.append(run)
            run = []
    if run and runs:
        runs[-1] = runs[-1] + run
    yield from (part for part in runs if len(part) > 1)


def _compose(parent: Graph, child: Graph, run: Run, lent: dict[int, int], composites: Composites) -> None:
    """Make one composite of a run, if its layers allow it: the last of them lends from then on."""
    lender, norm = next(unit for unit in run if unit[0] in lent)
    child_layer = child.layers[lent[lender]]
    last, last_norm = (parent.layers[number] for number in run[-1])
    skipped = [number for unit in run for number in unit if number not in (lender, norm)]
    links = tuple(
        Link(parent.layers[number], parent.layers[norm_number], parent.layers[after[0]].inputs[0].via)
        for (number, norm_number), after in pairwise(run)
    )
    child_weight, last_weight, first_weight = (
        by_role(layer, "weight") for layer in (child_layer, last, links[0].projection)
    )
    takes_constant = by_role(last, "bias") or by_role(last_norm, "mean")
    if child_layer.kind != last.kind or any(number in lent for number in skipped):
        return
    if child_weight is None or last_weight is None or first_weight is None or takes_constant is None:
        return
    kernel = tuple(axis.size for axis in child_weight.axes if axis.role == "kernel")
    if len(child_weight.axes) != len(last_weight.axes):
        return
    virtual = msgspec.structs.replace(last_weight, axes=_axes(last_weight, first_weight, links, kernel))
    axes = pair_axes(virtual, child_weight)
    if axes is None:
        return
    composite = Composite(links, last, kernel)
    lent[run[-1][0]], lent[run[-1][1]] = lent.pop(lender), lent.pop(norm)
    composites.weights[child_weight.name] = TensorPair(child_weight, virtual, axes)
    composites.of[last_weight.name] = composites.of[takes_constant.name] = composite
    composites.within |= {number: composite for unit in run[:-1] for number in unit}


def _fed_alike(parent: Graph, child: Graph, run: Run, stands: Mapping[int, int], child_number: int) -> bool:
    """Does the child feed its layer with what the parent feeds the first of the run with?"""
    parent_inputs, child_inputs = parent.layers[run[0][0]].inputs, child.layers[child_number].inputs
    return (
        len(parent_inputs) == len(child_inputs) == 1
        and stands.get(parent_inputs[0].source) == child_inputs[0].source
    )


def _axes(
    last_weight: Tensor, first_weight: Tensor, links: tuple[Link, ...], kernel: tuple[int, ...]
) -> tuple[Axis, ...]:
    """The axes of the product of a row's weights: (out, in, *kernel)."""
    out_axis = next(axis for axis in last_weight.axes if axis.role == "out")
    in_axis = next(axis for axis in first_weight.axes if axis.role == "in")
    sizes = [axis.size for axis in last_weight.axes if axis.role == "kernel"]
    for link in reversed(links):
        link_weight = by_role(link.projection, "weight")
        assert link_weight is not None
        added = [axis.size - 1 for axis in link_weight.axes if axis.role == "kernel"]
        sizes = [min(size + more, most) for size, more, most in zip(sizes, added, kernel, strict=True)]
    return (out_axis, in_axis, *(Axis("kernel", Fixed(size, "kernel")) for size in sizes))
