"""What can a model do to its values? Every operation, what it does to axes, to degrees, and on an edge.

To add an operation, add it to TABLE: the rule for axes (a name in `modelkeeper.tracing.rules`), the rule for
degrees (one in `modelkeeper.tracing.degrees`), traits and arguments. A test says what an entry lacks.
"""

import re
from typing import Any

from msgspec import Struct

from modelkeeper.graph.vocabulary.kinds import (
    ATTENTION,
    CONCAT,
    CONV,
    CONV_TRANSPOSE,
    EMBEDDING,
    GATES,
    LINEAR,
    MATMUL,
    MULTIPLY,
    NORMS,
    PRELU,
    SCALE,
    SHIFT,
)

TRAITS = {
    "pointwise": "unit by unit; with several operands of one node it can be written as a function of it",
    "silent": "changes neither the numbers nor their order: leaves no mark on an edge",
    "permutes": "moves axes: written as a permutation",
    "sized": "its numbers are sizes, which follow from the widths and the input: written by its name alone",
    "statistic": "takes a statistic: can be a part of a function of one node",
    "reduces": "sums or averages over an axis, linearly",
    "linear": "leaves sums, zeros and means what they are, unit by unit",
    "linear_by_number": "the same if it is done with one number",
    "homogeneous": "larger by a positive factor before is larger by the same factor behind",
    "keeps_zero": "makes zero of zero",
    "rectifies": "twice in a row is as good as once, if nothing else is said",
    "rectifies_at_zero": "the same if it is said to cut at zero",
    "half_at_zero": "makes a half of zero, and is steepest there: a gate that begins half open",
    "keeps_rectified": "takes nothing out of the range of a rectifier",
    "places": "takes a part of the units, or moves them, and no more",
    "places_by_number": "the same, or multiplies by a number, if it is done with one number",
    "pools": "leaves fewer places, by its second argument or else its first",
    "values_first": "returns values and then where they are: the first result goes on under its name",
    "zeros": "makes zeros",
    "last_axes": "normalises over the last axes",
    "last_by_default": "runs along the last axis if it is not said along which",
}

