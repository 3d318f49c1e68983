"""What does calibrating ask of a parent, and how is it answered where the parent runs?

    run = ParentRun(engine, program, tensors, inputs)
    run.try_out(16)                 seconds and bytes of a pass over the first examples
    run.pivots(128, reads)          which units say most, by what they do on the first examples
    run.begin(parts)                passes over parts of the examples, all under way at once
    run.shape(number)               let them come to a value: its shape on the first part
    run.value(part, number)         the value itself

A parent that was recorded here runs in this process. One that came from elsewhere runs in a room of its own:
there is the same run, at the other end of a line (`apart`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from modelkeeper.frontends.calibrating.pivots import pivots
from modelkeeper.frontends.programs.passes import Engine, Pass, check_run, try_out
from modelkeeper.frontends.programs.program import Program
from modelkeeper.weights import Array


class Lent(Protocol):
    """A parent, as it is looked at while its child is fitted."""

    program: Program

    def ends(self, seconds: float) -> None:
        """Let it run for so long, from now; then it may be ended, in the middle of a pass."""

    def try_out(self, count: int) -> tuple[float, int]:
        """Measure the seconds that a pass over the first examples takes, and the bytes it holds."""

    def pivots(self, count: int, reads: Sequence[tuple[str, int]]) -> Mapping[int, Array]:
        """A rank for the units of each space that is read: see `pivots`."""

    def begin(self, parts: Sequence[Array]) -> None:
        """Begin a pass over each of these parts of the examples."""

    def keep(self, numbers: Sequence[int]) -> None:
        """Hold these values, once they were made, until they are released."""

    def shape(self, number: int) -> tuple[int, ...]:
        """Let all passes come to a value; its shape on the first part."""

    def value(self, part: int, number: int) -> Array:
        """A value that all passes came to, on one part."""

    def release(self, number: int) -> None:
        """Hold a value no longer."""

    def output(self, part: int) -> Array:
        """What the parent puts out, on one part."""


class ParentRun:
    """A parent in this process: see `Lent`. A foreign one is looked at on shapes, before it runs."""

    def __init__(
        self,
        engine: Engine,
        program: Program,
        tensors: Mapping[str, Any],
        inputs: Sequence[Array],
        *,
        memory: int | None = None,
    ) -> None:
        """`memory`: the most bytes that a pass of a foreign program may hold; None: it was recorded here."""
        self.program, self._engine, self._tensors, self._inputs = program, engine, tensors, inputs
        self._memory = memory
        self._keep = set(program.outputs)
        self._parts: list[Pass] = []

    def ends(self, seconds: float) -> None:
        """What runs in this process is not ended."""

    def try_out(self, count: int) -> tuple[float, int]:
        """On the first examples."""
        few = self._first(count)
        self._check(few)
        return try_out(self._engine, self.program, self._tensors, few)

    def pivots(self, count: int, reads: Sequence[tuple[str, int]]) -> Mapping[int, Array]:
        """On the first examples."""
        few = self._first(count)
        self._check(few)
        return pivots(self._engine, self.program, self._tensors, reads, few)

    def begin(self, parts: Sequence[Array]) -> None:
        """No step runs yet."""
        taken = [[array[np.asarray(part, np.int64)] for array in self._inputs] for part in parts]
        for size, inputs in {len(inputs[0]): inputs for inputs in taken}.items():
            if size:
                self._check(inputs)
        self._parts = [self._pass(inputs) for inputs in taken]

    def keep(self, numbers: Sequence[int]) -> None:
        """These and the outputs."""
        self._keep.update(numbers)

    def shape(self, number: int) -> tuple[int, ...]:
        """The value is kept."""
        self._keep.add(number)
        maker = self.program.maker(number)
        for place, part in enumerate(self._parts):
            if number not in part.values and number >= self.program.first:
                if part.done > maker:  # it has been and gone: start over
                    part = self._parts[place] = self._pass(part.inputs)
                part.to(maker + 1)
        return tuple(int(size) for size in self._parts[0].tensor(number).shape)

    def value(self, part: int, number: int) -> Array:
        """As an array."""
        return self._parts[part].value(number)

    def release(self, number: int) -> None:
        """Unless it is an output, or steps to come read it."""
        if number not in self.program.outputs:
            self._keep.discard(number)
            for part in self._parts:
                part.release(number)

    def output(self, part: int) -> Array:
        """The first output."""
        run = self._parts[part]
        run.to(len(self.program.steps))
        return run.value(self.program.outputs[0])

    def _first(self, count: int) -> list[Array]:
        return [array[:count] for array in self._inputs]

    def _pass(self, inputs: Sequence[Any]) -> Pass:
        return Pass(self._engine, self.program, self._tensors, inputs, self._keep)

    def _check(self, inputs: Sequence[Array]) -> None:
        if self._memory is not None:
            check_run(self._engine, self.program, self._tensors, inputs, memory=self._memory)
