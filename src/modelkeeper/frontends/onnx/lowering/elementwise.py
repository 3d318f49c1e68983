"""Arithmetic, comparisons and activations: number by number."""

import math
from collections.abc import Callable

import numpy as np

from modelkeeper.frontends.onnx.lowering import patterns
from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, NotLowered, Stored, short
from modelkeeper.frontends.onnx.lowering.tables import is_table
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.graph.vocabulary import cast_between
from modelkeeper.tracing.trace import Value
from modelkeeper.weights import dtype_of

_UNARY = {
    name: name.lower()
    for name in """Relu Sigmoid Tanh Erf Sqrt Exp Log Abs Neg Floor Ceil Round Sign Sin Cos Tan Asin Acos Atan
    Sinh Cosh Asinh Acosh Atanh IsNaN IsInf Mish HardSwish Softplus""".split()
} | {"Not": "logical_not", "BitwiseNot": "bitwise_not", "Swish": "silu", "Reciprocal": "reciprocal"}
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Equal": "eq", "Greater": "gt",
    "Less": "lt", "GreaterOrEqual": "ge", "LessOrEqual": "le", "And": "logical_and", "Or": "logical_or",
    "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "BitShift": "bitwise_left_shift", "Mod": "remainder", "PRelu": "",
}  # fmt: skip
_SECOND = {"pow": "exponent"}  # what the second operand is called, if not `other`
_COMMUTES = {"add", "mul", "eq", "logical_and", "logical_or", "logical_xor"}
_MIRRORED = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge", "sub": "rsub"}


@lowers(*_UNARY)
def _unary(low: Lowering, call: Call) -> Value:
    name, value = _UNARY[call.node.op], low.value(call.needed(0))
    if call.node.op == "Swish" and call.get("alpha", 1.0) != 1.0:
        raise NotLowered
    if name == "isinf":
        name = _infinite(call)
    if name == "reciprocal" and value.step is not None and value.step.name == "sqrt":
        name, value = "rsqrt", value.step.inputs[0]
    return low.step(name, call, self=value)


def _infinite(call: Call) -> str:
    """Which infinities count? Both, or those of one sign."""
    below, above = bool(call.get("detect_negative", 1)), bool(call.get("detect_positive", 1))
    if not below and not above:
        raise NotLowered
    return "isinf" if below and above else "isneginf" if below else "isposinf"


def _activation(name: str, **defaults: tuple[str, float, bool]) -> Callable[[Lowering, Call], Value]:
    """An activation with numbers: argument -> (attribute, default, is the default written, too?)."""

    def lower(low: Lowering, call: Call) -> Value:
        given = {}
        for argument, (attribute, default, always) in defaults.items():
            number = short(call.get(attribute, default))
            given[argument] = number if always or number != default else None
        return low.step(name, call, self=low.value(call.needed(0)), **given)

    return lower


lowers("LeakyRelu")(_activation("leaky_relu", negative_slope=("alpha", 0.01, False)))
lowers("Elu")(_activation("elu", alpha=("alpha", 1.0, True)))
lowers("Celu")(_activation("celu", alpha=("alpha", 1.0, False)))
lowers("ThresholdedRelu")(_activation("threshold", threshold=("alpha", 1.0, True), value=("", 0.0, True)))


@lowers("Selu")
def _selu(low: Lowering, call: Call) -> Value:
    usual = {"alpha": 1.67326, "gamma": 1.0507}
    if not all(math.isclose(call.get(name, number), number, rel_tol=1e-4) for name, number in usual.items()):
        raise NotLowered
    return low.step("selu", call, self=low.value(call.needed(0)))


@lowers("Gelu")
def _gelu(low: Lowering, call: Call) -> Value:
    tanh = "tanh" if call.get("approximate", "none") == "tanh" else None
    return low.step("gelu", call, self=low.value(call.needed(0)), approximate=tanh)


@lowers("HardSigmoid")
def _hardsigmoid(low: Lowering, call: Call) -> Value:
    value, slope, shift = (
        low.value(call.needed(0)),
        short(call.get("alpha", 0.2)),
        short(call.get("beta", 0.5)),
    )
    if math.isclose(slope, 1 / 6, rel_tol=1e-5) and shift == 0.5:
        return low.step("hardsigmoid", call, self=value)
    risen = low.step("add", call, self=low.step("mul", call, self=value, other=slope), other=shift)
    return low.step("clamp", call, self=risen, min=0.0, max=1.0)


@lowers("Softsign")
def _softsign(low: Lowering, call: Call) -> Value:
    value = low.value(call.needed(0))
    size = low.step("add", call, self=low.step("abs", call, self=value), other=1)
    return low.step("div", call, self=value, other=size)


