"""Where does the share of a copied unit belong?

When a unit is copied, everything that reads it must read each copy by a share, and the shares sum to
one. Which tensor carries the shares? Mostly the reader's weights, but not with tied embeddings, gates or
factored weights. It is a linear system: on every axis of every value, each space has a degree, the
power of the share that the value carries there.

    contraction       d(x) + d(w) = 1          each product of the sum carries one share in all
    multiply, divide  d(out) = d(a) ± d(b)
    add, move axes    all equal                broadcast along the axis, or a scalar added: 0
    norm              d(in) = 0, d(out) = d(gain) = d(bias)
    anything else     0 on all sides, as for the model's inputs and outputs

The vocabulary names the rule of each operation, `degree_system` solves what they say. A contradiction is
reported, never guessed, and pins the spaces it is about: no copies of their units are exact.
"""

from collections.abc import Callable, Iterable

from modelkeeper.graph.vocabulary import Pin
from modelkeeper.tracing.degree_system import Degree, Key, System
from modelkeeper.tracing.infer_spaces import chosen
from modelkeeper.tracing.named_rules import registering
from modelkeeper.tracing.rules.layers import operands, transposed
from modelkeeper.tracing.terms import Solver
from modelkeeper.tracing.trace import Step, Trace, Value

Equations = Callable[[System, Step], None]
DEGREES: dict[str, Equations] = {}  # by the names that the vocabulary gives them


degrees = registering(DEGREES)


def infer_degrees(trace: Trace, solver: Solver) -> tuple[dict[Key, Degree], list[str]]:
    """The degrees on the axes of the model's tensors, and what contradicts itself."""
    system = System(solver)
    for value in (*trace.inputs, *trace.outputs):
        system.zero(value)
    last = "the input"
    for step in trace.steps:
        last = next((value.owner.names[0] for value in step.inputs if value.owner is not None), last)
        system.where = f"{step.name} after {last}"
        for value in step.inputs:
            if value.constant:  # its numbers are what they are
                system.zero(value)
        DEGREES[step.operation.degrees](system, step)
    system.solve([value for step in trace.steps for value in step.outputs] + trace.owned)
    degree_of = {
        (value.number, axis): system.degree(value, axis)
        for value in trace.owned
        for axis in range(len(value.axes))
    }
    conflicts: list[str] = []
    for where, atoms in system.conflicts.items():
        conflicts.append(where)
        for atom in atoms:
            solver.pin(atom, Pin("shares", where))
    return degree_of, conflicts


@degrees("zero")
def _zero(system: System, step: Step) -> None:
    """Degree 0 on all axes of inputs and outputs: nothing is known to go through."""
    for value in (*step.inputs, *step.outputs):
        system.zero(value)


@degrees("linear")
def _linear(system: System, step: Step) -> None:
    x, w, out = step.arguments["input"], step.arguments["weight"], step.outputs[0]
    bias = step.arguments.get("bias")
    system.contract(x, -1, w, -1)
    for axis in range(len(x.axes) - 1):
        system.same(out, axis, x, axis)
    if bias is not None:  # added to every one of them
        system.zero(out, range(len(x.axes) - 1))
    for made in (w, bias) if len(w.axes) > 1 else ():
        if made is not None:
            system.same(out, -1, made, 0)


@degrees("multiply")
def _multiply(system: System, step: Step) -> None:
    _product(system, step, 1)


@degrees("divide")
def _divide(system: System, step: Step) -> None:
    if step.arguments.get("rounding_mode") is None:
        _product(system, step, -1)
    else:
        _zero(system, step)


def _product(system: System, step: Step, sign: int) -> None:
    """Degrees of the first operand, and those of the second times a sign."""
    out = step.outputs[0]
    for axis in range(-len(out.axes), 0):
        system.product(out, list(zip(step.inputs, (1, sign), strict=False)), axis)


@degrees("add")
def _add(system: System, step: Step) -> None:
    _alike(system, step.outputs[0], step.inputs)
    if len(step.inputs) < 2:  # a number is added to every one of them
        system.zero(step.outputs[0])


@degrees("embedding")
def _embedding(system: System, step: Step) -> None:
    weight = step.arguments["weight"]
    system.same(step.outputs[0], -1, weight, 1)
    system.zero(weight, [0])


@degrees("attention")
def _attention(system: System, step: Step) -> None:
    source, out = step.arguments["value"], step.outputs[0]
    for value in step.inputs:
        if value is not source:
            system.zero(value)
    for axis in range(len(out.axes)):
        system.same(out, axis, source, axis)
        system.fresh(out, axis, [source])


