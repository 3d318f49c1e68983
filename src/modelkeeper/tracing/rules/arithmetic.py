"""Rules for arithmetic: pointwise operations, reductions, what runs along an axis."""

from modelkeeper.tracing.infer_spaces import Axes, Inference, chosen, pointwise, position, rule
from modelkeeper.tracing.trace import Step


@rule("unchanged")
def _unchanged(run: Inference, step: Step) -> list[Axes]:
    return [list(step.inputs[0].axes) for _ in step.outputs]


@rule("along")
def _along(run: Inference, step: Step) -> list[Axes]:
    """Operations that mix the units of some axes in order: those are pinned, and cannot be copied."""
    source = step.inputs[0]
    for axis in chosen(step, source, "dim", "dims"):
        run.pin(source.axes[axis], "in_order")
    return [
        [
            axis if axis.size == size else run.solver.fixed(size, "in_order")
            for axis, size in zip(source.axes, value.shape, strict=True)
        ]
        for value in step.outputs
    ]


@rule("reduce")
def _reduce(run: Inference, step: Step) -> list[Axes]:
    if len(step.inputs) > 1:  # max(a, b)
        return pointwise(run, step)
    source = step.inputs[0]
    over = set(chosen(step, source, "dim"))
    for axis in over:
        if _averages(step):
            run.solver.average(source.axes[axis])
        elif step.name not in ("sum", "max", "min", "amax", "amin", "any", "all"):
            run.pin(source.axes[axis], "summed")
        elif len(step.outputs) > 1 and step.outputs[1].number in run.read:
            run.pin(source.axes[axis], "numbered")
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
