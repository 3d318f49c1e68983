"""What do exporters take apart that the vocabulary has as one operation? It is put together again.

    MatMul, Add                              a linear layer with a bias; Conv, Add alike
    x * 0.5 * (1 + erf(x / sqrt 2))          gelu
    embeddings + a table of their shape      embeddings of positions, looked up before
    (x - mean) / sqrt(var + e) * g + b       a layer norm
    InstanceNormalization between reshapes   a group norm

Looked for when the last node of a pattern comes: steps that nothing needs any more are dropped with all other
dead code.
"""

import math
import re
from collections.abc import Iterator

import numpy as np

from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, Stored
from modelkeeper.frontends.onnx.lowering.tables import LARGEST
from modelkeeper.frontends.onnx.lowering.walk import Lowering
from modelkeeper.tracing.trace import Step, Value


def put_together(low: Lowering, call: Call, name: str, left: Entry, right: Entry) -> Value | None:
    """What an arithmetic operation is the last part of; None: it is nothing but itself."""
    for value, other in ((left, right), (right, left)):
        if isinstance(value, Value) and isinstance(other, Stored) and low.alone(value):
            made = None
            if name == "add":
                made = _biased(low, call, value, other) or _looked_up(low, call, value, other)
            elif name == "mul":
                made = _layer_norm(low, call, value, other) or _group_norm(low, call, value, other)
            if made is not None:
                return made
    return _gated(low, call, left, right) if name == "mul" else None


def step_of(value: object, *names: str) -> Step | None:
    """The step that made a value, if it is one of these operations."""
    made = isinstance(value, Value) and value.step is not None and value.step.name in names
    return value.step if made and isinstance(value, Value) else None


def without_guard(low: Lowering, condition: Entry, chosen: Entry, other: Entry) -> Entry | None:
    """What stands behind `where(isnan(x), 0, x)`: the x of a softmax, whose rows could be masked whole."""
    step = step_of(condition, "isnan")
    if step is not None and step.inputs[0] is other and low.number(chosen) == 0:
        return other
    return None


# -- a bias of its own ------------------------------------------------------------------------------------


_LAST = ("linear", "layer_norm")  # whose units are on the last axis; those of the others are on the second
_SECOND = ("conv1d", "conv2d", "conv3d", "group_norm")


def _biased(low: Lowering, call: Call, value: Value, bias: Stored) -> Value | None:
    """A linear layer, a convolution or a norm with the bias that is added behind it."""
    step = step_of(value, *_LAST, *_SECOND)
    if step is None or "bias" in step.arguments or call.shape != value.shape:
        return None
    units = step.arguments["weight"].shape[0]
    axis = len(value.shape) - 1 if step.name in _LAST else 1
    if not _only_axis(bias.shape, len(value.shape), axis, units):
        return None
    arguments = {**step.arguments, "bias": low.tensor(bias, (units,))}
    return low.step(step.name, call, **arguments)


def _only_axis(shape: tuple[int, ...], rank: int, axis: int, size: int) -> bool:
    """Does a shape, broadcast to so many axes, have this size on one axis and one on all others?"""
    wide = (1,) * (rank - len(shape)) + shape
    return len(wide) == rank and wide == tuple(size if n == axis else 1 for n in range(rank))


_COMPUTED = re.compile(r"(embedding|val)(_\d+)?|onnx::\w+")  # how exporters name what they computed


def _looked_up(low: Lowering, call: Call, value: Value, table: Stored) -> Value | None:
    """Embeddings of words with those of their positions, or of their type, which were looked up before."""
    if not _embeds(value) or len(value.shape) != 3 or call.shape != value.shape:
        return None
    if _COMPUTED.fullmatch(table.name) is None:
        return None  # a parameter with a name of its own
    rows, units = value.shape[1:]
    if table.shape in ((rows, units), (1, rows, units)):
        weight, numbers = low.tensor(table, (rows, units)), np.arange(rows)[None]
    elif table.shape == value.shape and not table.order and _alike(low, table):
        weight, numbers = low.tensor(table, (1, units), repeated=True), np.zeros((1, rows), np.int64)
    else:
        return None
    indices = low.build.constant(numbers)
    places = low.build.step("embedding", (1, rows, units), weight=weight, indices=indices)
    return low.step("add", call, self=value, other=places)


def _embeds(value: Value) -> bool:
    """Is it an embedding, or a sum of them?"""
    step = step_of(value, "embedding", "add")
    if step is not None and step.name == "add":
        return len(step.inputs) == 2 and all(step_of(part, "embedding") for part in step.inputs)
    return step is not None


def _alike(low: Lowering, table: Stored) -> bool:
    """Is it one row of numbers, again and again?"""
    if math.prod(table.shape) > LARGEST:
        return False
    numbers = low.array(table)
    return numbers is not None and bool(np.all(numbers == numbers[:1, :1]))