@degrees("recurrent")
def _recurrent(system: System, step: Step) -> None:
    """Recurrent cells: only what a weight reads carries shares."""
    weights = step.arguments["params"]
    for value in (*step.inputs, *step.outputs):
        system.zero(value, [n for n in range(len(value.axes)) if not (value in weights and n == 1)])
    for value in weights:
        if len(value.axes) == 2:
            system.one(value, 1)


@degrees("copy")
def _copy(system: System, step: Step) -> None:
    _alike(system, step.outputs[0], [step.arguments["src"]])


@degrees("pad")
def _pad(system: System, step: Step) -> None:
    """Padding: zeros change nothing; any other number would have to be shared as well."""
    (_zero if step.arguments.get("value") else _moves)(system, step)


@degrees("moves")
def _moves(system: System, step: Step) -> None:
    """Operations that only rearrange one value: degrees go through unchanged."""
    for result in step.outputs:
        _moved(system, step, result)


@degrees("convolution")
def _convolution(system: System, step: Step) -> None:
    x, w, out = step.arguments["input"], step.arguments["weight"], step.outputs[0]
    channel = 1 - len(w.axes)
    taken, made = (0, 1) if transposed(step) else (1, 0)
    groups = step.arguments.get("groups", 1)
    if groups == 1:
        system.contract(x, channel, w, taken)
        system.same(out, channel, w, made)
    else:  # a group's copies are whole: nothing is shared among them
        system.contract_in_groups(x, channel, w, taken, groups)
        system.zero(out, [channel])
        system.zero(w, [made])
        system.zero(x, [channel])
    rest = [axis for axis in range(-len(out.axes), 0) if axis != channel]
    for axis in rest:
        system.same(out, axis, x, axis)
    if step.arguments.get("bias") is not None:
        system.same(out, channel, step.arguments["bias"], 0)
        system.zero(out, rest)


@degrees("matmul")
def _matmul(system: System, step: Step) -> None:
    out, (x, w) = step.outputs[0], operands(step)
    inner = -2 if len(w.axes) > 1 else -1
    if x.active and w.active:  # pinned: attention scores, which have a scale of their own
        system.zero(x, [len(x.axes) - 1])
        system.zero(w, [len(w.axes) + inner])
    else:
        system.contract(x, -1, w, inner)
    if len(x.axes) == 1 or len(w.axes) == 1:
        kept = [n for n in range(len(w.axes)) if n != len(w.axes) + inner] if len(x.axes) == 1 else []
        for n, m in enumerate(kept):
            system.same(out, n, w, m)
        for n in range(len(x.axes) - 1):
            system.same(out, n, x, n)
    else:
        system.same(out, -2, x, -2)
        system.same(out, -1, w, -1)
        for axis in range(-len(out.axes), -2):
            system.product(out, [(x, 1), (w, 1)], axis)
    if len(step.inputs) == 3:
        _alike(system, out, [step.inputs[0]])


@degrees("norm")
def _norm(system: System, step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    system.zero(x)
    affine = [step.arguments[key] for key in ("weight", "bias") if step.arguments.get(key) is not None]
    first = len(out.axes) - len(affine[0].axes) if affine and step.has("last_axes") else 1
    for value in step.inputs[1:]:
        if not any(value is parameter for parameter in affine):
            system.zero(value)
    for value in affine:
        for axis in range(len(value.axes)):
            system.same(out, first + axis, value, axis)
    covered = range(first, first + len(affine[0].axes)) if affine else range(0)
    system.zero(out, [axis for axis in range(len(out.axes)) if axis not in covered])


@degrees("reduce")
def _reduction(system: System, step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    over = set(chosen(step, x, "dim"))
    keeps = len(out.axes) == len(x.axes)
    left = [n for n in range(len(x.axes)) if keeps or n not in over]
    for n in range(len(x.axes)):
        if n not in over:
            system.same(out, left.index(n), x, n)
        elif step.name == "sum":  # as a contraction with ones
            system.one(x, n)
        else:
            system.zero(x, [n])


def _alike(system: System, out: Value, summands: Iterable[Value]) -> None:
    for value in summands:
        for axis in range(-len(out.axes), 0):
            if len(value.axes) >= -axis and (value.shape[axis] != 1 or out.shape[axis] == 1):
                system.same(out, axis, value, axis)
            else:
                system.zero(out, [axis])


def _moved(system: System, step: Step, out: Value) -> None:
    """Set the degrees of a result's axes to those of the source's axes with the same spaces."""
    for n, axis in enumerate(out.axes):
        for value in step.inputs:
            places = [m for m, other in enumerate(value.axes) if other is axis] or range(len(value.axes))
            for m in places:
                system.same(out, n, value, m)
        if step.inputs:
            system.fresh(out, n, step.inputs)
