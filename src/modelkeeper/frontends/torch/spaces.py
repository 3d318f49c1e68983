"""How does each operation relate the axes of its inputs to those of its outputs?

`infer` walks a trace once and gives every value its axes: terms of one solver, unified as the
operations demand. An operation with a rule here is understood; a pointwise one unifies what it
broadcasts; any other is opaque: its inputs are pinned, its outputs are new spaces, and it is named in
the notes. Nothing is guessed.

A rule takes the step and returns the axes of each output.
"""

import math
from collections.abc import Callable, Sequence

from modelkeeper.frontends.terms import Solver, Straddles, Term
from modelkeeper.frontends.torch.trace import Step, Trace, Value

Axes = list[Term]
Rule = Callable[["Inference", Step], list[Axes]]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for these operations."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


class Inference:
    """The state of one walk: the solver, where we are, and what was opaque."""

    def __init__(self) -> None:
        self.solver = Solver()
        self.opaque: dict[str, str] = {}  # operation -> where it was first met
        self._last = "the input"
        self._name = ""

    @property
    def where(self) -> str:
        return f"{self._name} after {self._last}"

    def walk(self, trace: Trace) -> None:
        """Give every value of the trace its axes."""
        for value in trace.inputs:
            value.axes = self.fixed(value.shape, "input")
        for step in trace.steps:
            self._name = step.name
            for value in step.inputs:
                if value.step is None and len(value.axes) != len(value.shape):
                    self._enter(value)
            for value, axes in zip(step.outputs, self._apply(step), strict=False):
                if value.step is step:
                    value.axes = axes
        self._name = "output"
        for value in trace.outputs:
            for axis in value.axes:
                self.solver.pin(axis, "output")

    def fixed(self, shape: Sequence[int], origin: str) -> Axes:
        return [self.solver.fixed(size, origin) for size in shape]

    def unify(self, a: Term, b: Term) -> None:
        self.solver.unify(a, b, self.where)

    def pin(self, term: Term, why: str) -> None:
        self.solver.pin(term, f"{why} in {self.where}")

    def _enter(self, value: Value) -> None:
        """A value that no step made: a tensor of the model, or a constant."""
        if value.owner is None:
            value.axes = self.fixed(value.shape, "constant")
            return
        self._last = value.owner.names[0].rpartition(".")[0] or value.owner.names[0]
        if value.floating:
            value.axes = [self.solver.atom(size) for size in value.shape]
        else:
            value.axes = self.fixed(value.shape, "integers")

    def _apply(self, step: Step) -> list[Axes]:
        function = RULES.get(step.name) or (pointwise if step.operation.pointwise else None)
        problem = "no rule"
        if function is not None:
            try:
                return self._checked(step, function(self, step))
            except Straddles as error:
                problem = str(error)
        self.opaque.setdefault(step.name, f"{problem} for {self.where}")
        why = f"opaque {self.where}"
        for value in step.inputs:
            for axis in value.axes:
                self.solver.pin(axis, why)
        return [self.solver.unknown(value.shape, why) for value in step.outputs]

    def _checked(self, step: Step, axes: list[Axes]) -> list[Axes]:
        for value, each in zip(step.outputs, axes, strict=False):
            if tuple(axis.size for axis in each) != value.shape:
                raise Straddles(f"axes {each} for a result of shape {value.shape}")
        return axes


# -- arithmetic -----------------------------------------------------------------------------------


def pointwise(run: Inference, step: Step) -> list[Axes]:
    """Operands are broadcast against each other: axes that meet are one."""
    result = []
    for shape in (value.shape for value in step.outputs):
        axes = []
        for position in range(-len(shape), 0):
            met = [v.axes[position] for v in step.inputs if len(v.axes) >= -position and v.axes[position].size != 1]
            if shape[position] == 1 or not met:
                axes.append(run.solver.one if shape[position] == 1 else run.solver.atom(shape[position]))
                continue
            for other in met[1:]:
                if other is not met[0]:
                    run.unify(met[0], other)
            axes.append(met[0])
        result.append(axes)
    return result


@rule("masked_fill", "where", "copy", "fill", "maximum", "minimum", "_prelu_kernel", "masked_scatter", "fake_quantize")
def _like_pointwise(run: Inference, step: Step) -> list[Axes]:
    return pointwise(run, step)


