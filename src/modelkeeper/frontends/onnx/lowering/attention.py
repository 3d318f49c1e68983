"""Attention: the operator of opset 23, and what torch writes out for older ones.

torch's exporter scales queries and keys each by the root of the scale, adds a mask that it has computed, and
guards rows that are masked whole. A product of scores that a model computed by itself stays as it is.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, NotLowered, short
from modelkeeper.frontends.onnx.lowering.moves import moves_of
from modelkeeper.frontends.onnx.lowering.patterns import step_of
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Step, Value
from modelkeeper.weights import Array

ATTENTION = "scaled_dot_product_attention"
_FAR = -1e4  # what is added to a score that does not count


def attended(low: Lowering, call: Call, scores: Entry, values: Entry) -> Value | None:
    """The attention that the last product of its parts makes; None: these are no parts of one."""
    weights = step_of(scores, "softmax")
    if weights is None or not isinstance(values, Value) or not _last(weights):
        return None
    inner, mask = weights.inputs[0], None
    added = step_of(inner, "add")
    if added is not None and len(added.inputs) == 2:
        inner, mask = added.inputs
    product = step_of(inner, "matmul")
    if product is None:
        return None
    query, key = (_scaled(side) for side in product.inputs)
    if query is None or key is None or not math.isclose(query[1], key[1], rel_tol=1e-6):
        return None
    keys = _untransposed(low, key[0])
    if keys is None:
        return None
    given = {"query": query[0], "key": keys, "value": values}
    return low.step(
        ATTENTION, call, **given, **_masked(low, mask, inner.shape), **_scale(query[1] ** 2, keys)
    )


def _last(step: Step) -> bool:
    """Does a softmax run along the last axis?"""
    rank = len(step.inputs[0].shape)
    return bool(step.arguments["dim"] % rank == rank - 1)


def _scaled(value: Value) -> tuple[Value, float] | None:
    """What a value is before it was multiplied by a number, and the number."""
    step = step_of(value, "mul")
    if step is None or not isinstance(step.arguments["other"], float):
        return None
    return step.inputs[0], step.arguments["other"]


def _untransposed(low: Lowering, value: Value) -> Value | None:
    """A value with its last two axes as they were before they were exchanged."""
    rank = len(value.shape)
    wanted = (*range(rank - 2), rank - 1, rank - 2)
    for moved in moves_of(value):
        if moved.order == wanted:
            return low.view(moved.root, moved.shape)
    step = value.step
    if step is not None and step.name == "permute":
        dims = step.arguments["dims"]
        return low.permute(step.inputs[0], [dims[axis] for axis in wanted])
    return None


def _scale(scale: float, keys: Value) -> dict[str, float]:
    """The scale, if it is not the one that attention has by itself."""
    usual = keys.shape[-1] ** -0.5
    return {} if math.isclose(scale, usual, rel_tol=1e-5) else {"scale": scale}


def _masked(low: Lowering, mask: Value | None, scores: Sequence[int]) -> dict[str, Any]:
    """The mask of scores as an argument: a causal one has a name, one that hides nothing is none."""
    if mask is None:
        return {}
    numbers = low.build.constants.get(mask.number)
    if mask.owner is not None and mask.step is None:
        numbers = low.numbers_of(mask)
    if numbers is not None:
        hidden = np.asarray(numbers, np.float64) <= _FAR
        if not np.any(numbers):
            return {}
        each = hidden.shape[-2:] == tuple(scores[-2:])  # one row for all queries is not causal
        if each and np.array_equal(hidden, _causal(hidden)) and not np.any(np.asarray(numbers)[~hidden]):
            return {"is_causal": True}
    return {"attn_mask": mask}


def _causal(hidden: Array) -> Array:
    """What a causal mask of this shape hides."""
    return np.broadcast_to(np.triu(np.ones(hidden.shape[-2:], bool), 1), hidden.shape)


@lowers("Attention")
def _attention(low: Lowering, call: Call) -> Value:
    query, key, value = (low.value(call.needed(n)) for n in range(3))
    if any(call[n] is not None for n in (4, 5, 6)) or call.get("softcap", 0.0) or len(call.node.outputs) > 1:
        raise NotLowered  # keys that are remembered, scores that are cut off
    flat = len(query.shape) == 3
    if flat:
        heads, shared = call.get("q_num_heads"), call.get("kv_num_heads")
        if not heads or not shared:
            raise NotLowered
        query, key, value = (
            low.permute(low.view(part, (*part.shape[:2], count, part.shape[2] // count)), (0, 2, 1, 3))
            for part, count in ((query, heads), (key, shared), (value, shared))
        )
    arguments: dict[str, Any] = {}
    if call[3] is not None:
        mask = low.array(call[3])
        floating = None if mask is None else np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else mask
        arguments = _masked(
            low,
            low.value(call.needed(3)) if floating is None else low.build.constant(floating),
            (query.shape[-2], key.shape[-2]),
        )
    if call.get("is_causal", 0):
        arguments["is_causal"] = True
    if call.get("scale") is not None:
        arguments |= _scale(short(call.get("scale")), key)
    if query.shape[1] != key.shape[1]:
        arguments["enable_gqa"] = True
    shape = (*query.shape[:-1], value.shape[-1])
    made = low.build.step(ATTENTION, shape, query=query, key=key, value=value, **arguments)
    if not flat:
        return made
    return low.view(low.permute(made, (0, 2, 1, 3)), (shape[0], shape[2], shape[1] * shape[3]))
