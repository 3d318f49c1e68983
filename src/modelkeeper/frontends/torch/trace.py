"""From recorded calls to values: who computes what from what, with nothing left ambiguous.

A recorded tensor may change under the program's hands (`x.relu_()`, `y[:, :8] = z`). Here every state
of a tensor is a value of its own, made by one step and never changed. A write through one view of a
storage shows in the others: when such a view is read next, a `write` step joins its old value with
what was written. Steps that no output needs are dropped; a value used only for its shape thus keeps
nothing alive.

Constants (masks, positions) are values without a step: their numbers are known. What made them is kept
aside, for who wants to make them anew for other sizes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from modelkeeper.frontends.torch.recorder import Call, Operation, Owned, Recording, tensors_in
from modelkeeper.tracing.terms import Term

WRITE = Operation("write", ("self", "value"), (), False, False, False, False)


class Value:
    """One state of one tensor. `axes` are filled in by the inference of spaces."""

    __slots__ = (
        "active",
        "axes",
        "constant",
        "final",
        "floating",
        "made",
        "number",
        "owner",
        "shape",
        "step",
    )

    def __init__(self, tensor: Tensor, shape: Sequence[int], number: int, owner: Owned | None = None) -> None:
        self.shape = tuple(shape)
        self.floating = tensor.is_floating_point() or tensor.is_complex()
        self.number = number
        self.owner = owner  # set for a tensor of the model
        self.constant: Tensor | None = None  # the numbers of a value that neither a step nor the model made
        self.made: Step | None = None  # what computed a constant, if an operation did
        self.final = True  # the numbers of a constant were not written over afterwards
        self.active = False  # computed from the model's inputs
        self.step: Step | None = None  # what computed it
        self.axes: list[Term] = []

    @property
    def repeats(self) -> list[bool]:
        """For each axis of a constant: is it one number, expanded to any size?"""
        if self.constant is None or self.constant.layout != torch.strided:
            return [False] * len(self.shape)
        return [stride == 0 for stride in self.constant.stride()]


@dataclass(slots=True, eq=False)
class Step:
    """One operation on values."""

    operation: Operation
    arguments: dict[str, Any]  # values in place of tensors
    inputs: list[Value]
    outputs: list[Value] = field(default_factory=list)
    func: OpOverload | None = None  # None for what no operator does: a write seen through another view

    @property
    def name(self) -> str:
        return self.operation.name


@dataclass(slots=True)
class Trace:
    """A forward pass in single-assignment form, without dead code."""

    inputs: list[Value]
    outputs: list[Value]
    steps: list[Step]
    owned: list[Value]  # tensors of the model that some step uses


def trace(recording: Recording, inputs: Sequence[Tensor], outputs: Iterable[Tensor]) -> Trace:
    """Number the values of a recording and keep what the outputs need."""
    values = _Values(recording)
    taken = [values.new(tensor) for tensor in inputs]
    for value in taken:
        value.active = True
    for call in recording.calls:
        values.run(call)
    given = [values.read(tensor) for tensor in outputs]
    values.close()
    steps = _live(values.steps, given)
    used = {id(value): value for step in steps for value in step.inputs if value.owner is not None}
    return Trace(taken, given, steps, list(used.values()))


class _Values:
    """The current value of every tensor, by identity."""

    def __init__(self, recording: Recording) -> None:
        self.steps: list[Step] = []
        self._owners = recording.owners
        self._constants = recording.constants
        self._current: dict[int, Value] = {}
        self._views: dict[int, list[Tensor]] = {}  # by storage: tensors known to share it
        self._stale: dict[int, list[tuple[int, Value]]] = {}  # writes through other views, not yet seen
        self._made: list[tuple[Tensor, Value]] = []  # constants
        self._count = 0

    def new(self, tensor: Tensor, shape: Sequence[int] | None = None) -> Value:
        shape = tensor.shape if shape is None else shape
        value = self._current[id(tensor)] = Value(tensor, shape, self._count, self._owners.get(id(tensor)))
        self._count += 1
        return value

    def read(self, tensor: Tensor) -> Value:
        value = self._current.get(id(tensor))
        if value is None and id(tensor) in self._constants:
            return self.read(self._constants[id(tensor)])
        if value is None:
            value = self.new(tensor)
            if value.owner is None:
                self._keep(tensor, value)
        for elements, written in self._stale.pop(id(tensor), ()):
            value = self._write(tensor, value, written, whole=elements >= tensor.numel())
        return value

    def run(self, call: Call) -> None:
        operation, arguments, results = call.operation, call.arguments, call.results
        if operation.name == "detach" and operation.writes:
            return  # torch.tensor ends with it; it changes no numbers
        inputs: list[Value] = []
        taken = {name: self._take(each, inputs) for name, each in arguments.items()}
        step = Step(operation, taken, inputs, func=call.func)
        active = any(value.active for value in inputs)
        before = {id(tensor) for tensor in tensors_in(arguments)}
        for tensor, shape in zip(results, call.shapes, strict=True):
            if operation.writes or id(tensor) not in before:
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
        if operation.writes:
            for name in operation.writes:
                for tensor in tensors_in(arguments.get(name)):
                    self._wrote(tensor)
        elif operation.views:
            for tensor in (*tensors_in(arguments), *results):
                shared = self._views.setdefault(tensor.untyped_storage()._cdata, [])
                if all(tensor is not other for other in shared):
                    shared.append(tensor)

    def _take(self, tree: Any, inputs: list[Value]) -> Any:
        if isinstance(tree, Tensor):
            value = self.read(tree)
            inputs.append(value)
            return value
        if isinstance(tree, (list, tuple)):
            return [self._take(each, inputs) for each in tree]
        return tree

    def _wrote(self, tensor: Tensor) -> None:
        for other in self._views.get(tensor.untyped_storage()._cdata, ()):
            if other is not tensor:
                self._stale.setdefault(id(other), []).append((tensor.numel(), self._current[id(tensor)]))

    def _write(self, tensor: Tensor, old: Value, written: Value, whole: bool) -> Value:
        inputs = [old, written]
        step = Step(WRITE, {"self": old, "value": written, "whole": whole}, inputs)
        value = self.new(tensor)
        value.owner = None
        value.active = written.active or (old.active and not whole)
        step.outputs.append(value)
        if old.constant is not None and written.constant is not None:
            self._keep(tensor, value, step)
        else:
            value.step = step
            self.steps.append(step)
        return value

    def _keep(self, tensor: Tensor, value: Value, made: Step | None = None) -> None:
        value.constant, value.made = tensor, made
        self._made.append((tensor, value))

    def close(self) -> None:
        """Say of each constant whether its tensor still holds the numbers that it stood for."""
        for tensor, value in self._made:
            value.final = self._current[id(tensor)] is value and id(tensor) not in self._stale


def _live(steps: list[Step], outputs: list[Value]) -> list[Step]:
    needed = {id(value) for value in outputs}
    live = []
    for step in reversed(steps):
        if any(id(value) in needed for value in step.outputs):
            live.append(step)
            needed.update(id(value) for value in step.inputs)
    return live[::-1]
