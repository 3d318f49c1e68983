"""LSTM, GRU and RNN: gates in the vocabulary's order, layers that stand on each other as one.

ONNX takes sequences first and gives (sequence, directions, batch, hidden); the transpositions that exporters
put around it are gone when both ends are looked at. A layer that takes nothing but the whole output of
another one of its kind, with no states asked for, is its next layer, as frameworks have it.
"""

from collections.abc import Sequence

import numpy as np

from modelkeeper.frontends.onnx.lowering.entries import Call, Entry, NotLowered, Stored
from modelkeeper.frontends.onnx.lowering.moves import moves_of
from modelkeeper.frontends.onnx.lowering.patterns import step_of
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Step, Value

# Where ONNX stores the gates of the vocabulary: input, forget, cell, output; reset, update, new.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
_CELLS = {"LSTM": "lstm", "GRU": "gru"}


@lowers("LSTM", "GRU", "RNN")
def _recurrent(low: Lowering, call: Call) -> Sequence[Entry]:
    name, directions = _cell(call)
    value, hidden = low.value(call.needed(0)), call.get("hidden_size")
    first = bool(call.get("layout", 0))
    batch_first = first or _turned(value) is not None
    source = value if first else _turned(value) or value
    steps, batch = (source.shape[1], source.shape[0]) if batch_first else source.shape[:2]
    parameters = _parameters(low, call, directions)
    states = _states(low, call, name, (directions, batch, hidden), first)
    layers, reads = 1, _reads_states(low, call)
    below = step_of(source, name)
    if below is not None and not reads and _continues(low, below, source, batch_first, directions, hidden):
        layers += below.arguments["num_layers"]
        source, parameters = below.arguments["input"], [*below.arguments["params"], *parameters]
    shape = (batch, steps) if batch_first else (steps, batch)
    shapes = [
        (*shape, directions * hidden),
        *[(layers * directions, batch, hidden)] * (2 if name == "lstm" else 1),
    ]
    made = low.build.results(
        name,
        shapes,
        dtype=call.dtype,
        input=source,
        hx=states if name == "lstm" else states[0],
        params=parameters,
        has_biases=len(parameters) == 4 * layers * directions,
        num_layers=layers,
        dropout=0.0,
        train=False,
        bidirectional=directions == 2,
        batch_first=batch_first,
    )
    return _given(low, made, batch_first, first, directions)


def _cell(call: Call) -> tuple[str, int]:
    """The operation of the vocabulary, and how many directions it runs in."""
    op, directions = call.node.op, {"forward": 1, "bidirectional": 2}.get(call.get("direction", "forward"))
    if directions is None or call.get("clip") or call.get("input_forget") or call[7] is not None:
        raise NotLowered
    activations = call.get("activations")
    names = [text.decode() if isinstance(text, bytes) else text for text in activations or ()]
    if op == "RNN":
        kinds = {name.lower() for name in names or ["Tanh"]}
        if kinds not in ({"tanh"}, {"relu"}):
            raise NotLowered
        return f"rnn_{kinds.pop()}", directions
    if names and names != _USUAL[op] * directions:
        raise NotLowered
    if op == "GRU" and not call.get("linear_before_reset", 0):
        raise NotLowered  # its gates are applied before the product: another cell
    return _CELLS[op], directions


def _turned(value: Value) -> Value | None:
    """What a sequence is with its batch first, if it was transposed from that."""
    for moved in moves_of(value):
        if moved.order == (1, 0, 2) and moved.shape == moved.root.shape:
            return moved.root
    return None


def _parameters(low: Lowering, call: Call, directions: int) -> list[Value]:
    """The weights and biases of each direction, as tensors of their own."""
    weights = [call.needed(1), call.needed(2)]
    bias = call[3]
    lengths = low.array(call[4]) if call[4] is not None else None
    if call[4] is not None and (lengths is None or np.any(lengths != call.needed(0).shape[0])):
        raise NotLowered
    if not all(isinstance(entry, Stored) and not entry.order for entry in (*weights, bias or weights[0])):
        raise NotLowered
    gates, tensors = _GATES[call.node.op], []
    for direction in range(directions):
        suffix = "" if directions == 1 else (".forward", ".reverse")[direction]
        for weight in weights:
            assert isinstance(weight, Stored)
            shape = weight.shape[1:]
            tensors.append(low.tensor(weight, shape, part=(direction,), gates=gates, suffix=suffix))
        if isinstance(bias, Stored):
            half = bias.shape[1] // 2
            for name, part in ((".input", slice(0, half)), (".hidden", slice(half, 2 * half))):
                tensors.append(
                    low.tensor(bias, (half,), part=(direction, part), gates=gates, suffix=suffix + name)
                )
    return tensors


def _states(
    low: Lowering, call: Call, name: str, shape: tuple[int, int, int], batch_first: bool
) -> list[Value]:
    """The states to begin with: zeros, unless others are given."""
    states = []
    for number in (5, 6) if name == "lstm" else (5,):
        entry = call[number]
        numbers = low.array(entry)
        if entry is None or (numbers is not None and not np.any(numbers)):
            states.append(low.build.step("zeros", shape, dtype=call.dtype, size=list(shape)))
        elif batch_first:
            states.append(low.permute(low.value(entry), (1, 0, 2)))
        else:
            states.append(low.value(entry))
    return states


def _reads_states(low: Lowering, call: Call) -> bool:
    """Are the last states of a layer asked for?"""
    return any(low.is_read(name) for name in call.node.outputs[1:])


def _continues(
    low: Lowering, below: Step, source: Value, batch_first: bool, directions: int, hidden: int
) -> bool:
    """Is a layer the next one of that below it?"""
    given = below.arguments
    beginnings = given["hx"] if isinstance(given["hx"], list) else [given["hx"]]
    return (
        source is below.outputs[0]
        and low.alone(source)
        and not any(low.reads(value) for value in below.outputs[1:])
        and given["batch_first"] == batch_first
        and given["bidirectional"] == (directions == 2)
        and source.shape[-1] == directions * hidden
        and all(step_of(value, "zeros") is not None for value in beginnings)
    )


def _given(
    low: Lowering, made: Sequence[Value], batch_first: bool, layout: bool, directions: int
) -> list[Entry]:
    """What ONNX gives: all outputs with the directions on an axis of their own, and the last states."""
    whole = made[0]
    apart = low.view(whole, (*whole.shape[:2], directions, whole.shape[2] // directions))
    if layout:
        outputs = apart
        states = [low.permute(state, (1, 0, 2)) for state in made[1:]]
    else:
        outputs = low.permute(apart, (1, 2, 0, 3) if batch_first else (0, 2, 1, 3))
        states = list(made[1:])
    return [outputs, *states]
