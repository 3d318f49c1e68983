"""What do operators take and make? Entries for names of the graph, and a node with its entries.

Array     numbers that are known: shapes, indices, single factors
Stored    an initializer of several floating-point numbers: its first use says whether it is a parameter,
          and in which order of axes it stands in the graph
Value     what a step made
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from modelkeeper.frontends.onnx.inference import Made
from modelkeeper.frontends.onnx.nodes import Node
from modelkeeper.graph.rules import MAX_TEXT
from modelkeeper.tracing.trace import Value
from modelkeeper.weights import Array


@dataclass(frozen=True, slots=True)
class Stored:
    """An initializer of floating-point numbers, perhaps with its axes in another order."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()  # the axes of what is stored, as they are meant; (): as they are

    def turned(self, order: Sequence[int]) -> "Stored":
        """The same with its axes moved."""
        old = self.order or tuple(range(len(self.shape)))
        return replace(self, shape=tuple(self.shape[n] for n in order), order=tuple(old[n] for n in order))


Entry = Value | Stored | Array


class NotLowered(Exception):
    """An operator is used in a way that has no counterpart in the vocabulary: it is opaque."""


@dataclass(frozen=True, slots=True)
class Call:
    """A node with what it takes and makes."""

    node: Node
    inputs: tuple[Entry | None, ...]
    made: tuple[Made, ...]
    opset: int

    def __getitem__(self, number: int) -> Entry | None:
        """An input; None: it was left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def needed(self, number: int) -> Entry:
        """An input that the operator cannot do without."""
        entry = self[number]
        if entry is None:
            raise NotLowered
        return entry

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.node.attributes.get(name, default)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first output."""
        shape = self.made[0].shape
        if shape is None:
            raise NotLowered
        return shape

    @property
    def dtype(self) -> str:
        """The type of the first output."""
        return self.made[0].dtype


def graph_name(name: str) -> str:
    """The name of an initializer as graphs can have it."""
    name = name[: MAX_TEXT // 2]
    return f"tensor{name}" if name.startswith(".") or not name else name


def plain_number(number: Any) -> float | int:
    """A number as it was written before it became one of few digits: 0.1, not 0.10000000149."""
    if np.issubdtype(number.dtype, np.integer) or number.dtype == np.bool_:
        return int(number)
    return float(number) if number.dtype == np.float64 else short(float(number))


# Numbers that formulas are written with, and that lost their last digits in single precision.
_USUAL = {np.float32(n): n for n in (2**0.5, 0.5**0.5, (2 / math.pi) ** 0.5, math.pi, 1 / 3, 1 / 6, math.e)}


def short(number: float) -> float:
    """The number that was written, from what it became in single precision: the shortest, or a usual one."""
    single = np.float32(number)
    return _USUAL.get(single) or float(str(single))
