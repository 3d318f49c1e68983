"""Run a program: all of it, or as far as one wants, on a batch of any size (and length, if it has one).

    one = Pass(engine, program, tensors, inputs)        step by step: `one.to(step)`, `one.value(number)`
    check_run(engine, program, tensors, inputs)         on shapes alone: would it take too much?
    try_out(engine, program, tensors, inputs)           what does it take in truth?

An `Engine` carries out the operations, on a framework's tensors; whoever looks at values gets arrays.
Whatever goes wrong in a step is the program's fault, and raises InvalidProgram.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from modelkeeper.errors import InvalidProgram, ModelKeeperError
from modelkeeper.frontends.programs.argument_checks import check_arguments
from modelkeeper.frontends.programs.costs import LARGEST_ITEM, cost, elements
from modelkeeper.frontends.programs.operations import Parameter, Signature, signature
from modelkeeper.frontends.programs.program import (
    DTYPES,
    LENGTH,
    MAX_ELEMENTS,
    MAX_LIST,
    SPECIAL,
    Argument,
    Hole,
    Item,
    Program,
    Size,
    Step,
    references,
)
from modelkeeper.frontends.programs.sandbox.elsewhere import Elsewhere
from modelkeeper.text import first_line
from modelkeeper.weights import Array

MAX_TOTAL = 2**36  # elements of all values of a pass
MAX_MEMORY = 2**33  # bytes of all values that are alive, unless told otherwise
MAX_WORK = 2**42  # multiplications of a pass, about


Check = Callable[[str, Mapping[str, Any]], None]  # raises ValueError for arguments that make no sense


class Engine(Protocol):
    """Carries out operations of programs in a framework. What it calls a tensor has a shape and a dtype."""

    @property
    def elsewhere(self) -> Elsewhere:
        """What it takes to have it in another process."""

    @property
    def threads(self) -> int:
        """How many threads it runs on."""

    def load(self) -> None:
        """In a process from which others are forked: load what is loaded late, and start no thread."""

    def settle(self, threads: int) -> None:
        """In a process that is about to lose every right: open what is opened late, for so many threads."""

    def tensor(self, array: Any) -> Any:
        """A tensor with the numbers of an array, in its memory where possible. Tensors stay what they are."""

    def array(self, tensor: Any) -> Array:
        """The numbers of a tensor, in its memory where possible."""

    def nbytes(self, tensor: Any) -> int:
        """How much memory a tensor takes."""

    def apply(self, operation: str, arguments: dict[str, Any]) -> list[Any]:
        """The results of one operation, which is on the list. Raises whatever it likes.

        Args:
            operation: By its name.
            arguments: By name, those that were given: tensors, numbers, texts, lists of them. A dtype goes by
                its name. What is not given has the default that the signature says.
        """

    def on_shapes(self, arrays: Sequence[Array], look: "Callable[[Engine, Sequence[Any]], int]") -> int:
        """Call `look` with an engine that computes nothing but shapes, and with stand-ins for the arrays."""


class Pass:
    """Runs a program on one batch, step by step. Values are dropped after their last use."""

    def __init__(
        self,
        engine: Engine,
        program: Program,
        tensors: Mapping[str, Any],
        inputs: Sequence[Any],
        keep: Collection[int] = (),
    ) -> None:
        """Begin a pass over a batch; no step has run.

        `tensors`: arrays, looked up by each step that reads one, so they may change until then.
        `inputs`: arrays.
        `keep`: values to hold beyond their last use; it may change as well.
        """
        self.program, self._engine, self._tensors, self._keep = program, engine, tensors, keep
        self.inputs = [engine.tensor(taken) for taken in inputs]
        self.batch, self.length = _sizes(program, self.inputs)
        self.done = 0  # steps
        self.values: dict[int, Any] = dict(enumerate(self.inputs))

    def to(self, step: int) -> None:
        """Run all steps before this one."""
        program = self.program
        while self.done < step:
            self._run(self.done)
            for value in references(program.steps[self.done].arguments):
                if program.last_use[value] <= self.done and value not in self._keep:
                    self.values.pop(value, None)
            self.done += 1

    def release(self, number: int) -> None:
        """Drop a value that was kept, unless steps to come read it."""
        if self.program.last_use.get(number, -1) < self.done and number >= self.program.first:
            self.values.pop(number, None)

    def tensor(self, number: int) -> Any:
        """An input, a tensor of the model, a constant, or a value that was kept, as the engine has it."""
        if number not in self.values and number < self.program.first:
            return self._enter(number)
        return self.values[number]

    def value(self, number: int) -> Array:
        """The same, as an array."""
        return self._engine.array(self.tensor(number))

    def arguments(self, number: int) -> dict[str, Any]:
        """The arguments of a step with the values there are now, by name; tensors as the engine has them."""
        step = self.program.steps[number]
        parameters = _signature(step.operation).parameters
        return {
            parameter.name: self._argument(parameter, argument)
            for parameter, argument in zip(parameters, step.arguments, strict=False)
        }

    def array(self, number: int, name: str) -> Array:
        """One argument of a step, which is a tensor, as an array."""
        step = self.program.steps[number]
        item = _signature(step.operation).named(step.arguments)[name]
        return self.value(item.v)

    def apply(self, number: int, **changed: Any) -> list[Array]:
        """The results of a step on the values there are now, with some arguments changed, as arrays."""
        engine = self._engine
        made = {name: None if value is None else engine.tensor(value) for name, value in changed.items()}
        return [engine.array(tensor) for tensor in self.results(number, made)]

    def results(self, number: int, changed: Mapping[str, Any], check: "Check | None" = None) -> list[Any]:
        """The results of a step, as the engine has them. `check`: looks at its arguments before it runs."""
        step = self.program.steps[number]
        where = f"step {number} ({step.operation})"
        try:
            arguments = self.arguments(number) | dict(changed)
            if check is not None:
                check(step.operation, arguments)
            _check_pieces(where, _signature(step.operation), arguments)
            results = self._engine.apply(step.operation, arguments)
        except ModelKeeperError:
            raise
        except Exception as error:
            problem = str(error).partition("\n")[0][:300] or type(error).__name__
            raise InvalidProgram(where, problem + _unlike(self.program, self.inputs)) from error
        if len(results) != step.results:
            raise InvalidProgram(where, f"it gave {len(results)} results, not {step.results}")
        return results

    def _run(self, number: int) -> None:
        first = self.program.first_values[number]
        for place, result in enumerate(self.results(number, {})):
            value = first + place
            if self.program.last_use.get(value, -1) > number or value in self._keep:
                self.values[value] = result

    def _enter(self, number: int) -> Any:
        number -= len(self.program.inputs)
        if number < len(self.program.tensors):
            return self._engine.tensor(self._tensors[self.program.tensors[number].name])
        place = number - len(self.program.tensors)
        sizes = [self._size(size) for size in self.program.constants[place].shape]
        if math.prod(sizes) > MAX_ELEMENTS:
            raise InvalidProgram("a constant", f"it is too large for a batch of {self.batch}: {sizes}")
        constant = self._engine.tensor(self.program.unpacked[place])
        if not any(isinstance(size, Hole) for size in self.program.constants[place].shape):
            return constant
        return self._engine.apply("expand.default", {"self": constant, "size": sizes})[0]

    def _size(self, size: Size) -> int:
        return size.size(self.batch, self.length) if isinstance(size, Hole) else size

    def _argument(self, parameter: Parameter, argument: Argument) -> Any:
        if isinstance(argument, tuple):
            return [self._item(item) for item in argument]
        return argument if isinstance(argument, str) else self._item(argument)

    def _item(self, item: Item) -> Any:
        if not isinstance(item, Hole):
            return item
        if item.v >= 0:
            return self.tensor(item.v)
        return self._size(item) if item.sized else SPECIAL[item.f]


def check_run(
    engine: Engine,
    program: Program,
    tensors: Mapping[str, Any],
    inputs: Sequence[Any],
    *,
    memory: int = MAX_MEMORY,
) -> int:
    """Run on shapes alone, and refuse what would take too much memory or work.

    Returns the most bytes that are held at once, tensors of the model not counted.

    Raises:
        InvalidProgram: It does not run on inputs and tensors of these shapes, or would take too much.
    """
    for taken in program.tensors:
        tensor = tensors.get(taken.name)
        if tensor is None or tuple(tensor.shape) != taken.shape:
            state = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
            raise InvalidProgram(taken.name[:80], f"the tensor is {state}, the program takes {taken.shape}")
    names = [taken.name for taken in program.tensors]

    def look(dry: Engine, stand_ins: Sequence[Any]) -> int:
        held = dict(zip(names, stand_ins[len(inputs) :], strict=True))
        return _Look(Pass(dry, program, held, stand_ins[: len(inputs)]), dry, memory).to_the_end()

    try:
        return engine.on_shapes([*inputs, *(tensors[name] for name in names)], look)
    except ModelKeeperError:
        raise
    except Exception as error:
        raise InvalidProgram("program", f"its shapes cannot be told: {first_line(error)}") from error


class _Look:
    """A pass on shapes alone, that refuses what is too large. All is counted as if nothing shared memory."""

    def __init__(self, dry: Pass, engine: Engine, memory: int) -> None:
        self._dry, self._engine, self._memory = dry, engine, memory
        self._total = self._work = self._peak = 0
        self._live = {number: engine.nbytes(tensor) for number, tensor in dry.values.items()}
        self._held, self._outputs = sum(self._live.values()), set(dry.program.outputs)

    def to_the_end(self) -> int:
        """Run all steps; the most bytes that are held at once."""
        for number, step in enumerate(self._dry.program.steps):
            results = self._dry.results(number, {}, check_arguments)
            try:
                self._count(number, results)
            except InvalidProgram:
                raise
            except Exception as error:
                raise InvalidProgram(f"step {number} ({step.operation})", first_line(error)) from error
            self._drop(number)
        return self._peak

    def _count(self, number: int, results: Sequence[Any]) -> None:
        dry, step, nbytes = self._dry, self._dry.program.steps[number], self._engine.nbytes
        for place, result in enumerate(results):
            value = dry.program.first_values[number] + place
            dry.values[value] = result
            self._live[value] = nbytes(result)
            self._held += self._live[value]
        taken = cost(step.operation, dry.arguments(number), results)
        largest = max(map(elements, results))
        item = max((nbytes(each) // max(1, elements(each)) for each in results), default=LARGEST_ITEM)
        self._total += sum(map(elements, results))
        self._work += taken.work
        self._peak = max(self._peak, self._held + self._entering(step) + taken.buffers * max(4, item))
        if (
            largest > MAX_ELEMENTS
            or self._total > MAX_TOTAL
            or self._work > MAX_WORK
            or self._peak > self._memory
        ):
            raise InvalidProgram(
                f"step {number} ({step.operation})",
                f"too large for a batch of {dry.batch}: a value of {largest:,} elements, {self._total:,} so "
                f"far, {self._work:,} multiplications, {self._peak:,} bytes at once. Use smaller batches",
            )

    def _entering(self, step: Step) -> int:
        """The bytes of constants that a step reads, at the sizes that they have for this batch."""
        program = self._dry.program
        first = len(program.inputs) + len(program.tensors)
        read = {value for value in references(step.arguments) if first <= value < program.first}
        return sum(self._engine.nbytes(self._dry.tensor(value)) for value in read)

    def _drop(self, number: int) -> None:
        """Forget what no later step reads."""
        program = self._dry.program
        first = program.first_values[number]
        read = references(program.steps[number].arguments)
        for value in {*read, *range(first, first + program.steps[number].results)}:
            if program.last_use.get(value, -1) <= number and value not in self._outputs:
                self._held -= self._live.pop(value, 0)
                self._dry.values.pop(value, None)


def try_out(
    engine: Engine, program: Program, tensors: Mapping[str, Any], inputs: Sequence[Any]
) -> tuple[float, int]:
    """Measure the seconds that a pass takes, and the bytes of activations it holds at most."""
    began, one, peak = time.perf_counter(), Pass(engine, program, tensors, inputs), 0
    for step in range(len(program.steps)):
        one.to(step + 1)
        peak = max(peak, sum(map(engine.nbytes, one.values.values())))
    return time.perf_counter() - began, peak


def run(
    engine: Engine,
    program: Program,
    tensors: Mapping[str, Any],
    inputs: Sequence[Any],
    layers: Collection[str] | None = None,
) -> dict[str, Any]:
    """The outputs of the named layers of the model's graph (default: all), on one batch of any size.

    Raises:
        InvalidProgram: The program does not fit the tensors or inputs, or would take too much memory or work.
    """
    wanted = program.layers if layers is None else {name: program.layers[name] for name in layers}
    check_run(engine, program, tensors, inputs)
    one = Pass(engine, program, tensors, inputs, set(wanted.values()))
    one.to(len(program.steps))
    return {name: one.tensor(number) for name, number in wanted.items()}


def _signature(operation: str) -> Signature:
    known = signature(operation)
    assert known is not None, operation  # a program was checked when it was built
    return known


def _sizes(program: Program, inputs: Sequence[Any]) -> tuple[int, int]:
    """The number of examples, and their length (0 where the program has none)."""
    if len(inputs) != len(program.inputs):
        raise InvalidProgram("inputs", f"{len(inputs)} given, it takes {len(program.inputs)}")
    batches: set[int] = set()
    lengths: set[int] = set()
    for taken, tensor in zip(program.inputs, inputs, strict=True):
        if len(tensor.shape) != len(taken.shape):
            raise InvalidProgram(
                taken.name[:80], f"shape {tuple(tensor.shape)}, it takes {len(taken.shape)} axes"
            )
        for actual, size in zip(tensor.shape, taken.shape, strict=True):
            if size == LENGTH:
                lengths.add(actual)
            elif isinstance(size, Hole):
                batches.add(-1 if actual % size.b else actual // size.b)
            elif size != actual and DTYPES[taken.dtype].kind in "iub":
                raise InvalidProgram("inputs", "tokens of another length" + _unlike(program, inputs))
    if len(batches) != 1 or -1 in batches:
        raise InvalidProgram("inputs", f"they do not agree about the size of the batch: {sorted(batches)}")
    if len(lengths) > 1:
        raise InvalidProgram("inputs", f"they do not agree about the length: {sorted(lengths)}")
    return batches.pop(), max(lengths, default=0)


def _unlike(program: Program, inputs: Sequence[Any]) -> str:
    """Advice for inputs of another size than the program was recorded with; "" if they have the same."""
    for taken, tensor in zip(program.inputs, inputs, strict=True):
        both = zip(taken.shape, tensor.shape, strict=False)
        fixed = [(size, n) for size, n in both if isinstance(size, int)]
        if any(size != n for size, n in fixed):
            recorded, given = ("x".join(str(pair[n]) for pair in fixed) for n in range(2))
            return (
                f". It was recorded with {taken.name[:80]!r} of {recorded} an example, and is given {given}: "
                "register models with example_inputs of the size that they are used with"
            )
    return ""


def _check_pieces(where: str, schema: Signature, arguments: Mapping[str, Any]) -> None:
    """Refuse to take a tensor into too many pieces before they are made."""
    if not schema.lists:
        return
    tensor, dim = arguments.get("self"), arguments.get("dim", 0)
    rank = len(getattr(tensor, "shape", ()))
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise InvalidProgram(where, "it takes pieces of no axis")
    size = arguments.get("split_size", 1)
    axis = int(tensor.shape[dim])  # type: ignore[union-attr]
    pieces = arguments.get("chunks") or axis // max(1, size if isinstance(size, int) else 1)
    if "split_sizes" not in arguments and pieces > MAX_LIST:
        raise InvalidProgram(where, f"{pieces:,} pieces; at most {MAX_LIST:,}")
