"""Rules for arithmetic: pointwise operations, reductions, what runs along an axis."""

from modelkeeper.frontends.torch.trace import Step
from modelkeeper.tracing.infer_spaces import Axes, Inference, chosen, pointwise, position, rule


@rule(
    "masked_fill",
    "where",
    "copy",
    "fill",
    "maximum",
    "minimum",
    "_prelu_kernel",
    "masked_scatter",
    "fake_quantize",
)
def _like_pointwise(run: Inference, step: Step) -> list[Axes]:
    return pointwise(run, step)


@rule(
    *"""clone detach dropout feature_dropout alpha_dropout alias lift_fresh _to_copy contiguous
        zeros_like ones_like full_like empty_like rand_like randn_like zero bernoulli
        native_dropout uniform normal random requires_grad""".split()
)
def _unchanged(run: Inference, step: Step) -> list[Axes]:
    return [list(step.inputs[0].axes) for _ in step.outputs]


@rule("write")
def _write(run: Inference, step: Step) -> list[Axes]:
    return [list(step.inputs[0].axes)]


@rule(
    "softmax",
    "_softmax",
    "log_softmax",
    "_log_softmax",
    "_safe_softmax",
    "cumsum",
    "cumprod",
    "flip",
    "roll",
    "sort",
    "topk",
)
def _along(run: Inference, step: Step) -> list[Axes]:
    """Mixes the units of some axes in order: those cannot be copied."""
    source = step.inputs[0]
    for axis in chosen(step, source, "dim", "dims"):
        run.pin(source.axes[axis], "taken in order")
    return [
        [
            axis if axis.size == size else run.solver.fixed(size, "taken in order")
            for axis, size in zip(source.axes, value.shape, strict=True)
        ]
        for value in step.outputs
    ]


@rule(
    *"""mean sum max min amax amin var std var_mean std_mean argmax argmin any all prod
        linalg_vector_norm norm logsumexp count_nonzero aminmax median""".split()
)
def _reduce(run: Inference, step: Step) -> list[Axes]:
    if len(step.inputs) > 1:  # max(a, b)
        return pointwise(run, step)
    source = step.inputs[0]
    over = set(chosen(step, source, "dim"))
    for axis in over:
        if _averages(step):
            run.solver.average(source.axes[axis])
        elif step.name not in ("sum", "max", "min", "amax", "amin", "any", "all"):
            run.pin(source.axes[axis], "summed up")
        elif len(step.outputs) > 1 and step.outputs[1].number in run.read:
            run.pin(source.axes[axis], "one unit named by its number")
    keep = bool(over) and len(step.outputs[0].shape) == len(source.shape)
    kept = [
        run.solver.one if n in over else axis for n, axis in enumerate(source.axes) if keep or n not in over
    ]
    return [list(kept) for _ in step.outputs]


def _averages(step: Step) -> bool:
    """Is it a statistic that copies in equal numbers do not change? Not with n - 1 in its denominator."""
    if step.name in ("var", "std", "var_mean", "std_mean"):
        return step.arguments.get("unbiased") is False or step.arguments.get("correction") == 0
    return step.name == "mean"


@rule("glu")
def _glu(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    axis = position(step.arguments.get("dim", -1), source)
    left, right = run.solver.split(source.axes[axis], source.shape[axis] // 2, run.where)
    run.unify(left, right)
    return [[*source.axes[:axis], left, *source.axes[axis + 1 :]]]


@rule("prelu")
def _prelu(run: Inference, step: Step) -> list[Axes]:
    source, weight = step.arguments["self"], step.arguments["weight"]
    if weight.shape and weight.shape[0] != 1:
        run.unify(source.axes[1], weight.axes[0])
    return [list(source.axes)]
