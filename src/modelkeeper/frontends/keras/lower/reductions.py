"""Rules for sums, means and other statistics, and for what runs along an axis."""

import math
from typing import Any

from modelkeeper.frontends.keras.lower.lowering import Lowering
from modelkeeper.frontends.keras.lower.seen import Seen
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, axes_of, lowers
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.tracing.trace import Value

REDUCTIONS = {
    "All": "all",
    "Amax": "amax",
    "Amin": "amin",
    "Any": "any",
    "Logsumexp": "logsumexp",
    "Max": "amax",
    "Mean": "mean",
    "Min": "amin",
    "Prod": "prod",
    "Std": "std",
    "Sum": "sum",
    "Var": "var",
}


@lowers(*REDUCTIONS)
def _reduce(low: Lowering, call: Call) -> Seen:
    operation = call.operation
    keep = bool(getattr(operation, "keepdims", False))
    return reduce(low, low.moved(call.args[0]), REDUCTIONS[call.name], operation.axis, keep)


def reduce(low: Lowering, seen: Seen, name: str, axis: Any, keep: bool) -> Seen:
    """A statistic over some of Keras' axes."""
    rank = len(seen.shape)
    axes = axes_of(axis, rank)
    dims = sorted(seen.order[n] for n in axes)
    places = dims == list(range(2, rank)) and (rank in (4, 5) or (rank == 3 and not seen.in_order))
    if name == "mean" and places:
        return _over_places(low, seen, keep)
    shape = [1 if n in dims else size for n, size in enumerate(seen.value.shape) if keep or n not in dims]
    extra = {"correction": 0} if name in ("var", "std") else {}
    written: list[int] | None = [n - rank if n == rank - 1 and axis == -1 else n for n in dims]
    if axis is None and not keep:
        written = None
    made = low.step(name, shape, self=seen.value, dim=written, **extra, keepdim=keep or None)
    if keep:
        return Seen.moved(made, seen.order)
    left = [n for n in range(rank) if n not in dims]
    return Seen.moved(made, [left.index(seen.order[n]) for n in range(rank) if n not in axes])


def _over_places(low: Lowering, seen: Seen, keep: bool) -> Seen:
    """The mean over all places of an image: a global pooling."""
    count = len(seen.shape) - 2
    shape = [*seen.value.shape[:2], *[1] * count]
    made = low.step(f"adaptive_avg_pool{count}d", shape, self=seen.value, output_size=[1] * count)
    return Seen.moved(made, seen.order) if keep else Seen.plain(low.build.view(made, shape[:2]))


@lowers("Moments")
def _moments(low: Lowering, call: Call) -> list[Seen]:
    operation, seen = call.operation, low.moved(call.args[0])
    keep = bool(operation.keepdims)
    return [reduce(low, seen, name, list(operation.axes), keep) for name in ("mean", "var")]


@lowers("CountNonzero")
def _count_nonzero(low: Lowering, call: Call) -> Seen:
    seen = low.moved(call.args[0])
    axes = axes_of(call.operation.axis, len(seen.shape))
    dims = sorted(seen.order[n] for n in axes)
    shape = [size for n, size in enumerate(seen.value.shape) if n not in dims]
    left = [n for n in range(len(seen.shape)) if n not in dims]
    made = low.step("count_nonzero", shape, self=seen.value, dim=dims)
    return Seen.moved(made, [left.index(seen.order[n]) for n in range(len(seen.shape)) if n not in axes])


@lowers("Argmax", "Argmin")
def _arg(low: Lowering, call: Call) -> Value:
    operation, value = call.operation, low.plain(call.args[0])
    keep = bool(getattr(operation, "keepdims", False)) or None
    shape = call.outputs[0].shape
    return low.step(call.name.lower(), shape, self=value, dim=operation.axis, keepdim=keep)


@lowers("Softmax", "LogSoftmax")
def _softmax(low: Lowering, call: Call) -> Seen:
    axis = call.operation.axis
    if isinstance(axis, (list, tuple)):
        if len(axis) != 1:
            raise CannotLower("over several axes")
        axis = axis[0]
    name = "softmax" if call.name == "Softmax" else "log_softmax"
    return _along(low, call.args[0], name, axis)


def _along(low: Lowering, thing: Any, name: str, axis: Any) -> Seen:
    """Something that runs along one axis; the last axis is written as -1, as people write it."""
    if axis is None:
        raise CannotLower("along no axis in particular")
    seen = low.seen(thing)
    if isinstance(seen, Seen) and seen.flattened and axis in (-1, 1):
        return seen.through(low.step(name, seen.value.shape, self=seen.value, dim=-1))
    seen = low.moved(thing)
    dim = seen.order[axis % len(seen.shape)]
    dim = -1 if axis == -1 and dim == len(seen.shape) - 1 else dim
    return Seen.moved(low.step(name, seen.value.shape, self=seen.value, dim=dim), seen.order)


@lowers("Cumsum", "Cumprod")
def _cumulate(low: Lowering, call: Call) -> Seen:
    return _along(low, call.args[0], call.name.lower(), call.operation.axis)


@lowers("Sort")
def _sort(low: Lowering, call: Call) -> Value:
    value = low.plain(call.args[0])
    return low.step("sort", value.shape, self=value, dim=call.operation.axis)


@lowers("TopK")
def _top_k(low: Lowering, call: Call) -> list[Value]:
    value, shape = low.plain(call.args[0]), call.outputs[0].shape
    return low.steps("topk", [shape, shape], self=value, k=int(call.operation.k))


@lowers("Normalize")
def _normalize(low: Lowering, call: Call) -> Seen:
    """To length one along an axis: divided by the norm, which is no less than epsilon."""
    operation = call.operation
    if operation.order != 2:
        raise CannotLower(f"normalised by a norm of order {operation.order}")
    seen = low.moved(arguments(call)["x"])
    dims = sorted(seen.order[n] for n in axes_of(operation.axis, len(seen.shape)))
    shape = [1 if n in dims else size for n, size in enumerate(seen.value.shape)]
    length = low.step("linalg_vector_norm", shape, self=seen.value, ord=2, dim=dims, keepdim=True)
    least = low.step("clamp_min", shape, self=length, min=math.sqrt(operation.epsilon))
    return Seen.moved(low.step("div", seen.value.shape, self=seen.value, other=least), seen.order)
