"""Carry out a plan: the child's tensors, one after the other, from the parent's.

Nothing is held but the tensor at hand: the parent's tensors are asked for by name, when they are needed, and
each of the child's is handed over before the next one is made. So a file can be read, transformed and sent on
without ever being in memory as a whole. Tensors that the plan keeps are not in what comes out: the child has
them already.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

import numpy as np

from modelkeeper.errors import CannotGather, InvalidWeights
from modelkeeper.graph import Atom, Axis, Layer, Tensor
from modelkeeper.graph.vocabulary import BATCH_NORM
from modelkeeper.layouts import Laid, Layout
from modelkeeper.transform.gather import AxisMap, gather
from modelkeeper.transform.importance import Importance, folded
from modelkeeper.transform.merge import epsilon_of
from modelkeeper.transform.pairing import TensorPair
from modelkeeper.transform.plan import Entry, Plan
from modelkeeper.transform.units import MEAN, NOTHING, Index, Mask, Shares
from modelkeeper.weights import SMALL_FLOATS, Array, dtype_of, holds_nan

# What a norm does to a unit that is new: nothing. (Zero would never learn: its reader is zero, too.)
_NEUTRAL = {"gain": 1.0, "variance": 1.0}


@overload
def apply(
    plan: Plan, tensors: Mapping[str, Array], *, importance: Callable[[int], Shares] | None = None
) -> Iterator[tuple[str, Array]]: ...
@overload
def apply(
    plan: Plan,
    tensors: Mapping[str, Array],
    *,
    importance: Callable[[int], Shares] | None = None,
    layouts: Mapping[str, Layout],
) -> Iterator[tuple[str, Array | Laid]]: ...
# long: an example that is run, and the words that explain what may be asked for.
def apply(
    plan: Plan,
    tensors: Mapping[str, Array],
    *,
    importance: Callable[[int], Shares] | None = None,
    layouts: Mapping[str, Layout] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Carry out a plan: the child's tensors by name, in its order and dtype, each made when it is asked for.

    Tensors that are the parent's as they are share its memory: copy what you keep and change.

    A layer of three units becomes one of five; its reader takes what the copies say by shares:

    >>> from modelkeeper.graph import Atom, Axis, Edge, Fixed, Graph, Layer, Pin, Space, Tensor
    >>> from modelkeeper.transform import make_plan
    >>> def net(width: int) -> Graph:
    ...     hidden = Atom(0, width)
    ...     makes = Tensor("a", "weight", "float32", (Axis("out", hidden), Axis("in", Fixed(2, "input"))))
    ...     reads = Tensor("b", "weight", "float32", (Axis("out", Atom(1, 1)), Axis("in", hidden, ((0, 1),))))
    ...     layers = (
    ...         Layer("image", "input"),
    ...         Layer("first", "linear", (Edge(0),), (makes,)),
    ...         Layer("second", "linear", (Edge(1, ("relu",)),), (reads,)),
    ...         Layer("answer", "output", (Edge(2),)),
    ...     )
    ...     return Graph("torch", layers, (Space(width), Space(1, (Pin("output"),))))
    >>> plan = make_plan(net(3), net(5), [(0, 0), (1, 1), (2, 2), (3, 3)])
    >>> plan.exact, plan.coverage
    (True, 1.0)
    >>> class Lazy(dict):  # stands for a file: `safetensors.safe_open(...).get_tensor` reads one at a time
    ...     def __getitem__(self, name):
    ...         print("reads", name)
    ...         return super().__getitem__(name)
    >>> first = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> second = np.ones((1, 3), np.float32)
    >>> made = {}
    >>> for name, array in apply(plan, Lazy(a=first, b=second)):
    ...     print("made", name, array.shape)
    ...     made[name] = array
    reads a
    made a (5, 2)
    reads b
    made b (1, 5)
    >>> bool(np.allclose(made["b"] @ made["a"], second @ first))
    True

    Args:
        plan: What becomes of each tensor.
        tensors: The parent's tensors by name. Only `tensors[name]` is used, when that tensor is needed, so
            that any mapping serves which reads from a file or a store as it is asked. A tensor may be asked
            for again: narrower children weigh units by all tensors that know them.
        importance: Of the units of each of the parent's spaces, by its number: a narrower child keeps the
            most important ones. Default: as `Importance` says, and dropped units are folded into kept ones.
        layouts: How the child stores its tensors, by name. What is gathered is then written in that order,
            in the same pass, and comes as `Laid`. Default: all are arrays as the graph has them.

    Raises:
        InvalidWeights: A tensor of the parent is missing, is no array of numbers, holds NaN, or has another
            shape than its graph says. What came before it was handed over already: whoever loads the tensors
            takes them all before writing the first.
    """
    run = _Run(plan, tensors, importance, layouts or {})
    for entry in plan.entries:
        if entry.action != "kept":
            yield entry.tensor, run.make(entry)