# A line: rule for axes, rule for degrees, traits, and behind the colon the operations, each with its
# arguments in the order in which they are written on an edge.
TABLE = """
pointwise zero pointwise keeps_zero: elu(self alpha scale input_scale) gelu(self approximate) silu(self)
    hardswish(self) tanh(self)
pointwise zero pointwise keeps_zero homogeneous rectifies: relu(self)
pointwise zero pointwise keeps_zero rectifies: relu6(self) hardtanh(self min_val max_val)
pointwise zero pointwise keeps_zero homogeneous: leaky_relu(self negative_slope)
pointwise zero pointwise rectifies_at_zero: clamp_min(self min)
pointwise zero pointwise half_at_zero: sigmoid(self) hardsigmoid(self)
pointwise multiply pointwise keeps_zero linear_by_number places_by_number: mul(self other)
pointwise divide pointwise keeps_zero linear_by_number places_by_number: div(self other rounding_mode)
pointwise add pointwise: add(self other alpha) sub(self other alpha)
pointwise moves pointwise keeps_zero linear: neg(self)
pointwise zero pointwise: masked_fill(self mask value) maximum(self other) minimum(self other)
    where(condition self other) abs(self) acos(self) acosh(self) addcdiv(self tensor1 tensor2 value)
    addcmul(self tensor1 tensor2 value) angle(self) asin(self) asinh(self) atan(self) atan2(self other)
    atanh(self) bitwise_and(self other) bitwise_left_shift(self other) bitwise_not(self)
    bitwise_or(self other) bitwise_right_shift(self other) bitwise_xor(self other) ceil(self)
    celu(self alpha) clamp(self min max) clamp_max(self max) clip(self min max) conj_physical(self)
    copysign(self other) cos(self) cosh(self) deg2rad(self) digamma(self) eq(self other) equal(self other)
    erf(self) erfc(self) erfinv(self) exp(self) exp2(self) expm1(self) float_power(self exponent) floor(self)
    fmax(self other) fmin(self other) fmod(self other) frac(self) frexp(self) gcd(self other) ge(self other)
    gt(self other) hardshrink(self lambd) heaviside(self values) hypot(self other) i0(self)
    igamma(self other) igammac(self other) isfinite(self) isinf(self) isnan(self) isneginf(self)
    isposinf(self) lcm(self other) ldexp(self other) le(self other) lerp(self end weight) lgamma(self)
    log(self) log10(self) log1p(self) log2(self) log_sigmoid(self) logaddexp(self other)
    logaddexp2(self other) logical_and(self other) logical_not(self) logical_or(self other)
    logical_xor(self other) logit(self eps) lt(self other) mish(self) mvlgamma(self p)
    nan_to_num(self nan posinf neginf) ne(self other)
    nextafter(self other) polygamma(n self) positive(self) pow(self exponent) rad2deg(self) reciprocal(self)
    remainder(self other) round(self decimals) rrelu(self lower upper training generator) rsqrt(self)
    rsub(self other alpha) selu(self) sgn(self) sign(self) signbit(self) sin(self) sinc(self)
    sinh(self) softplus(self beta threshold) softshrink(self lambd) sqrt(self) square(self) tan(self)
    threshold(self threshold value) true_divide(self other) trunc(self) xlogy(self other)
    special_airy_ai(x) special_bessel_j0(self) special_bessel_j1(self) special_bessel_y0(self)
    special_bessel_y1(self) special_entr(self) special_erfcx(self) special_i0e(self) special_i1(self)
    special_i1e(self) special_log_ndtr(self) special_modified_bessel_i0(self) special_modified_bessel_i1(self)
    special_modified_bessel_k0(self) special_modified_bessel_k1(self) special_ndtri(self)
    special_scaled_modified_bessel_k0(x) special_scaled_modified_bessel_k1(x) special_spherical_bessel_j0(x)
    special_xlog1py(self other) special_zeta(self other) special_chebyshev_polynomial_t(x n)
    special_chebyshev_polynomial_u(x n) special_chebyshev_polynomial_v(x n)
    special_chebyshev_polynomial_w(x n) special_hermite_polynomial_h(x n) special_hermite_polynomial_he(x n)
    special_laguerre_polynomial_l(x n)
    special_legendre_polynomial_p(x n) special_shifted_chebyshev_polynomial_t(x n)
    special_shifted_chebyshev_polynomial_u(x n) special_shifted_chebyshev_polynomial_v(x n)
    special_shifted_chebyshev_polynomial_w(x n)
pointwise zero -: fill(self value) masked_scatter(self mask source)
    fake_quantize(self scale zero_point quant_min quant_max) _prelu_kernel(self weight)
pointwise copy -: copy(self src non_blocking)
prelu zero keeps_zero: prelu(self weight)
glu zero -: glu(self dim)

unchanged moves silent pointwise: clone(self memory_format)
unchanged moves silent: dropout(input p train)
unchanged moves silent: write(self value whole)
unchanged zero -: bernoulli(self p) native_dropout(input p train) normal(self mean std) ones_like(self)
    full_like(self fill_value) rand_like(self) randn_like(self) random(self from to) uniform(self from to)
    zero(self)
unchanged moves zeros: zeros_like(self)
unchanged moves -: empty_like(self)
create zero -: empty_strided(size stride) full(size fill_value) ones(size) rand(size) randn(size)
create zero sized: new_full(self size fill_value) new_ones(self size)
create moves zeros: zeros(size)
create moves -: empty(size)
create moves sized zeros: new_zeros(self size)
create moves sized: new_empty(self size)
constant zero -: arange(start end step) eye(n m) linspace(start end steps) range(start end step)
    scalar_tensor(s)

view moves silent: view(self size)
expand moves silent: expand(self size implicit)
squeeze moves silent: squeeze(self dim)
unsqueeze moves silent: unsqueeze(self dim)
repeat moves sized: repeat(self repeats)
permute moves permutes linear places keeps_zero keeps_rectified: permute(self dims)
transpose moves permutes linear places keeps_zero keeps_rectified: transpose(self dim0 dim1)
cat moves -: cat(tensors dim)
stack moves -: stack(tensors dim)
split moves sized linear places: split(self split_size dim) split_with_sizes(self split_sizes dim)
unbind moves -: unbind(self dim)
select moves linear places: select(self dim index)
slice moves linear places keeps_zero keeps_rectified: slice(self dim start end step)
pick moves -: gather(self dim index sparse_grad) index_select(self dim index)
pick zero -: take_along_dim(self indices dim)
index moves -: index(self indices)
index_put zero -: index_put(self indices values accumulate)
scatter zero -: index_add(self dim index source alpha) index_copy(self dim index source)
    index_fill(self dim index value) index_reduce(self dim index source reduce include_self)
    scatter(self dim index value src reduce) scatter_add(self dim index src)
    scatter_reduce(self dim index src reduce include_self)
pad pad -: constant_pad_nd(self pad value) pad(self pad mode value)
triangle moves -: tril(self diagonal) triu(self diagonal)

along zero -: cumprod(self dim) cumsum(self dim) log_softmax(self dim) softmax(self dim)
along zero values_first last_by_default: sort(self stable dim descending) topk(self k dim largest sorted)
along moves keeps_zero linear: flip(self dims)
along moves keeps_zero: roll(self shifts dims)
reduce reduce statistic reduces: mean(self dim keepdim) sum(self dim keepdim)
reduce zero statistic: amax(self dim keepdim) amin(self dim keepdim) norm(self p dim keepdim)
    linalg_vector_norm(self ord dim keepdim) std(self dim unbiased correction keepdim)
    var(self dim correction unbiased keepdim)
reduce zero statistic pointwise values_first: max(self other dim keepdim) min(self other dim keepdim)
reduce zero values_first: var_mean(self dim unbiased correction keepdim)
reduce zero -: all(self dim keepdim) aminmax(self dim keepdim) any(self dim keepdim)
    argmax(self dim keepdim) argmin(self dim keepdim) count_nonzero(self dim) logsumexp(self dim keepdim)
    median(self dim keepdim) prod(self dim keepdim) std_mean(self dim unbiased correction keepdim)

windows moves keeps_zero keeps_rectified linear pools:
    avg_pool1d(self kernel_size stride padding ceil_mode count_include_pad)
    avg_pool2d(self kernel_size stride padding ceil_mode count_include_pad divisor_override)
    avg_pool3d(self kernel_size stride padding ceil_mode count_include_pad divisor_override)
windows moves keeps_zero keeps_rectified linear: adaptive_avg_pool1d(self output_size)
    adaptive_avg_pool2d(self output_size) adaptive_avg_pool3d(self output_size)
windows zero keeps_zero keeps_rectified: adaptive_max_pool1d(self output_size)
    adaptive_max_pool2d(self output_size) adaptive_max_pool3d(self output_size)
windows zero keeps_zero keeps_rectified homogeneous pools:
    max_pool1d(self kernel_size stride padding dilation ceil_mode)
    max_pool2d(self kernel_size stride padding dilation ceil_mode)
    max_pool3d(self kernel_size stride padding dilation ceil_mode)
windows zero keeps_zero keeps_rectified homogeneous pools values_first:
    max_pool1d_with_indices(self kernel_size stride padding dilation ceil_mode)
    max_pool2d_with_indices(self kernel_size stride padding dilation ceil_mode)
    max_pool3d_with_indices(self kernel_size stride padding dilation ceil_mode)
windows moves sized keeps_zero keeps_rectified: upsample_nearest1d(input output_size scales)
    upsample_nearest2d(input output_size scales_h scales_w)
    upsample_bilinear2d(input output_size align_corners scales_h scales_w)
windows moves sized keeps_zero: upsample_linear1d(input output_size align_corners scales)
    upsample_bicubic2d(input output_size align_corners scales_h scales_w)
windows zero sized keeps_zero keeps_rectified:
    upsample_nearest3d(input output_size scales_d scales_h scales_w)
windows zero sized keeps_zero:
    upsample_trilinear3d(input output_size align_corners scales_d scales_h scales_w)
windows zero -: reflection_pad1d(self padding) reflection_pad2d(self padding) replication_pad1d(self padding)
    replication_pad2d(self padding) grid_sampler_2d(input grid interpolation_mode padding_mode align_corners)
    _upsample_bilinear2d_aa(self input output_size align_corners scales_h scales_w)
    _upsample_bicubic2d_aa(self input output_size align_corners scales_h scales_w)
pixel_shuffle moves -: pixel_shuffle(self upscale_factor)
pixel_unshuffle moves -: pixel_unshuffle(self downscale_factor)
channel_shuffle moves -: channel_shuffle(self groups)
im2col moves -: im2col(self kernel_size dilation padding stride)
unfold moves -: unfold(self dimension size step)

linear linear -: linear(input weight bias)
convolution convolution -: conv1d(input weight bias stride padding dilation groups)
    conv2d(input weight bias stride padding dilation groups)
    conv3d(input weight bias stride padding dilation groups)
    convolution(input weight bias stride padding dilation transposed output_padding groups)
    conv_transpose1d(input weight bias stride padding output_padding groups dilation)
    conv_transpose2d(input weight bias stride padding output_padding groups dilation)
    conv_transpose3d(input weight bias stride padding output_padding groups dilation)
matmul matmul -: matmul(self other) addmm(self mat1 mat2 beta alpha) addmv(self mat vec beta alpha)
    dot(self tensor)
channel_norm norm -: batch_norm(input weight bias running_mean running_var training momentum eps)
    instance_norm(input weight bias running_mean running_var use_input_stats momentum eps)
group_norm norm -: group_norm(input num_groups weight bias eps)
layer_norm norm last_axes: layer_norm(input normalized_shape weight bias eps)
    rms_norm(input normalized_shape weight eps)
embedding embedding -: embedding(weight indices padding_idx scale_grad_by_freq sparse)
attention attention -:
    scaled_dot_product_attention(query key value attn_mask dropout_p is_causal scale enable_gqa)
weight_norm zero -: weight_norm(v g dim)
recurrent recurrent -:
    lstm(input hx params has_biases num_layers dropout train bidirectional batch_first)
    gru(input hx params has_biases num_layers dropout train bidirectional batch_first)
    rnn_tanh(input hx params has_biases num_layers dropout train bidirectional batch_first)
    rnn_relu(input hx params has_biases num_layers dropout train bidirectional batch_first)
"""

