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

`system` solves it. A contradiction is reported, never guessed, and pins the spaces it is about: no copies of
their units are exact.
"""

from collections.abc import Iterable

from modelkeeper.frontends.torch.trace import Step, Trace, Value
from modelkeeper.tracing.degree_system import Degree, Key, System
from modelkeeper.tracing.infer_spaces import chosen
from modelkeeper.tracing.rules.layers import (
    CONVOLUTIONS,
    PRODUCTS,
    RECURRENT,
    TRANSPOSED,
    operands,
    transposed,
)
from modelkeeper.tracing.terms import Solver

# Linear in the one value that they rearrange: degrees go through unchanged.
MOVES = frozenset(
    """clone detach dropout feature_dropout alpha_dropout alias lift_fresh _to_copy contiguous neg
        write view _unsafe_view _reshape_alias unsqueeze squeeze expand repeat permute transpose t
        numpy_T mT swapaxes cat stack split split_with_sizes unsafe_split unbind slice select index
        index_select gather roll flip constant_pad_nd pad pixel_shuffle pixel_unshuffle im2col unfold
        channel_shuffle native_channel_shuffle zeros empty zeros_like new_zeros new_empty
        empty_like avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
        _adaptive_avg_pool2d adaptive_avg_pool3d upsample_bilinear2d upsample_nearest2d
        upsample_bicubic2d upsample_nearest1d upsample_linear1d triu tril""".split()
)
NORMS = frozenset(
    """batch_norm native_batch_norm instance_norm layer_norm native_layer_norm rms_norm _fused_rms_norm
        group_norm native_group_norm""".split()
)


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
            if value.constant is not None:  # its numbers are what they are
                system.zero(value)
        _equations(system, step)
    system.solve([value for step in trace.steps for value in step.outputs] + trace.owned)
    found = {
        (value.number, axis): system.degree(value, axis)
        for value in trace.owned
        for axis in range(len(value.axes))
    }
    conflicts: list[str] = []
    for where, atoms in system.conflicts.items():
        conflicts.append(where)
        for atom in atoms:
            solver.pin(atom, f"no placement of shares is exact in {where}")
    return found, conflicts


def _equations(system: System, step: Step) -> None:
    name, out, arguments = step.name, step.outputs[0], step.arguments
    if name == "linear":
        x, w = arguments["input"], arguments["weight"]
        system.contract(x, -1, w, -1)
        for axis in range(len(x.axes) - 1):
            system.same(out, axis, x, axis)
        if arguments.get("bias") is not None:  # added to every one of them
            system.zero(out, range(len(x.axes) - 1))
        for made in (w, arguments.get("bias")) if len(w.axes) > 1 else ():
            if made is not None:
                system.same(out, -1, made, 0)
    elif name in CONVOLUTIONS or name in TRANSPOSED:
        _convolution(system, step)
    elif name in PRODUCTS:
        _matmul(system, step)
    elif name in ("mul", "div") and arguments.get("rounding_mode") is None:
        signs = [1, 1 if name == "mul" else -1]
        for axis in range(-len(out.axes), 0):
            system.product(out, list(zip(step.inputs, signs, strict=False)), axis)
    elif name in ("add", "sub"):
        scalar = len(step.inputs) < 2
        _alike(system, out, step.inputs)
        if scalar:
            system.zero(out)
    elif name in NORMS:
        _norm(system, step)
    elif name == "embedding":
        w = arguments["weight"]
        system.same(out, -1, w, 1)
        system.zero(w, [0])
    elif name == "scaled_dot_product_attention":
        for value in step.inputs:
            if value is not arguments["value"]:
                system.zero(value)
        for axis in range(len(out.axes)):
            system.same(out, axis, arguments["value"], axis)
            system.fresh(out, axis, [arguments["value"]])
    elif name in RECURRENT:
        for value in (*step.inputs, *step.outputs):
            system.zero(
                value, [n for n in range(len(value.axes)) if not (value in arguments["params"] and n == 1)]
            )
        for value in arguments["params"]:
            if len(value.axes) == 2:
                system.one(value, 1)
    elif name == "mean" or name == "sum":
        _reduction(system, step)
    elif name == "copy":
        _alike(system, out, [arguments["src"]])
    elif name in MOVES and not (name in ("constant_pad_nd", "pad") and arguments.get("value")):
        for result in step.outputs:
            _moved(system, step, result)
    else:
        for value in (*step.inputs, *step.outputs):
            system.zero(value)


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


def _norm(system: System, step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    system.zero(x)
    affine = [step.arguments[key] for key in ("weight", "bias") if step.arguments.get(key) is not None]
    first = (
        len(out.axes) - len(affine[0].axes)
        if (affine and "layer_norm" in step.name) or ("rms" in step.name and affine)
        else 1
    )
    for value in step.inputs[1:]:
        if not any(value is each for each in affine):
            system.zero(value)
    for value in affine:
        for axis in range(len(value.axes)):
            system.same(out, first + axis, value, axis)
    covered = range(first, first + len(affine[0].axes)) if affine else range(0)
    system.zero(out, [axis for axis in range(len(out.axes)) if axis not in covered])


def _reduction(system: System, step: Step) -> None:
    x, out = step.inputs[0], step.outputs[0]
    over = set(chosen(step, x, "dim"))
    keeps = len(out.axes) == len(x.axes)
    left = [n for n in range(len(x.axes)) if keeps or n not in over]
    for n in range(len(x.axes)):
        if n not in over:
            system.same(out, left.index(n), x, n)
        elif step.name == "sum":
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
    """Each axis of the result has its degrees from where its spaces stood before."""
    for n, axis in enumerate(out.axes):
        for value in step.inputs:
            places = [m for m, other in enumerate(value.axes) if other is axis] or range(len(value.axes))
            for m in places:
                system.same(out, n, value, m)
        if step.inputs:
            system.fresh(out, n, step.inputs)
