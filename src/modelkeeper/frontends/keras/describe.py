"""Describe a Keras model: call it once on symbolic tensors, listen, and lower what was heard.

    recorder (which operations ran) -> lower (steps of the vocabulary) -> Trace

The model, Keras' counters of names, and random generators are afterwards as they were. What was found out
of a model's variables is kept as long as the model is there: reading and loading go by it.
"""

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

import keras
from keras import tree

from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends.keras.inputs import Inputs, candidates, given_inputs
from modelkeeper.frontends.keras.lower import Lowering
from modelkeeper.frontends.keras.lower.arrange_inputs import input_order
from modelkeeper.frontends.keras.patches import symbolic_tensors
from modelkeeper.frontends.keras.pieces import Piece
from modelkeeper.frontends.keras.random_state import keep_random_state
from modelkeeper.frontends.keras.recorder import NotBuilt, Recording, record
from modelkeeper.frontends.keras.variables import Variables, lacks_variables, layers_of
from modelkeeper.text import first_line
from modelkeeper.tracing.trace import Trace
from modelkeeper.weights import Array

_ADVICE = "Pass example inputs: arrays or keras.Input, in the structure that the model takes"
_BUILD = "Call the model once on data, or pass example inputs, so that its layers get their variables"


@dataclass(frozen=True, slots=True)
class Study:
    """What a model does, and which tensors of the graph its variables are."""

    trace: Trace
    pieces: tuple[Piece, ...]
    constants: dict[int, Array]  # the numbers of the trace's constants, by the number of their value
    # For each input and output, which of Keras' axes each axis of the trace is: transposed by it, what goes
    # into the model, or comes out of it, is what goes into the trace, or comes out.
    input_orders: tuple[tuple[int, ...], ...]
    output_orders: tuple[tuple[int, ...], ...]


_studies: "weakref.WeakKeyDictionary[Any, tuple[tuple[int, ...], tuple[Piece, ...]]]" = (
    weakref.WeakKeyDictionary()
)


def trace_model(model: Any, example_inputs: Any = None) -> Trace:
    """Trace a model's call as plain data over the vocabulary.

    Raises:
        CannotDescribe: The model did not run on the inputs there were, or is not built.
    """
    return study(model, example_inputs).trace


def pieces_of(model: Any) -> tuple[Piece, ...]:
    """The tensors of the graph that the model's variables are, as found when it was last described."""
    known = _studies.get(model)
    if known is not None and known[0] == _stamp(model):
        return known[1]
    return study(model).pieces


def _stamp(model: Any) -> tuple[int, ...]:
    return tuple(
        id(variable)
        for layer in layers_of(model)
        for variable in (*layer._trainable_variables, *layer._non_trainable_variables)
    )


def study(model: Any, example_inputs: Any = None) -> Study:
    """What `trace_model` does, with all that it knew."""
    with keep_random_state():
        variables, recording, inputs = _run(model, example_inputs)
        studied = _lower(variables, recording, inputs)
    _studies[model] = (_stamp(model), studied.pieces)
    return studied


def _lower(variables: Variables, recording: Recording, inputs: Inputs) -> Study:
    readers = Counter(
        id(leaf) for call in recording.calls for leaf in symbolic_tensors((call.args, call.kwargs))
    )
    readers.update(id(tensor) for tensor in recording.outputs)
    low = Lowering(variables, readers)
    orders = [input_order(tensor, recording) for tensor in recording.inputs]
    for tensor, order, name in zip(recording.inputs, orders, inputs.names, strict=True):
        low.input(tensor, order, name)
    for call in recording.calls:
        low.run(call)
    outputs = [low.output(tensor) for tensor in recording.outputs]
    trace = low.trace([value for value, _ in outputs], inputs)
    return Study(
        trace,
        tuple(low.pieces),
        low.build.constants,
        input_orders=tuple(map(tuple, orders)),
        output_orders=tuple(order for _, order in outputs),
    )


def _run(model: Any, example_inputs: Any) -> tuple[Variables, Recording, Inputs]:
    """Record the first call that works."""
    given = example_inputs is not None
    failures: list[tuple[Inputs, Exception]] = []
    for inputs in [given_inputs(model, example_inputs)] if given else candidates(model):
        try:
            if given:
                _build(model, inputs)
            variables = Variables(model)
            return variables, record(model, variables, (inputs.args, dict(inputs.kwargs))), inputs
        except NotBuilt as error:
            raise CannotDescribe(_name(model), f"its layer {error} is not built yet", _BUILD) from error
        except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
            failures.append((inputs, error))
    if not failures:
        raise CannotDescribe(
            _name(model), "it is not built, and nothing says what its inputs look like", _ADVICE
        )
    inputs, cause = failures[0]
    tried = (
        f"on ({inputs})" if given else f"on any of {len(failures)} guessed inputs, the first being ({inputs})"
    )
    raise CannotDescribe(_name(model), f"it did not run {tried}: {first_line(cause)}", _ADVICE) from cause


def _build(model: Any, inputs: Inputs) -> None:
    """Build a model that was never called, as a call on these inputs would, for any number of examples."""
    if model.built and all(layer.built for layer in layers_of(model)):
        return
    if model.built and not any(lacks_variables(layer) for layer in layers_of(model)):
        return

    def any_number(leaf: Any) -> Any:
        if not isinstance(leaf, keras.KerasTensor) or not leaf.shape:
            return leaf
        return keras.KerasTensor((None, *leaf.shape[1:]), dtype=leaf.dtype)

    args, kwargs = tree.map_structure(any_number, (inputs.args, dict(inputs.kwargs)))
    model(*args, **kwargs)
    model._inbound_nodes.clear()


def _name(model: Any) -> str:
    return type(model).__name__