@lowers("Clip")
def _clip(low: Lowering, call: Call) -> Entry:
    value = low.value(call.needed(0))
    bounds = []
    for name, number in (("min", 1), ("max", 2)):
        bound = call.get(name)
        if bound is None and call[number] is not None:
            bound = low.number(call[number])
            if bound is None:
                raise NotLowered
        bounds.append(None if bound is None or abs(bound) > 1e38 else short(bound))
    lowest, highest = bounds
    if (lowest, highest) == (0.0, 6.0):
        return low.step("relu6", call, self=value)
    if lowest is not None and highest is not None:
        return low.step("hardtanh", call, self=value, min_val=lowest, max_val=highest)
    if lowest is None and highest is None:
        return value
    return low.step("clamp", call, self=value, min=lowest, max=highest)


@lowers(*_BINARY)
def binary(low: Lowering, call: Call) -> Entry:
    """An operation of two operands, which are broadcast."""
    if call.node.op == "PRelu":
        return _prelu(low, call)
    name, left, right = _BINARY[call.node.op], call.needed(0), call.needed(1)
    if name == "remainder" and call.get("fmod"):
        name = "fmod"
    if name == "bitwise_left_shift" and call.get("direction") == "RIGHT":
        name = "bitwise_right_shift"
    together = patterns.put_together(low, call, name, left, right)
    return together if together is not None else arithmetic(low, call, name, left, right)


def arithmetic(low: Lowering, call: Call, name: str, left: Entry, right: Entry) -> Value:
    """One operation on two operands: a single number is part of the operation."""
    first, second = (_scalar(low, entry, other) for entry, other in ((left, right), (right, left)))
    if first is not None:
        if name in _COMMUTES or name in _MIRRORED:
            return arithmetic(low, call, _MIRRORED.get(name, name), right, left)
        if name == "div" and first == 1:
            return low.step("reciprocal", call, self=low.value(right))
    other = _SECOND.get(name, "other")
    if second is not None:
        second = int(second) if name == "pow" and second == 2 else second
        return low.step(name, call, self=_operand(low, left), **{other: second})
    if name == "rsub":
        name, left, right = "sub", right, left
    return low.step(name, call, self=_operand(low, left), **{other: _operand(low, right)})


def _scalar(low: Lowering, entry: Entry, other: Entry) -> float | int | None:
    """The number that an operand is, if it only reaches the numbers of the other one."""
    number = low.number(entry)
    return None if number is None or len(entry.shape) > max(1, len(other.shape)) else number


def _operand(low: Lowering, entry: Entry) -> Value:
    """An operand as a value: a table that nobody trains is a constant."""
    if isinstance(entry, Stored) and is_table(low, entry):
        array = low.array(entry)
        assert array is not None
        return low.build.constant(array)
    return low.value(entry)


def _prelu(low: Lowering, call: Call) -> Value:
    value, slope = low.value(call.needed(0)), call.needed(1)
    wide = [n for n, size in enumerate(slope.shape) if size != 1]
    if not isinstance(slope, Stored) or len(wide) > 1:
        raise NotLowered
    channel = wide[0] - len(slope.shape) + len(value.shape) if wide else 1
    if channel != 1:
        raise NotLowered
    return low.step("prelu", call, self=value, weight=low.tensor(slope, (math.prod(slope.shape),)))


@lowers("Sum", "Max", "Min", "Mean")
def _several(low: Lowering, call: Call) -> Entry:
    name = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[call.node.op]
    total = call.needed(0)
    for entry in call.inputs[1:]:
        assert entry is not None
        shape = np.broadcast_shapes(total.shape, entry.shape)
        left, right = (_operand(low, part) for part in (total, entry))
        total = low.build.step(name, shape, dtype=call.dtype, self=left, other=right)
    if call.node.op == "Mean":
        return low.step("div", call, self=low.value(total), other=len(call.inputs))
    return total


@lowers("Where")
def _where(low: Lowering, call: Call) -> Entry:
    condition, chosen, other = (call.needed(n) for n in range(3))
    guarded = patterns.without_guard(low, condition, chosen, other)
    if guarded is not None:
        return guarded
    operands = {"self": chosen, "other": other}
    given = {
        key: number if (number := low.number(entry)) is not None else _operand(low, entry)
        for key, entry in operands.items()
    }
    return low.step("where", call, condition=low.value(condition), **given)


@lowers("Identity", "Dropout", "Cast", "CastLike")
def _same(low: Lowering, call: Call) -> Entry:
    entry = call.needed(0)
    if call.node.op in ("Identity", "Dropout") or (isinstance(entry, Stored) and entry.dtype == call.dtype):
        return entry
    number = low.number(entry)
    if number is not None or isinstance(entry, np.ndarray):
        array = low.array(entry)
        assert array is not None
        return array.astype(dtype_of(call.dtype))
    value = low.value(entry)
    name, rest = cast_between(value.dtype, call.dtype)
    return low.step(name, call, self=value, **rest)
