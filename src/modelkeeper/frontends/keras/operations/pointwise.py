"""Operations unit by unit: activations, arithmetic, comparisons, casts, and tensors made of nothing."""

# ruff: noqa: A002 (arguments go by ATen's names)

import math
from typing import Any

import numpy as np
from keras import ops

from modelkeeper.frontends.keras.operations.table import available, carries_out, sizes

_UNARY = {
    "neg": ops.negative,
    "abs": ops.abs,
    "sign": ops.sign,
    "exp": ops.exp,
    "expm1": ops.expm1,
    "log": ops.log,
    "log1p": ops.log1p,
    "log2": ops.log2,
    "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt,
    "reciprocal": ops.reciprocal,
    "square": ops.square,
    "sin": ops.sin,
    "cos": ops.cos,
    "tan": ops.tan,
    "atan": ops.arctan,
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
    "log_sigmoid": ops.log_sigmoid,
    "erf": ops.erf,
    "floor": ops.floor,
    "ceil": ops.ceil,
    "round": ops.round,
    "trunc": ops.trunc,
    "logical_not": ops.logical_not,
    "isnan": ops.isnan,
    "isinf": ops.isinf,
    "relu": ops.relu,
    "relu6": ops.relu6,
    "selu": ops.selu,
    "silu": ops.silu,
    "hardswish": ops.hard_silu,
    "hardsigmoid": ops.hard_sigmoid,
    "zero": ops.zeros_like,
}
_BINARY = {
    "mul": ops.multiply,
    "div": ops.true_divide,
    "remainder": ops.mod,
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}
_OF_TENSORS = {
    "floor_divide.default": ops.floor_divide,
    "maximum.default": ops.maximum,
    "minimum.default": ops.minimum,
    "max.other": ops.maximum,
    "min.other": ops.minimum,
    "logical_and.default": ops.logical_and,
    "logical_or.default": ops.logical_or,
    "logical_xor.default": ops.logical_xor,
}


def _unary(function: Any) -> Any:
    return lambda self: function(self)


def _binary(function: Any) -> Any:
    return lambda self, other: function(self, other)


for _name, _function in _UNARY.items():
    carries_out(f"{_name}.default")(_unary(_function))
for _name, _function in _BINARY.items():
    carries_out(f"{_name}.Tensor", f"{_name}.Scalar")(_binary(_function))
for _name, _function in _OF_TENSORS.items():
    carries_out(_name)(_binary(_function))


def _logical(tensor: Any) -> bool:
    return "bool" in str(tensor.dtype)


@carries_out("bitwise_not.default")
def _bitwise_not(self: Any) -> Any:
    return ops.logical_not(self) if _logical(self) else ops.bitwise_not(self)


@carries_out("bitwise_and.Tensor")
def _bitwise_and(self: Any, other: Any) -> Any:
    return ops.logical_and(self, other) if _logical(self) else ops.bitwise_and(self, other)


@carries_out("bitwise_or.Tensor")
def _bitwise_or(self: Any, other: Any) -> Any:
    return ops.logical_or(self, other) if _logical(self) else ops.bitwise_or(self, other)


@carries_out("bitwise_xor.Tensor")
def _bitwise_xor(self: Any, other: Any) -> Any:
    return ops.logical_xor(self, other) if _logical(self) else ops.bitwise_xor(self, other)


@carries_out("add.Tensor", "add.Scalar")
def _add(self: Any, other: Any, alpha: float) -> Any:
    return ops.add(self, other if alpha == 1 else ops.multiply(other, alpha))


@carries_out("sub.Tensor", "sub.Scalar")
def _sub(self: Any, other: Any, alpha: float) -> Any:
    return ops.subtract(self, other if alpha == 1 else ops.multiply(other, alpha))


@carries_out("rsub.Tensor", "rsub.Scalar")
def _rsub(self: Any, other: Any, alpha: float) -> Any:
    return _sub(other, self, alpha)


