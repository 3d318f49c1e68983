"""Run a program: all of it, or as far as one wants, on a batch of any size (and length, if it has one).

    outputs = run(program, tensors, inputs)          {layer's name: its output}
    one = Pass(program, tensors, inputs)             step by step: `one.to(step)`, `one.value(number)`
    check_run(program, tensors, inputs)              on shapes alone: would it take too much?
    try_out(program, tensors, inputs)                what does it take in truth?

Whatever goes wrong in a step is the program's fault, and raises InvalidProgram.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.torch.operations import Parameter, Signature, signature
from modelkeeper.frontends.torch.program import (
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
    references,
)
from modelkeeper.frontends.torch.recorder import CPU, META, tensors_in

MAX_TOTAL = 2**32  # elements of all values of a pass
MAX_WORK = 2**42  # multiplications of a pass, about


class Pass:
    """Runs a program on one batch, step by step. Values are dropped after their last use."""

    def __init__(
        self,
        program: Program,
        tensors: Mapping[str, Tensor],
        inputs: Sequence[Tensor],
        keep: Collection[int] = (),
        *,
        device: torch.device = CPU,
    ) -> None:
        """Begin a pass over a batch; no step has run.

        `tensors`: looked up by each step that reads one, so they may change until then.
        `keep`: values to hold beyond their last use; it may change as well.
        """
        self.program, self._tensors, self._keep, self._device = program, tensors, keep, device
        self.inputs = list(inputs)
        self.batch, self.length = _sizes(program, inputs)
        self.done = 0  # steps
        self.values: dict[int, Tensor] = dict(enumerate(inputs))

    def to(self, step: int) -> None:
        """Run all steps before this one."""
        program = self.program
        with torch.no_grad():
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

    def value(self, number: int) -> Tensor:
        """An input, a tensor of the model, a constant, or a value that was kept."""
        if number not in self.values and number < self.program.first:
            return self._enter(number)
        return self.values[number]

    def arguments(self, number: int) -> dict[str, Any]:
        """The arguments of a step with the values there are now, by name."""
        step = self.program.steps[number]
        schema = signature(step.operation)
        assert schema is not None
        return {
            parameter.name: self._argument(parameter, argument)
            for parameter, argument in zip(schema.parameters, step.arguments, strict=False)
        }

    def apply(self, number: int, **changed: Any) -> list[Tensor]:
        """The results of a step on the values there are now, with some of its arguments changed."""
        step = self.program.steps[number]
        schema = signature(step.operation)
        assert schema is not None
        arguments = self.arguments(number) | changed
        if schema.places:
            arguments["device"] = self._device
        where = f"step {number} ({step.operation})"
        _check_pieces(where, schema, arguments)
        try:
            results = list(tensors_in(schema.function(**arguments)))
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
            problem = str(error).partition("\n")[0][:300] + _unlike(self.program, self.inputs)
            raise InvalidProgram(where, problem) from error
        if len(results) != step.results:
            raise InvalidProgram(where, f"it gave {len(results)} results, not {step.results}")
        return results

    def _run(self, number: int) -> None:
        first = self.program.first_values[number]
        for place, result in enumerate(self.apply(number)):
            value = first + place
            if self.program.last_use.get(value, -1) > number or value in self._keep:
                self.values[value] = result

    def _enter(self, number: int) -> Tensor:
        number -= len(self.program.inputs)
        if number < len(self.program.tensors):
            taken = self.program.tensors[number]
            tensor = self._tensors[taken.name]
            return tensor if self._device == CPU else torch.empty_like(tensor, device=self._device)
        place = number - len(self.program.tensors)
        sizes = [self._size(size) for size in self.program.constants[place].shape]
        return self.program.unpacked[place].expand(sizes).to(self._device)

    def _size(self, size: Size) -> int:
        return size.size(self.batch, self.length) if isinstance(size, Hole) else size

    def _argument(self, parameter: Parameter, argument: Argument) -> Any:
        if isinstance(argument, tuple):
            return [self._item(item) for item in argument]
        if parameter.dtype and isinstance(argument, str):
            return DTYPES[argument]
        return argument if isinstance(argument, str) else self._item(argument)

    def _item(self, item: Item) -> Any:
        if not isinstance(item, Hole):
            return item
        if item.v >= 0:
            return self.value(item.v)
        return self._size(item) if item.sized else SPECIAL[item.f]


def check_run(program: Program, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> int:
    """Run on shapes alone, and refuse what would take too much memory or work.

    Returns the most elements that are held at once, tensors of the model not counted.

    Raises:
        InvalidProgram: It does not run on inputs and tensors of these shapes, or would take too much.
    """
    for taken in program.tensors:
        tensor = tensors.get(taken.name)
        if tensor is None or tuple(tensor.shape) != taken.shape:
            state = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
            raise InvalidProgram(taken.name[:80], f"the tensor is {state}, the program takes {taken.shape}")
    shapes = [torch.empty_like(tensor, device=META) for tensor in inputs]
    dry = Pass(program, tensors, shapes, device=META)
    total = work = peak = 0
    live = {number: tensor.numel() for number, tensor in dry.values.items()}
    for number, step in enumerate(program.steps):
        results = dry.apply(number)
        made = sum(tensor.numel() for tensor in results)
        total, work = total + made, work + made * _work(dry, number)
        largest = max(tensor.numel() for tensor in results)
        if largest > MAX_ELEMENTS or total > MAX_TOTAL or work > MAX_WORK:
            raise InvalidProgram(
                f"step {number} ({step.operation})",
                f"too large for a batch of {dry.batch}: a value of {largest:,} elements, {total:,} so far, "
                f"{work:,} multiplications. Use smaller batches",
            )
        for place, result in enumerate(results):
            value = program.first_values[number] + place
            dry.values[value] = result
            live[value] = result.numel()
        peak = max(peak, sum(live.values()))
        for value in references(step.arguments):
            if program.last_use[value] <= number:
                live.pop(value, None)
    return peak


def try_out(program: Program, tensors: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> tuple[float, int]:
    """Measure the seconds that a pass takes, and the bytes of activations it holds at most."""
    began, one, peak = time.perf_counter(), Pass(program, tensors, inputs), 0
    for step in range(len(program.steps)):
        one.to(step + 1)
        peak = max(peak, sum(tensor.numel() * tensor.element_size() for tensor in one.values.values()))
    return time.perf_counter() - began, peak


def run(
    program: Program,
    tensors: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    layers: Collection[str] | None = None,
) -> dict[str, Tensor]:
    """The outputs of the named layers of the model's graph (default: all), on one batch of any size.

    Raises:
        InvalidProgram: The program does not fit the tensors or inputs, or would take too much memory or work.
    """
    wanted = program.layers if layers is None else {name: program.layers[name] for name in layers}
    check_run(program, tensors, inputs)
    one = Pass(program, tensors, inputs, set(wanted.values()))
    one.to(len(program.steps))
    return {name: one.value(number) for name, number in wanted.items()}


def _sizes(program: Program, inputs: Sequence[Tensor]) -> tuple[int, int]:
    """The number of examples, and their length (0 where the program has none)."""
    if len(inputs) != len(program.inputs):
        raise InvalidProgram("inputs", f"{len(inputs)} given, it takes {len(program.inputs)}")
    batches: set[int] = set()
    lengths: set[int] = set()
    for taken, tensor in zip(program.inputs, inputs, strict=True):
        if tensor.ndim != len(taken.shape):
            raise InvalidProgram(
                taken.name[:80], f"shape {tuple(tensor.shape)}, it takes {len(taken.shape)} axes"
            )
        for actual, size in zip(tensor.shape, taken.shape, strict=True):
            if size == LENGTH:
                lengths.add(actual)
            elif isinstance(size, Hole):
                batches.add(-1 if actual % size.b else actual // size.b)
            elif size != actual and not DTYPES[taken.dtype].is_floating_point:
                raise InvalidProgram("inputs", "tokens of another length" + _unlike(program, inputs))
    if len(batches) != 1 or -1 in batches:
        raise InvalidProgram("inputs", f"they do not agree about the size of the batch: {sorted(batches)}")
    if len(lengths) > 1:
        raise InvalidProgram("inputs", f"they do not agree about the length: {sorted(lengths)}")
    return batches.pop(), max(lengths, default=0)


def _unlike(program: Program, inputs: Sequence[Tensor]) -> str:
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
    """Refuse to take a tensor into too many pieces before torch makes them."""
    if not schema.lists:
        return
    tensor, dim = arguments.get("self"), arguments.get("dim", 0)
    if not isinstance(tensor, Tensor) or not isinstance(dim, int) or not -tensor.ndim <= dim < tensor.ndim:
        raise InvalidProgram(where, "it takes pieces of no axis")
    size = arguments.get("split_size", 1)
    pieces = arguments.get("chunks") or tensor.shape[dim] // max(1, size if isinstance(size, int) else 1)
    if "split_sizes" not in arguments and pieces > MAX_LIST:
        raise InvalidProgram(where, f"{pieces:,} pieces; at most {MAX_LIST:,}")


def _work(dry: Pass, number: int) -> int:
    """About how many multiplications one element of a step's result takes."""
    step = dry.program.steps[number]
    given = dry.arguments(number)
    weight = given.get("weight")
    if isinstance(weight, Tensor) and weight.ndim > 1 and step.operation != "embedding.default":
        return weight.numel() // max(1, min(weight.shape[:2]))
    kernel = given.get("kernel_size")
    if isinstance(kernel, list):
        return math.prod(int(size) for size in kernel)
    name = step.operation.partition(".")[0]
    if name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention"):
        return max((tensor.shape[-1] for tensor in tensors_in(given) if tensor.ndim), default=1)
    return 1
