"""Rules for what is made anew: numbers of a kind, random ones, ones at places that are named."""

import numpy as np

from modelkeeper.frontends.keras.lower.lowering import Lowering, number
from modelkeeper.frontends.keras.lower.pointwise import unary
from modelkeeper.frontends.keras.lower.seen import Seen
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, lowers
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.tracing.trace import Value


@lowers("random.normal", "random.truncated_normal", "random.uniform", "random.randint")
def _random(low: Lowering, call: Call) -> Value:
    shape = tuple(call.outputs[0].shape)
    name = "rand" if call.name in ("random.uniform", "random.randint") else "randn"
    return low.step(name, shape, size=list(shape))


@lowers("FullLike")
def _full_like(low: Lowering, call: Call) -> Seen:
    fill = number(arguments(call)["fill_value"])
    if fill is None:
        raise CannotLower("filled with something else than a number")
    return unary(low, call.args[0], "full_like", fill_value=fill)


@lowers("OneHot")
def _one_hot(low: Lowering, call: Call) -> Value:
    """Is it this one? Asked of every number there can be."""
    made, last = call.outputs[0], len(call.outputs[0].shape) - 1
    if call.operation.axis not in (-1, last) or getattr(call.operation, "sparse", False):
        raise CannotLower("classes along another axis than the last")
    taken = low.plain(arguments(call)["x"])
    classes = low.build.constant(np.arange(made.shape[-1]))
    column = low.build.view(taken, (*taken.shape, 1))
    return low.step("eq", made.shape, self=column, other=classes)
