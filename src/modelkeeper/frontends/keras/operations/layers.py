"""Operations that are layers: products with weights, norms, embeddings, attention."""

# ruff: noqa: A002 (arguments go by ATen's names)

import math
from typing import Any

import numpy as np
from keras import ops

from modelkeeper.frontends.keras.operations.shape import reshape
from modelkeeper.frontends.keras.operations.table import carries_out, sizes


@carries_out("linear.default")
def _linear(input: Any, weight: Any, bias: Any) -> Any:
    made = ops.matmul(input, ops.transpose(weight))
    return made if bias is None else made + bias


@carries_out("mm.default", "bmm.default")
def _mm(self: Any, mat2: Any) -> Any:
    return ops.matmul(self, mat2)


@carries_out("matmul.default")
def _matmul(self: Any, other: Any) -> Any:
    return ops.matmul(self, other)


@carries_out("addmm.default")
def _addmm(self: Any, mat1: Any, mat2: Any, beta: float, alpha: float) -> Any:
    return _scaled(self, beta) + _scaled(ops.matmul(mat1, mat2), alpha)


@carries_out("baddbmm.default")
def _baddbmm(self: Any, batch1: Any, batch2: Any, beta: float, alpha: float) -> Any:
    return _scaled(self, beta) + _scaled(ops.matmul(batch1, batch2), alpha)


def _scaled(tensor: Any, factor: float) -> Any:
    return tensor if factor == 1 else tensor * factor


@carries_out("einsum.default")
def _einsum(equation: str, tensors: list[Any], path: Any) -> Any:
    return ops.einsum(equation, *tensors)


@carries_out("embedding.default")
def _embedding(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Any:
    return ops.take(weight, ops.cast(indices, "int32"), 0)


@carries_out("prelu.default")
def _prelu(self: Any, weight: Any) -> Any:
    slope = weight
    if len(weight.shape) == 1 and len(self.shape) > 2:
        slope = reshape(weight, [-1] + [1] * (len(self.shape) - 2))
    return ops.maximum(self, 0) + slope * ops.minimum(self, 0)


# -- norms ------------------------------------------------------------------------------------------


def _along_channels(vector: Any, rank: int) -> Any:
    """A number for each channel, to be combined with maps of so many axes."""
    return reshape(vector, [-1] + [1] * (rank - 2))


def _affine(made: Any, weight: Any, bias: Any) -> Any:
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


def _channel_affine(made: Any, weight: Any, bias: Any) -> Any:
    rank = len(made.shape)
    weight, bias = (None if v is None else _along_channels(v, rank) for v in (weight, bias))
    return _affine(made, weight, bias)


@carries_out("batch_norm.default")
def _batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    scale = ops.rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale if bias is None else bias - running_mean * scale
    return _channel_affine(input, scale, shift)


def _normed(values: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Values with mean zero and variance one over some axes; and mean and the reciprocal of the deviation."""
    mean = ops.mean(values, axes, keepdims=True)
    centred = values - mean
    scale = ops.rsqrt(ops.mean(ops.square(centred), axes, keepdims=True) + eps)
    return centred * scale, mean, scale


def _last_axes(values: Any, normalized_shape: list[int]) -> tuple[int, ...]:
    rank = len(values.shape)
    return tuple(range(rank - len(normalized_shape), rank))


@carries_out("layer_norm.default")
def _layer_norm(
    input: Any, normalized_shape: list[int], weight: Any, bias: Any, eps: float, cudnn_enable: bool
) -> Any:
    return _affine(_normed(input, _last_axes(input, normalized_shape), eps)[0], weight, bias)


@carries_out("rms_norm.default")
def _rms_norm(input: Any, normalized_shape: list[int], weight: Any, eps: float | None) -> Any:
    axes = _last_axes(input, normalized_shape)
    least = float(np.finfo(np.float32).eps) if eps is None else eps
    return _affine(input * ops.rsqrt(ops.mean(ops.square(input), axes, keepdims=True) + least), weight, None)


def _grouped_norm(values: Any, groups: int, eps: float) -> tuple[Any, Any, Any]:
    shape = sizes(values)
    made, mean, scale = _normed(reshape(values, [shape[0], groups, -1]), (2,), eps)
    return reshape(made, shape), reshape(mean, [shape[0], groups]), reshape(scale, [shape[0], groups])


@carries_out("group_norm.default")
def _group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float, cudnn_enabled: bool) -> Any:
    return _channel_affine(_grouped_norm(input, num_groups, eps)[0], weight, bias)


@carries_out("instance_norm.default")
def _instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    if not use_input_stats:
        return _batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps, False)
    return _channel_affine(_grouped_norm(input, int(input.shape[1]), eps)[0], weight, bias)


# -- attention --------------------------------------------------------------------------------------


@carries_out("scaled_dot_product_attention.default")
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    if enable_gqa and int(query.shape[-3]) != int(key.shape[-3]):
        times = int(query.shape[-3]) // int(key.shape[-3])
        axis = len(key.shape) - 3
        key, value = (ops.repeat(tensor, times, axis) for tensor in (key, value))
    factor = 1 / math.sqrt(int(query.shape[-1])) if scale is None else scale
    scores = ops.matmul(query * factor, ops.swapaxes(key, -1, -2))
    if is_causal:
        seen = np.tril(np.ones((int(query.shape[-2]), int(key.shape[-2])), bool))
        scores = ops.where(ops.convert_to_tensor(seen), scores, -math.inf)
    if attn_mask is not None:
        boolean = "bool" in str(attn_mask.dtype)
        scores = ops.where(attn_mask, scores, -math.inf) if boolean else scores + attn_mask
    return ops.matmul(ops.softmax(scores, -1), value)
