"""Sums, means and other reductions, softmax, and what else runs along an axis."""

from collections.abc import Sequence

from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, NotLowered
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Value

_REDUCED = {
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    "ReduceMax": "amax",
    "ReduceMin": "amin",
    "ReduceProd": "prod",
    "ReduceLogSumExp": "logsumexp",
    "ReduceL2": "linalg_vector_norm",
    "ReduceL1": "linalg_vector_norm",
    "ReduceSumSquare": "sum",
}


@lowers(*_REDUCED)
def _reduce(low: Lowering, call: Call) -> Entry:
    value, rank = low.value(call.needed(0)), len(call.needed(0).shape)
    axes = low.numbers(call, "axes", 1)
    if not axes:
        if call.get("noop_with_empty_axes", 0):
            return value
        axes = list(range(rank))
    keep = bool(call.get("keepdims", 1))
    spatial = sorted(axis % rank for axis in axes) == list(range(2, rank))
    if call.node.op == "ReduceMean" and keep and spatial and rank in (4, 5):
        return low.step(f"adaptive_avg_pool{rank - 2}d", call, self=value, output_size=[1] * (rank - 2))
    if call.node.op == "ReduceSumSquare":
        value = low.build.step("pow", value.shape, self=value, exponent=2)
    power = {"ReduceL1": 1, "ReduceL2": 2}.get(call.node.op)
    return low.step(_REDUCED[call.node.op], call, self=value, ord=power, dim=axes, keepdim=keep or None)


@lowers("Softmax", "LogSoftmax")
def _softmax(low: Lowering, call: Call) -> Value:
    value, rank = low.value(call.needed(0)), len(call.shape)
    name = "softmax" if call.node.op == "Softmax" else "log_softmax"
    axis = call.get("axis", -1 if call.opset >= 13 else 1)
    if call.opset >= 13 or axis % rank == rank - 1:
        return low.step(name, call, self=value, dim=axis)
    flat = low.view(value, _as_matrix(value.shape, axis))
    return low.view(low.build.step(name, flat.shape, self=flat, dim=1), call.shape)


def _as_matrix(shape: Sequence[int], axis: int) -> tuple[int, int]:
    """The shape that is left when all axes before one, and all behind it, are joined."""
    rows = columns = 1
    for number, size in enumerate(shape):
        if number < axis % max(1, len(shape)):
            rows *= size
        else:
            columns *= size
    return rows, columns


@lowers("ArgMax", "ArgMin")
def _argument(low: Lowering, call: Call) -> Value:
    if call.get("select_last_index", 0):
        raise NotLowered
    name = call.node.op.lower()
    keep = bool(call.get("keepdims", 1)) or None
    return low.step(name, call, self=low.value(call.needed(0)), dim=call.get("axis", 0), keepdim=keep)


@lowers("CumSum")
def _cumulative(low: Lowering, call: Call) -> Value:
    axis = low.number(call[1])
    if axis is None or call.get("exclusive") or call.get("reverse"):
        raise NotLowered
    return low.step("cumsum", call, self=low.value(call.needed(0)), dim=int(axis))


@lowers("TopK")
def _largest(low: Lowering, call: Call) -> Sequence[Value]:
    shapes = [made.shape for made in call.made]
    count = low.numbers(call, "k", 1)
    if count is None or None in shapes:
        raise NotLowered
    return low.build.results(
        "topk",
        [shape for shape in shapes if shape is not None],
        self=low.value(call.needed(0)),
        k=count[0],
        dim=call.get("axis", -1),
        largest=bool(call.get("largest", 1)),
    )
