"""Rules for shape: reshaping makes products, concatenation makes sums, splitting takes them apart."""

from modelkeeper.tracing.infer_spaces import Axes, Inference, chosen, position, rule
from modelkeeper.tracing.terms import Straddles
from modelkeeper.tracing.trace import Step, Value


@rule("view")
def _view(run: Inference, step: Step) -> list[Axes]:
    return [run.solver.reshape(step.inputs[0].axes, step.outputs[0].shape, run.where)]


@rule("expand")
def _expand(run: Inference, step: Step) -> list[Axes]:
    source, shape = step.inputs[0], step.outputs[0].shape
    new = len(shape) - len(source.axes)
    return [
        [
            source.axes[n - new]
            if n >= new and (source.shape[n - new] != 1 or size == 1)
            else run.solver.atom(size)
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


@rule("create")
def _create(run: Inference, step: Step) -> list[Axes]:
    return [[run.solver.atom(size) for size in step.outputs[0].shape]]


@rule("constant")
def _constant(run: Inference, step: Step) -> list[Axes]:
    return [run.fixed(step.outputs[0].shape, "constant")]


@rule("permute")
def _permute(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    return [[source.axes[n] for n in step.arguments["dims"]]]


@rule("transpose")
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
    gone = set(chosen(step, source, "dim"))
    return [[axis for n, axis in enumerate(source.axes) if not (n in gone and axis.size == 1)]]


@rule("cat")
def _cat(run: Inference, step: Step) -> list[Axes]:
    parts = [value for value in step.inputs if value.shape != (0,)]
    dim = position(step.arguments.get("dim", 0), step.outputs[0])
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
        for axis, other in zip(axes, value.axes, strict=True):
            run.unify(axis, other)
    axes.insert(
        position(step.arguments.get("dim", 0), step.outputs[0]),
        run.solver.fixed(len(step.inputs), "stacked"),
    )
    return [axes]


@rule("split")
def _split(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = position(step.arguments.get("dim", 0), source)
    rest, result = source.axes[dim], []
    for value in step.outputs:
        piece, rest = run.solver.split(rest, value.shape[dim], run.where)
        result.append([*source.axes[:dim], piece, *source.axes[dim + 1 :]])
    return result


@rule("unbind")
def _unbind(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = position(step.arguments.get("dim", 0), source)
    run.pin(source.axes[dim], "taken_apart")
    return [[*source.axes[:dim], *source.axes[dim + 1 :]] for _ in step.outputs]


@rule("select")
def _select(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = position(step.arguments["dim"], source)
    run.pin(source.axes[dim], "one_taken")
    return [[*source.axes[:dim], *source.axes[dim + 1 :]]]


def bounds(step: Step) -> tuple[int, int, int, int]:
    """The axis of a slice, and its start, end and step as plain positions."""
    source = step.inputs[0]
    dim = position(step.arguments.get("dim", 0), source)
    start, end, by = slice(
        step.arguments.get("start"), step.arguments.get("end"), step.arguments.get("step", 1)
    ).indices(source.shape[dim])
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
        run.pin(axes[dim], "every_nth")
        axes[dim] = run.solver.fixed(step.outputs[0].shape[dim], "every_nth")
    return [axes]


@rule("pick")
def _pick(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = position(step.arguments["dim"], source)
    run.pin(source.axes[dim], "picked")
    shape = step.outputs[0].shape
    if step.name != "index_select":
        _beside(run, source, step.inputs[1], dim)
    return [
        [
            axis if n != dim and axis.size == shape[n] else run.solver.fixed(shape[n], "picked")
            for n, axis in enumerate(source.axes)
        ]
    ]


@rule("index")
def _index(run: Inference, step: Step) -> list[Axes]:
    source, indices = step.inputs[0], step.arguments["indices"]
    at = [n for n, index in enumerate(indices) if index is not None]
    shape = step.outputs[0].shape
    new = len(shape) - (len(source.axes) - len(at))
    if not at or at != list(range(at[0], at[-1] + 1)) or new < 0:
        raise Straddles("indices that are not next to each other")
    for n in at:
        run.pin(source.axes[n], "picked")
    picked = run.fixed(shape[at[0] : at[0] + new], "picked")
    return [[*source.axes[: at[0]], *picked, *source.axes[at[-1] + 1 :]]]


@rule("pad")
def _pad(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    axes = list(source.axes)
    for n, (before, after) in enumerate(
        zip(step.arguments["pad"][::2], step.arguments["pad"][1::2], strict=True)
    ):
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


@rule("index_put")
def _index_put(run: Inference, step: Step) -> list[Axes]:
    source, values, indices = step.inputs[0], step.arguments["values"], step.arguments["indices"]
    at = [n for n, index in enumerate(indices) if index is not None]
    if at != list(range(at[0], at[-1] + 1)) or any(len(indices[n].shape) != 1 for n in at):
        raise Straddles("indices that are no plain lists next to each other")
    for n in at:
        run.pin(source.axes[n], "written")
    written = [*source.axes[: at[0]], None, *source.axes[at[-1] + 1 :]]
    for axis, new in zip(reversed(written), reversed(values.axes), strict=False):
        if axis is not None and new.size != 1:
            run.unify(axis, new)
        elif axis is None:
            run.pin(new, "written")
    return [list(source.axes)]


@rule("scatter")
def _scatter(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    dim = position(step.arguments["dim"], source)
    run.pin(source.axes[dim], "written")
    for value in step.inputs[1:]:
        _beside(run, source, value, dim)
    return [list(source.axes)]


def _beside(run: Inference, source: Value, other: Value, dim: int) -> None:
    """Unify the axes of a source and of what is read or written by index along `dim`, but for that axis."""
    if len(other.axes) != len(source.axes):
        return  # a plain list of indices
    for n, (axis, its_axis) in enumerate(zip(source.axes, other.axes, strict=True)):
        if n != dim and axis.size == its_axis.size:
            run.unify(axis, its_axis)
        else:
            run.pin(axis, "picked")
            run.pin(its_axis, "picked")


@rule("triangle")
def _triangle(run: Inference, step: Step) -> list[Axes]:
    for axis in step.inputs[0].axes[-2:]:
        run.pin(axis, "cut_off")
    return [list(step.inputs[0].axes)]
