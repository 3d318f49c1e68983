"""Rules for what is done unit by unit: activations, arithmetic, comparisons, casts."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from modelkeeper.frontends.keras.lower.lowering import Lowering, made_by, number
from modelkeeper.frontends.keras.lower.seen import Held, Seen, inverse
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, lowers
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.frontends.keras.variables import shape_of
from modelkeeper.graph.vocabulary import LAYERS, LINEAR, NORMS, cast_between
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import Value

# Operations of one operand and no arguments, by what the vocabulary calls them.
UNARY = {
    "Absolute": "abs",
    "Abs": "abs",
    "Arccos": "acos",
    "Arccosh": "acosh",
    "Arcsin": "asin",
    "Arcsinh": "asinh",
    "Arctan": "atan",
    "Arctanh": "atanh",
    "BitwiseInvert": "bitwise_not",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Copy": "clone",
    "Cos": "cos",
    "Cosh": "cosh",
    "Deg2rad": "deg2rad",
    "Erf": "erf",
    "Erfinv": "erfinv",
    "Exp": "exp",
    "Exp2": "exp2",
    "Expm1": "expm1",
    "Floor": "floor",
    "HardSigmoid": "hardsigmoid",
    "HardSilu": "hardswish",
    "Isfinite": "isfinite",
    "Isinf": "isinf",
    "Isnan": "isnan",
    "Log": "log",
    "Log10": "log10",
    "Log1p": "log1p",
    "Log2": "log2",
    "LogSigmoid": "log_sigmoid",
    "LogicalNot": "logical_not",
    "Negative": "neg",
    "OnesLike": "ones_like",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Rsqrt": "rsqrt",
    "Selu": "selu",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Silu": "silu",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Square": "square",
    "StopGradient": "clone",
    "Tan": "tan",
    "Tanh": "tanh",
    "Trunc": "trunc",
    "ZerosLike": "zeros_like",
}


def unary(low: Lowering, thing: Any, name: str, /, **rest: Any) -> Seen:
    """An operation of one operand, which goes on being seen as it was."""
    seen = low.seen(thing)
    seen = Seen.plain(low.plain(seen)) if isinstance(seen, Held) else seen
    return seen.through(low.step(name, seen.value.shape, self=seen.value, **rest))


@lowers(*UNARY)
def _unary(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], UNARY[call.name])


@lowers("Relu6")
def _relu6(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], "hardtanh", min_val=0.0, max_val=6.0)


@lowers("HardTanh")
def _hard_tanh(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], "hardtanh", min_val=-1.0, max_val=1.0)


@lowers("ReLU")
def _relu(low: Lowering, call: Call) -> Seen:
    """The activation with a slope, a ceiling or a threshold."""
    slope, most, threshold = (
        float(number(getattr(call.operation, name)) or 0.0)
        for name in ("negative_slope", "max_value", "threshold")
    )
    ceiling = call.operation.max_value is not None
    if threshold and (slope or ceiling):
        raise CannotLower("a threshold together with a slope or a ceiling")
    if threshold:
        return unary(low, call.args[0], "threshold", threshold=threshold, value=0.0)
    if slope and ceiling:
        raise CannotLower("a slope together with a ceiling")
    if slope:
        return _leaky(low, call.args[0], slope)
    if ceiling:
        return unary(low, call.args[0], "hardtanh", min_val=0.0, max_val=most)
    return unary(low, call.args[0], "relu")


def _leaky(low: Lowering, thing: Any, slope: float) -> Seen:
    return unary(low, thing, "leaky_relu", negative_slope=None if slope == 0.01 else slope)


@lowers("LeakyRelu")
def _leaky_relu(low: Lowering, call: Call) -> Seen:
    return _leaky(low, call.args[0], float(call.operation.negative_slope))


@lowers("Elu")
def _elu(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], "elu", alpha=float(call.operation.alpha))


@lowers("Celu")
def _celu(low: Lowering, call: Call) -> Seen:
    alpha = float(call.operation.alpha)
    return unary(low, call.args[0], "celu", alpha=None if alpha == 1.0 else alpha)


@lowers("Gelu")
def _gelu(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], "gelu", approximate="tanh" if call.operation.approximate else None)


@lowers("Softplus")
def _softplus(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], "softplus", beta=1.0, threshold=20.0)


@lowers("Softsign")
def _softsign(low: Lowering, call: Call) -> Seen:
    size = unary(low, unary(low, call.args[0], "abs"), "add", other=1)
    return unary(low, call.args[0], "div", other=size.value)


@lowers("TanhShrink")
def _tanh_shrink(low: Lowering, call: Call) -> Seen:
    return unary(low, call.args[0], "sub", other=unary(low, call.args[0], "tanh").value)


@lowers("HardShrink", "SoftShrink")
def _shrink(low: Lowering, call: Call) -> Seen:
    name = "hardshrink" if call.name == "HardShrink" else "softshrink"
    cut = float(call.operation.threshold)
    return unary(low, call.args[0], name, lambd=None if cut == 0.5 else cut)


@lowers("Threshold")
def _threshold(low: Lowering, call: Call) -> Seen:
    at, value = float(call.operation.threshold), float(call.operation.default_value)
    return unary(low, call.args[0], "threshold", threshold=at, value=value)


@lowers("Glu")
def _glu(low: Lowering, call: Call) -> Seen:
    seen = low.moved(call.args[0])
    dim = seen.order[call.operation.axis % len(seen.shape)]
    shape = [size // 2 if n == dim else size for n, size in enumerate(seen.value.shape)]
    last = dim == len(shape) - 1
    return Seen.moved(low.step("glu", shape, self=seen.value, dim=None if last else dim), seen.order)


@lowers("Clip")
def _clip(low: Lowering, call: Call) -> Seen:
    least, most = number(call.operation.x_min), number(call.operation.x_max)
    if least is None and most is None:
        raise CannotLower("bounds that are no numbers")
    return unary(low, call.args[0], "clamp", min=least, max=most)


@lowers("Cast", "SaturateCast")
def _cast(low: Lowering, call: Call) -> Seen | Held:
    """Between types of floating-point numbers nothing happens, and no step is taken."""
    before, after = call.args[0].dtype, call.outputs[0].dtype
    if before == after or ("float" in before and "float" in after):
        return low.seen(call.args[0])
    name, rest = cast_between(before, after)
    return unary(low, call.args[0], name, dtype=after, **rest)


@lowers("ConvertToTensor", "Identity")
def _identity(low: Lowering, call: Call) -> Seen | Held:
    return low.seen(call.args[0])


# Operations of two operands: what they are called, and what their second operand is called.
BINARY = {
    "Add": ("add", "other"),
    "Arctan2": ("atan2", "other"),
    "BitwiseAnd": ("bitwise_and", "other"),
    "BitwiseOr": ("bitwise_or", "other"),
    "BitwiseXor": ("bitwise_xor", "other"),
    "Divide": ("div", "other"),
    "Equal": ("eq", "other"),
    "Greater": ("gt", "other"),
    "GreaterEqual": ("ge", "other"),
    "Hypot": ("hypot", "other"),
    "Less": ("lt", "other"),
    "LessEqual": ("le", "other"),
    "Logaddexp": ("logaddexp", "other"),
    "LogicalAnd": ("logical_and", "other"),
    "LogicalOr": ("logical_or", "other"),
    "LogicalXor": ("logical_xor", "other"),
    "Maximum": ("maximum", "other"),
    "Minimum": ("minimum", "other"),
    "Mod": ("remainder", "other"),
    "Multiply": ("mul", "other"),
    "NotEqual": ("ne", "other"),
    "Power": ("pow", "exponent"),
    "Subtract": ("sub", "other"),
    "TrueDivide": ("div", "other"),
}
_EITHER_WAY = ("add", "mul")  # a number may as well be the second operand
_MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq", "ne": "ne"}
_TENSORS_ONLY = ("maximum", "minimum", "atan2", "hypot", "logaddexp")


@lowers(*BINARY)
def _binary(low: Lowering, call: Call) -> Seen:
    name, second = BINARY[call.name]
    left, right = list(arguments(call).values())[1:3]
    by, of = number(right), number(left)
    if by is not None and name in ("maximum", "minimum"):
        return unary(low, left, "clamp", **{"min" if name == "maximum" else "max": by})
    if of is not None and name in ("maximum", "minimum"):
        return unary(low, right, "clamp", **{"min" if name == "maximum" else "max": of})
    if by is not None and name not in _TENSORS_ONLY:
        return unary(low, left, name, **{second: by})
    if of is not None and name == "pow" and of > 0:  # a number to the power of what comes
        return unary(low, unary(low, right, "mul", other=math.log(of)), "exp")
    if of is not None and name in _EITHER_WAY:
        return unary(low, right, name, **{second: of})
    if of is not None and name in _MIRRORED:
        return unary(low, right, _MIRRORED[name], **{second: of})
    if of is not None and name == "sub":
        return unary(low, right, "rsub", other=of)
    if of is not None and name == "div" and of == 1:
        return unary(low, right, "reciprocal")
    folded = _fold_bias(low, call, left, right) if name == "add" else None
    if folded is not None:
        return folded
    (first, other), back = broadcast(low, [left, right])
    if name == "mul" and _is_mish(first, other):
        return back(low.step("mish", first.shape, self=first))
    shape = _broadcast_shape(first.shape, other.shape)
    return back(low.step(name, shape, self=first, **{second: other}))


def _is_mish(value: Value, other: Value) -> bool:
    """Is it a value times the tanh of its softplus? Keras has no operation for it."""
    step = made_by(other)
    inner = made_by(step.inputs[0]) if step is not None and step.name == "tanh" else None
    return inner is not None and inner.name == "softplus" and inner.inputs[0] is value


@lowers("PReLU")
def _prelu(low: Lowering, call: Call) -> Seen:
    """A slope for each channel, or for each unit and place."""
    seen, alpha = low.seen(call.args[0]), low.seen(call.operation.alpha)
    assert isinstance(alpha, Held)
    if isinstance(seen, Seen) and seen.flattened:
        units = low.units(alpha, seen)
        if units is not None:
            return seen.through(low.step("prelu", seen.value.shape, self=seen.value, weight=units))
    seen = low.moved(seen)
    wide = [n + 1 for n, size in enumerate(alpha.shape) if size != 1]
    if [seen.order[n] for n in wide] == [1]:
        layout = Layout(alpha.shape, tuple(range(len(alpha.shape))), (max(alpha.shape),))
        weight = low.enter(alpha.variable, layout)
        return seen.through(low.step("prelu", seen.value.shape, self=seen.value, weight=weight))
    (value, slopes), back = broadcast(low, [seen, alpha])
    return back(low.step("_prelu_kernel", value.shape, self=value, weight=slopes))


@lowers("FloorDivide")
def _floor_divide(low: Lowering, call: Call) -> Seen:
    left, right = list(arguments(call).values())[1:3]
    by = number(right)
    if by is not None:
        return unary(low, left, "div", other=by, rounding_mode="floor")
    (first, other), back = broadcast(low, [left, right])
    shape = _broadcast_shape(first.shape, other.shape)
    return back(low.step("div", shape, self=first, other=other, rounding_mode="floor"))


@lowers("Where")
def _where(low: Lowering, call: Call) -> Seen:
    given = arguments(call)
    if given["x1"] is None or given["x2"] is None:
        raise CannotLower("where without values")
    (condition, first, other), back = broadcast(low, [given["condition"], given["x1"], given["x2"]])
    shape = _broadcast_shape(condition.shape, first.shape, other.shape)
    return back(low.step("where", shape, condition=condition, self=first, other=other))


def broadcast(low: Lowering, things: Sequence[Any]) -> tuple[list[Value], Callable[[Value], Seen]]:
    """Values that broadcast against each other, and how the result is seen."""
    operands = [low.seen(thing) for thing in things]
    first = operands[0]
    if all(isinstance(operand, Seen) for operand in operands) and isinstance(first, Seen):
        ways = {(o.value.shape, o.shape, o.order, o.split) for o in operands if isinstance(o, Seen)}
        if len(ways) == 1:
            return [o.value for o in operands if isinstance(o, Seen)], first.through
    flat = next((o for o in operands if isinstance(o, Seen) and o.flattened), None)
    if flat is not None:
        units = [low.units(o, flat) if isinstance(o, Held) else None for o in operands]
        if all(o is flat or unit is not None for o, unit in zip(operands, units, strict=True)):
            values = [flat.value if unit is None else unit for unit in units]
            return values, flat.through
    rank = max(len(operand.shape) for operand in operands)
    order = _common_order(operands, rank)
    values = []
    for operand in operands:
        missing = rank - len(operand.shape)
        if missing and order != list(range(rank)):
            wide = low.build.view(low.plain(operand), (*[1] * missing, *operand.shape))
            values.append(low.permute(wide, order))
        elif missing:
            values.append(low.plain(operand))
        else:
            values.append(low.arranged(operand, order))
    back = inverse(order)
    return values, lambda value: Seen.moved(value, back)


def _common_order(operands: Sequence[Seen | Held], rank: int) -> list[int]:
    """Keras' axis for each axis of values that broadcast: as the first one that is moved has it."""
    for operand in operands:
        moved = isinstance(operand, Seen) and operand.only_moved and not operand.in_order
        if moved and len(operand.shape) == rank and isinstance(operand, Seen):
            return list(inverse(operand.order))
    return list(range(rank))