@rule(
    *"""clone detach dropout feature_dropout alpha_dropout alias lift_fresh _to_copy contiguous zeros_like ones_like
    full_like empty_like rand_like randn_like triu tril zero bernoulli native_dropout uniform normal random
    index_put _index_put_impl scatter scatter_add index_add index_copy index_fill requires_grad""".split()
)
def _unchanged(run: Inference, step: Step) -> list[Axes]:
    return [list(step.inputs[0].axes) for _ in step.outputs]


@rule("write")
def _write(run: Inference, step: Step) -> list[Axes]:
    return [list(step.inputs[0].axes)]


@rule("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod", "flip", "roll", "sort", "topk")
def _along(run: Inference, step: Step) -> list[Axes]:
    """Mixes the units of some axes in order: those cannot be copied."""
    source = step.inputs[0]
    for axis in _chosen(step, source, "dim", "dims"):
        run.pin(source.axes[axis], "taken in order")
    return [
        [
            axis if axis.size == size else run.solver.fixed(size, "taken in order")
            for axis, size in zip(source.axes, value.shape, strict=True)
        ]
        for value in step.outputs
    ]


@rule(
    *"""mean sum max min amax amin var std var_mean std_mean argmax argmin any all prod linalg_vector_norm norm
    logsumexp count_nonzero aminmax median""".split()
)
def _reduce(run: Inference, step: Step) -> list[Axes]:
    if len(step.inputs) > 1:  # max(a, b)
        return pointwise(run, step)
    source = step.inputs[0]
    over = set(_chosen(step, source, "dim"))
    for axis in over:
        if step.name in ("mean", "var", "std", "var_mean", "std_mean"):
            run.solver.average(source.axes[axis])
        elif step.name not in ("max", "min", "amax", "amin", "any", "all"):
            run.pin(source.axes[axis], "summed up")
    keep = bool(over) and len(step.outputs[0].shape) == len(source.shape)
    kept = [
        run.solver.one if n in over else axis for n, axis in enumerate(source.axes) if keep or n not in over
    ]
    return [list(kept) for _ in step.outputs]


