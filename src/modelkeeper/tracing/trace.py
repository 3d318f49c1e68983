"""What did a model do? One forward pass as plain data: what every front end delivers.

    Trace    what went in and came out, the steps between, and the tensors that the model owns
    Step     one operation of the vocabulary on values, with its plain arguments by name
    Value    what a step computes, what goes in, a tensor of the model, or a constant; never changed

Everything is in single-assignment form: each value is made by one step. Arguments are numbers, texts, lists
of them, and values. What a framework knows beyond that (tensors, functions) stays in its front end, which
finds it again by the numbers of steps and values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from modelkeeper.graph import Note
from modelkeeper.graph.vocabulary import Operation, operation
from modelkeeper.tracing.terms import Term


@dataclass(frozen=True, slots=True)
class OwnedTensor:
    """A parameter or buffer of the model: all of its names, of which the first is used everywhere."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    parameter: bool = True
    trainable: bool = True
    stored: bool = True  # False: the model computes it anew and keeps it out of its weights
    counts: bool = False  # it only counts (batches that a norm has seen): no part of the architecture
    module: str = ""  # whose it is, by which its layer is called; "": what its name has before the last dot


class Value:
    """One state of one tensor. `axes` are filled in by the inference of spaces."""

    __slots__ = (
        "active",
        "axes",
        "constant",
        "dtype",
        "number",
        "numbers",
        "owner",
        "repeats",
        "shape",
        "step",
    )

    def __init__(
        self, number: int, shape: Iterable[int], dtype: str = "float32", owner: OwnedTensor | None = None
    ) -> None:
        self.number = number
        self.shape = tuple(shape)
        self.dtype = dtype
        self.owner = owner  # set for a tensor of the model
        self.constant = False  # neither a step nor the model made it: its numbers are what they are
        # Of a constant, and of a tensor that is not stored: see `tracing.constants`. Empty: not known.
        self.numbers = ""
        # For each axis of a constant: is it one number, expanded to any size?
        self.repeats: tuple[bool, ...] = (False,) * len(self.shape)
        self.active = False  # computed from the model's inputs
        self.step: Step | None = None  # what computed it
        self.axes: list[Term] = []

    @property
    def floating(self) -> bool:
        """Does it hold numbers that are not whole?"""
        return "float" in self.dtype or "complex" in self.dtype

    def __repr__(self) -> str:
        return f"%{self.number}:{self.dtype}{list(self.shape)}"


@dataclass(slots=True, eq=False)
class Step:
    """One operation on values."""

    name: str  # of the operation, in the vocabulary
    arguments: dict[str, Any]
    inputs: list[Value]
    outputs: list[Value] = field(default_factory=list)
    number: int = 0  # by which a front end finds what it knows of it

    @property
    def operation(self) -> Operation:
        """What the vocabulary says of it."""
        return operation(self.name)

    def has(self, trait: str) -> bool:
        """Does the operation have a trait?"""
        return trait in operation(self.name).traits


@dataclass(slots=True)
class Trace:
    """A forward pass in single-assignment form, without dead code."""

    framework: str
    inputs: list[Value]
    outputs: list[Value]
    steps: list[Step]
    tensors: Sequence[OwnedTensor] = ()  # all that the model owns, in the order of its code
    input_names: Sequence[str] = ()
    touched: frozenset[str] = frozenset()  # tensors that were looked at, if only at their numbers
    notes: Sequence[Note] = ()  # what the front end wants known
    ran_on: Any = None  # what the model ran on, for its front end: nobody else looks at it

    @property
    def owned(self) -> list[Value]:
        """The tensors of the model that some step uses, as values."""
        used = {
            value.number: value for step in self.steps for value in step.inputs if value.owner is not None
        }
        return list(used.values())


def live_steps(steps: Sequence[Step], outputs: Iterable[Value]) -> list[Step]:
    """The steps that some output needs, in their order: dead code is left out."""
    needed = {value.number for value in outputs}
    live = []
    for step in reversed(steps):
        if any(value.number in needed for value in step.outputs):
            live.append(step)
            needed.update(value.number for value in step.inputs)
    return live[::-1]