def _broadcast_shape(*shapes: tuple[int, ...]) -> list[int]:
    rank = max(map(len, shapes))
    full = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return [next((size for size in sizes if size != 1), 1) for sizes in zip(*full, strict=True)]


def _fold_bias(low: Lowering, call: Call, left: Any, right: Any) -> Seen | None:
    """What a layer made plus a variable along its channels: the layer's bias."""
    for made, bias in ((left, right), (right, left)):
        seen, held = low.seen(made), low.seen(bias)
        if not isinstance(seen, Seen) or not isinstance(held, Held) or not low.read_once(made):
            continue
        step = made_by(seen.value)
        if step is None or step.name not in LAYERS or "weight" not in step.arguments:
            continue
        if step.arguments.get("bias") is not None or LAYERS[step.name] in NORMS:
            continue
        value = _as_bias(low, seen, held, LAYERS[step.name] == LINEAR)
        if value is not None:
            step.arguments["bias"] = value
            step.inputs.append(value)
            return seen
    return None


def _as_bias(low: Lowering, seen: Seen, held: Held, linear: bool) -> Value | None:
    """A variable as a bias along the channels of what a layer made; None: it is not along them."""
    channel = len(seen.value.shape) - 1 if linear else 1
    size = seen.value.shape[channel]
    if math.prod(held.shape) != size:
        return None
    if seen.only_moved:
        axis = seen.order.index(channel) - len(seen.shape) + len(held.shape)
        fits = axis >= 0 and held.shape[axis] == size
    else:  # heads, apart from each other
        fits = linear and seen.in_order and seen.shape[len(seen.shape) - len(held.shape) :] == held.shape
    if not fits:
        return None
    shape = shape_of(held.variable)
    return low.enter(held.variable, Layout(shape, tuple(range(len(shape))), (size,)))
