"""Where does a value come from: out of a node, from tensors of the model alone, or from nowhere?

What is computed of tensors of the model on their way into a layer (a weight times a scale, a gain plus one)
is no layer of its own: it is written on the layer that takes the result, as its attribute `through`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelkeeper.graph.structure import Attribute
from modelkeeper.graph.vocabulary import THROUGH
from modelkeeper.tracing.paths import Path, shorten
from modelkeeper.tracing.trace import Value


@dataclass(frozen=True, slots=True)
class Flow:
    """The output of a node, after the operations of a path."""

    node: int
    via: Path = ()
    simple: bool = True  # the path is pointwise or takes statistics: it can be folded into a function


@dataclass(frozen=True, slots=True)
class Weights:
    """Computed from tensors of the model alone."""

    values: tuple[Value, ...]
    direct: bool  # nothing was done to it but moving axes
    function: str = ""  # what was done to it, with each tensor as {its number}


Origin = Flow | Weights | None


def through(computed: Mapping[str, Weights]) -> dict[str, Attribute]:
    """What is done to a layer's tensors on their way into it, by their roles, beyond moving axes."""
    texts = [
        f"{role} {numbered(weights.function, weights.values)}".strip()
        for role, weights in computed.items()
        if weights.function
    ]
    return {THROUGH: shorten("; ".join(texts))} if texts else {}


def numbered(function: str, values: Sequence[Value]) -> str:
    """A function with tensors by their place among those that it takes, so that it depends on no names."""
    for place, value in enumerate(values):
        function = function.replace(f"{{{value.number}}}", f"_{place or ''}")
    return re.sub(r"{\d+}", "_", function)
