"""Carry out a plan: the child's tensors, one after the other, from the parent's.

Nothing is held but the tensor at hand: the parent's tensors are asked for by name, when they are needed, and
each of the child's is handed over before the next one is made. So a file can be read, transformed and sent on
without ever being in memory as a whole. Tensors that the plan keeps are not in what comes out: the child has
them already.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from modelkeeper.errors import CannotGather, InvalidWeights
from modelkeeper.graph import Atom, Axis, Layer, Tensor
from modelkeeper.graph.vocabulary import BATCH_NORM
from modelkeeper.transform.gather import AxisMap, gather
from modelkeeper.transform.importance import Importance, folded
from modelkeeper.transform.pairing import TensorPair
from modelkeeper.transform.plan import Entry, Plan
from modelkeeper.transform.units import MEAN, NOTHING, Index, Shares
from modelkeeper.weights import SMALL_FLOATS, Array, dtype_of, holds_nan

# What a norm does to a unit that is new: nothing. (Zero would never learn: its reader is zero, too.)
_NEUTRAL = {"gain": 1.0, "variance": 1.0}


def apply(
    plan: Plan, tensors: Mapping[str, Array], *, importance: Callable[[int], Shares] | None = None
) -> Iterator[tuple[str, Array]]:
    """The child's tensors by name, in the child's order and dtype, each made when it is asked for.

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

    Raises:
        InvalidWeights: A tensor of the parent is missing, is no array of numbers, holds NaN, or has another
            shape than its graph says. What came before it was handed over already: whoever loads the tensors
            takes them all before writing the first.
    """
    run = _Run(plan, tensors, importance)
    for entry in plan.entries:
        if entry.action != "kept":
            yield entry.tensor, run.make(entry)


class _Run:
    def __init__(
        self, plan: Plan, tensors: Mapping[str, Array], importance: Callable[[int], Shares] | None
    ) -> None:
        self._plan, self._tensors = plan, tensors
        own = Importance(plan.parent, self._source)
        self._importance: Callable[[int], Shares] = importance or own
        self._fold = own.fold if importance is None else None
        self._layers: dict[str, Layer] = {layer.name: layer for layer in plan.child.layers}

    def make(self, entry: Entry) -> Array:
        tensor = self._plan.child.tensors[entry.tensor]
        if entry.source:
            made = self._gathered(self._plan.pairs[entry.like or entry.tensor])
        elif entry.value == "identity":
            made = self._identity(entry, tensor)
        elif entry.value == "neutral":
            made = np.full(tensor.shape, np.sqrt(1.0 + self._epsilon(entry)))
        else:
            made = np.full(tensor.shape, 1.0 if entry.value == "one" else 0.0)
        return made.astype(dtype_of(tensor.dtype), copy=False)

    def _source(self, tensor: Tensor) -> Array:
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
        if holds_nan(array):
            raise InvalidWeights(tensor.name, "the parent's weights hold NaN: its training has failed")
        return array

    def _gathered(self, pair: TensorPair) -> Array:
        array = self._folded(pair)
        order = [number for number in pair.axes if number is not None]
        rest = [number for number in range(array.ndim) if number not in order]
        array = array.transpose(order + rest).reshape([array.shape[number] for number in order])
        shape = [
            axis.size for axis, number in zip(pair.child.axes, pair.axes, strict=True) if number is not None
        ]
        same = [self._plan.maps.identical(ours.of, theirs.of) for ours, theirs in pair.expressions()]
        if all(same):
            return array.reshape(pair.child.shape)  # as it is: whoever loads it copies it
        maps, means = [], []
        for position, (ours, theirs) in enumerate(pair.expressions()):
            if same[position]:
                maps.append(AxisMap())
                continue
            matrix = self._plan.maps.resampled(pair.child, ours, theirs)
            if matrix is not None:
                array = _resampled(array, position, matrix)
                maps.append(AxisMap())
                continue
            index, factor = self._plan.maps.gather(ours, theirs, self._importance)
            new = index == MEAN
            if new.any() and self._plan.maps.unread(pair.child):
                index = np.where(new, np.arange(len(index)) % theirs.size, index)
            elif new.any():
                means.append((position, new))
                index = np.where(new, NOTHING, index)
            maps.append(AxisMap(index, None if (factor == 1).all() else factor))
        scale = self._plan.maps.scale(pair.child)
        if scale != 1 and maps:
            factor = np.full(shape[0], scale) if maps[0].factor is None else maps[0].factor * scale
            maps[0] = AxisMap(maps[0].index, factor)
        if not np.issubdtype(array.dtype, np.inexact) and array.dtype not in SMALL_FLOATS:
            maps = [AxisMap(each.index, None) for each in maps]
        try:
            made = gather(array, maps, shape)
        except CannotGather as error:
            raise InvalidWeights(pair.parent.name, error.problem) from None
        if len(maps) == 1 and maps[0].index is not None and pair.child.role in _NEUTRAL:
            made[maps[0].index < 0] = _NEUTRAL[pair.child.role]
        for position, new in means:
            rows = np.moveaxis(made, position, 0)
            rows[new] = rows[~new].mean(0, dtype=np.float64).astype(made.dtype)
        return made.reshape(pair.child.shape)

    def _folded(self, pair: TensorPair) -> Array:
        """A tensor of the parent, in which kept units stand in for dropped ones."""
        merge = self._plan.merges.get(pair.parent.name)
        array = merge.apply(pair.parent, self._source) if merge else self._source(pair.parent)
        if self._fold is not None:
            for (ours, theirs), number in zip(pair.expressions(), pair.parents(), strict=True):
                for space, kept in self._plan.maps.dropping(ours, theirs, self._importance):
                    fold = self._fold(space, kept)
                    if fold is not None:
                        array = folded(array, theirs, number, space, fold)
        return array

    def _epsilon(self, entry: Entry) -> float:
        layer = self._layers[entry.layer]
        value = layer.attributes.get("eps", 0.0)
        return float(value) if layer.kind == BATCH_NORM and isinstance(value, (int, float)) else 0.0

    def _identity(self, entry: Entry, tensor: Tensor) -> Array:
        """Each unit goes through as it is: copies of one source share in what they hand on."""
        out = next(n for n, axis in enumerate(tensor.axes) if axis.role == "out")
        taken = next(n for n, axis in enumerate(tensor.axes) if axis.role == "in")
        made = np.zeros(tensor.shape)
        kernel = [size for n, size in enumerate(tensor.shape) if n not in (out, taken)]
        middle: tuple[Any, ...] = tuple((size - 1) // 2 for size in kernel)
        groups = self._groups(entry)
        rows, columns = tensor.shape[out], tensor.shape[taken]
        source_out, _ = self._origin(tensor.axes[out])
        source_in, share = self._origin(tensor.axes[taken])
        if groups > 1 or source_out is None or source_in is None:
            unit = np.arange(rows)
            matrix = (unit[:, None] % max(1, rows // groups) == np.arange(columns)[None, :]).astype(float)
        else:
            matrix = (source_out[:, None] == source_in[None, :]) * share[None, :]
        view = np.moveaxis(made, (out, taken), (0, 1))
        view[(..., *middle)] = matrix
        if self._plan.noise:
            rng = np.random.default_rng((self._plan.seed, *entry.tensor.encode()))
            made += self._plan.noise * rng.standard_normal(made.shape) / np.sqrt(made.size / max(1, rows))
        return made

    def _groups(self, entry: Entry) -> int:
        value = self._layers[entry.layer].attributes.get("groups", 1)
        return value if isinstance(value, int) else 1

    def _origin(self, axis: Axis) -> tuple[Index | None, Shares]:
        """The parent's units behind an axis that is one space, and the shares they are read by."""
        if isinstance(axis.of, Atom):
            partner = self._plan.maps.partner(axis.of.space)
            if partner is not None:
                found = self._plan.maps.space(axis.of.space, partner, self._importance)
                return found.source + partner * 2**32, found.share
        return None, np.ones(axis.size)


def _resampled(array: Array, axis: int, matrix: Array) -> Array:
    """Other positions along one axis."""
    moved = np.moveaxis(array, axis, 0)
    made = np.tensordot(matrix, moved.astype(np.float64), 1).astype(array.dtype)
    return np.ascontiguousarray(np.moveaxis(made, 0, axis))
