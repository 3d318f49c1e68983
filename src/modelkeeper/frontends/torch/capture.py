"""From a model to its program: what it did on two batches of different size, written down as one.

    record(model, inputs).to_bytes()

The model runs twice on shapes, with two and with three examples. Sizes in the arguments of its operations
that differ have to be multiples of the batch; constants that differ have to be one slice, repeated. If the
two runs differ in anything else, what the model does depends on the batch in a way that cannot be written
down, and NoProgram says so. Operations that write in place become those that make a new tensor; what only
moves numbers about in memory (contiguous, detach ...) is left out.
"""

import zlib
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import NoProgram
from modelkeeper.frontends.torch.describe import Account, Outputs, listen, study
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.operations import Parameter, signature
from modelkeeper.frontends.torch.program import (
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
from modelkeeper.frontends.torch.quiet import unwrap
from modelkeeper.frontends.torch.record import map_tensors, tensors_in
from modelkeeper.frontends.torch.trace import Step as Traced
from modelkeeper.frontends.torch.trace import Trace, Value

SIZES = (2, 3)  # batches of one are treated differently by some code
# Without effect on a tensor's numbers, in evaluation mode.
_NOTHING = frozenset(
    "contiguous clone detach alias dropout feature_dropout alpha_dropout lift_fresh lift".split()
)
_RENAMED = {"view": "reshape", "_unsafe_view": "reshape", "_reshape_alias": "reshape"}


def record(model: nn.Module, example_inputs: Any = None, *, outputs: Outputs = None) -> Program:
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
    inputs = study(model).inputs if example_inputs is None else Inputs.of(example_inputs)
    for real in (False, True):  # on shapes, some constants have no numbers
        first = study(model, _resized(name, inputs, SIZES[0]), outputs=outputs, real=real)
        second = listen(model, _resized(name, inputs, SIZES[1]), outputs=outputs, real=real)
        if real or not any(_without_numbers(run) for run in (first.trace, second)):
            break
    return _Writer(name, first, second).program()


def _resized(name: str, inputs: Inputs, size: int) -> Inputs:
    """The same inputs with so many examples."""
    batches = {tensor.shape[0] for tensor in tensors_in((inputs.args, dict(inputs.kwargs))) if tensor.ndim}
    if len(batches) != 1 or 0 in batches:
        raise NoProgram(name, f"its inputs ({inputs}) do not have the same number of examples each")

    def resize(tensor: Tensor) -> Tensor:
        return tensor[:1].expand(size, *tensor.shape[1:]).contiguous() if tensor.ndim else tensor

    return Inputs(map_tensors(inputs.args, resize), tuple(map_tensors(dict(inputs.kwargs), resize).items()))


def _without_numbers(run: Trace) -> bool:
    return any(v.constant is not None and v.constant.is_meta for step in run.steps for v in step.inputs)


class _Writer:
    def __init__(self, name: str, first: Account, second: Trace) -> None:
        self._name, self._account = name, first
        self._runs = (first.trace, second)
        self._numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})  # of each run's values
        self._tensors: dict[str, Taken] = {}
        self._constants: list[Constant] = []
        self._steps: list[Step] = []

    def program(self) -> Program:
        first, second = self._runs
        if len(first.steps) != len(second.steps) or len(first.outputs) != len(second.outputs):
            raise NoProgram(self._name, "it does other things with three examples than with two")
        inputs = self._inputs()
        self._collect()
        for step, other in zip(first.steps, second.steps, strict=True):
            self._step(step, other)
        graph = self._account.graph
        layers = {
            graph.layers[node].name: self._numbers[0][value.number]
            for node, value in self._account.values.items()
            if value.number in self._numbers[0]
        }
        outputs = tuple(self._numbers[0][value.number] for value in first.outputs)
        tensors, constants = tuple(self._tensors.values()), tuple(self._constants)
        return Program(inputs, tensors, constants, tuple(self._steps), outputs, layers)

    def _inputs(self) -> tuple[Taken, ...]:
        names = [f"{n}" for n in range(len(list(tensors_in(self._account.inputs.args))))]
        for name, value in self._account.inputs.kwargs:
            names += [name] * len(list(tensors_in(value)))
        found = []
        for number, (name, ours, theirs) in enumerate(
            zip(names, self._runs[0].inputs, self._runs[1].inputs, strict=True)
        ):
            self._number(ours, theirs, number)
            dtype = next(
                t
                for n, t in enumerate(
                    tensors_in((self._account.inputs.args, dict(self._account.inputs.kwargs)))
                )
                if n == number
            ).dtype
            found.append(Taken(name, self._dtype(dtype), self._shape(ours, theirs)))
        return tuple(found)

    def _collect(self) -> None:
        """Number what no step makes: tensors of the model first, then constants."""
        entering: list[tuple[Value, Value]] = []
        for step, other in zip(self._runs[0].steps, self._runs[1].steps, strict=True):
            entering += zip(step.inputs, other.inputs, strict=False)
        entering += zip(self._runs[0].outputs, self._runs[1].outputs, strict=True)
        waiting: list[tuple[Value, Value]] = []
        place: dict[str, int] = {}
        for ours, theirs in entering:
            if ours.step is not None or ours.number in self._numbers[0]:
                continue
            owner = ours.owner
            if owner is None or not owner.stored:
                waiting.append((ours, theirs))
                continue
            key = owner.names[0]
            if key not in self._tensors:
                place[key] = len(self._runs[0].inputs) + len(place)
                self._tensors[key] = Taken(key, self._dtype(owner.tensor.dtype), tuple(owner.tensor.shape))
            self._number(ours, theirs, place[key])
        known = len(self._runs[0].inputs) + len(self._tensors)
        for ours, theirs in waiting:
            if ours.number not in self._numbers[0]:
                self._number(ours, theirs, known + len(self._constants))
                self._constants.append(self._constant(ours, theirs))
        self._known = known + len(self._constants)

    def _constant(self, ours: Value, theirs: Value) -> Constant:
        found, other = (
            each.owner.tensor.detach() if each.owner else each.constant for each in (ours, theirs)
        )
        assert found is not None
        assert other is not None
        shape = self._shape(ours, theirs)
        if found.is_meta:
            raise NoProgram(self._name, "a constant in it has no numbers")
        for axis, size in enumerate(shape):
            if isinstance(size, Hole):
                if not torch.equal(found, found.narrow(axis, 0, 1).expand_as(found)):
                    raise NoProgram(self._name, "a constant in it differs from example to example")
                found, other = found.narrow(axis, 0, 1), other.narrow(axis, 0, 1)
        if found.shape != other.shape or not torch.equal(found.nan_to_num(), other.nan_to_num()):
            raise NoProgram(self._name, "a constant in it depends on the size of the batch")
        data = found.contiguous().reshape(-1).cpu().view(torch.uint8).numpy().tobytes()
        return Constant(self._dtype(found.dtype), shape, zlib.compress(data))

    def _step(self, ours: Traced, theirs: Traced) -> None:
        if ours.func is None:
            old, new = ours.inputs
            if not ours.arguments["whole"] or old.shape != new.shape or theirs.func is not None:
                raise NoProgram(self._name, "it writes into a part of a tensor")
            self._number(ours.outputs[0], theirs.outputs[0], self._numbers[0][new.number])
            return
        if ours.func is not theirs.func:
            raise NoProgram(self._name, "it does other things with three examples than with two")
        packet = ours.func._schema.name.partition("::")[2]
        if ours.operation.writes and packet.endswith("_"):
            packet = packet.removesuffix("_")
        if packet in _NOTHING and not ours.arguments.get("train"):
            self._number(ours.outputs[0], theirs.outputs[0], self._numbers[0][ours.inputs[0].number])
            return
        packet = _RENAMED.get(packet, packet)
        overload = "default" if packet == "reshape" else ours.func._overloadname
        operation = f"{packet}.{overload}"
        found = signature(operation)
        if found is None or (packet == "reshape" and "size" not in ours.arguments):
            raise NoProgram(self._name, f"it uses aten::{operation}, which programs may not")
        both = (self._renamed(packet, ours.arguments), self._renamed(packet, theirs.arguments))
        arguments = [
            self._argument(parameter, *(each.get(parameter.name, parameter.default) for each in both))
            for parameter in found.parameters
        ]
        while len(arguments) > found.required and arguments[-1] == self._plain(
            found.parameters[len(arguments) - 1].default
        ):
            arguments.pop()
        self._steps.append(Step(operation, tuple(arguments), len(ours.outputs)))
        for mine, other in zip(ours.outputs, theirs.outputs, strict=True):
            self._number(mine, other, self._known)
            self._known += 1

    def _renamed(self, packet: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a reshape are those of a view under other names."""
        return arguments | {"shape": arguments.get("size")} if packet == "reshape" else arguments

    def _argument(self, parameter: Parameter, ours: Any, theirs: Any) -> Argument:
        if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
            if len(ours) != len(theirs):
                raise NoProgram(
                    self._name, f"{parameter.name} has more entries with three examples than with two"
                )
            return tuple([self._item(parameter, a, b) for a, b in zip(ours, theirs, strict=True)])
        if isinstance(ours, str) and ours == theirs:
            return ours
        if isinstance(ours, torch.dtype) and ours is theirs:
            return self._dtype(ours)
        return self._item(parameter, ours, theirs)

    def _item(self, parameter: Parameter, ours: Any, theirs: Any) -> Item:
        if isinstance(ours, Value) and isinstance(theirs, Value):
            number = self._numbers[0][ours.number]
            if self._numbers[1].get(theirs.number) != number:
                raise NoProgram(self._name, "it computes from other values with three examples than with two")
            return Hole(v=number)
        if type(ours) is not type(theirs) or not (ours is None or isinstance(ours, (bool, int, float))):
            raise NoProgram(self._name, f"{parameter.name} is {type(ours).__name__} {str(ours)[:40]}")
        if isinstance(ours, int) and not isinstance(ours, bool):
            return self._size(ours, theirs)
        if ours != theirs and ours == ours:
            raise NoProgram(self._name, f"{parameter.name} is {ours} with two examples, {theirs} with three")
        plain: Item = self._plain(ours)
        return plain

    def _plain(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(value)
        if isinstance(value, float) and value != value:
            return Hole(f="nan")
        return Hole(f=str(value)) if value in (float("inf"), -float("inf")) else value

    def _size(self, ours: int, theirs: int) -> Size:
        if ours == theirs:
            return ours
        if ours <= 0 or ours * SIZES[1] != theirs * SIZES[0] or ours % SIZES[0]:
            raise NoProgram(self._name, f"a size is {ours} with two examples and {theirs} with three")
        return Hole(b=ours // SIZES[0])

    def _shape(self, ours: Value, theirs: Value) -> tuple[Size, ...]:
        if len(ours.shape) != len(theirs.shape):
            raise NoProgram(self._name, "a value has more axes with three examples than with two")
        return tuple([self._size(a, b) for a, b in zip(ours.shape, theirs.shape, strict=True)])

    def _number(self, ours: Value, theirs: Value, number: int) -> None:
        self._numbers[0][ours.number] = self._numbers[1][theirs.number] = number

    def _dtype(self, dtype: torch.dtype) -> str:
        name = str(dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise NoProgram(self._name, f"it uses {name}")
        return name
