"""Which rule lowers which operation of Keras?

    @lowers("Relu6")
    def _relu6(low, call): return ...       a value, how one is seen, or a list of them

A rule that cannot say what an operation does in the vocabulary raises CannotLower: it is opaque then, for
this reason.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelkeeper.frontends.keras.lower.lowering import Lowering
    from modelkeeper.frontends.keras.lower.seen import Held, Seen
    from modelkeeper.frontends.keras.recorder import Call
    from modelkeeper.tracing.trace import Value

    Made = Value | Seen | Held | list[Any]
    Rule = Callable[[Lowering, Call], Made]

RULES: "dict[str, Rule]" = {}  # by the name of the operation in Keras


class CannotLower(Exception):
    """The vocabulary has no way to say what an operation does."""


def lowers(*names: str) -> "Callable[[Rule], Rule]":
    """Make a function the rule for these operations."""

    def register(rule: "Rule") -> "Rule":
        for name in names:
            assert name not in RULES, f"{name} has two rules"
            RULES[name] = rule
        return rule

    return register


def arguments(call: "Call") -> dict[str, Any]:
    """The arguments of a call by name, with the defaults of those that were left out."""
    kind: Any = type(call.operation)
    bound = _signature(kind).bind(call.operation, *call.args, **call.kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


@cache
def _signature(kind: Any) -> inspect.Signature:
    own = "call" in vars(kind)
    return inspect.signature(kind.call if own else kind.compute_output_spec)


def axes_of(axis: Any, rank: int) -> list[int]:
    """Axes that are named by one number, by several, or by none (all of them), counted from the front."""
    if axis is None:
        return list(range(rank))
    return [int(n) % rank for n in (axis if isinstance(axis, (list, tuple)) else [axis])]


def each(value: Any, count: int) -> list[int]:
    """One number for each of so many places, from one for all or one for each."""
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return [int(n) for n in (given * count if len(given) == 1 else given)]