# -- products ---------------------------------------------------------------------------------------------


def _gated(low: Lowering, call: Call, left: Entry, right: Entry) -> Value | None:
    """Activations that are a product of a value with a function of itself."""
    factors, number = [], 1.0
    for entry in (left, right):
        for factor in _factors(low, entry, depth=0):
            if isinstance(factor, float):
                number *= factor
            else:
                factors.append(factor)
    if len(factors) != 2:
        return None
    for value, other in (factors, factors[::-1]):
        if math.isclose(number, 0.5, rel_tol=1e-5) and _is_error_of(value, other):
            return low.step("gelu", call, self=value)
        if number == 1.0 and (step := step_of(other, "hardsigmoid")) is not None and step.inputs[0] is value:
            return low.step("hardswish", call, self=value)
        if number == 1.0 and (step := step_of(other, "tanh")) is not None:
            inner = step_of(step.inputs[0], "softplus")
            if inner is not None and inner.inputs[0] is value:
                return low.step("mish", call, self=value)
    return None


def _factors(low: Lowering, entry: Entry, depth: int) -> Iterator[Value | float]:
    """The factors of a product, through products; single numbers among them as numbers."""
    number = low.number(entry)
    if number is not None:
        yield float(number)
        return
    step = step_of(entry, "mul")
    if step is None or depth > 2:
        yield low.value(entry)
        return
    for part in (step.arguments["self"], step.arguments["other"]):
        if isinstance(part, Value):
            yield from _factors(low, part, depth + 1)
        else:
            yield float(part)


def _is_error_of(value: Value, other: Value) -> bool:
    """Is one value 1 + erf(x / sqrt 2) of the other?"""
    added = step_of(other, "add")
    error = (
        step_of(added.inputs[0], "erf") if added is not None and added.arguments.get("other") == 1 else None
    )
    scaled = step_of(error.inputs[0], "div", "mul") if error is not None else None
    if scaled is None or scaled.inputs[0] is not value or len(scaled.inputs) != 1:
        return False
    factor = scaled.arguments["other"]
    root = math.sqrt(2) if scaled.name == "div" else math.sqrt(0.5)
    return math.isclose(factor, root, rel_tol=1e-4)


# -- norms ------------------------------------------------------------------------------------------------


USUAL_EPS = 1e-5  # of norms over a layer or over groups: written where it is another one


def unusual_eps(eps: float) -> float | None:
    """The epsilon of a norm over a layer or over groups, if it is not the usual one."""
    return None if eps == USUAL_EPS else eps


def _layer_norm(low: Lowering, call: Call, source: Value, gain: Stored) -> Value | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) * gain."""
    divided = step_of(source, "div")
    if divided is None or len(divided.inputs) != 2:
        return None
    centred, root = divided.inputs[0], step_of(divided.inputs[1], "sqrt")
    shifted = step_of(root.inputs[0], "add") if root is not None else None
    if shifted is None or not isinstance(shifted.arguments["other"], float):
        return None
    variance, spread = step_of(shifted.inputs[0], "mean"), step_of(centred, "sub")
    if variance is None or spread is None or len(spread.inputs) != 2:
        return None
    squared = step_of(variance.inputs[0], "pow", "mul")
    mean, whole = step_of(spread.inputs[1], "mean"), spread.inputs[0]
    over = [axis % len(whole.shape) for axis in variance.arguments["dim"]]
    if (
        squared is None
        or any(value is not centred for value in squared.inputs)
        or squared.arguments.get("exponent", 2) != 2
        or mean is None
        or mean.inputs[0] is not whole
        or over != [len(whole.shape) - 1]
        or gain.shape != (whole.shape[-1],)
    ):
        return None
    return low.step(
        "layer_norm",
        call,
        input=whole,
        normalized_shape=[whole.shape[-1]],
        weight=low.tensor(gain),
        eps=unusual_eps(shifted.arguments["other"]),
    )


def _group_norm(low: Lowering, call: Call, source: Value, gain: Stored) -> Value | None:
    """reshape(InstanceNormalization(reshape(x), ones, zeros)) * gain."""
    back = step_of(source, "view")
    inner = step_of(back.inputs[0], "instance_norm") if back is not None else None
    before = step_of(inner.arguments["input"], "view") if inner is not None else None
    if inner is None or before is None or before.inputs[0].shape != source.shape:
        return None
    whole, channels = before.inputs[0], before.inputs[0].shape[1]
    if not _only_axis(gain.shape, len(whole.shape), 1, channels):
        return None
    for argument, number in (("weight", 1), ("bias", 0)):
        if not np.all(low.numbers_of(inner.arguments[argument]) == number):
            return None
    return low.step(
        "group_norm",
        call,
        input=whole,
        num_groups=inner.arguments["input"].shape[1],
        weight=low.tensor(gain, (channels,)),
        eps=unusual_eps(inner.arguments["eps"]),
    )
