"""Rules for what has weights: a contraction ties its input to the weight, the weight names its output."""

from modelkeeper.graph.vocabulary import CONV_TRANSPOSE, GATES, LAYERS, Pin
from modelkeeper.tracing.infer_spaces import Axes, Inference, rule
from modelkeeper.tracing.rules.windows import slid
from modelkeeper.tracing.terms import Straddles, Term
from modelkeeper.tracing.trace import Step, Value


@rule("linear")
def _linear(run: Inference, step: Step) -> list[Axes]:
    source, weight, bias = step.arguments["input"], step.arguments["weight"], step.arguments.get("bias")
    run.unify(source.axes[-1], weight.axes[-1])
    if bias is not None and len(weight.axes) == 2:
        run.unify(weight.axes[0], bias.axes[0])
    return [[*source.axes[:-1], *weight.axes[:-1]]]


def transposed(step: Step) -> bool:
    """Is this convolution a transposed one?"""
    return LAYERS[step.name] == CONV_TRANSPOSE or bool(step.arguments.get("transposed", False))


@rule("convolution")
def _convolution(run: Inference, step: Step) -> list[Axes]:
    source, weight, bias = step.arguments["input"], step.arguments["weight"], step.arguments.get("bias")
    groups = step.arguments.get("groups", 1)
    rank = len(weight.axes) - 2
    for axis in weight.axes[2:]:
        run.unify(axis, run.solver.fixed(axis.size, "kernel"))
    channels = source.axes[-rank - 1]
    try:
        out = _grouped(run, step, channels, weight, groups)
    except Straddles as problem:
        out = _uneven(run, step, channels, weight, groups, str(problem))
    if bias is not None:
        run.unify(out, bias.axes[0])
    return [[*source.axes[: -rank - 1], out, *slid(run, step, step.outputs[0], rank)]]


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


def _uneven(run: Inference, step: Step, channels: Term, weight: Value, groups: int, problem: str) -> Term:
    """The output channels of a convolution whose groups are no whole number of units.

    What goes in and the number of groups are pinned; what each group makes stays free.
    """
    run.pin(channels, "groups", problem)
    if transposed(step):
        run.pin(weight.axes[0], "groups", problem)
        return run.solver.product([run.solver.fixed(groups, "groups"), weight.axes[1]])
    run.pin(weight.axes[1], "groups", problem)
    try:
        lead, _ = run.solver.factor(weight.axes[0], groups, run.where)
    except Straddles:
        lead = weight.axes[0]
    run.pin(lead, "groups", problem)
    return weight.axes[0]


@rule("matmul")
def _matmul(run: Inference, step: Step) -> list[Axes]:
    left, right = operands(step)
    rows, columns = left.axes[:-1], right.axes[:-2] + right.axes[-1:] if len(right.axes) > 1 else []
    run.unify(left.axes[-1], right.axes[-2] if len(right.axes) > 1 else right.axes[0])
    if left.active and right.active:
        run.pin(left.axes[-1], "compared")
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
        for axis, summand in zip(reversed(axes), reversed(step.inputs[0].axes), strict=False):
            if summand.size != 1:
                run.unify(axis, summand)
    return [axes]


def operands(step: Step) -> tuple[Value, Value]:
    """The two factors of a matrix product (an `addmm` has its summand first)."""
    return step.inputs[-2], step.inputs[-1]


@rule("channel_norm")
def _batch_norm(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    for value in step.inputs[1:]:
        run.unify(source.axes[1], value.axes[0])
    return [list(source.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("layer_norm")
def _layer_norm(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    over = source.axes[-len(step.arguments["normalized_shape"]) :]
    for value in step.inputs[1:]:
        for axis, other in zip(over, value.axes, strict=True):
            run.unify(axis, other)
    for axis in over:
        run.solver.average(axis)
    return [list(source.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("group_norm")
def _group_norm(run: Inference, step: Step) -> list[Axes]:
    source = step.inputs[0]
    for value in step.inputs[1:]:
        run.unify(source.axes[1], value.axes[0])
    _, inner = run.solver.factor(source.axes[1], step.arguments["num_groups"], run.where)
    run.solver.average(inner)
    return [list(source.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("embedding")
def _embedding(run: Inference, step: Step) -> list[Axes]:
    weight, indices = step.arguments["weight"], step.arguments["indices"]
    run.solver.pin(weight.axes[0], Pin("rows"))
    return [[*indices.axes, weight.axes[1]]]


@rule("attention")
def _attention(run: Inference, step: Step) -> list[Axes]:
    query, key, value = (step.arguments[name] for name in ("query", "key", "value"))
    run.unify(query.axes[-1], key.axes[-1])
    run.pin(query.axes[-1], "attention_scale")
    run.unify(key.axes[-2], value.axes[-2])
    run.pin(key.axes[-2], "attended")
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


@rule("weight_norm")
def _weight_norm(run: Inference, step: Step) -> list[Axes]:
    direction, gain = step.inputs[:2]
    if not gain.axes:  # one length of all of it
        for axis in direction.axes:
            run.pin(axis, "normalised")
        return [list(direction.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]
    for n, (axis, other) in enumerate(zip(direction.axes, gain.axes, strict=True)):
        if other.size != 1:
            run.unify(axis, other)
        elif gain.shape[n] != direction.shape[n]:
            run.pin(axis, "normalised")
    return [list(direction.axes), *[run.fixed(value.shape, "statistics") for value in step.outputs[1:]]]


@rule("recurrent")
def _recurrent(run: Inference, step: Step) -> list[Axes]:
    """Recurrent layers: gates x hidden on every weight's first axis, one space per layer."""
    source, weights = step.arguments["input"], list(step.arguments["params"])
    directions = 2 if step.arguments["bidirectional"] else 1
    layers = step.arguments["num_layers"]
    per_cell = len(weights) // (layers * directions)
    gates = GATES[step.name]
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
    _initial(run, step, states)
    outputs = [[*source.axes[:-1], taken]]
    for value, units in zip(step.outputs[1:], states, strict=False):
        if value.number in run.read:
            for axis in units[1:]:
                run.unify(units[0], axis)
        outputs.append([*run.fixed(value.shape[:-1], "states"), units[0]])
    return outputs


def _initial(run: Inference, step: Step, states: list[Axes]) -> None:
    """Unify the units of all cells whose first states are in one tensor; but zeros have no units."""
    given = step.arguments["hx"]
    for value, units in zip(given if isinstance(given, list) else [given], states, strict=False):
        if len(units) == 1 or not _zeros(value):
            for axis in units:
                run.unify(value.axes[-1], axis)


def _zeros(value: Value) -> bool:
    step = value.step
    while step is not None and step.name in ("clone", "expand"):
        step = step.inputs[0].step
    return step is not None and step.has("zeros")
