"""A model as a list of tensor operations: what a parent's activations can be computed with, and no more.

Whoever calibrates a child has to run its parent, without the parent's source code and without trusting who
registered it. A program is plain data: numbered values, and steps that each apply one operation of a fixed
list (`operations`) to earlier values. There are no loops, branches, calls, names of files or functions;
nothing is written to but new tensors.

    program = record_program(model, inputs)          by a front end, from a few passes: see `write`
    program = Program.from_bytes(data)               hostile until checked: a valid program or InvalidProgram
    one = Pass(engine, program, tensors, inputs)     `passes`: run it step by step, by a front end's engine

Values are numbered in order: inputs, the model's tensors, constants, results of the steps. Sizes may follow
the number of examples, and their length if the model takes sequences. Before a program from elsewhere runs,
its steps run on shapes alone: what would make too large a value, or too many of them, is refused before
anything is computed.

The other form that was considered is torch.export (benchmarks/results/programs.md, on real architectures): it
takes longer to make and to load, is larger, and its archive is read by code that also unpickles.
"""

import bisect
import itertools
import math
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.programs.operations import Parameter, signature
from modelkeeper.lasting import cached_property
from modelkeeper.weights import Array, dtype_of

FORMAT = "modelkeeper.program"
VERSION = 1
MAX_BYTES = 32 * 2**20
MAX_STEPS = 50_000
MAX_VALUES = 200_000
MAX_LIST = 4_096  # in one argument, and of results of one step
MAX_RANK = 16
MAX_TEXT = 512
MAX_ELEMENTS = 2**28  # of one value
MAX_CONSTANTS = 2**25  # numbers in all constants
DTYPES = {
    name: dtype_of(name)
    for name in "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64".split()
}
SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Hole(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is filled in when the program runs: a value, a size, or a special number.

    A size is a product of so many batch sizes and of so many lengths and a bit; either may be missing:
    {b: 2} twice the batch, {l: 1, n: 1} the length and one more, {b: 1, l: 4} batch times four lengths.
    """

    v: int = -1  # the value of this number
    b: int = 0  # so many times the batch size
    l: int = 0  # times so many times the length
    n: int = 0  # and so much more
    f: str = ""  # a number that JSON does not have

    @property
    def sized(self) -> bool:
        """Is it a size?"""
        return self.b > 0 or self.l != 0

    def size(self, batch: int, length: int) -> int:
        """The size, for so many examples of such a length."""
        return (self.b * batch if self.b else 1) * (self.l * length + self.n if self.l else 1)


LENGTH = Hole(l=1)
Item = None | bool | int | float | Hole
Argument = None | bool | int | float | str | Hole | tuple[Item, ...]
Size = int | Hole


class Taken(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An input, or a tensor of the model."""

    name: str
    dtype: str
    shape: tuple[Size, ...]


class Constant(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Numbers that the model's code made, compressed (zlib); one slice, along axes that follow a size."""

    dtype: str
    shape: tuple[Size, ...]
    data: bytes


class Step(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One operation: its arguments in the order of its schema, and how many values it makes."""

    operation: str
    arguments: tuple[Argument, ...]
    results: int = 1


class Program(Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """A model that can be run without its code. Checked when it is built, wherever it comes from."""

    inputs: tuple[Taken, ...]
    tensors: tuple[Taken, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    layers: dict[str, int]  # the number of the value that each layer of the model's graph puts out
    format: str = FORMAT
    version: int = VERSION

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def first(self) -> int:
        """The number of the first value that a step makes."""
        return len(self.inputs) + len(self.tensors) + len(self.constants)

    @cached_property
    def first_values(self) -> list[int]:
        """The number of the first value that each step makes."""
        return list(itertools.accumulate((step.results for step in self.steps), initial=self.first))[:-1]

    @cached_property
    def unpacked(self) -> list[Array]:
        """The numbers of the constants."""
        return [_numbers(constant) for constant in self.constants]

    def maker(self, value: int) -> int:
        """The step that makes a value, or -1 if none does."""
        return bisect.bisect_right(self.first_values, value) - 1

    @cached_property
    def last_use(self) -> dict[int, int]:
        """The last step that reads each value; outputs and layers are read by whoever asked for them."""
        return {
            value: number for number, step in enumerate(self.steps) for value in references(step.arguments)
        }

    def shortcuts_first(self) -> "Program":
        """Reorder the steps: of several operands, the one that takes fewer steps comes first."""
        makers = (
            [self.maker(value) for value in range(self.first_values[-1] + self.steps[-1].results)]
            if self.steps
            else []
        )
        operands = [
            sorted({makers[v] for v in references(step.arguments) if makers[v] >= 0}) for step in self.steps
        ]
        cost = [0] * len(self.steps)
        for number, before in enumerate(operands):
            cost[number] = 1 + sum(
                cost[operand] for operand in before
            )  # counts shared steps often: only compared
        order: list[int] = []
        done = [False] * len(self.steps)
        for output in self.outputs:
            stack = [(makers[output], False)] if makers[output] >= 0 else []
            while stack:
                number, ready = stack.pop()
                if ready:
                    order.append(number)
                elif not done[number]:
                    done[number] = True
                    stack.append((number, True))
                    stack += [
                        (operand, False) for operand in sorted(operands[number], key=lambda n: -cost[n])
                    ]
        return self._reordered(order)

    def _reordered(self, order: list[int]) -> "Program":
        new = list(range(self.first))
        new += [-1] * (len(self.steps) and self.first_values[-1] + self.steps[-1].results - self.first)
        known = self.first
        for number in order:
            for place in range(self.steps[number].results):
                new[self.first_values[number] + place] = known
                known += 1

        def item(argument: Any) -> Any:
            return Hole(v=new[argument.v]) if isinstance(argument, Hole) and argument.v >= 0 else argument

        steps = [
            Step(
                self.steps[number].operation,
                tuple(
                    tuple(map(item, a)) if isinstance(a, tuple) else item(a)
                    for a in self.steps[number].arguments
                ),
                self.steps[number].results,
            )
            for number in order
        ]
        layers = {name: new[value] for name, value in self.layers.items() if new[value] >= 0}
        outputs = tuple(new[value] for value in self.outputs)
        return Program(self.inputs, self.tensors, self.constants, tuple(steps), outputs, layers)

    def to_bytes(self) -> bytes:
        """One JSON document. The same program always gives the same bytes."""
        return msgspec.json.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> "Program":
        """The program that `to_bytes` wrote. Anything else raises InvalidProgram and says what is wrong."""
        if len(data) > MAX_BYTES:
            raise InvalidProgram("document", f"{len(data):,} bytes; at most {MAX_BYTES:,}")
        try:
            head = _heads.decode(data)
            if head.format != FORMAT or head.version != VERSION:
                given = f"{head.format[:40]!r} version {head.version}"
                raise InvalidProgram(
                    "document", f"it is {given}, this modelkeeper reads {FORMAT!r} {VERSION}"
                )
            return _programs.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise InvalidProgram("document", str(error)) from error


class _Head(Struct):
    format: str = ""
    version: int = 0


# Made while this is imported: two threads that first read a type at the same time crash msgspec.
_heads, _programs = msgspec.json.Decoder(_Head), msgspec.json.Decoder(Program)


# -- checking ---------------------------------------------------------------------------------------


def _check(program: Program) -> None:
    for what, count, most in (
        ("steps", len(program.steps), MAX_STEPS),
        ("values", program.first, MAX_VALUES),
        ("layers", len(program.layers), MAX_VALUES),
        ("outputs", len(program.outputs), MAX_LIST),
    ):
        if count > most:
            raise InvalidProgram(what, f"{count:,} of them; at most {most:,}")
    if not program.inputs:
        raise InvalidProgram("inputs", "it takes none")
    if not program.outputs:
        raise InvalidProgram("outputs", "it puts out nothing")
    for entering in (program.inputs, program.tensors, program.constants):
        for entry in entering:
            _check_shape(entry)
    unpacked = sum(math.prod(n for n in entry.shape if isinstance(n, int)) for entry in program.constants)
    if unpacked > MAX_CONSTANTS:
        raise InvalidProgram("constants", f"{unpacked:,} numbers; at most {MAX_CONSTANTS:,}")
    program.unpacked  # noqa: B018 (raises where a constant cannot be read)
    known = program.first
    for number, step in enumerate(program.steps):
        where = f"step {number} ({step.operation[:80]})"
        _check_step(where, step, known)
        known += step.results
        if known > MAX_VALUES:
            raise InvalidProgram(where, f"more than {MAX_VALUES:,} values")
    for name, value in (*program.layers.items(), *(("output", value) for value in program.outputs)):
        if len(name) > MAX_TEXT or not 0 <= value < known:
            raise InvalidProgram(f"layer {name[:80]!r}", f"no value {value} among {known}")


def _check_shape(taken: Taken | Constant) -> None:
    name = taken.name[:80] if isinstance(taken, Taken) else "a constant"
    if isinstance(taken, Taken) and len(taken.name) > MAX_TEXT:
        raise InvalidProgram(name, f"a name of {len(taken.name):,} characters")
    if taken.dtype not in DTYPES:
        raise InvalidProgram(name, f"dtype {taken.dtype[:40]!r}; known are {', '.join(DTYPES)}")
    if len(taken.shape) > MAX_RANK:
        raise InvalidProgram(name, f"{len(taken.shape)} axes; at most {MAX_RANK}")
    sizes = [1 if isinstance(size, Hole) else size for size in taken.shape]
    holes = [size for size in taken.shape if isinstance(size, Hole)]
    if any(_meanings(size) != 1 or not size.sized for size in holes):
        raise InvalidProgram(name, "an axis that is neither a number nor a size")
    if isinstance(taken, Taken) and any(size not in (Hole(b=size.b), LENGTH) for size in holes):
        raise InvalidProgram(name, "an axis that follows neither the batch nor the length alone")
    if min(sizes, default=0) < 0 or math.prod(sizes) > MAX_ELEMENTS:
        raise InvalidProgram(name, f"shape {sizes}: a negative size, or more than {MAX_ELEMENTS:,} elements")


def _numbers(constant: Constant) -> Array:
    """What a constant holds, unpacked to no more than its shape asks for."""
    shape = [1 if isinstance(size, Hole) else size for size in constant.shape]
    dtype = DTYPES[constant.dtype]
    size = math.prod(shape) * dtype.itemsize
    try:
        data = zlib.decompressobj().decompress(constant.data, size + 1)
    except zlib.error as error:
        raise InvalidProgram("a constant", f"its numbers cannot be read: {error}") from error
    if len(data) != size:
        raise InvalidProgram("a constant", f"{len(data):,} bytes or more, not {size:,} for shape {shape}")
    return np.frombuffer(bytearray(data), dtype).reshape(shape)


def _check_step(where: str, step: Step, known: int) -> None:
    schema = signature(step.operation)
    if schema is None:
        raise InvalidProgram(where, "not on the list of operations that a program may consist of")
    most, least = len(schema.parameters), schema.required
    if not least <= len(step.arguments) <= most:
        raise InvalidProgram(where, f"{len(step.arguments)} arguments; it takes {least} to {most}")
    if not 1 <= step.results <= MAX_LIST or (not schema.lists and step.results != schema.results):
        raise InvalidProgram(where, f"{step.results} results; it gives {schema.results}")
    for parameter, argument in zip(schema.parameters, step.arguments, strict=False):
        _check_argument(f"{where}, {parameter.name}", parameter, argument, known)
    given = schema.named(step.arguments)
    # These would write to running statistics, or draw random numbers.
    if given.get("training") or given.get("train") or given.get("dropout_p"):
        raise InvalidProgram(where, "it is to run as in training")
    if given.get("use_input_stats") and given.get("running_mean") is not None:
        raise InvalidProgram(where, "it is to update its statistics")


def _check_argument(where: str, parameter: Parameter, argument: Argument, known: int) -> None:
    items = argument if isinstance(argument, tuple) else (argument,)
    if len(items) > MAX_LIST:
        raise InvalidProgram(where, f"a list of {len(items):,}; at most {MAX_LIST:,}")
    for item in items:
        if isinstance(item, Hole) and (_meanings(item) != 1 or item.v >= known):
            raise InvalidProgram(where, f"it refers to value {item.v} of {known}, or to several things")
        if isinstance(item, str) and len(item) > MAX_TEXT:
            raise InvalidProgram(where, f"a text of {len(item):,} characters")
        if parameter.dtype and item is not None and item not in DTYPES:  # a number would be taken for one
            raise InvalidProgram(where, f"{str(item)[:40]!r} is no dtype")
        reference = isinstance(item, Hole) and item.v >= 0
        number = isinstance(item, (int, float)) or (isinstance(item, Hole) and item.sized)
        number = number and not parameter.many  # it is made a tensor of
        if parameter.tensor != reference and item is not None and not (parameter.tensor and number):
            raise InvalidProgram(where, "a tensor where a number belongs, or the other way round")
    if argument is None and not parameter.optional:
        raise InvalidProgram(where, "nothing given")


def _meanings(hole: Hole) -> int:
    """Count what a hole stands for: exactly one thing, or it is invalid."""
    if hole.b < 0 or (hole.n and not hole.l):
        return 0
    return (hole.v >= 0) + hole.sized + (hole.f in SPECIAL)


def references(arguments: Iterable[Argument]) -> Iterable[int]:
    """The numbers of the values that some arguments name."""
    for argument in arguments:
        for item in argument if isinstance(argument, tuple) else (argument,):
            if isinstance(item, Hole) and item.v >= 0:
                yield item.v
