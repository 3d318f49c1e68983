"""From a model to its program: what it did on batches of different size, written down as one.

    record_program(model, inputs).to_bytes()

The model runs on shapes, with two and with three examples. Sizes in the arguments of its operations that
differ have to be multiples of the batch. If it also runs on shorter sequences (tokens, frames: the second
axis of its inputs), sizes may follow their length as well; if it does other things there, the program is for
the length that it was recorded with.

Constants have to be the same in all runs, or one slice, repeated. Where they are not (positions, masks), what
made them becomes a part of the program. If the runs differ in anything else, what the model does depends on
the sizes in a way that cannot be written down, and NoProgram says so. Operations that write in place become
those that make a new tensor; what only moves numbers about in memory (contiguous, detach ...) is left out.
"""

import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotDescribe, InvalidProgram, NoProgram
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
from modelkeeper.frontends.torch.describe import Outputs, TorchAccount, listen, study
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.recorder import map_tensors, tensors_in
from modelkeeper.frontends.torch.side_effects import unwrap
from modelkeeper.frontends.torch.trace import AtenCall, TorchTrace
from modelkeeper.tracing.trace import Step as TracedStep
from modelkeeper.tracing.trace import Value

Run = tuple[int, int]  # how many examples, and how long
EXAMPLES = (2, 3)  # batches of one are treated differently by some code
SHORTEST = 6  # what is shorter is not cut
# Without effect on a tensor's numbers, in evaluation mode.
_NOTHING = frozenset(
    "contiguous clone detach alias dropout feature_dropout alpha_dropout lift_fresh lift".split()
)
_RENAMED = {"view": "reshape", "_unsafe_view": "reshape", "_reshape_alias": "reshape"}


def record_program(model: nn.Module, example_inputs: Any = None, *, outputs: Outputs = None) -> Program:
    """The program of a model, for batches of any size.

    Args:
        model: Any module; it is not changed.
        example_inputs: As `describe` takes them. The first axis of each tensor is that of the examples.
        outputs: As `describe` takes them.

    Raises:
        CannotDescribe: The model did not run on the inputs there were.
        NoProgram: What it does cannot be written down as operations of the list, for batches of any size.
    """
    name = type(unwrap(model)).__name__
    inputs = listen(model).trace.ran_on if example_inputs is None else Inputs.of(example_inputs)
    length = _length(inputs)

    def resized(run: Run) -> Inputs:
        return _resized(name, inputs, length, *run)

    studied = cache(lambda run, real: study(model, resized(run), outputs=outputs, real=real))
    heard = cache(lambda run, real: listen(model, resized(run), outputs=outputs, real=real))
    ways = _ways(length)
    for way in ways:
        try:
            for real in (False, True):  # on shapes, some constants have no numbers
                account = studied(way[0], real)
                runs = [account.torch, *(heard(run, real) for run in way[1:])]
                if not any(map(_without_numbers, runs)):
                    break
            if _outline(account.torch) != _outline(studied((EXAMPLES[0], length), real).torch):
                raise NoProgram(name, f"it does other things with inputs of length {length}")
            return _Writer(name, account, runs, way).program()
        except (CannotDescribe, InvalidProgram, NoProgram):
            if way is ways[-1]:
                raise
    raise AssertionError(name)


