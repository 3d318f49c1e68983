"""How does a front end write a trace down? Values are numbered as they come, steps as they are taken.

    build = TraceBuilder("keras")
    image = build.input((1, 3, 32, 32))
    weight = build.tensor(OwnedTensor(("conv.kernel",), (8, 3, 3, 3), "float32"))
    made = build.step("conv2d", (1, 8, 30, 30), input=image, weight=weight, bias=None)
    trace = build.trace([build.step("relu", made.shape, self=made)], tensors=[weight.owner])

Arguments go by the names that the vocabulary gives them; values among them, in lists too, are the inputs of
the step, in the order of the arguments. Numbers of constants are kept aside, by the number of their value: a
trace does not hold them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from modelkeeper.graph import Note
from modelkeeper.graph.vocabulary import PERMUTE, VIEW
from modelkeeper.tracing.constants import numbers_text
from modelkeeper.tracing.trace import OwnedTensor, Step, Trace, Value, live_steps
from modelkeeper.weights import Array


class TraceBuilder:
    """Writes down what a model does, as a Trace."""

    def __init__(self, framework: str) -> None:
        self.steps: list[Step] = []
        self.constants: dict[int, Array] = {}  # the numbers of each constant, by the number of its value
        self._framework = framework
        self._inputs: list[Value] = []
        self._input_names: list[str] = []
        self._owned: dict[str, Value] = {}
        self._count = 0

    def input(self, shape: Iterable[int], dtype: str = "float32", name: str = "input") -> Value:
        """What goes into the model."""
        value = self._value(shape, dtype)
        value.active = True
        self._inputs.append(value)
        self._input_names.append(name)
        return value

    def tensor(self, owned: OwnedTensor) -> Value:
        """A tensor of the model: one value for each, however often it is asked for."""
        known = self._owned.get(owned.names[0])
        if known is None:
            known = self._owned[owned.names[0]] = self._value(owned.shape, owned.dtype, owned)
        return known

    def constant(self, array: Any) -> Value:
        """Numbers that neither a step nor the model makes. An axis of stride 0 repeats at any size."""
        array = np.asarray(array)
        value = self._value(array.shape, array.dtype.name)
        value.constant = True
        value.repeats = tuple(stride == 0 for stride in array.strides)
        value.numbers = numbers_text(array)
        self.constants[value.number] = array
        return value

    def step(
        self, name: str, shape: Iterable[int], /, *, dtype: str | None = None, **arguments: Any
    ) -> Value:
        """One operation with one result.

        Args:
            name: In the vocabulary; another one is opaque.
            shape: Of what it makes.
            dtype: Of what it makes; None: as its first operand of floating-point numbers, or else its first.
            arguments: By name; what is None is left out.
        """
        return self.results(name, [tuple(shape)], dtype=dtype, **arguments)[0]

    def results(
        self, name: str, shapes: Sequence[Iterable[int]], /, *, dtype: str | None = None, **arguments: Any
    ) -> list[Value]:
        """One operation with several results, of these shapes."""
        given = {key: argument for key, argument in arguments.items() if argument is not None}
        inputs = list(_values_in(given.values()))
        step = Step(name, given, inputs, number=len(self.steps) + 1)
        floating = next((value for value in inputs if value.floating), inputs[0] if inputs else None)
        kind = dtype or (floating.dtype if floating is not None else "float32")
        for shape in shapes:
            made = self._value(shape, kind)
            made.active, made.step = any(value.active for value in inputs), step
            step.outputs.append(made)
        self.steps.append(step)
        return step.outputs

    def view(self, value: Value, shape: Iterable[int]) -> Value:
        """The same numbers in the same order, in another shape; the value itself if it has that shape."""
        shape = tuple(shape)
        assert math.prod(shape) == math.prod(value.shape), (value, shape)
        return value if shape == value.shape else self.step(VIEW, shape, self=value, size=list(shape))

    def permute(self, value: Value, order: Iterable[int]) -> Value:
        """The axes of a value in another order; the value itself if that is the order they have."""
        dims = list(order)
        if dims == list(range(len(value.shape))):
            return value
        return self.step(PERMUTE, (value.shape[n] for n in dims), self=value, dims=dims)

    def trace(
        self,
        outputs: Sequence[Value],
        *,
        tensors: Sequence[OwnedTensor] = (),
        touched: Iterable[str] = (),
        notes: Sequence[Note] = (),
        ran_on: Any = None,
    ) -> Trace:
        """All that the outputs need. `tensors`: all that the model owns; those that are used, if left out."""
        owned = tensors or [value.owner for value in self._owned.values() if value.owner is not None]
        return Trace(
            self._framework,
            self._inputs,
            list(outputs),
            live_steps(self.steps, outputs),
            owned,
            self._input_names,
            frozenset(touched),
            notes,
            ran_on,
        )

    def _value(self, shape: Iterable[int], dtype: str, owner: OwnedTensor | None = None) -> Value:
        self._count += 1
        return Value(self._count, map(int, shape), dtype, owner)


def _values_in(tree: Any) -> Iterator[Value]:
    """The values among arguments, in lists and tuples too."""
    for branch in tree:
        if isinstance(branch, Value):
            yield branch
        elif isinstance(branch, (list, tuple)):
            yield from _values_in(branch)