@carries_out("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(self: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode == "floor":
        return ops.floor_divide(self, other)
    made = ops.true_divide(self, other)
    return made if rounding_mode is None else ops.trunc(made)


@carries_out("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(self: Any, exponent: Any) -> Any:
    return ops.power(self, exponent)


@carries_out("clamp.default", "clamp.Tensor")
def _clamp(self: Any, min: Any, max: Any) -> Any:
    made = self if min is None else ops.maximum(self, min)
    return made if max is None else ops.minimum(made, max)


@carries_out("clamp_min.default")
def _clamp_min(self: Any, min: Any) -> Any:
    return ops.maximum(self, min)


@carries_out("clamp_max.default")
def _clamp_max(self: Any, max: Any) -> Any:
    return ops.minimum(self, max)


@carries_out("addcmul.default")
def _addcmul(self: Any, tensor1: Any, tensor2: Any, value: float) -> Any:
    return self + value * tensor1 * tensor2


@carries_out("addcdiv.default")
def _addcdiv(self: Any, tensor1: Any, tensor2: Any, value: float) -> Any:
    return self + value * tensor1 / tensor2


@carries_out("lerp.Scalar", "lerp.Tensor")
def _lerp(self: Any, end: Any, weight: Any) -> Any:
    return self + weight * (end - self)


@carries_out("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(condition: Any, self: Any, other: Any) -> Any:
    return ops.where(condition, self, other)


@carries_out("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, ops.cast(value, self.dtype), self)


@carries_out("fill.Scalar", "fill.Tensor")
def _fill(self: Any, value: Any) -> Any:
    return ops.broadcast_to(ops.cast(value, self.dtype), sizes(self))


@carries_out("copy.default")
def _copy(self: Any, src: Any) -> Any:
    return ops.broadcast_to(ops.cast(src, self.dtype), sizes(self))


@carries_out("_to_copy.default")
def _to_copy(self: Any, dtype: str | None) -> Any:
    return self if dtype is None else ops.cast(self, available(dtype))


@carries_out("nan_to_num.default")
def _nan_to_num(self: Any, nan: float | None, posinf: float | None, neginf: float | None) -> Any:
    return ops.nan_to_num(self, nan=nan or 0.0, posinf=posinf, neginf=neginf)


# -- activations ------------------------------------------------------------------------------------


@carries_out("mish.default")
def _mish(self: Any) -> Any:
    return self * ops.tanh(ops.softplus(self))


@carries_out("leaky_relu.default")
def _leaky_relu(self: Any, negative_slope: float) -> Any:
    return ops.leaky_relu(self, negative_slope)


@carries_out("elu.default")
def _elu(self: Any, alpha: float, scale: float, input_scale: float) -> Any:
    below = alpha * ops.expm1(ops.minimum(self, 0.0) * input_scale)
    return scale * ops.where(self > 0, self, below)


@carries_out("celu.default")
def _celu(self: Any, alpha: float) -> Any:
    return ops.celu(self, alpha)


@carries_out("gelu.default")
def _gelu(self: Any, approximate: str) -> Any:
    return ops.gelu(self, approximate=approximate == "tanh")


@carries_out("softplus.default")
def _softplus(self: Any, beta: float, threshold: float) -> Any:
    return ops.where(self * beta > threshold, self, ops.softplus(self * beta) / beta)


@carries_out("hardtanh.default")
def _hardtanh(self: Any, min_val: float, max_val: float) -> Any:
    return ops.clip(self, min_val, max_val)


@carries_out("hardshrink.default")
def _hardshrink(self: Any, lambd: float) -> Any:
    return ops.where(ops.abs(self) > lambd, self, ops.zeros_like(self))


@carries_out("softshrink.default")
def _softshrink(self: Any, lambd: float) -> Any:
    return ops.sign(self) * ops.relu(ops.abs(self) - lambd)


@carries_out("threshold.default")
def _threshold(self: Any, threshold: float, value: float) -> Any:
    return ops.where(self > threshold, self, ops.full_like(self, value))


# -- out of nothing ---------------------------------------------------------------------------------


@carries_out("zeros.default")
def _zeros(size: list[int], dtype: str | None) -> Any:
    return ops.zeros(size, available(dtype or "float32"))


@carries_out("ones.default")
def _ones(size: list[int], dtype: str | None) -> Any:
    return ops.ones(size, available(dtype or "float32"))


@carries_out("full.default")
def _full(size: list[int], fill_value: float, dtype: str | None) -> Any:
    return ops.full(size, fill_value, available(dtype or _kind(fill_value)))


@carries_out("eye.default", "eye.m")
def _eye(n: int, dtype: str | None, m: int | None = None) -> Any:
    return ops.eye(n, m, dtype=available(dtype or "float32"))


@carries_out("arange.default", "arange.start", "arange.start_step")
def _arange(end: float, dtype: str | None, start: float = 0, step: float = 1) -> Any:
    whole = all(isinstance(number, int) for number in (start, end, step))
    return ops.arange(start, end, step, dtype=available(dtype or ("int64" if whole else "float32")))


@carries_out("linspace.default")
def _linspace(start: float, end: float, steps: int, dtype: str | None) -> Any:
    return ops.cast(ops.convert_to_tensor(np.linspace(start, end, steps)), available(dtype or "float32"))


def _like(self: Any, dtype: str | None) -> Any:
    return self.dtype if dtype is None else available(dtype)


@carries_out("zeros_like.default")
def _zeros_like(self: Any, dtype: str | None) -> Any:
    return ops.zeros(sizes(self), _like(self, dtype))


@carries_out("ones_like.default")
def _ones_like(self: Any, dtype: str | None) -> Any:
    return ops.ones(sizes(self), _like(self, dtype))


@carries_out("full_like.default")
def _full_like(self: Any, fill_value: float, dtype: str | None) -> Any:
    return ops.full(sizes(self), fill_value, _like(self, dtype))


@carries_out("new_zeros.default")
def _new_zeros(self: Any, size: list[int], dtype: str | None) -> Any:
    return ops.zeros(size, _like(self, dtype))


@carries_out("new_ones.default")
def _new_ones(self: Any, size: list[int], dtype: str | None) -> Any:
    return ops.ones(size, _like(self, dtype))


@carries_out("new_full.default")
def _new_full(self: Any, size: list[int], fill_value: float, dtype: str | None) -> Any:
    return ops.full(size, fill_value, _like(self, dtype))


@carries_out("scalar_tensor.default")
def _scalar_tensor(s: float, dtype: str | None) -> Any:
    return ops.full((), s, available(dtype or "float32"))


def _kind(value: float) -> str:
    """The dtype of what is filled with a number."""
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) and math.isfinite(value) else "float32"
