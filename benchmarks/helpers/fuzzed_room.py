"""Several hostile programs in one room, one after the other: the same, but for a process of its own for each.

shared = Shared(engine, inputs)
shared.parent(17, program)               a parent as `parent_apart` gives it
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import numpy as np

from modelkeeper.frontends.calibrating.apart import SPACE, ParentApart
from modelkeeper.frontends.calibrating.parent_run import ParentRun
from modelkeeper.frontends.programs.passes import Engine
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.programs.sandbox.confinement import Terms
from modelkeeper.frontends.programs.sandbox.frames import Place
from modelkeeper.frontends.programs.sandbox.porter import Given
from modelkeeper.frontends.programs.sandbox.rooms import Room, open_room
from modelkeeper.weights import Array

TOGETHER = 25  # programs in a room
LARGEST = 2**26  # bytes that a pass may hold, about
K = TypeVar("K")


class Several:
    """In the room: runs of programs, the last of which is kept."""

    def __init__(self, given: Given) -> None:
        self._given, self._which = given, -1

    def ask(self, which: int, method: str, arguments: dict[str, Any]) -> Any:
        """What a run of one of the programs answers."""
        if which != self._which:
            program = Program.from_bytes(self._given.arrays[f"program.{which}"].tobytes())
            inputs = [self._given.arrays["input"]]
            self._run = ParentRun(self._given.engine, program, {}, inputs, memory=self._given.memory)
            self._which = which
        return getattr(self._run, method)(**arguments)


class _View:
    """A room as one of its programs has it."""

    def __init__(self, room: Room, which: int) -> None:
        self._room, self._which = room, which

    def call(self, method: str, kind: type[K], /, **arguments: Any) -> K:
        """As `Room.call`."""
        return self._room.call("ask", kind, which=self._which, method=method, arguments=arguments)

    def array(self, place: Place) -> Array:
        """As `Room.array`."""
        return self._room.array(place)


class Shared:
    """Rooms, opened as they are needed."""

    def __init__(
        self, engine: Engine, inputs: Array, data: Callable[[int], bytes], seconds: float, stack: ExitStack
    ) -> None:
        """`data`: the bytes of a program by its number; `seconds`: that the programs of a room may take."""
        self._engine, self._inputs, self._data, self._seconds = engine, inputs, data, seconds
        self._stack = stack
        self._room: Room | None = None
        self._there: Sequence[int] = ()

    def parent(self, number: int, program: Program) -> ParentApart:
        """The program of this number as a parent, in the room that is open or in a new one.

        Raises:
            CannotCalibrate: No room can be opened.
        """
        if self._room is None or number not in self._there:
            self.close()
            self._there = range(number, number + TOGETHER)
            given = {f"program.{n}": np.frombuffer(self._data(n), np.uint8) for n in self._there}
            terms = Terms(2 * LARGEST + SPACE, self._seconds, self._engine.threads)
            service = f"{__name__}:Several"
            self._room = self._stack.enter_context(
                open_room(
                    self._engine.elsewhere,
                    service,
                    {"input": self._inputs, **given},
                    terms,
                    largest=LARGEST,
                )
            )
        return ParentApart(_View(self._room, number), program, len(self._inputs))  # type: ignore[arg-type]

    def close(self) -> None:
        """End the room, if one is open."""
        self._stack.close()
        self._room = None