class _Run:
    """One plan that is being carried out: makes tensors of the child, one by one."""

    def __init__(
        self,
        plan: Plan,
        tensors: Mapping[str, Array],
        importance: Callable[[int], Shares] | None,
        layouts: Mapping[str, Layout],
    ) -> None:
        self._plan, self._tensors, self._layouts = plan, tensors, layouts
        own = Importance(plan.parent, self._source)
        self._importance: Callable[[int], Shares] = importance or own
        self._fold = own.fold if importance is None else None
        self._numbers: set[str] = set()  # tensors of the parent without NaN
        self._layers: dict[str, Layer] = {layer.name: layer for layer in plan.child.layers}

    def make(self, entry: Entry) -> Array | Laid:
        """Make one tensor of the child, as its entry in the plan says."""
        tensor = self._plan.child.tensors[entry.tensor]
        dtype = dtype_of(tensor.dtype)
        if entry.source:
            made = self._gathered(
                self._plan.pairs[entry.like or entry.tensor], self._layouts.get(tensor.name)
            )
            if isinstance(made, Laid):
                return Laid(self._doubled(entry, made.array).astype(dtype, copy=False), made.layout)
        elif entry.value == "identity":
            made = self._identity(entry, tensor)
        elif entry.value == "neutral":
            made = np.full(tensor.shape, np.sqrt(1.0 + self._epsilon(entry)))
        else:
            made = np.full(tensor.shape, 1.0 if entry.value == "one" else 0.0)
        return self._doubled(entry, made).astype(dtype, copy=False)

    def _doubled(self, entry: Entry, made: Array) -> Array:
        """A tensor as it was made, or twice that: see `gates`."""
        return made + made if entry.tensor in self._plan.doubled else made

    def _source(self, tensor: Tensor) -> Array:
        """Read a tensor of the parent and check that it is what the parent's graph says."""
        try:
            array = self._tensors[tensor.name]
        except KeyError:
            raise InvalidWeights(tensor.name, "the parent's weights do not hold it") from None
        if not isinstance(array, np.ndarray):
            raise InvalidWeights(tensor.name, f"a {type(array).__name__}, not an array")
        if array.dtype.kind not in "biufc" and array.dtype not in SMALL_FLOATS:
            raise InvalidWeights(tensor.name, f"an array of {array.dtype}, not of numbers")
        if tuple(array.shape) != tensor.shape:
            raise InvalidWeights(
                tensor.name, f"shape {tuple(array.shape)}, the parent's graph says {tensor.shape}"
            )
        if tensor.name not in self._numbers:
            if holds_nan(array):
                raise InvalidWeights(tensor.name, "the parent's weights hold NaN: its training has failed")
            self._numbers.add(tensor.name)
        return array

    def _gathered(self, pair: TensorPair, layout: Layout | None) -> Array | Laid:
        """Gather a tensor of the child from the parent's, along all axes at once."""
        array = _in_child_order(self._folded(pair), pair)
        axes = list(pair.axis_pairs())
        same = [self._plan.maps.identical(child_axis.of, parent_axis.of) for child_axis, parent_axis in axes]
        moved = None if layout is None or layout.is_plain else layout
        if all(same) and moved is None:
            return array.reshape(pair.child.shape)  # as it is: whoever loads it copies it
        maps: list[AxisMap] = []
        mean_units: dict[int, Mask] = {}  # by axis: which units become the mean of the others
        for position, (child_axis, parent_axis) in enumerate(axes):
            axis_map = AxisMap()
            if not same[position]:
                matrix = self._plan.maps.resampled(pair.child, child_axis, parent_axis)
                if matrix is not None:
                    array = _resampled(array, position, matrix)
                else:
                    axis_map, averaged = self._axis_map(pair.child, child_axis, parent_axis)
                    if averaged.any():
                        mean_units[position] = averaged
            maps.append(axis_map)
        maps = self._scaled(pair.child, maps, [child_axis.size for child_axis, _ in axes], array.dtype)
        in_memory = moved.in_memory() if moved is not None and not mean_units else None
        try:
            if moved is not None and in_memory is not None and len(axes) > 1:
                return Laid(_gather_moved(array, maps, pair, in_memory).reshape(moved.first), moved)
            made = gather(array, maps, [child_axis.size for child_axis, _ in axes])
        except CannotGather as error:
            raise InvalidWeights(pair.parent.name, error.problem) from None
        if len(maps) == 1 and maps[0].index is not None and pair.child.role in _NEUTRAL:
            made[maps[0].index < 0] = _NEUTRAL[pair.child.role]
        for position, averaged in mean_units.items():
            _set_to_mean(made, position, averaged)
        return made.reshape(pair.child.shape)

    def _axis_map(self, tensor: Tensor, child_axis: Axis, parent_axis: Axis) -> tuple[AxisMap, Mask]:
        """Where the units along an axis come from, and which of them become the mean of the others.

        The latter have no source here, unless nothing reads the tensor: then any unit serves.
        """
        index, factor = self._plan.maps.gather(child_axis, parent_axis, self._importance)
        averaged = index == MEAN
        if averaged.any() and self._plan.maps.unread(tensor):
            index = np.where(averaged, np.arange(len(index)) % parent_axis.size, index)
            averaged = np.zeros(len(index), np.bool_)
        elif averaged.any():
            index = np.where(averaged, NOTHING, index)
        if (index == NOTHING).any() and self._plan.maps.never_zero(tensor, child_axis):
            index = np.where(index == NOTHING, np.arange(len(index)) % parent_axis.size, index)
        return AxisMap(index, None if (factor == 1).all() else factor), averaged

    def _scaled(
        self, tensor: Tensor, maps: list[AxisMap], shape: list[int], dtype: np.dtype[Any]
    ) -> list[AxisMap]:
        """The maps of all axes, the first one with the tensor's scale. Whole numbers take no factors."""
        if not np.issubdtype(dtype, np.inexact) and dtype not in SMALL_FLOATS:
            return [AxisMap(axis_map.index, None) for axis_map in maps]
        scale = self._plan.maps.scale(tensor)
        if scale == 1 or not maps:
            return maps
        first = maps[0]
        factor = np.full(shape[0], scale) if first.factor is None else first.factor * scale
        return [AxisMap(first.index, factor), *maps[1:]]

    def _folded(self, pair: TensorPair) -> Array:
        """A tensor of the parent, merged and folded: in it, kept units stand in for dropped ones."""
        merge = self._plan.merges.get(pair.parent.name)
        other = self._plan.epsilons.get(pair.child.name)
        if other is not None:
            array = other.apply(pair.child.role, self._source)
        else:
            array = merge.apply(pair.parent, self._source) if merge else self._source(pair.parent)
        if self._fold is not None:
            for (child_axis, parent_axis), number in zip(pair.axis_pairs(), pair.parent_axes(), strict=True):
                for space, kept in self._plan.maps.dropping(child_axis, parent_axis, self._importance):
                    fold = self._fold(space, kept)
                    if fold is not None:
                        array = folded(array, parent_axis, number, space, fold)
        return array

    def _epsilon(self, entry: Entry) -> float:
        """What the batch norm of an entry adds to variances; 0 for other layers."""
        layer = self._layers[entry.layer]
        return epsilon_of(layer) if layer.kind == BATCH_NORM else 0.0

    def _identity(self, entry: Entry, tensor: Tensor) -> Array:
        """The weights of a new layer that hands each unit on: copies of one source share in it."""
        out_axis = next(n for n, axis in enumerate(tensor.axes) if axis.role == "out")
        in_axis = next(n for n, axis in enumerate(tensor.axes) if axis.role == "in")
        kernel = [size for n, size in enumerate(tensor.shape) if n not in (out_axis, in_axis)]
        middle: tuple[Any, ...] = tuple((size - 1) // 2 for size in kernel)
        made = np.zeros(tensor.shape)
        view = np.moveaxis(made, (out_axis, in_axis), (0, 1))
        view[(..., *middle)] = self._identity_matrix(entry, tensor.axes[out_axis], tensor.axes[in_axis])
        if self._plan.noise:
            rng = np.random.default_rng((self._plan.seed, *entry.tensor.encode()))
            row_size = made.size / max(1, tensor.shape[out_axis])
            made += self._plan.noise * rng.standard_normal(made.shape) / np.sqrt(row_size)
        return made

    def _identity_matrix(self, entry: Entry, out_axis: Axis, in_axis: Axis) -> Array:
        """How much each output of a new layer takes of each input: outputs x inputs (of one group)."""
        groups = self._groups(entry)
        out_source, _ = self._origin(out_axis)
        in_source, share = self._origin(in_axis)
        if groups > 1 or out_source is None or in_source is None:
            outputs, inputs = np.arange(out_axis.size), np.arange(in_axis.size)
            taken = outputs % max(1, out_axis.size // groups)
            matrix: Array = (taken[:, None] == inputs[None, :]).astype(float)
        else:
            matrix = (out_source[:, None] == in_source[None, :]) * share[None, :]
            # Units of which all that feeds them was dropped: never exact, but zero would stay zero.
            bare = np.flatnonzero((out_source % 2**32 < 2**31) & ~matrix.any(1))
            matrix[bare, bare % in_axis.size] = 1.0
        return matrix

    def _groups(self, entry: Entry) -> int:
        """How many groups the layer of an entry has."""
        value = self._layers[entry.layer].attributes.get("groups", 1)
        return value if isinstance(value, int) else 1

    def _origin(self, axis: Axis) -> tuple[Index | None, Shares]:
        """The parent's units behind an axis that is one space, and the shares they are read by."""
        if isinstance(axis.of, Atom):
            partner = self._plan.maps.partner(axis.of.space)
            if partner is not None:
                unit_map = self._plan.maps.space(axis.of.space, partner, self._importance)
                return unit_map.source + partner * 2**32, unit_map.share
        return None, np.ones(axis.size)


def _in_child_order(array: Array, pair: TensorPair) -> Array:
    """A tensor of the parent with its axes in the child's order; axes that the child lacks have size one."""
    order = list(pair.parent_axes())
    missing = [number for number in range(array.ndim) if number not in order]
    return array.transpose(order + missing).reshape([array.shape[number] for number in order])


def _gather_moved(
    array: Array, maps: list[AxisMap], pair: TensorPair, in_memory: list[tuple[int, Array]]
) -> Array:
    """Gather along all axes, and write in the order in which the child stores them (see `Layout`)."""
    present = [axis for axis, number in enumerate(pair.axes) if number is not None]  # others have size one
    order = [(present.index(axis), units) for axis, units in in_memory if axis in present]
    reordered = [_reordered(maps[position], units) for position, units in order]
    shape = [len(units) for _, units in order]
    return gather(array.transpose([position for position, _ in order]), reordered, shape)


def _reordered(axis_map: AxisMap, units: Array) -> AxisMap:
    """The map of an axis whose units are to be made in another order."""
    if (units == np.arange(len(units))).all():
        return axis_map
    index = units if axis_map.index is None else axis_map.index[units]
    return AxisMap(index, None if axis_map.factor is None else axis_map.factor[units])


def _set_to_mean(array: Array, axis: int, chosen: Mask) -> None:
    """Make some units along an axis the mean of the others, in place."""
    rows = np.moveaxis(array, axis, 0)
    rows[chosen] = rows[~chosen].mean(0, dtype=np.float64).astype(array.dtype)


def _resampled(array: Array, axis: int, matrix: Array) -> Array:
    """Resample learned positions along one axis."""
    moved = np.moveaxis(array, axis, 0)
    made = np.tensordot(matrix, moved.astype(np.float64), 1).astype(array.dtype)
    return np.ascontiguousarray(np.moveaxis(made, 0, axis))
