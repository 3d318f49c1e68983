"""Rules for norms: over batches, over the last axes, over groups of channels."""

from typing import Any

import keras
import numpy as np

from modelkeeper.frontends.keras.lower.lowering import Lowering
from modelkeeper.frontends.keras.lower.seen import Held, Seen, inverse
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, axes_of, lowers
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.frontends.keras.variables import shape_of
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import Value

USUAL = 1e-5  # an epsilon that is left out where the vocabulary takes it for granted


def _vector(low: Lowering, thing: Any, along: Seen | None = None) -> Value | None:
    """A number for each unit; of a flattened image in the order of its value."""
    if thing is None:
        return None
    held = low.seen(thing)
    if isinstance(held, Held):
        units = low.units(held, along) if along is not None else None
        return low.enter(held.variable, Layout.plain(shape_of(held.variable))) if units is None else units
    return low.plain(held)


@lowers("BatchNorm")
def _batch_norm(low: Lowering, call: Call) -> Seen:
    given = arguments(call)
    seen, rank = low.seen(given["x"]), len(given["x"].shape)
    axis = call.operation.axis % rank
    flat = seen if isinstance(seen, Seen) and seen.flattened and axis == 1 else None
    order = [0, axis, *[n for n in range(1, rank) if n != axis]]
    value = flat.value if flat is not None else low.arranged(seen, order)
    scale, offset, mean, variance = (
        _vector(low, given[name], flat) for name in ("scale", "offset", "mean", "variance")
    )
    made = low.step(
        "batch_norm",
        value.shape,
        input=value,
        weight=scale,
        bias=offset,
        running_mean=mean,
        running_var=variance,
        training=False,
        momentum=0.1,
        eps=float(call.operation.epsilon),
    )
    return flat.through(made) if flat is not None else Seen.moved(made, inverse(order))


def _eps(epsilon: Any) -> float | None:
    value = float(keras.config.epsilon() if epsilon is None else epsilon)
    return None if value == USUAL else value


def _last_axes(call: Call, rank: int) -> int:
    """Over how many of the last axes a norm goes."""
    axes = sorted(axes_of(call.operation.axis, rank))
    if axes != list(range(rank - len(axes), rank)):
        raise CannotLower("a norm over other axes than the last")
    return len(axes)


@lowers("LayerNorm")
def _layer_norm(low: Lowering, call: Call) -> Seen:
    given = arguments(call)
    if getattr(call.operation, "rms_scaling", False):
        raise CannotLower("a layer norm that scales by the variance alone")
    gain, bias = given.get("gamma"), given.get("beta")
    return _over_last(low, call, "layer_norm", {"weight": gain, "bias": bias}, _eps(call.operation.epsilon))


@lowers("RMSNorm")
def _rms_norm(low: Lowering, call: Call) -> Seen:
    eps = float(keras.config.epsilon() if call.operation.epsilon is None else call.operation.epsilon)
    return _over_last(low, call, "rms_norm", {"weight": arguments(call).get("scale")}, eps)


def _over_last(low: Lowering, call: Call, name: str, affine: dict[str, Any], eps: float | None) -> Seen:
    """A norm over the last axes. Over channels that are moved the numbers come in Keras' order."""
    thing = call.args[0]
    seen, count = low.seen(thing), _last_axes(call, len(thing.shape))
    flat = seen if isinstance(seen, Seen) and seen.flattened and count == 1 else None
    value = flat.value if flat is not None else low.plain(seen)
    vectors = {key: _vector(low, vector, flat) for key, vector in affine.items()}
    over = list(value.shape[-count:])
    made = low.step(name, value.shape, input=value, normalized_shape=over, **vectors, eps=eps)
    return flat.through(made) if flat is not None else Seen.plain(made)


@lowers("GroupNormalization")
def _group_norm(low: Lowering, call: Call) -> Seen:
    layer, rank = call.operation, len(call.args[0].shape)
    axis = layer.axis % rank
    order = [0, axis, *[n for n in range(1, rank) if n != axis]]
    value = low.arranged(call.args[0], order)
    made = low.step(
        "group_norm",
        value.shape,
        input=value,
        num_groups=value.shape[1] if layer.groups == -1 else layer.groups,
        weight=_vector(low, layer.gamma) if layer.scale else None,
        bias=_vector(low, layer.beta) if layer.center else None,
        eps=_eps(layer.epsilon),
    )
    return Seen.moved(made, inverse(order))


@lowers("Normalization")
def _normalization(low: Lowering, call: Call) -> Seen:
    """By statistics of the data: numbers that are what they are, no part of the architecture."""
    layer, seen = call.operation, low.moved(call.args[0])
    rank, order = len(seen.shape), inverse(seen.order)
    spread = np.maximum(np.sqrt(to_numpy(layer.variance)), keras.config.epsilon())
    constants = []
    for numbers in (to_numpy(layer.mean), spread):
        wide = numbers.reshape((1,) * (rank - numbers.ndim) + numbers.shape).astype(layer.compute_dtype)
        constants.append(low.build.constant(np.ascontiguousarray(wide.transpose(order))))
    mean, deviation = constants
    if layer.invert:
        scaled = low.step("mul", seen.value.shape, self=seen.value, other=deviation)
        return Seen.moved(low.step("add", seen.value.shape, self=scaled, other=mean), seen.order)
    centred = low.step("sub", seen.value.shape, self=seen.value, other=mean)
    return Seen.moved(low.step("div", seen.value.shape, self=centred, other=deviation), seen.order)
