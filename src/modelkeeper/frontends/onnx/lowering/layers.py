"""Convolutions, products with a weight, norms, embeddings: what has weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from modelkeeper.frontends.onnx.lowering import patterns
from modelkeeper.frontends.onnx.lowering.attention import attended
from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, NotLowered, Stored, short
from modelkeeper.frontends.onnx.lowering.patterns import step_of
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Value

_TRANSPOSED = (1, 0)


@lowers("Conv")
def _conv(low: Lowering, call: Call) -> Value:
    value, weight = low.value(call.needed(0)), call.needed(1)
    rank = len(weight.shape) - 2
    if rank not in (1, 2, 3):
        raise NotLowered
    strides, dilations = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    pads = window_pads(call, value.shape[2:], weight.shape[2:], strides, dilations)
    value, pads = _with_padding(low, value, pads)
    return low.step(
        f"conv{rank}d",
        call,
        input=value,
        weight=low.value(weight),
        bias=_vector(low, call[2]),
        stride=list(strides),
        padding=written_pads(pads),
        dilation=list(dilations),
        groups=call.get("group", 1),
    )


@lowers("ConvTranspose")
def _conv_transpose(low: Lowering, call: Call) -> Value:
    value, weight = low.value(call.needed(0)), call.needed(1)
    rank = len(weight.shape) - 2
    if (
        rank not in (1, 2, 3)
        or call.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
        or call.get("output_shape")
    ):
        raise NotLowered
    pads = list(call.get("pads", [0] * 2 * rank))
    return low.step(
        f"conv_transpose{rank}d",
        call,
        input=value,
        weight=low.value(weight),
        bias=_vector(low, call[2]),
        stride=list(call.get("strides", [1] * rank)),
        padding=written_pads(pads),
        output_padding=list(call.get("output_padding", [0] * rank)),
        groups=call.get("group", 1),
        dilation=list(call.get("dilations", [1] * rank)),
    )


def window_pads(
    call: Call, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """How many zeros are put before, and then behind, each axis that a window slides over."""
    kind = call.get("auto_pad", "NOTSET")
    if kind in ("NOTSET", ""):
        return list(call.get("pads", [0] * 2 * len(sizes)))
    if kind == "VALID":
        return [0] * 2 * len(sizes)
    before, after = [], []
    for size, extent, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        needed = max(0, (math.ceil(size / stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        less, more = needed // 2, needed - needed // 2
        before.append(less if kind == "SAME_UPPER" else more)
        after.append(more if kind == "SAME_UPPER" else less)
    return before + after


def written_pads(pads: Sequence[int]) -> list[int]:
    """Pads as steps have them: one number for each axis if they are the same on both sides."""
    rank = len(pads) // 2
    return list(pads[:rank]) if pads[:rank] == pads[rank:] else list(pads)


def _with_padding(low: Lowering, value: Value, pads: list[int]) -> tuple[Value, list[int]]:
    """What a convolution takes, and its padding together with the zeros that were put around it before."""
    step, rank = step_of(value, "pad"), len(pads) // 2
    if step is None or not low.alone(value) or "mode" in step.arguments or any(pads):
        return value, pads
    around = step.arguments["pad"]  # the last axis first
    if len(around) > 2 * rank or min(around) < 0:
        return value, pads
    around = [*around, *[0] * (2 * rank - len(around))]
    return step.inputs[0], [*around[::2][::-1], *around[1::2][::-1]]


def _vector(low: Lowering, entry: Entry | None) -> Value | None:
    """A bias or a gain: one number for each unit."""
    if entry is None or (isinstance(entry, np.ndarray) and not np.any(entry)):
        return None
    return low.tensor(entry, (math.prod(entry.shape),)) if isinstance(entry, Stored) else low.value(entry)


@lowers("Gemm")
def _gemm(low: Lowering, call: Call) -> Value:
    value, weight, bias = low.value(call.needed(0)), call.needed(1), call[2]
    alpha, beta = short(call.get("alpha", 1.0)), short(call.get("beta", 1.0))
    if call.get("transA", 0):
        value = low.permute(value, _TRANSPOSED)
    units = weight.shape[0] if call.get("transB", 0) else weight.shape[1]
    flat = isinstance(bias, Stored) and bias.shape in ((units,), (1, units))
    own = _vector(low, bias) if flat and (alpha, beta) == (1.0, 1.0) else None
    if isinstance(weight, Stored):
        turned = weight if call.get("transB", 0) else weight.turned(_TRANSPOSED)
        made = low.step("linear", call, input=value, weight=low.value(turned), bias=own)
    else:
        other = low.value(weight)
        other = low.permute(other, _TRANSPOSED) if call.get("transB", 0) else other
        made, own = low.step("matmul", call, self=value, other=other), None
    if alpha != 1.0:
        made = low.step("mul", call, self=made, other=alpha)
    if bias is not None and own is None:
        added = low.value(bias)
        if beta != 1.0:
            added = low.build.step("mul", added.shape, self=added, other=beta)
        made = low.step("add", call, self=made, other=added)
    return made


@lowers("MatMul")
def _matmul(low: Lowering, call: Call) -> Value:
    left, right = call.needed(0), call.needed(1)
    if isinstance(right, Stored) and len(right.shape) == 2 and isinstance(left, Value):
        return low.step("linear", call, input=left, weight=low.value(right.turned(_TRANSPOSED)))
    attention = attended(low, call, left, right)
    return attention or low.step("matmul", call, self=low.value(left), other=low.value(right))


@lowers("BatchNormalization")
def _batch_norm(low: Lowering, call: Call) -> Sequence[Value]:
    statistics = [
        low.tensor(entry, parameter=False) if isinstance(entry, Stored) else low.value(entry)
        for entry in (call.needed(3), call.needed(4))
    ]
    training = bool(call.get("training_mode", 0))
    made = low.step(
        "batch_norm",
        call,
        input=low.value(call.needed(0)),
        weight=_vector(low, call[1]),
        bias=_vector(low, call[2]),
        running_mean=statistics[0],
        running_var=statistics[1],
        training=training,
        eps=short(call.get("epsilon", 1e-5)),
    )
    return [made, *statistics][: len(call.node.outputs)]


@lowers("InstanceNormalization")
def _instance_norm(low: Lowering, call: Call) -> Value:
    return low.step(
        "instance_norm",
        call,
        input=low.value(call.needed(0)),
        weight=_vector(low, call.needed(1)),
        bias=_vector(low, call.needed(2)),
        use_input_stats=True,
        eps=short(call.get("epsilon", 1e-5)),
    )


@lowers("GroupNormalization")
def _group_norm(low: Lowering, call: Call) -> Value:
    value, gain = low.value(call.needed(0)), call.needed(1)
    if gain.shape != (value.shape[1],):
        raise NotLowered  # before opset 21 a gain was one for each group
    return low.build.step(
        "group_norm",
        value.shape,
        input=value,
        num_groups=call.get("num_groups"),
        weight=_vector(low, gain),
        bias=_vector(low, call.needed(2)),
        eps=own_eps(call),
    )


def own_eps(call: Call) -> float | None:
    """The epsilon of a norm, if it is not the usual one."""
    return patterns.unusual_eps(short(call.get("epsilon", patterns.USUAL_EPS)))


@lowers("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(low: Lowering, call: Call) -> Value:
    value = low.value(call.needed(0))
    over = list(value.shape[call.get("axis", -1) % len(value.shape) :])
    gain, bias = call.needed(1), call[2]
    layer = call.node.op == "LayerNormalization"
    if gain.shape != tuple(over) or (bias is not None and bias.shape != tuple(over)):
        raise NotLowered
    eps = own_eps(call)
    given: dict[str, Any] = {"input": value, "normalized_shape": over, "weight": low.value(gain), "eps": eps}
    if bias is not None and layer:
        given["bias"] = low.value(bias)
    return low.build.step("layer_norm" if layer else "rms_norm", value.shape, **given)


@lowers("Gather")
def _gather(low: Lowering, call: Call) -> Value:
    data, indices = call.needed(0), call.needed(1)
    axis = call.get("axis", 0) % len(data.shape)
    table = isinstance(data, Stored) or (isinstance(data, Value) and not data.active and data.floating)
    if table and axis == 0 and len(data.shape) == 2 and indices.shape:
        return low.step("embedding", call, weight=low.value(data), indices=low.value(indices))
    value, known = low.value(data), low.array(indices)
    if known is not None and known.ndim == 0:
        return low.step("select", call, self=value, dim=axis, index=int(known))
    if known is not None and known.ndim == 1 and len(known):
        places = [int(place) % value.shape[axis] for place in known]  # -1 is the last: 0 does not follow it
        start, end = places[0], places[0] + len(places)
        if places == list(range(start, end)):
            return low.step("slice", call, self=value, dim=axis, start=start, end=end)
    return low.step("index", call, self=value, indices=[*[None] * axis, low.value(indices)])
