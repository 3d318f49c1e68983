"""Which operations may a program consist of?

Only those on this list: tensors in, new tensors out. None of them writes to what it is given, draws random
numbers, reads files, calls back, or makes a result whose size depends on the numbers in a tensor. What a
name takes is what PyTorch's own schema says.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

_ALLOWED = {
    "layers": """
        linear.default conv1d.default conv1d.padding conv2d.default conv2d.padding conv3d.default
        conv3d.padding convolution.default conv_transpose1d.default conv_transpose2d.input
        conv_transpose3d.input batch_norm.default instance_norm.default layer_norm.default group_norm.default
        native_layer_norm.default native_group_norm.default rms_norm.default embedding.default prelu.default
        lstm.input gru.input rnn_tanh.input rnn_relu.input scaled_dot_product_attention.default
        addmm.default mm.default bmm.default baddbmm.default matmul.default mv.default dot.default
        einsum.default""",
    "pointwise": """
        add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar div.Tensor
        div.Scalar div.Tensor_mode div.Scalar_mode floor_divide.default remainder.Scalar remainder.Tensor
        pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar neg.default abs.default sign.default exp.default
        expm1.default log.default log1p.default log2.default sqrt.default rsqrt.default reciprocal.default
        square.default sin.default cos.default tan.default atan.default tanh.default sigmoid.default
        log_sigmoid.default erf.default floor.default ceil.default round.default trunc.default clamp.default
        clamp.Tensor clamp_min.default clamp_max.default maximum.default minimum.default addcmul.default
        addcdiv.default lerp.Scalar lerp.Tensor eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor
        le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar ge.Tensor logical_and.default logical_or.default
        logical_not.default logical_xor.default bitwise_and.Tensor bitwise_or.Tensor bitwise_not.default
        bitwise_xor.Tensor where.self where.ScalarOther where.ScalarSelf where.Scalar isnan.default
        isinf.default nan_to_num.default relu.default relu6.default leaky_relu.default elu.default
        selu.default celu.default gelu.default silu.default mish.default softplus.default hardtanh.default
        hardswish.default hardsigmoid.default hardshrink.default softshrink.default threshold.default
        masked_fill.Scalar masked_fill.Tensor fill.Scalar fill.Tensor zero.default copy.default
        _to_copy.default""",
    "along axes": """
        softmax.int _softmax.default log_softmax.int _log_softmax.default sum.default sum.dim_IntList
        mean.default mean.dim prod.dim_int amax.default amin.default max.dim min.dim max.other min.other
        max.default min.default argmax.default argmin.default var.correction std.correction
        var_mean.correction logsumexp.default cumsum.default cumprod.default any.dim all.dim any.default
        all.default norm.ScalarOpt_dim linalg_vector_norm.default topk.default sort.default glu.default
        _weight_norm.default _fft_c2c.default _fft_r2c.default view_as_real.default view_as_complex.default
        real.default imag.default""",
    "shape": """
        reshape.default permute.default transpose.int t.default numpy_T.default unsqueeze.default
        squeeze.dim squeeze.dims squeeze.default expand.default repeat.default flatten.using_ints
        unflatten.int cat.default stack.default split.Tensor split_with_sizes.default chunk.default
        unbind.int slice.Tensor select.int narrow.default index.Tensor index_select.default gather.default
        flip.default roll.default movedim.int pad.default constant_pad_nd.default reflection_pad1d.default
        reflection_pad2d.default replication_pad1d.default replication_pad2d.default tril.default
        triu.default diagonal.default slice_scatter.default select_scatter.default channel_shuffle.default
        pixel_shuffle.default pixel_unshuffle.default repeat_interleave.self_int im2col.default col2im.default
        unfold.default""",
    "windows": """
        max_pool1d.default max_pool2d.default max_pool3d.default max_pool2d_with_indices.default
        avg_pool1d.default avg_pool2d.default avg_pool3d.default adaptive_avg_pool1d.default
        adaptive_avg_pool2d.default adaptive_avg_pool3d.default adaptive_max_pool1d.default
        adaptive_max_pool2d.default upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec
        upsample_nearest1d.default upsample_nearest2d.default upsample_bilinear2d.vec
        upsample_bilinear2d.default upsample_bicubic2d.vec upsample_bicubic2d.default
        upsample_linear1d.vec upsample_linear1d.default upsample_trilinear3d.vec grid_sampler.default
        affine_grid_generator.default""",
    "new": """
        zeros.default ones.default full.default eye.default eye.m arange.default arange.start
        arange.start_step linspace.default zeros_like.default ones_like.default full_like.default
        new_zeros.default new_ones.default new_full.default scalar_tensor.default""",
}
ALLOWED = frozenset(name for names in _ALLOWED.values() for name in names.split())

# Where a tensor lies and how its numbers are laid out is the business of who runs a program.
_LEFT_OUT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operation, as its schema has it."""

    name: str
    tensor: bool  # takes a tensor, or several
    many: bool  # takes a list
    optional: bool  # takes None
    given: bool  # may be left out: it has a default
    dtype: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operation takes and gives."""

    function: OpOverload
    parameters: tuple[Parameter, ...]
    places: bool  # can be told where to put its result
    lists: bool  # gives a list of tensors, as many as its input says
    results: int  # how many it gives otherwise

    @property
    def required(self) -> int:
        """The number of arguments that have to be given."""
        return max((n + 1 for n, parameter in enumerate(self.parameters) if not parameter.given), default=0)


@cache
def signature(name: str) -> Signature | None:
    """The signature of an operation by its name, or None if it is not on the list."""
    if name not in ALLOWED:
        return None
    packet, _, overload = name.partition(".")
    function: OpOverload = getattr(getattr(torch.ops.aten, packet), overload)
    parameters = []
    for argument in function._schema.arguments:
        if argument.name not in _LEFT_OUT:
            kind = str(argument.type)
            parameters.append(
                Parameter(
                    name=argument.name,
                    tensor="Tensor" in kind,
                    many="List" in kind,
                    optional=kind.startswith("Optional"),
                    given=argument.has_default_value(),
                    dtype=argument.name == "dtype",
                    default=argument.default_value if argument.has_default_value() else None,
                )
            )
    returns = function._schema.returns
    return Signature(
        function,
        tuple(parameters),
        places=any(argument.name == "device" for argument in function._schema.arguments),
        lists=len(returns) == 1 and "List" in str(returns[0].type),
        results=len(returns),
    )