def _ways(length: int) -> list[list[Run]]:
    """Sets of batch sizes and lengths to run a model on, to be tried in this order.

    Three runs say how sizes depend on examples and length, the fourth whether that holds: at lengths far
    apart, so that a stride shows, and odd ones. A slice that takes all there is leaves no trace, as of a
    table of positions: so the next try is with one less. The last is for the given length alone.
    """
    few, more = EXAMPLES
    lengths = (length, length - 1) if length else ()
    shorter = [(few, length - (length // 4 | 1)), (more, length - (length // 2 | 1))]
    return [*([(few, size), (more, size), *shorter] for size in lengths), [(few, length), (more, length)]]


def _length(inputs: Inputs) -> int:
    """The length of sequences among the inputs, of tokens if there are any; 0 if none is long enough."""
    sequences = [tensor for tensor in tensors_in((inputs.args, dict(inputs.kwargs))) if tensor.ndim > 1]
    sequences.sort(key=lambda tensor: tensor.is_floating_point())
    return sequences[0].shape[1] if sequences and sequences[0].shape[1] >= SHORTEST else 0


def _resized(name: str, inputs: Inputs, length: int, size: int, new: int) -> Inputs:
    """Resize inputs to so many examples, and sequences to a new length."""
    batches = {tensor.shape[0] for tensor in tensors_in((inputs.args, dict(inputs.kwargs))) if tensor.ndim}
    if len(batches) != 1 or 0 in batches:
        raise NoProgram(name, f"its inputs ({inputs}) do not have the same number of examples each")

    def resize(tensor: Tensor) -> Tensor:
        if tensor.ndim > 1 and tensor.shape[1] == length:
            tensor = tensor[:, :new]
        return tensor[:1].expand(size, *tensor.shape[1:]).contiguous() if tensor.ndim else tensor

    return Inputs(map_tensors(inputs.args, resize), tuple(map_tensors(dict(inputs.kwargs), resize).items()))


def _outline(run: TorchTrace) -> list[Any]:
    return [run.func(step) for step in run.trace.steps if step.name != "slice"]


def _without_numbers(run: TorchTrace) -> bool:
    return any(constant.tensor.is_meta for constant in run.used_constants())


class _Writer:
    """Writes one program from several runs of a model. A group is one value, or one step, of each run."""

    def __init__(
        self, name: str, account: TorchAccount, runs: Sequence[TorchTrace], sizes: Sequence[Run]
    ) -> None:
        self._name, self._account, self._runs, self._sizes = name, account, runs, sizes
        self._numbers: list[dict[int, int]] = [{} for _ in runs]  # of each run's values
        self._tensors: dict[str, Taken] = {}
        self._constants: dict[Constant, int] = {}  # each once, by its place
        self._order: list[tuple[TracedStep, ...]] = []  # the steps to write
        self._steps: list[Step] = []

    def program(self) -> Program:
        self._same(len(run.trace.steps) for run in self._runs)
        self._same(len(run.trace.outputs) for run in self._runs)
        inputs = self._inputs()
        self._collect()
        for group in self._order:
            self._step(group)
        graph = self._account.graph
        layers = {
            graph.layers[node].name: self._numbers[0][value.number]
            for node, value in self._account.account.values.items()
            if value.number in self._numbers[0]
        }
        outputs = tuple(self._numbers[0][value.number] for value in self._runs[0].trace.outputs)
        tensors, constants = tuple(self._tensors.values()), tuple(self._constants)
        return Program(inputs, tensors, constants, tuple(self._steps), outputs, layers)

    def _same(self, facts: Iterable[Any]) -> None:
        if len(set(facts)) > 1:
            raise NoProgram(self._name, "it does other things with three examples than with two")

    def _inputs(self) -> tuple[Taken, ...]:
        given = self._account.torch.trace.ran_on
        names = [f"{n}" for n in range(len(list(tensors_in(given.args))))]
        for name, value in given.kwargs:
            names += [name] * len(list(tensors_in(value)))
        tensors = list(tensors_in((given.args, dict(given.kwargs))))
        groups = list(zip(*(run.trace.inputs for run in self._runs), strict=True))
        for number, group in enumerate(groups):
            self._number(group, number)
        return tuple(
            Taken(name, self._dtype(tensor.dtype), self._shape(group))
            for name, tensor, group in zip(names, tensors, groups, strict=True)
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
                    dtype = self._dtype(self._runs[0].tensors[key].dtype)
                    self._tensors[key] = Taken(key, dtype, owner.shape)
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
        """The steps that made a constant, of those runs in which an operation did."""
        constants = [run.constants.get(value.number) for run, value in zip(self._runs, group, strict=True)]
        makers = [constant.made for constant in constants if constant is not None]
        return tuple([step for step in makers if step is not None])

    def _constant(self, group: tuple[Value, ...]) -> Constant:
        shape = self._shape(group)
        numbers: list[Tensor] = []
        for run, value in zip(self._runs, group, strict=True):
            if value.owner is not None:
                numbers.append(run.tensors[value.owner.names[0]].detach())
            elif value.constant:
                if not run.constants[value.number].final:
                    raise NoProgram(self._name, "a constant in it is written over")
                numbers.append(run.constants[value.number].tensor)
        if len(numbers) < len(group) or any(tensor.is_meta for tensor in numbers):
            raise NoProgram(self._name, "a constant in it has no numbers")
        for axis, size in enumerate(shape):
            if isinstance(size, Hole):
                if not torch.equal(numbers[0], numbers[0].narrow(axis, 0, 1).expand_as(numbers[0])):
                    raise NoProgram(self._name, "a constant in it differs from example to example")
                numbers = [tensor.narrow(axis, 0, 1) for tensor in numbers]
        first = numbers[0]
        if any(
            first.shape != other.shape or not torch.equal(first.nan_to_num(), other.nan_to_num())
            for other in numbers[1:]
        ):
            raise NoProgram(self._name, "a constant in it depends on the size of the batch")
        data = first.contiguous().reshape(-1).cpu().view(torch.uint8).numpy().tobytes()
        return Constant(self._dtype(first.dtype), shape, zlib.compress(data))

    def _step(self, group: tuple[TracedStep, ...]) -> None:
        first = group[0]
        calls = [run.calls.get(step.number) for run, step in zip(self._runs, group, strict=True)]
        self._same((call and call.func, len(step.outputs)) for call, step in zip(calls, group, strict=True))
        results = tuple(zip(*(step.outputs for step in group), strict=True))
        known = [call for call in calls if call is not None]
        if len(known) < len(calls):
            old, new = first.inputs
            if not first.arguments["whole"] or old.shape != new.shape:
                raise NoProgram(self._name, "it writes into a part of a tensor")
            self._number(results[0], self._numbers[0][new.number])
            return
        self._operation(known, first, results)

    def _operation(
        self, calls: Sequence[AtenCall], step: TracedStep, results: tuple[tuple[Value, ...], ...]
    ) -> None:
        """Write down an operator of torch, with arguments that serve for all runs."""
        func = calls[0].func
        packet = func._schema.name.partition("::")[2]
        if calls[0].writes and packet.endswith("_"):
            packet = packet.removesuffix("_")
        if packet in _NOTHING and not calls[0].arguments.get("train"):
            self._number(results[0], self._numbers[0][step.inputs[0].number])
            return
        packet = _RENAMED.get(packet, packet)
        overload = "default" if packet == "reshape" else func._overloadname
        operation = f"{packet}.{overload}"
        schema = signature(operation)
        if schema is None or (packet == "reshape" and "size" not in calls[0].arguments):
            raise NoProgram(self._name, f"it uses aten::{operation}, which programs may not")
        given = [self._renamed(packet, call.arguments) for call in calls]
        arguments = [
            self._argument(parameter, [by_name.get(parameter.name, parameter.default) for by_name in given])
            for parameter in schema.parameters
        ]
        while len(arguments) > schema.required and arguments[-1] == self._plain(
            schema.parameters[len(arguments) - 1].default
        ):
            arguments.pop()
        self._steps.append(Step(operation, tuple(arguments), len(step.outputs)))
        for values in results:
            self._number(values, self._known)
            self._known += 1

    def _renamed(self, packet: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of a view under the names that a reshape has for them."""
        return arguments | {"shape": arguments.get("size")} if packet == "reshape" else arguments

    def _argument(self, parameter: Parameter, given: Sequence[Any]) -> Argument:
        first = given[0]
        if all(isinstance(value, (list, tuple)) for value in given):
            if len({len(value) for value in given}) > 1:
                raise NoProgram(self._name, f"{parameter.name} has more entries for larger inputs")
            return tuple([self._item(parameter, items) for items in zip(*given, strict=True)])
        if isinstance(first, str) and all(value == first for value in given):
            return first
        if isinstance(first, torch.dtype) and all(value is first for value in given):
            return self._dtype(first)
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

    def _dtype(self, dtype: torch.dtype) -> str:
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise NoProgram(self._name, f"it uses {name}")
        return name
