"""How is a parent looked at that came from elsewhere, and runs in a room of its own?

    with parent_apart(engine, program, tensors, inputs, budget) as parent:
        parent.try_out(16)              as with a `ParentRun`, which is at the other end

Here the foreign program is plain data that was parsed. Everything that comes back is checked: a room may have
been taken over by the program in it, and may then answer anything. What it can do at worst is to give numbers
that make no sense, which a calibration judges by held-out examples, like all others.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.calibrating.parent_run import ParentRun
from modelkeeper.frontends.fit_tasks import Budget
from modelkeeper.frontends.programs.passes import Engine
from modelkeeper.frontends.programs.program import MAX_RANK, Program
from modelkeeper.frontends.programs.sandbox.confinement import Terms
from modelkeeper.frontends.programs.sandbox.frames import Place
from modelkeeper.frontends.programs.sandbox.porter import Given
from modelkeeper.frontends.programs.sandbox.rooms import Room, open_room
from modelkeeper.weights import Array

SPACE = (
    2**30
)  # bytes that a framework takes beside the activations: buffers of its kernels, code that it compiles
LONGEST = 3600.0  # seconds, if nobody says how long
PROGRAM, TENSOR, INPUT = "program", "tensor.", "input."


def serve(given: Given) -> ParentRun:
    """In the room: a run of the program that was given."""
    arrays = given.arrays
    program = Program.from_bytes(arrays[PROGRAM].tobytes())
    tensors = {
        name.removeprefix(TENSOR): given.engine.tensor(array)
        for name, array in arrays.items()
        if name.startswith(TENSOR)
    }
    inputs = [arrays[f"{INPUT}{n}"] for n in range(len(program.inputs))]
    return ParentRun(given.engine, program, tensors, inputs, memory=given.memory)


@contextmanager
def parent_apart(
    engine: Engine, program: Program, tensors: Mapping[str, Array], inputs: Sequence[Array], budget: Budget
) -> Iterator["ParentApart"]:
    """A parent in a room, for as long as the context is open.

    Raises:
        CannotCalibrate: No room can be opened here.
        InvalidProgram: By whatever is asked of the parent: it does not run, took too long, died.
    """
    data = np.frombuffer(program.to_bytes(), np.uint8)
    given = {PROGRAM: data, **{f"{INPUT}{n}": array for n, array in enumerate(inputs)}}
    given |= {
        f"{TENSOR}{taken.name}": tensors[taken.name] for taken in program.tensors if taken.name in tensors
    }
    largest = max(budget.memory, 2**20)
    terms = Terms(2 * largest + SPACE, LONGEST, engine.threads)
    with open_room(
        engine.elsewhere,
        f"{__name__}:serve",
        given,
        terms,
        largest=largest,
        strict=budget.sandbox == "strict",
    ) as room:
        yield ParentApart(room, program, len(inputs[0]) if inputs else 0)


class ParentApart:
    """A parent in a room of its own: see `parent_run.Lent`."""

    def __init__(self, room: Room, program: Program, examples: int) -> None:
        self.program, self._room = program, room
        self._sizes: list[int] = []
        self._shapes: dict[int, tuple[int, tuple[int, ...]]] = {}  # of values, for so many examples
        self._examples = examples

    def ends(self, seconds: float) -> None:
        """Let it run for so long, from now, and no longer."""
        self._room.ends(seconds)

    def try_out(self, count: int) -> tuple[float, int]:
        """Whatever the room says that it took: it only decides how many examples are used."""
        seconds, memory = self._room.call("try_out", tuple[float, int], count=count)
        if not (0 <= seconds < LONGEST and memory >= 0):
            raise InvalidProgram("program", "it took no time, or no memory")
        return max(seconds, 1e-9), memory

    def pivots(self, count: int, reads: Sequence[tuple[str, int]]) -> Mapping[int, Array]:
        """Ranks that are finite numbers, for spaces that were asked for."""
        spaces = {space for _, space in reads}
        found = self._room.call("pivots", dict[int, Place], count=count, reads=[list(pair) for pair in reads])
        ranks = {space: self._room.array(place) for space, place in found.items() if space in spaces}
        if any(
            rank.ndim != 1 or rank.dtype != np.float64 or not np.isfinite(rank).all()
            for rank in ranks.values()
        ):
            raise InvalidProgram("program", "its units cannot be ranked")
        return ranks

    def begin(self, parts: Sequence[Array]) -> None:
        """By the numbers of the examples."""
        self._sizes = [len(part) for part in parts]
        self._room.call("begin", type(None), parts=[part.tolist() for part in parts])

    def keep(self, numbers: Sequence[int]) -> None:
        """By their numbers."""
        self._room.call("keep", type(None), numbers=list(numbers))

    def shape(self, number: int) -> tuple[int, ...]:
        """A shape that can be."""
        shape = self._room.call("shape", tuple[int, ...], number=number)
        if len(shape) > MAX_RANK or min(shape, default=0) < 0 or math.prod(shape) > 2**40:
            raise InvalidProgram("program", f"a value of shape {shape[:MAX_RANK]}")
        self._shapes[number] = self._sizes[0], shape
        return shape

    def value(self, part: int, number: int) -> Array:
        """Numbers of the shape that was said, but for the size of the part."""
        place = self._room.call("value", Place, part=part, number=number)
        return self._checked(part, place, *self._shapes[number])

    def release(self, number: int) -> None:
        """By its number."""
        self._room.call("release", type(None), number=number)

    def output(self, part: int) -> Array:
        """Numbers whose shape follows from that of the part that was asked for first."""
        place = self._room.call("output", Place, part=part)
        known = self._shapes.setdefault(self.program.outputs[0], (self._sizes[part], place.shape))
        return self._checked(part, place, *known)

    def _checked(self, part: int, place: Place, there: int, known: tuple[int, ...]) -> Array:
        """What a part gives, if its shape follows from a shape that is known for so many examples.

        An axis is as long for all parts, or grows with the number of examples, as do the sizes of programs.
        """
        here, array = self._sizes[part], self._room.array(place)
        follows = array.ndim == len(known) and all(
            size == one or size * there == one * here for size, one in zip(array.shape, known, strict=True)
        )
        if not follows or array.dtype.kind not in "fiubV":
            problem = f"a value of shape {array.shape} for {here} examples, and {known} for {there}"
            raise InvalidProgram("program", f"{problem}, or of no real numbers")
        return array
