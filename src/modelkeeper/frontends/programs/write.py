"""From what a model did on batches of different size to one program: see `program`.

A front end traces a model on a few sets of sizes (`ways`): with two and with three examples, so that sizes in
the arguments of its operations that differ have to be multiples of the batch. If it also runs on shorter
sequences (tokens, frames: the second axis of its inputs), sizes may follow their length as well; if it does
other things there, the program is for the length that it was recorded with.

Constants have to be the same in all runs, or one slice, repeated. Where they are not (positions, masks), what
made them becomes a part of the program. If the runs differ in anything else, what the model does depends on
the sizes in a way that cannot be written down, and NoProgram says so.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from modelkeeper.errors import NoProgram
from modelkeeper.frontends.programs.operations import Parameter, signature
from modelkeeper.frontends.programs.program import (
    DTYPES,
    Argument,
    Constant,
    Hole,
    Item,
    Program,
    Size,
    Step,
    Taken,
)
from modelkeeper.tracing.describe import Account
from modelkeeper.tracing.trace import Step as TracedStep
from modelkeeper.tracing.trace import Trace, Value
from modelkeeper.weights import Array

Sizes = tuple[int, int]  # how many examples, and how long
EXAMPLES = (2, 3)  # batches of one are treated differently by some code
SHORTEST = 6  # what is shorter is not cut


@dataclass(frozen=True, slots=True)
class Call:
    """What a step is in a program: an operation of the list, with values in place of tensors."""

    operation: str  # "": nothing is done, the result is the argument `self`
    arguments: dict[str, Any]  # by name; a dtype by its name
    outputs: Sequence[Value]


class Run(Protocol):
    """A model as it was traced once, and what its front end knows beside the trace."""

    @property
    def trace(self) -> Trace:
        """What it did."""

    def calls(self, step: TracedStep) -> Sequence[Call]:
        """What a step is in a program; several calls if no single operation does it.

        Raises:
            NoProgram: It cannot be said in operations of the list.
        """

    def numbers(self, value: Value) -> Array | None:
        """The numbers of a constant, or of a tensor that the model does not store; None: not known.

        Raises:
            NoProgram: It is no constant.
        """

    def maker(self, value: Value) -> TracedStep | None:
        """The step that made a constant, if one did."""


def ways(length: int) -> list[list[Sizes]]:
    """Sets of batch sizes and lengths to run a model on, to be tried in this order.

    Three runs say how sizes depend on examples and length, the fourth whether that holds: at lengths far
    apart, so that a stride shows, and odd ones. A slice that takes all there is leaves no trace, as of a
    table of positions: so the next try is with one less. The last is for the given length alone.
    """
    few, more = EXAMPLES
    lengths = (length, length - 1) if length else ()
    shorter = [(few, length - (length // 4 | 1)), (more, length - (length // 2 | 1))]
    return [*([(few, size), (more, size), *shorter] for size in lengths), [(few, length), (more, length)]]


def length_of(shapes: Iterable[tuple[Sequence[int], bool]]) -> int:
    """The length of sequences among inputs, of tokens if there are any; 0 if none is long enough.

    `shapes`: of each input, and whether it holds floating-point numbers.
    """
    sequences = [(floating, shape[1]) for shape, floating in shapes if len(shape) > 1]
    length = min(sequences, key=lambda sequence: sequence[0], default=(False, 0))[1]
    return length if length >= SHORTEST else 0


def write(
    name: str, account: Account, runs: Sequence[Run], sizes: Sequence[Sizes], inputs: Sequence[str]
) -> Program:
    """One program from several runs of a model.

    Args:
        name: What the model is called.
        account: Of the first run.
        runs: Of the same model, on inputs of different sizes.
        sizes: Of each run.
        inputs: What each input is called.

    Raises:
        NoProgram: What it does cannot be written down as operations of the list, for batches of any size.
    """
    return _Writer(name, account, runs, sizes).program(inputs)


class _Writer:
    """Writes one program from several runs of a model. A group is one value, or one step, of each run."""

    def __init__(self, name: str, account: Account, runs: Sequence[Run], sizes: Sequence[Sizes]) -> None:
        self._name, self._account, self._runs, self._sizes = name, account, runs, sizes
        self._numbers: list[dict[int, int]] = [{} for _ in runs]  # of each run's values
        self._tensors: dict[str, Taken] = {}
        self._constants: dict[Constant, int] = {}  # each once, by its place
        self._order: list[tuple[TracedStep, ...]] = []  # the steps to write
        self._steps: list[Step] = []

    def program(self, names: Sequence[str]) -> Program:
        self._same(len(run.trace.steps) for run in self._runs)
        self._same(len(run.trace.outputs) for run in self._runs)
        inputs = self._inputs(names)
        self._collect()
        for group in self._order:
            self._step(group)
        graph = self._account.graph
        layers = {
            graph.layers[node].name: self._numbers[0][value.number]
            for node, value in self._account.values.items()
            if value.number in self._numbers[0]
        }
        outputs = tuple(self._numbers[0][value.number] for value in self._runs[0].trace.outputs)
        tensors, constants = tuple(self._tensors.values()), tuple(self._constants)
        return Program(inputs, tensors, constants, tuple(self._steps), outputs, layers)

    def _same(self, facts: Iterable[Any]) -> None:
        if len(set(facts)) > 1:
            raise NoProgram(self._name, "it does other things with three examples than with two")

    def _inputs(self, names: Sequence[str]) -> tuple[Taken, ...]:
        groups = list(zip(*(run.trace.inputs for run in self._runs), strict=True))
        for number, group in enumerate(groups):
            self._number(group, number)
        return tuple(
            Taken(name, self._dtype(group[0].dtype), self._shape(group))
            for name, group in zip(names, groups, strict=True)
        )

    def _collect(self) -> None:
        """Number the model's tensors, then the constants, and put the steps in order."""
        waiting: list[tuple[tuple[Value, ...], int]] = []
        entered = set(self._numbers[0])
        place: dict[str, int] = {}

        def enter(group: tuple[Value, ...]) -> None:
            first = group[0]
            if first.step is not None or first.number in entered:
                return
            entered.add(first.number)
            owner = first.owner
            if owner is not None and owner.stored:
                key = owner.names[0]
                if key not in self._tensors:
                    place[key] = len(self._runs[0].trace.inputs) + len(place)
                    self._tensors[key] = Taken(key, self._dtype(owner.dtype), owner.shape)
                self._number(group, place[key])
                return
            try:
                which = self._constants.setdefault(self._constant(group), len(self._constants))
                waiting.append((group, which))
            except NoProgram:
                makers = self._makers(group)
                if len(makers) < len(group):
                    raise
                for operands in zip(*(step.inputs for step in makers), strict=False):
                    enter(operands)
                entered.update(value.number for value in makers[0].outputs)
                self._order.append(makers)

        for steps in zip(*(run.trace.steps for run in self._runs), strict=True):
            for group in zip(*(step.inputs for step in steps), strict=False):
                enter(group)
            self._order.append(steps)
        for group in zip(*(run.trace.outputs for run in self._runs), strict=True):
            enter(group)
        known = len(self._runs[0].trace.inputs) + len(self._tensors)
        for group, which in waiting:
            self._number(group, known + which)
        self._known = known + len(self._constants)

    def _makers(self, group: tuple[Value, ...]) -> tuple[TracedStep, ...]:
        """The steps that made a constant, of those runs in which a step did."""
        makers = [run.maker(value) for run, value in zip(self._runs, group, strict=True)]
        return tuple([step for step in makers if step is not None])

    def _constant(self, group: tuple[Value, ...]) -> Constant:
        shape = self._shape(group)
        known = [run.numbers(value) for run, value in zip(self._runs, group, strict=True)]
        numbers = [array for array in known if array is not None]
        if len(numbers) < len(group):
            raise NoProgram(self._name, "a constant in it has no numbers")
        for axis, size in enumerate(shape):
            if isinstance(size, Hole):
                slices = [array.take([0], axis) for array in numbers]
                if not _equal(numbers[0], np.broadcast_to(slices[0], numbers[0].shape)):
                    raise NoProgram(self._name, "a constant in it differs from example to example")
                numbers = slices
        first = numbers[0]
        if not all(_equal(first, other) for other in numbers[1:]):
            raise NoProgram(self._name, "a constant in it depends on the size of the batch")
        return Constant(self._dtype(first.dtype.name), shape, zlib.compress(first.tobytes()))

    def _step(self, group: tuple[TracedStep, ...]) -> None:
        calls = [run.calls(step) for run, step in zip(self._runs, group, strict=True)]
        self._same(tuple((call.operation, len(call.outputs)) for call in each) for each in calls)
        for parts in zip(*calls, strict=True):
            self._operation(parts)

    def _operation(self, calls: Sequence[Call]) -> None:
        """Write down an operation, with arguments that serve for all runs."""
        operation = calls[0].operation
        results = zip(*(call.outputs for call in calls), strict=True)
        if not operation:
            self._number(next(results), self._numbers[0][calls[0].arguments["self"].number])
            return
        schema = signature(operation)
        if schema is None:
            raise NoProgram(self._name, f"it uses aten::{operation}, which programs may not")
        given = [call.arguments for call in calls]
        arguments = [
            self._argument(parameter, [by_name.get(parameter.name, parameter.default) for by_name in given])
            for parameter in schema.parameters
        ]
        while len(arguments) > schema.required and arguments[-1] == self._plain(
            schema.parameters[len(arguments) - 1].default
        ):
            arguments.pop()
        self._steps.append(Step(operation, tuple(arguments), len(calls[0].outputs)))
        for values in results:
            self._number(values, self._known)
            self._known += 1

    def _argument(self, parameter: Parameter, given: Sequence[Any]) -> Argument:
        first = given[0]
        if all(isinstance(value, (list, tuple)) for value in given):
            if len({len(value) for value in given}) > 1:
                raise NoProgram(self._name, f"{parameter.name} has more entries for larger inputs")
            return tuple([self._item(parameter, items) for items in zip(*given, strict=True)])
        if isinstance(first, str) and all(value == first for value in given):
            return self._dtype(first) if parameter.dtype else first
        return self._item(parameter, given)

    def _item(self, parameter: Parameter, given: Sequence[Any]) -> Item:
        first = given[0]
        if all(isinstance(value, Value) for value in given):
            number = self._numbers[0][first.number]
            if any(
                known.get(value.number) != number for known, value in zip(self._numbers, given, strict=True)
            ):
                raise NoProgram(self._name, "it computes from other values for larger inputs")
            return Hole(v=number)
        if len(set(map(type, given))) > 1 or not (first is None or isinstance(first, (bool, int, float))):
            raise NoProgram(self._name, f"{parameter.name} is {type(first).__name__} {str(first)[:40]}")
        if isinstance(first, int) and not isinstance(first, bool):
            return self._size(given)
        if first == first and any(value != first for value in given):
            raise NoProgram(self._name, f"{parameter.name} is {self._spelled_out(given)}")
        plain: Item = self._plain(first)
        return plain

    def _plain(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(value)
        if isinstance(value, float) and value != value:
            return Hole(f="nan")
        return Hole(f=str(value)) if value in (float("inf"), -float("inf")) else value

    def _size(self, values: Sequence[int]) -> Size:
        """A size that has these values in the runs: a number, or a function of batch and length."""
        if len(set(values)) == 1:
            return values[0]
        length = self._sizes[0][1]
        batched = values[0] != values[1]
        parts = [n // size[0] if batched else n for n, size in zip(values, self._sizes, strict=True)]
        slope = (parts[0] - parts[2]) // (length - self._sizes[2][1]) if len(parts) > 2 else 0
        hole = Hole(b=parts[0]) if not slope else Hole(b=int(batched), l=slope, n=parts[0] - slope * length)
        if not hole.sized or any(hole.size(*size) != n for n, size in zip(values, self._sizes, strict=True)):
            raise NoProgram(self._name, f"a size is {self._spelled_out(values)}")
        return hole

    def _spelled_out(self, given: Sequence[Any]) -> str:
        """Spell out the values of one argument in all runs, for error messages."""
        return ", ".join(
            f"{value} with {examples} examples" + (f" of length {length}" if length else "")
            for value, (examples, length) in zip(given, self._sizes, strict=True)
        )

    def _shape(self, group: tuple[Value, ...]) -> tuple[Size, ...]:
        if len({len(value.shape) for value in group}) > 1:
            raise NoProgram(self._name, "a value has more axes for larger inputs")
        return tuple([self._size(sizes) for sizes in zip(*(value.shape for value in group), strict=True)])

    def _number(self, group: Iterable[Value], number: int) -> None:
        for known, value in zip(self._numbers, group, strict=True):
            known[value.number] = number

    def _dtype(self, name: str) -> str:
        if name not in DTYPES:
            raise NoProgram(self._name, f"it uses {name}")
        return name


def _equal(array: Array, other: Array) -> bool:
    """The same shape and the same numbers; what is no number is equal to itself."""
    return np.array_equal(array, other, equal_nan=True)
