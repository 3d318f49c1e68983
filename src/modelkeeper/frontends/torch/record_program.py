"""From a PyTorch model to its program: what it did on batches of different size, written down as one.

    record_program(model, inputs).to_bytes()

The model runs on shapes; for real only where some constant has no numbers else. Operations that write in
place become those that make a new tensor; what only moves numbers about in memory (contiguous, detach ...) is
left out. How several runs become one program: `programs.write`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotDescribe, InvalidProgram, NoProgram
from modelkeeper.frontends.programs.operations import signature
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.programs.write import EXAMPLES, Call, Sizes, length_of, ways, write
from modelkeeper.frontends.torch.describe import Outputs, listen, study
from modelkeeper.frontends.torch.examples import input_names
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.read_load import as_array
from modelkeeper.frontends.torch.recorder import map_tensors, tensors_in
from modelkeeper.frontends.torch.side_effects import unwrap
from modelkeeper.frontends.torch.trace import AtenCall, TorchTrace, name_dtype
from modelkeeper.tracing.trace import Step, Trace, Value
from modelkeeper.weights import Array

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
    tensors = tensors_in((inputs.args, dict(inputs.kwargs)))
    length = length_of((tensor.shape, tensor.is_floating_point()) for tensor in tensors)

    def resized(sizes: Sizes) -> Inputs:
        return _resized(name, inputs, length, *sizes)

    studied = cache(lambda sizes, real: study(model, resized(sizes), outputs=outputs, real=real))
    heard = cache(lambda sizes, real: listen(model, resized(sizes), outputs=outputs, real=real))
    for way in (possible := ways(length)):
        try:
            for real in (False, True):  # on shapes, some constants have no numbers
                account = studied(way[0], real)
                runs = [account.torch, *(heard(sizes, real) for sizes in way[1:])]
                if not any(map(_without_numbers, runs)):
                    break
            if _outline(account.torch) != _outline(studied((EXAMPLES[0], length), real).torch):
                raise NoProgram(name, f"it does other things with inputs of length {length}")
            names = input_names(account.torch.trace.ran_on)
            return write(name, account.account, [_AtenRun(name, run) for run in runs], way, names)
        except (CannotDescribe, InvalidProgram, NoProgram):
            if way is possible[-1]:
                raise
    raise AssertionError(name)


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


@dataclass(frozen=True, slots=True)
class _AtenRun:
    """One run of a model, as `programs.write.Run` asks for it."""

    name: str  # of the model
    heard: TorchTrace

    @property
    def trace(self) -> Trace:
        return self.heard.trace

    def maker(self, value: Value) -> Step | None:
        constant = self.heard.constants.get(value.number)
        return None if constant is None else constant.made

    def numbers(self, value: Value) -> Array | None:
        if value.owner is not None:
            return as_array(value.owner.names[0], self.heard.tensors[value.owner.names[0]])
        if not value.constant:
            return None
        constant = self.heard.constants[value.number]
        if not constant.final:
            raise NoProgram(self.name, "a constant in it is written over")
        return None if constant.tensor.is_meta else as_array("a constant", constant.tensor)

    def calls(self, step: Step) -> list[Call]:
        call = self.heard.calls.get(step.number)
        if call is not None:
            return [self._operation(call, step)]
        old, new = step.inputs
        if not step.arguments["whole"] or old.shape != new.shape:
            raise NoProgram(self.name, "it writes into a part of a tensor")
        return [Call("", {"self": new}, step.outputs)]

    def _operation(self, call: AtenCall, step: Step) -> Call:
        packet = call.func._schema.name.partition("::")[2]
        if call.writes and packet.endswith("_"):
            packet = packet.removesuffix("_")
        if packet in _NOTHING and not call.arguments.get("train"):
            return Call("", {"self": step.inputs[0]}, step.outputs)
        packet = _RENAMED.get(packet, packet)
        overload = "default" if packet == "reshape" else call.func._overloadname
        operation = f"{packet}.{overload}"
        if signature(operation) is None or (packet == "reshape" and "size" not in call.arguments):
            raise NoProgram(self.name, f"it uses aten::{operation}, which programs may not")
        arguments = {key: _named(value) for key, value in call.arguments.items()}
        if packet == "reshape":  # a view: what it calls its size is the shape
            arguments["shape"] = arguments["size"]
        return Call(operation, arguments, step.outputs)


def _named(argument: Any) -> Any:
    """An argument as programs have it: a dtype goes by its name."""
    return name_dtype(argument) if isinstance(argument, torch.dtype) else argument
