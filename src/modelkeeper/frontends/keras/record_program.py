"""From a Keras model to its program: what it did on batches of different size, written down as one.

    record_program(model, inputs).to_bytes()

The model is called on symbolic tensors, as when it is described, with two and with three examples, and on
shorter sequences if it takes any. The program takes its inputs and gives its outputs in the axis order of the
graph: images with channels first. How several runs become one program: `programs.write`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import keras
from keras import tree

from modelkeeper.errors import CannotDescribe, InvalidProgram, NoProgram
from modelkeeper.frontends.keras.describe import Study, study
from modelkeeper.frontends.keras.inputs import Inputs, given_inputs, open_inputs, symbolic
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.programs.from_steps import calls_of
from modelkeeper.frontends.programs.program import DTYPES, Hole, Program, Taken
from modelkeeper.frontends.programs.write import EXAMPLES, Call, length_of, ways, write
from modelkeeper.tracing.describe import account_for
from modelkeeper.tracing.trace import Step, Trace, Value
from modelkeeper.weights import Array


@dataclass(frozen=True)
class Recorded:
    """A program, and the order in which it has the axes of each of the model's inputs."""

    program: Program
    input_orders: tuple[tuple[int, ...], ...]


def record_program(model: Any, example_inputs: Any = None) -> Program:
    """The program of a model, for batches of any size.

    Raises:
        CannotDescribe: The model did not run on the inputs there were.
        NoProgram: What it does cannot be written down as operations of the list, for batches of any size.
    """
    return record(model, example_inputs).program


def record(model: Any, example_inputs: Any = None) -> Recorded:
    """What `record_program` does, with the orders of the inputs."""
    name = type(model).__name__
    if example_inputs is None:
        inputs = study(model).trace.ran_on
    else:
        inputs = given_inputs(model, example_inputs)
    length = _length(model, inputs)
    studied = cache(lambda sizes: study(model, _resized(name, inputs, length, *sizes)))
    for way in (possible := ways(length)):
        try:
            runs = [studied(sizes) for sizes in way]
            for note in runs[0].trace.notes:
                if note.topic == "approximate":
                    raise NoProgram(name, note.text)
            if _outline(runs[0]) != _outline(studied((EXAMPLES[0], length))):
                raise NoProgram(name, f"it does other things with inputs of length {length}")
            heard = [_KerasRun(name, run) for run in runs]
            program = write(name, account_for(runs[0].trace), heard, way, input_names(inputs))
            return Recorded(program, runs[0].input_orders)
        except (CannotDescribe, InvalidProgram, NoProgram):
            if way is possible[-1]:
                raise
    raise AssertionError(name)


def input_names(inputs: Inputs) -> list[str]:
    """What programs call the tensors among the inputs of a model: by place, or by keyword."""
    names = names_in(inputs.args[0] if len(inputs.args) == 1 else inputs.args)
    for name, part in inputs.kwargs:
        names += [name] * len(_tensors(part))
    return names


def names_in(structure: Any) -> list[str]:
    """A name for each tensor in a structure of inputs: its key in a dict, its place otherwise."""
    if isinstance(structure, dict) and all(hasattr(part, "shape") for part in structure.values()):
        return sorted(structure)
    return [str(n) for n in range(len(_tensors(structure)))]


def arranged(
    arrays: Sequence[Array], program: Program, orders: Sequence[tuple[int, ...]] | None
) -> list[Array] | None:
    """Examples in the axis order and with the dtypes that a program takes; None: they do not fit it.

    `orders`: of the axes of each input; None: as they are.
    """
    made = []
    for n, (array, taken) in enumerate(zip(arrays, program.inputs, strict=True)):
        if orders is not None and n < len(orders):
            array = array.transpose(orders[n]) if len(orders[n]) == array.ndim else array
        fixed = zip(array.shape, fixed_sizes(taken), strict=False)
        if array.ndim != len(taken.shape) or any(size not in (have, 0) for have, size in fixed):
            return None
        made.append(array.astype(DTYPES[taken.dtype], copy=False))
    return made


def fixed_sizes(taken: Taken) -> list[int]:
    """The sizes of an input; 0 where any will do."""
    floating = DTYPES[taken.dtype].kind not in "iub"
    places = floating and len(taken.shape) > 3  # a network of convolutions may run on images of other sizes
    sizes = [0 if isinstance(size, Hole) else size for size in taken.shape]
    return [0 if places and n > 1 else size for n, size in enumerate(sizes)]


def _tensors(structure: Any) -> list[Any]:
    return [leaf for leaf in tree.flatten(structure) if hasattr(leaf, "shape")]


def _length(model: Any, inputs: Inputs) -> int:
    """The length of sequences that the model takes at any length; 0 if it takes none."""
    given, declared = _tensors((inputs.args, dict(inputs.kwargs))), open_inputs(model)
    places = given if declared is None else _tensors((declared.args, dict(declared.kwargs)))
    free = [
        leaf
        for leaf, place in zip(given, places, strict=False)
        if len(leaf.shape) in (2, 3) and (place.shape[1] is None or (declared is None and leaf.shape[1]))
    ]
    return length_of((leaf.shape, "float" in leaf.dtype) for leaf in free)


def _resized(name: str, inputs: Inputs, length: int, size: int, new: int) -> Inputs:
    """Resize inputs to so many examples, and sequences to a new length."""
    given = (inputs.args, dict(inputs.kwargs))
    batches = {leaf.shape[0] for leaf in _tensors(given) if leaf.shape}
    if len(batches) != 1:
        raise NoProgram(name, f"its inputs ({inputs}) do not have the same number of examples each")

    def resize(leaf: Any) -> Any:
        if not isinstance(leaf, keras.KerasTensor) or not leaf.shape:
            return leaf
        shape = [size, *leaf.shape[1:]]
        if length and len(shape) in (2, 3) and shape[1] == length:
            shape[1] = new
        return symbolic(shape, leaf.dtype)

    args, kwargs = tree.map_structure(resize, given)
    return Inputs(tuple(args), tuple(kwargs.items()))


def _outline(run: Study) -> list[str]:
    return [step.name for step in run.trace.steps if step.name != "slice"]


@dataclass(frozen=True, slots=True)
class _KerasRun:
    """One run of a model, as `programs.write.Run` asks for it."""

    name: str  # of the model
    study: Study

    @property
    def trace(self) -> Trace:
        return self.study.trace

    def maker(self, value: Value) -> Step | None:
        return None

    def numbers(self, value: Value) -> Array | None:
        if value.owner is None:
            return self.study.constants.get(value.number)
        home = next(piece for piece in self.study.pieces if piece.name == value.owner.names[0])
        return home.layout.canonical(to_numpy(home.variable.variable))

    def calls(self, step: Step) -> list[Call]:
        return calls_of(self.name, step)
