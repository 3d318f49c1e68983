"""From recorded calls to a trace: who computes what from what, with nothing left ambiguous.

A recorded tensor may change under the program's hands (`x.relu_()`, `y[:, :8] = z`). Here every state
of a tensor is a value of its own, made by one step and never changed. A write through one view of a
storage shows in the others: when such a view is read next, a `write` step joins its old value with
what was written. Steps that no output needs are dropped; a value used only for its shape thus keeps
nothing alive.

Constants (masks, positions) are values without a step: their numbers are known. What made them is kept
aside, for who wants to make them anew for other sizes. All that torch knows and a trace does not say is in
the `TorchTrace` around it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from modelkeeper.frontends.torch.aten import plain_arguments
from modelkeeper.frontends.torch.recorder import Call, NamedTensor, Recording, tensors_in
from modelkeeper.graph.vocabulary import cast_between
from modelkeeper.tracing.constants import MOST_NUMBERS, numbers_text
from modelkeeper.tracing.trace import OwnedTensor, Step, Trace, Value, live_steps

WRITE = "write"
COUNTER = "num_batches_tracked"  # what batch norms call the tensor that only counts
DTYPES = {
    getattr(torch, name): name
    for name in """bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64
    complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz""".split()
}


@dataclass(slots=True)
class Constant:
    """The numbers of a value that neither a live step nor the model made."""

    tensor: Tensor
    made: Step | None = None  # what computed it, if an operation did
    final: bool = True  # the numbers were not written over afterwards

    @property
    def unseen(self) -> bool:
        """Was it made out of sight, and has no numbers?"""
        return self.made is None and self.tensor.is_meta


@dataclass(frozen=True, slots=True)
class AtenCall:
    """What a step was in torch: the operator, and its arguments as torch knows them."""

    func: OpOverload
    arguments: dict[str, Any]  # values in place of tensors
    writes: bool


@dataclass(slots=True)
class TorchTrace:
    """A trace, and what torch knows of its steps, constants and tensors, by number and by name."""

    trace: Trace
    calls: dict[int, AtenCall]  # by the number of a step; a write seen through another view has none
    constants: dict[int, Constant]  # by the number of a value
    tensors: dict[str, Tensor] = field(default_factory=dict)  # of the model, by their first name

    def used_constants(self) -> list[Constant]:
        """The constants that some step takes."""
        used = [value.number for step in self.trace.steps for value in step.inputs if value.constant]
        return [self.constants[number] for number in used]

    def func(self, step: Step) -> OpOverload | None:
        """The operator that a step was in torch, if it was one."""
        call = self.calls.get(step.number)
        return None if call is None else call.func


def name_dtype(dtype: torch.dtype) -> str:
    """A dtype as graphs call it; "opaque" if they have no name for it."""
    return DTYPES.get(dtype, "opaque")


def owned_tensor(named: NamedTensor) -> OwnedTensor:
    """A tensor of the model as plain data."""
    name = named.names[0]
    module, parametrized, _ = name.partition(".parametrizations.")
    return OwnedTensor(
        names=tuple(named.names),
        shape=tuple(named.tensor.shape),
        dtype=name_dtype(named.tensor.dtype),
        parameter=named.parameter,
        trainable=named.parameter and named.tensor.requires_grad,
        stored=named.stored,
        counts=name.rpartition(".")[2] == COUNTER,
        module=module if parametrized else "",
    )


def make_trace(recording: Recording, inputs: Sequence[Tensor], outputs: Iterable[Tensor]) -> TorchTrace:
    """Number the values of a recording and keep what the outputs need."""
    values = _Values(recording)
    taken = [values.new(tensor) for tensor in inputs]
    for value in taken:
        value.active = True
    for call in recording.calls:
        values.run(call)
    given = [values.read(tensor) for tensor in outputs]
    values.close()
    steps = live_steps(values.steps, given)
    _write_numbers(steps, values.constants, recording)
    trace = Trace("torch", taken, given, steps, touched=frozenset(recording.touched))
    return TorchTrace(trace, values.calls, values.constants)


def _write_numbers(steps: Iterable[Step], constants: dict[int, Constant], recording: Recording) -> None:
    """Write down what constants are, and what the tensors are that the model keeps out of its weights."""
    owned = {named.names[0]: named.tensor for named in recording.owners.values() if not named.stored}
    for step in steps:
        for value in step.inputs:
            constant = constants.get(value.number)
            if constant is not None and constant.final and not value.numbers:
                value.numbers = _numbers(constant.tensor)
            elif value.owner is not None and value.step is None and value.owner.names[0] in owned:
                value.numbers = value.numbers or _numbers(owned[value.owner.names[0]])


def _numbers(tensor: Tensor) -> str:
    """The numbers of a tensor in a few characters; empty if it has none, or none that count."""
    if tensor.is_meta or tensor.layout != torch.strided or not 0 < tensor.numel() <= MOST_NUMBERS:
        return ""
    plain = tensor.detach().cpu()
    if plain.is_floating_point():
        plain = plain.double() if plain.dtype == torch.float64 else plain.float()
    return "" if plain.is_complex() or plain.is_quantized else numbers_text(plain.numpy())


def _dtype(tensor: Tensor) -> str:
    floating = tensor.is_floating_point() or tensor.is_complex()
    return DTYPES.get(tensor.dtype) or ("float32" if floating else "opaque")


class _Values:
    """The current value of every tensor, by identity."""

    def __init__(self, recording: Recording) -> None:
        self.steps: list[Step] = []
        self.calls: dict[int, AtenCall] = {}
        self.constants: dict[int, Constant] = {}
        self._owners = {number: owned_tensor(named) for number, named in recording.owners.items()}
        self._twins = recording.constants
        self._current: dict[int, Value] = {}
        self._views: dict[int, list[Tensor]] = {}  # by storage: tensors known to share it
        self._stale: dict[int, list[tuple[int, Value]]] = {}  # writes through other views, not yet seen
        self._made: list[tuple[Tensor, Value]] = []  # constants
        self._count = self._step_count = 0

    def new(self, tensor: Tensor, shape: Sequence[int] | None = None) -> Value:
        shape = tensor.shape if shape is None else shape
        value = Value(self._count, shape, _dtype(tensor), self._owners.get(id(tensor)))
        self._current[id(tensor)] = value
        self._count += 1
        return value

    def read(self, tensor: Tensor) -> Value:
        value = self._current.get(id(tensor))
        if value is None and id(tensor) in self._twins:
            return self.read(self._twins[id(tensor)])
        if value is None:
            value = self.new(tensor)
            if value.owner is None:
                self._keep(tensor, value)
        for elements, written in self._stale.pop(id(tensor), ()):
            value = self._write(tensor, value, written, whole=elements >= tensor.numel())
        return value

    def run(self, call: Call) -> None:
        operator, arguments, results = call.operator, call.arguments, call.results
        if call.func._schema.name == "aten::detach_":
            return  # torch.tensor ends with it; it changes no numbers
        inputs: list[Value] = []
        taken = {name: self._take(argument, inputs) for name, argument in arguments.items()}
        name, given = operator.name, plain_arguments(operator.name, taken)
        if call.func._schema.name == "aten::_to_copy":
            name, rest = cast_between(inputs[0].dtype, _dtype(results[0]))
            given |= rest
        step = self._step(name, given, inputs)
        self.calls[step.number] = AtenCall(call.func, taken, bool(operator.writes))
        active = any(value.active for value in inputs)
        before = {id(tensor) for tensor in tensors_in(arguments)}
        for tensor, shape in zip(results, call.shapes, strict=True):
            if operator.writes or id(tensor) not in before:
                value = self.new(tensor, shape)
                value.owner = None
                value.active = active
                if call.constant:
                    self._keep(tensor, value, step)
                else:
                    value.step = step
            else:
                value = self.read(tensor)  # handed through as it is
            step.outputs.append(value)
        if not call.constant:
            self.steps.append(step)
        if operator.writes:
            for name in operator.writes:
                for tensor in tensors_in(arguments.get(name)):
                    self._wrote(tensor)
        elif operator.views:
            for tensor in (*tensors_in(arguments), *results):
                shared = self._views.setdefault(tensor.untyped_storage()._cdata, [])
                if all(tensor is not other for other in shared):
                    shared.append(tensor)

    def _step(self, name: str, arguments: dict[str, Any], inputs: list[Value]) -> Step:
        self._step_count += 1
        return Step(name, arguments, inputs, number=self._step_count)

    def _take(self, tree: Any, inputs: list[Value]) -> Any:
        if isinstance(tree, Tensor):
            value = self.read(tree)
            inputs.append(value)
            return value
        if isinstance(tree, (list, tuple)):
            return [self._take(branch, inputs) for branch in tree]
        return tree

    def _wrote(self, tensor: Tensor) -> None:
        for other in self._views.get(tensor.untyped_storage()._cdata, ()):
            if other is not tensor:
                self._stale.setdefault(id(other), []).append((tensor.numel(), self._current[id(tensor)]))

    def _write(self, tensor: Tensor, old: Value, written: Value, whole: bool) -> Value:
        step = self._step(WRITE, {"self": old, "value": written, "whole": whole}, [old, written])
        value = self.new(tensor)
        value.owner = None
        value.active = written.active or (old.active and not whole)
        step.outputs.append(value)
        if old.constant and written.constant:
            self._keep(tensor, value, step)
        else:
            value.step = step
            self.steps.append(step)
        return value

    def _keep(self, tensor: Tensor, value: Value, made: Step | None = None) -> None:
        value.constant = True
        if tensor.layout == torch.strided:
            value.repeats = tuple(stride == 0 for stride in tensor.stride())
        self.constants[value.number] = Constant(tensor, made)
        self._made.append((tensor, value))

    def close(self) -> None:
        """Mark the constants whose tensors still hold the numbers that they stood for."""
        for tensor, value in self._made:
            current = self._current[id(tensor)] is value and id(tensor) not in self._stale
            self.constants[value.number].final = current