# What an operation is as a layer, when its weights are the model's own.
LAYERS = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), CONV),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), CONV_TRANSPOSE),
    **dict.fromkeys(("linear", "matmul", "addmm"), LINEAR),
    **{name: name for name in (*NORMS, *GATES, EMBEDDING, PRELU)},
    "_prelu_kernel": PRELU,
}
# What an operation is as a layer, when it joins what several layers made; others go by their own name.
MERGES = {"sub": "subtract", "mul": MULTIPLY, "div": "divide", "cat": CONCAT, "addmm": MATMUL}
MERGES |= {"scaled_dot_product_attention": ATTENTION}
# What an operation is as a layer, when one operand is a tensor of the model alone.
APPLIED = {"mul": SCALE, "div": SCALE, "add": SHIFT, "sub": SHIFT}
INVERSE = frozenset({"div", "sub"})  # of them, those that do the inverse of what the layer is called
PERMUTE, SLICE = "permute", "slice"  # how axes that were moved, and parts of them, are written on an edge
WEIGHT_NORM = "weight_norm"  # directions divided by their lengths, times other lengths
VIEW = "view"  # the same numbers in another shape
# Activations whose effect on what is spread about a mean can be worked out, by the formula for it.
CURVES = {
    "relu": "rectifier",
    "silu": "sigmoid linear",
    "gelu": "gaussian linear",
    "tanh": "hyperbolic tangent",
}
# What activations take if they are not told otherwise: on an edge it is left out at the end.
USUAL_NUMBERS: dict[str, dict[str, float | str]] = {
    "celu": {"alpha": 1.0},
    "elu": {"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},
    "gelu": {"approximate": "none"},
    "hardshrink": {"lambd": 0.5},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "leaky_relu": {"negative_slope": 0.01},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "softshrink": {"lambd": 0.5},
}
# What cuts numbers off, by which arguments, and what it is called on an edge if it cuts at just these ends.
CUTS = {"hardtanh": ("min_val", "max_val"), "clamp": ("min", "max"), "clip": ("min", "max")}
CUTS |= {"clamp_min": ("min", "")}
RECTIFIERS = {(0, None): "relu", (0, 6): "relu6"}


class Operation(Struct, frozen=True):
    """What is known of an operation."""

    name: str
    arguments: tuple[str, ...] = ()
    axes: str = ""  # the rule for axes; "": it is not understood, and pins what it touches
    degrees: str = "zero"  # the rule for degrees
    traits: frozenset[str] = frozenset()


def read_table(table: str) -> dict[str, Operation]:
    """The operations of a table that is written as TABLE is, by name."""
    operations: dict[str, Operation] = {}
    for line in re.sub(r"\n +", " ", table).strip().splitlines():
        rules, _, entries = line.partition(":")
        if not rules:
            continue
        axes, degrees, *traits = rules.split()
        for name, arguments in re.findall(r"(\w+)\(([\w ]*)\)", entries):
            assert name not in operations, f"{name} stands twice in the table"
            kept = frozenset(traits) - {"-"}
            operations[name] = Operation(name, tuple(arguments.split()), axes, degrees, kept)
    return operations


OPERATIONS = read_table(TABLE)


def cast_between(before: str, after: str) -> tuple[str, dict[str, Any]]:
    """The operation that a cast from one type to another is, with its arguments.

    Bools tell only whether a number is zero, and whole numbers lose what it has behind its point. Other casts
    change nothing that a graph would know of.
    """
    if after == "bool" != before:
        return "ne", {"other": 0}
    if "float" not in before or "float" in after or "complex" in after:
        return "clone", {}
    return "trunc", {}


def operation(name: str) -> Operation:
    """What is known of an operation; of one that is not in the table, nothing but its name."""
    return OPERATIONS.get(name) or Operation(name)
