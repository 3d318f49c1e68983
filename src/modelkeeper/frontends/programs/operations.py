"""Which operations may a program consist of, and what do they take and give? A table, as plain data.

Only those of this table: tensors in, new tensors out. None of them writes to what it is given, draws random
numbers, reads files, calls back, or makes a result whose size depends on the numbers in a tensor. Names and
arguments are those of ATen (a test compares them with PyTorch's own schemas), so that programs mean the same
wherever they run; which of them a front end can carry out is its own business.

What the recorders write for real architectures is here, and what does the same to single numbers. Kernels
that do more, and that no model was seen to need, are not: each is something to attack.
"""

import ast
from dataclasses import dataclass
from functools import cache
from typing import Any

# Names | arguments -> number of results, if it is not one; *: a list, as many as the input says; @: makes a
# tensor out of nothing. An argument: its name; `:T` takes a tensor; `*` a list; `?` may be None; `=` default.
_TABLE = """
linear.default | input:T weight:T bias:T?=None
conv1d.default | input:T weight:T bias:T?=None stride:*=[1] padding:*=[0] dilation:*=[1] groups=1
conv1d.padding | input:T weight:T bias:T?=None stride:*=[1] padding='valid' dilation:*=[1] groups=1
conv2d.default | input:T weight:T bias:T?=None stride:*=[1,1] padding:*=[0,0] dilation:*=[1,1] groups=1
conv2d.padding | input:T weight:T bias:T?=None stride:*=[1,1] padding='valid' dilation:*=[1,1] groups=1
conv3d.default | input:T weight:T bias:T?=None stride:*=[1,1,1] padding:*=[0,0,0] dilation:*=[1,1,1]
    groups=1
conv3d.padding | input:T weight:T bias:T?=None stride:*=[1,1,1] padding='valid' dilation:*=[1,1,1]
    groups=1
conv_transpose1d.default | input:T weight:T bias:T?=None stride:*=[1] padding:*=[0] output_padding:*=[0]
    groups=1 dilation:*=[1]
conv_transpose2d.input | input:T weight:T bias:T?=None stride:*=[1,1] padding:*=[0,0]
    output_padding:*=[0,0] groups=1 dilation:*=[1,1]
conv_transpose3d.input | input:T weight:T bias:T?=None stride:*=[1,1,1] padding:*=[0,0,0]
    output_padding:*=[0,0,0] groups=1 dilation:*=[1,1,1]
batch_norm.default | input:T weight:T? bias:T? running_mean:T? running_var:T? training momentum eps
    cudnn_enabled
instance_norm.default | input:T weight:T? bias:T? running_mean:T? running_var:T? use_input_stats momentum
    eps cudnn_enabled
layer_norm.default | input:T normalized_shape:* weight:T?=None bias:T?=None eps=1e-05 cudnn_enable=True
group_norm.default | input:T num_groups weight:T?=None bias:T?=None eps=1e-05 cudnn_enabled=True
rms_norm.default | input:T normalized_shape:* weight:T?=None eps?=None
embedding.default | weight:T indices:T padding_idx=-1 scale_grad_by_freq=False sparse=False
prelu.default | self:T weight:T
lstm.input | input:T hx:T* params:T* has_biases num_layers dropout train bidirectional batch_first -> 3
gru.input rnn_tanh.input rnn_relu.input | input:T hx:T params:T* has_biases num_layers dropout train
    bidirectional batch_first -> 2
scaled_dot_product_attention.default | query:T key:T value:T attn_mask:T?=None dropout_p=0.0
    is_causal=False scale?=None enable_gqa=False
addmm.default | self:T mat1:T mat2:T beta=1 alpha=1
mm.default bmm.default | self:T mat2:T
baddbmm.default | self:T batch1:T batch2:T beta=1 alpha=1
matmul.default | self:T other:T
einsum.default | equation tensors:T* path:*?=None
add.Tensor sub.Tensor rsub.Tensor | self:T other:T alpha=1
add.Scalar sub.Scalar rsub.Scalar | self:T other alpha=1
mul.Tensor div.Tensor floor_divide.default remainder.Tensor maximum.default minimum.default eq.Tensor
    ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and.default logical_or.default
    logical_xor.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor | self:T other:T
mul.Scalar div.Scalar remainder.Scalar eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar |
    self:T other
div.Tensor_mode | self:T other:T rounding_mode?
div.Scalar_mode | self:T other rounding_mode?
pow.Tensor_Scalar | self:T exponent
pow.Tensor_Tensor | self:T exponent:T
pow.Scalar | self exponent:T
neg.default abs.default sign.default exp.default expm1.default log.default log1p.default log2.default
    sqrt.default rsqrt.default reciprocal.default square.default sin.default cos.default tan.default
    atan.default tanh.default sigmoid.default log_sigmoid.default erf.default floor.default ceil.default
    round.default trunc.default logical_not.default bitwise_not.default isnan.default isinf.default
    relu.default relu6.default selu.default silu.default mish.default hardswish.default
    hardsigmoid.default zero.default | self:T
clamp.default | self:T min?=None max?=None
clamp.Tensor | self:T min:T?=None max:T?=None
clamp_min.default | self:T min
clamp_max.default | self:T max
addcmul.default addcdiv.default | self:T tensor1:T tensor2:T value=1
lerp.Scalar | self:T end:T weight
lerp.Tensor | self:T end:T weight:T
where.self | condition:T self:T other:T
where.ScalarOther | condition:T self:T other
where.ScalarSelf | condition:T self other:T
where.Scalar | condition:T self other
nan_to_num.default | self:T nan?=None posinf?=None neginf?=None
leaky_relu.default | self:T negative_slope=0.01
elu.default | self:T alpha=1 scale=1 input_scale=1
celu.default | self:T alpha=1.0
gelu.default | self:T approximate='none'
softplus.default | self:T beta=1 threshold=20
hardtanh.default | self:T min_val=-1 max_val=1
hardshrink.default softshrink.default | self:T lambd=0.5
threshold.default | self:T threshold value
masked_fill.Scalar | self:T mask:T value
masked_fill.Tensor | self:T mask:T value:T
fill.Scalar | self:T value
fill.Tensor | self:T value:T
copy.default | self:T src:T
_to_copy.default | self:T dtype?=None @
softmax.int log_softmax.int cumsum.default | self:T dim dtype?=None
sum.default mean.default | self:T dtype?=None
sum.dim_IntList mean.dim | self:T dim:*? keepdim=False dtype?=None
prod.dim_int | self:T dim keepdim=False dtype?=None
amax.default amin.default | self:T dim:*=[] keepdim=False
max.dim min.dim | self:T dim keepdim=False -> 2
max.other min.other | self:T other:T
max.default min.default any.default all.default view_as_real.default view_as_complex.default real.default
    imag.default | self:T
argmax.default argmin.default | self:T dim?=None keepdim=False
var.correction std.correction | self:T dim:*?=None correction?=None keepdim=False
var_mean.correction | self:T dim:*?=None correction?=None keepdim=False -> 2
logsumexp.default | self:T dim:* keepdim=False
any.dim all.dim | self:T dim keepdim=False
linalg_vector_norm.default | self:T ord=2 dim:*?=None keepdim=False dtype?=None
topk.default | self:T k dim=-1 largest=True sorted=True -> 2
sort.default | self:T dim=-1 descending=False -> 2
glu.default | self:T dim=-1
_weight_norm.default | v:T g:T dim=0
_fft_c2c.default | self:T dim:* normalization forward
_fft_r2c.default | self:T dim:* normalization onesided
reshape.default | self:T shape:*
permute.default flip.default | self:T dims:*
transpose.int | self:T dim0 dim1
t.default squeeze.default | self:T
unsqueeze.default squeeze.dim | self:T dim
squeeze.dims | self:T dim:*
expand.default | self:T size:* implicit=False
repeat.default | self:T repeats:*
flatten.using_ints | self:T start_dim=0 end_dim=-1
unflatten.int | self:T dim sizes:*
cat.default stack.default | tensors:T* dim=0
split.Tensor | self:T split_size dim=0 -> *
split_with_sizes.default | self:T split_sizes:* dim=0 -> *
chunk.default | self:T chunks dim=0 -> *
unbind.int | self:T dim=0 -> *
slice.Tensor | self:T dim=0 start?=None end?=None step=1
select.int | self:T dim index
narrow.default | self:T dim start length
index.Tensor | self:T indices:T*
index_select.default | self:T dim index:T
gather.default | self:T dim index:T sparse_grad=False
roll.default | self:T shifts:* dims:*=[]
movedim.int | self:T source destination
pad.default | self:T pad:* mode='constant' value?=None
constant_pad_nd.default | self:T pad:* value=0
reflection_pad1d.default reflection_pad2d.default replication_pad1d.default replication_pad2d.default |
    self:T padding:*
tril.default triu.default | self:T diagonal=0
channel_shuffle.default | self:T groups
pixel_shuffle.default | self:T upscale_factor
pixel_unshuffle.default | self:T downscale_factor
repeat_interleave.self_int | self:T repeats dim?=None output_size?=None
im2col.default | self:T kernel_size:* dilation:* padding:* stride:*
unfold.default | self:T dimension size step
max_pool1d.default | self:T kernel_size:* stride:*=[] padding:*=[0] dilation:*=[1] ceil_mode=False
max_pool2d.default | self:T kernel_size:* stride:*=[] padding:*=[0,0] dilation:*=[1,1] ceil_mode=False
max_pool3d.default | self:T kernel_size:* stride:*=[] padding:*=[0,0,0] dilation:*=[1,1,1] ceil_mode=False
max_pool2d_with_indices.default | self:T kernel_size:* stride:*=[] padding:*=[0,0] dilation:*=[1,1]
    ceil_mode=False -> 2
avg_pool1d.default | self:T kernel_size:* stride:*=[] padding:*=[0] ceil_mode=False count_include_pad=True
avg_pool2d.default | self:T kernel_size:* stride:*=[] padding:*=[0,0] ceil_mode=False
    count_include_pad=True divisor_override?=None
avg_pool3d.default | self:T kernel_size:* stride:*=[] padding:*=[0,0,0] ceil_mode=False
    count_include_pad=True divisor_override?=None
adaptive_avg_pool1d.default adaptive_avg_pool2d.default adaptive_avg_pool3d.default | self:T output_size:*
adaptive_max_pool1d.default adaptive_max_pool2d.default | self:T output_size:* -> 2
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec | input:T output_size:*?
    scale_factors:*?
upsample_bilinear2d.vec upsample_bicubic2d.vec upsample_linear1d.vec upsample_trilinear3d.vec | input:T
    output_size:*? align_corners scale_factors:*?
zeros.default ones.default | size:* dtype?=None @
full.default | size:* fill_value dtype?=None @
eye.default | n dtype?=None @
eye.m | n m dtype?=None @
arange.default | end dtype?=None @
arange.start | start end dtype?=None @
arange.start_step | start end step=1 dtype?=None @
linspace.default | start end steps dtype?=None @
zeros_like.default ones_like.default | self:T dtype?=None @
full_like.default | self:T fill_value dtype?=None @
new_zeros.default new_ones.default | self:T size:* dtype?=None @
new_full.default | self:T size:* fill_value dtype?=None @
scalar_tensor.default | s dtype?=None @
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operation."""

    name: str
    tensor: bool  # takes a tensor, or several
    many: bool  # takes a list
    optional: bool  # takes None
    given: bool  # may be left out: it has a default
    default: Any

    @property
    def dtype(self) -> bool:
        """Does it take the name of a dtype?"""
        return self.name == "dtype"

    @staticmethod
    def of(text: str) -> "Parameter":
        """Read an argument as the table spells it."""
        head, given, default = text.partition("=")
        name = head.partition(":")[0].removesuffix("?")
        kind = head.removeprefix(name)
        return Parameter(
            name=name,
            tensor="T" in kind,
            many="*" in kind,
            optional="?" in kind,
            given=bool(given),
            default=ast.literal_eval(default) if given else None,
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operation takes and gives."""

    parameters: tuple[Parameter, ...]
    places: bool  # makes a tensor of nothing, so it can be told where to put it
    lists: bool  # gives a list of tensors, as many as its input says
    results: int  # how many it gives otherwise

    @property
    def required(self) -> int:
        """The number of arguments that have to be given."""
        return max((n + 1 for n, parameter in enumerate(self.parameters) if not parameter.given), default=0)

    def named(self, arguments: Any) -> dict[str, Any]:
        """Arguments, given in order, by their names."""
        return dict(zip((parameter.name for parameter in self.parameters), arguments, strict=False))


def _entries() -> dict[str, str]:
    lines = _TABLE.replace("\n    ", " ").strip().splitlines()
    pairs = [line.split(" | ") for line in lines]
    return {name: arguments for names, arguments in pairs for name in names.split()}


_ENTRIES = _entries()
ALLOWED = frozenset(_ENTRIES)


@cache
def signature(name: str) -> Signature | None:
    """The signature of an operation by its name, or None if it is not on the list."""
    if name not in _ENTRIES:
        return None
    takes, _, gives = _ENTRIES[name].removesuffix("@").partition("->")
    return Signature(
        tuple(Parameter.of(text) for text in takes.split()),
        places=_ENTRIES[name].endswith("@"),
        lists=gives.strip() == "*",
        results=int(gives) if gives.strip().isdigit() else 1,
    )