@rule("glu")
def _glu(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    axis = _position(step.arguments.get("dim", -1), source)
    left, right = run.solver.split(source.axes[axis], source.shape[axis] // 2, run.where)
    run.unify(left, right)
    return [[*source.axes[:axis], left, *source.axes[axis + 1 :]]]


@rule("prelu")
def _prelu(run: Inference, step: Step) -> list[Axes]:
    source, weight = step.arguments["self"], step.arguments["weight"]
    if weight.shape and weight.shape[0] != 1:
        run.unify(source.axes[1], weight.axes[0])
    return [list(source.axes)]


# -- shape ----------------------------------------------------------------------------------------


@rule("view", "_unsafe_view", "_reshape_alias")
def _view(run: Inference, step: Step) -> list[Axes]:
    return [run.solver.reshape(step.inputs[0].axes, step.outputs[0].shape, run.where)]


@rule("expand")
def _expand(run: Inference, step: Step) -> list[Axes]:
    source, shape = step.inputs[0], step.outputs[0].shape
    new = len(shape) - len(source.axes)
    return [
        [
            source.axes[n - new] if n >= new and (source.shape[n - new] != 1 or size == 1) else run.solver.atom(size)
            for n, size in enumerate(shape)
        ]
    ]


@rule("repeat")
def _repeat(run: Inference, step: Step) -> list[Axes]:
    source, times = step.inputs[0], step.arguments["repeats"]
    new = len(times) - len(source.axes)
    axes = []
    for n, count in enumerate(times):
        axis = source.axes[n - new] if n >= new else run.solver.one
        lead = run.solver.atom(count) if axis.size == 1 else run.solver.fixed(count, "repeats")
        axes.append(run.solver.product([lead, axis]))
    return [axes]


@rule("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_full", "new_empty", "rand", "randn", "empty_strided")
def _create(run: Inference, step: Step) -> list[Axes]:
    return [[run.solver.atom(size) for size in step.outputs[0].shape]]


@rule("arange", "scalar_tensor", "eye", "linspace", "range", "full_range")
def _constant(run: Inference, step: Step) -> list[Axes]:
    return [run.fixed(step.outputs[0].shape, "constant")]


@rule("permute")
def _permute(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    return [[source.axes[n] for n in step.arguments["dims"]]]


@rule("transpose", "t", "numpy_T", "mT", "swapaxes")
def _transpose(run: Inference, step: Step) -> list[Axes]:
    axes = list(step.inputs[0].axes)
    if len(axes) > 1:
        first, second = step.arguments.get("dim0", -2), step.arguments.get("dim1", -1)
        axes[first], axes[second] = axes[second], axes[first]
    return [axes]


@rule("unsqueeze")
def _unsqueeze(run: Inference, step: Step) -> list[Axes]:
    axes, dim = list(step.inputs[0].axes), step.arguments["dim"]
    axes.insert(dim + len(axes) + 1 if dim < 0 else dim, run.solver.one)
    return [axes]


@rule("squeeze")
def _squeeze(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    gone = set(_chosen(step, source, "dim"))
    return [[axis for n, axis in enumerate(source.axes) if not (n in gone and axis.size == 1)]]


@rule("cat")
def _cat(run: Inference, step: Step) -> list[Axes]:
    parts = [value for value in step.inputs if value.shape != (0,)]
    dim = _position(step.arguments.get("dim", 0), step.outputs[0])
    axes = list(parts[0].axes)
    for value in parts[1:]:
        for n, axis in enumerate(value.axes):
            if n != dim:
                run.unify(axes[n], axis)
    axes[dim] = run.solver.concat([value.axes[dim] for value in parts])
    return [axes]


@rule("stack")
def _stack(run: Inference, step: Step) -> list[Axes]:
    axes = list(step.inputs[0].axes)
    for value in step.inputs[1:]:
        for mine, other in zip(axes, value.axes, strict=True):
            run.unify(mine, other)
    axes.insert(_position(step.arguments.get("dim", 0), step.outputs[0]), run.solver.fixed(len(step.inputs), "stacked"))
    return [axes]


@rule("split", "split_with_sizes", "unsafe_split", "unsafe_chunk")
def _split(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = _position(step.arguments.get("dim", 0), source)
    rest, result = source.axes[dim], []
    for value in step.outputs:
        piece, rest = run.solver.split(rest, value.shape[dim], run.where)
        result.append([*source.axes[:dim], piece, *source.axes[dim + 1 :]])
    return result


@rule("unbind")
def _unbind(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = _position(step.arguments.get("dim", 0), source)
    run.pin(source.axes[dim], "taken apart")
    return [[*source.axes[:dim], *source.axes[dim + 1 :]] for _ in step.outputs]


@rule("select")
def _select(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = _position(step.arguments["dim"], source)
    run.pin(source.axes[dim], "one unit taken")
    return [[*source.axes[:dim], *source.axes[dim + 1 :]]]


def bounds(step: Step) -> tuple[int, int, int, int]:
    """The axis of a slice, and its start, end and step as plain positions."""
    source = step.inputs[0]
    dim = _position(step.arguments.get("dim", 0), source)
    start, end, by = slice(step.arguments.get("start"), step.arguments.get("end"), step.arguments.get("step", 1)).indices(
        source.shape[dim]
    )
    return dim, start, max(start, end), by


@rule("slice")
def _slice(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim, start, end, by = bounds(step)
    axes = list(source.axes)
    if by == 1:
        _, tail = run.solver.split(axes[dim], start, run.where)
        axes[dim], _ = run.solver.split(tail, end - start, run.where)
    else:
        run.pin(axes[dim], "every n-th unit taken")
        axes[dim] = run.solver.fixed(step.outputs[0].shape[dim], "every n-th unit")
    return [axes]


@rule("index_select", "gather", "take_along_dim")
def _pick(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = _position(step.arguments["dim"], source)
    run.pin(source.axes[dim], "picked by index")
    shape = step.outputs[0].shape
    return [
        [
            axis if n != dim and axis.size == shape[n] else run.solver.fixed(shape[n], "picked by index")
            for n, axis in enumerate(source.axes)
        ]
    ]


@rule("index", "_unsafe_index")
def _index(run: Inference, step: Step) -> list[Axes]:
    source, indices = step.inputs[0], step.arguments["indices"]
    at = [n for n, index in enumerate(indices) if index is not None]
    shape = step.outputs[0].shape
    new = len(shape) - (len(source.axes) - len(at))
    if not at or at != list(range(at[0], at[-1] + 1)) or new < 0:
        raise Straddles("indices that are not next to each other")
    for n in at:
        run.pin(source.axes[n], "picked by index")
    picked = run.fixed(shape[at[0] : at[0] + new], "picked by index")
    return [[*source.axes[: at[0]], *picked, *source.axes[at[-1] + 1 :]]]


@rule("constant_pad_nd", "pad")
def _pad(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    axes = list(source.axes)
    for n, (before, after) in enumerate(zip(step.arguments["pad"][::2], step.arguments["pad"][1::2], strict=True)):
        dim = len(axes) - 1 - n
        axis = axes[dim]
        if before < 0:
            _, axis = run.solver.split(axis, -before, run.where)
        if after < 0:
            axis, _ = run.solver.split(axis, axis.size + after, run.where)
        axes[dim] = run.solver.concat(
            [run.solver.fixed(max(before, 0), "padding"), axis, run.solver.fixed(max(after, 0), "padding")]
        )
    return [axes]


# -- windows --------------------------------------------------------------------------------------

_DIMENSIONS = {"1d": 1, "2d": 2, "3d": 3}


@rule(
    *"""avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices
    max_pool3d_with_indices max_pool1d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bicubic2d
    upsample_linear1d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d grid_sampler_2d""".split()
)
def _windows(run: Inference, step: Step) -> list[Axes]:
    """Pooling, resizing: channels stay, the last axes are new."""
    count = next(n for text, n in _DIMENSIONS.items() if text in step.name)
    channels = step.inputs[0].axes[:-count]
    return [[*channels, *_slid(run, step, value, count)] for value in step.outputs]


def _slid(run: Inference, step: Step, value: Value, count: int) -> Axes:
    """The last axes after a window has slid over them: mere sizes, unless they were units."""
    before = step.inputs[0].axes[-count:]
    after = []
    for axis, size in zip(before, value.shape[-count:], strict=True):
        if run.solver.atoms(axis):
            why = f"opaque {run.where}: a window over units"
            run.solver.pin(axis, why)
            after += run.solver.unknown([size], why)
        else:
            after.append(run.solver.fixed(size, "spatial"))
    return after


@rule("pixel_shuffle")
def _pixel_shuffle(run: Inference, step: Step) -> list[Axes]:
    source, by = step.inputs[0], step.arguments["upscale_factor"]
    channels, inner = run.solver.factor(source.axes[-3], source.shape[-3] // by**2, run.where)
    run.pin(inner, "moved into space")
    return [[*source.axes[:-3], channels, *run.fixed(step.outputs[0].shape[-2:], "spatial")]]


@rule("pixel_unshuffle")
def _pixel_unshuffle(run: Inference, step: Step) -> list[Axes]:
    source, by = step.inputs[0], step.arguments["downscale_factor"]
    channels = run.solver.product([source.axes[-3], run.solver.fixed(by**2, "moved from space")])
    return [[*source.axes[:-3], channels, *run.fixed(step.outputs[0].shape[-2:], "spatial")]]


@rule("im2col")
def _im2col(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    window = run.solver.fixed(math.prod(step.arguments["kernel_size"]), "kernel")
    return [[*source.axes[:-3], run.solver.product([source.axes[-3], window]), *run.fixed(step.outputs[0].shape[-1:], "spatial")]]


@rule("unfold")
def _unfold(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = _position(step.arguments["dimension"], source)
    run.pin(source.axes[dim], "a window over units")
    shape = step.outputs[0].shape
    axes = [*source.axes, run.solver.fixed(shape[-1], "kernel")]
    axes[dim] = run.solver.fixed(shape[dim], "spatial")
    return [axes]


@rule("native_channel_shuffle", "channel_shuffle")
def _channel_shuffle(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    groups, rest = run.solver.factor(source.axes[1], step.arguments["groups"], run.where)
    return [[source.axes[0], run.solver.product([rest, groups]), *source.axes[2:]]]


# -- layers ---------------------------------------------------------------------------------------


@rule("linear")
def _linear(run: Inference, step: Step) -> list[Axes]:
    source, weight, bias = step.arguments["input"], step.arguments["weight"], step.arguments.get("bias")
    run.unify(source.axes[-1], weight.axes[-1])
    if bias is not None and len(weight.axes) == 2:
        run.unify(weight.axes[0], bias.axes[0])
    return [[*source.axes[:-1], *weight.axes[:-1]]]


CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "convolution", "_convolution"})
TRANSPOSED = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})


def transposed(step: Step) -> bool:
    return step.name in TRANSPOSED or bool(step.arguments.get("transposed", False))


@rule(*CONVOLUTIONS, *TRANSPOSED)
def _convolution(run: Inference, step: Step) -> list[Axes]:
    source, weight, bias = step.arguments["input"], step.arguments["weight"], step.arguments.get("bias")
    groups = step.arguments.get("groups", 1)
    rank = len(weight.axes) - 2
    for axis in weight.axes[2:]:
        run.unify(axis, run.solver.fixed(axis.size, "kernel"))
    channels = source.axes[-rank - 1]
    try:
        out = _grouped(run, step, channels, weight, groups)
    except Straddles as problem:  # groups cut across parts: the relation holds, but not space by space
        run.pin(channels, f"groups cut across parts ({problem})")
        out = run.solver.atom(step.outputs[0].shape[-rank - 1]) if transposed(step) else weight.axes[0]
        for axis in weight.axes[:2]:
            run.pin(axis, f"groups cut across parts ({problem})")
    if bias is not None:
        run.unify(out, bias.axes[0])
    return [[*source.axes[: -rank - 1], out, *_slid(run, step, step.outputs[0], rank)]]


def _grouped(run: Inference, step: Step, channels: Term, weight: Value, groups: int) -> Term:
    """The output channels of a convolution, each group of which sees a group of the input's."""
    lead, inner = run.solver.factor(channels, groups, run.where)
    if transposed(step):
        run.unify(channels, weight.axes[0])
        return run.solver.product([lead, weight.axes[1]])
    out_lead, _ = run.solver.factor(weight.axes[0], groups, run.where)
    run.unify(lead, out_lead)
    run.unify(inner, weight.axes[1])
    return weight.axes[0]


@rule("matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv")
def _matmul(run: Inference, step: Step) -> list[Axes]:
    left, right = operands(step)
    rows, columns = left.axes[:-1], right.axes[:-2] + right.axes[-1:] if len(right.axes) > 1 else []
    run.unify(left.axes[-1], right.axes[-2] if len(right.axes) > 1 else right.axes[0])
    if left.active and right.active:
        run.pin(left.axes[-1], "contracted between two activations")
    batch: Axes = []
    left_batch, right_batch = left.axes[:-2], right.axes[:-2]
    for position in range(-max(len(left_batch), len(right_batch)), 0):
        met = [b[position] for b in (left_batch, right_batch) if len(b) >= -position]
        wide = [axis for axis in met if axis.size != 1]
        for other in wide[1:]:
            run.unify(wide[0], other)
        batch.append(wide[0] if wide else run.solver.one)
    axes = [*batch, *rows[-1:], *columns[-1:]]
    if len(step.inputs) == 3:
        for mine, other in zip(reversed(axes), reversed(step.inputs[0].axes), strict=False):
            if other.size != 1:
                run.unify(mine, other)
    return [axes]


def operands(step: Step) -> tuple[Value, Value]:
    """The two factors of a matrix product (an `addmm` has its summand first)."""
    return step.inputs[-2], step.inputs[-1]


@rule("batch_norm", "native_batch_norm", "instance_norm", "cudnn_batch_norm")
def _batch_norm(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    for value in step.inputs[1:]:
        run.unify(source.axes[1], value.axes[0])
    return [list(source.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    over = source.axes[-len(step.arguments["normalized_shape"]) :]
    for value in step.inputs[1:]:
        for axis, other in zip(over, value.axes, strict=True):
            run.unify(axis, other)
    for axis in over:
        run.solver.average(axis)
    return [list(source.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("group_norm", "native_group_norm")
def _group_norm(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    for value in step.inputs[1:]:
        run.unify(source.axes[1], value.axes[0])
    groups = step.arguments["num_groups"] if "num_groups" in step.arguments else step.arguments["group"]
    _, inner = run.solver.factor(source.axes[1], groups, run.where)
    run.solver.average(inner)
    return [list(source.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("embedding")
def _embedding(run: Inference, step: Step) -> list[Axes]:
    weight, indices = step.arguments["weight"], step.arguments["indices"]
    run.solver.pin(weight.axes[0], "rows")
    return [[*indices.axes, weight.axes[1]]]


@rule("scaled_dot_product_attention")
def _attention(run: Inference, step: Step) -> list[Axes]:
    query, key, value = (step.arguments[name] for name in ("query", "key", "value"))
    run.unify(query.axes[-1], key.axes[-1])
    run.pin(query.axes[-1], "its size sets the scale of attention")
    run.unify(key.axes[-2], value.axes[-2])
    run.pin(key.axes[-2], "summed over by attention")
    for q, k, v in zip(query.axes[:-2], key.axes[:-2], value.axes[:-2], strict=True):
        run.unify(k, v)
        if q.size == k.size:
            run.unify(q, k)
        elif k.size != 1 and q.size % k.size == 0:  # grouped queries
            shared, _ = run.solver.factor(q, k.size, run.where)
            run.unify(shared, k)
    mask = step.arguments.get("attn_mask")
    if mask is not None:
        scores = [*query.axes[:-1], key.axes[-2]]
        for n in range(1, len(mask.axes) + 1):
            if mask.axes[-n].size == scores[-n].size:
                run.unify(mask.axes[-n], scores[-n])
    return [[*query.axes[:-1], value.axes[-1]]]


@rule("_weight_norm_interface", "_weight_norm")
def _weight_norm(run: Inference, step: Step) -> list[Axes]:
    direction, gain = step.inputs[:2]
    for n, (axis, other) in enumerate(zip(direction.axes, gain.axes, strict=True)):
        if other.size != 1:
            run.unify(axis, other)
        elif gain.shape[n] != direction.shape[n]:
            run.pin(axis, "normalised over")
    return [list(direction.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


RECURRENT = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@rule(*RECURRENT)
def _recurrent(run: Inference, step: Step) -> list[Axes]:
    """A whole stack of cells: gates x hidden on every weight's first axis, one space per layer."""
    source, weights = step.arguments["input"], list(step.arguments["params"])
    directions = 2 if step.arguments["bidirectional"] else 1
    layers = step.arguments["num_layers"]
    per_cell = len(weights) // (layers * directions)
    gates = RECURRENT[step.name]
    taken = source.axes[-1]
    states: list[Axes] = [[], []]  # what is handed on, and what an LSTM keeps to itself
    for _ in range(layers):
        made: Axes = []
        for _ in range(directions):
            cell, weights = weights[:per_cell], weights[per_cell:]
            hidden = run.solver.atom(cell[0].shape[0] // gates)
            projected = per_cell in (3, 5)
            for value in cell[:-1] if projected else cell:
                run.unify(value.axes[0], run.solver.product([run.solver.fixed(gates, "gates"), hidden]))
            if projected:
                run.unify(cell[-1].axes[1], hidden)
            output = cell[-1].axes[0] if projected else hidden
            run.unify(cell[0].axes[1], taken)
            run.unify(cell[1].axes[1], output)
            made.append(output)
            states[0].append(output)
            states[1].append(hidden)
        taken = run.solver.concat(made)
    outputs = [[*source.axes[:-1], taken]]
    for value, each in zip(step.outputs[1:], states, strict=False):
        stacked = f"states of several cells in {run.where}"
        last = each[0] if len(each) == 1 else run.solver.unknown(value.shape[-1:], stacked)[0]
        outputs.append([*run.fixed(value.shape[:-1], "states"), last])
    return outputs


# -- helpers --------------------------------------------------------------------------------------


def _position(dim: int, value: Value) -> int:
    return dim + len(value.shape) if dim < 0 else dim


def _chosen(step: Step, source: Value, *names: str) -> list[int]:
    """The axes that a `dim` argument names; all of them when it names none."""
    dim = next((step.arguments[name] for name in names if step.arguments.get(name) is not None), None)
    if dim is None or dim == []:
        return list(range(len(source.shape))) if step.name not in ("sort", "topk") else [len(source.shape) - 1]
    return [_position(n, source) for n in ([dim] if isinstance(dim, int) else dim) if source.shape]

