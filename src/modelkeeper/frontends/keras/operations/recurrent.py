"""Recurrent operations: LSTM, GRU and plain ones, place by place, with gates in ATen's order."""

# ruff: noqa: A002 (arguments go by ATen's names)

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from modelkeeper.frontends.keras.operations.table import carries_out

Cell = Callable[
    [Any, Any, tuple[Any, ...]], tuple[Any, ...]
]  # both products, states -> states; the first is put out


def _lstm_cell(taken: Any, again: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    enter, forget, new, out = ops.split(taken + again, 4, -1)
    cell = ops.sigmoid(forget) * states[1] + ops.sigmoid(enter) * ops.tanh(new)
    return ops.sigmoid(out) * ops.tanh(cell), cell


def _gru_cell(taken: Any, again: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    (reset, update, new), (reset_again, update_again, new_again) = (
        ops.split(product, 3, -1) for product in (taken, again)
    )
    fresh = ops.tanh(new + ops.sigmoid(reset + reset_again) * new_again)
    keep = ops.sigmoid(update + update_again)
    return ((1 - keep) * fresh + keep * states[0],)


def _tanh_cell(taken: Any, again: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    return (ops.tanh(taken + again),)


def _relu_cell(taken: Any, again: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
    return (ops.relu(taken + again),)


def _along(cell: Cell, places: Any, states: Sequence[Any], weights: Sequence[Any], backwards: bool) -> Any:
    """One layer in one direction over (examples, places, units): all outputs, and the last states."""
    into, onto, *biases = weights
    taken = ops.matmul(places, ops.transpose(into))
    taken = taken + biases[0] if biases else taken
    onto = ops.transpose(onto)
    count = int(places.shape[1])
    now, outputs = tuple(states), [None] * count
    for place in reversed(range(count)) if backwards else range(count):
        again = ops.matmul(now[0], onto)
        now = cell(taken[:, place], again + biases[1] if biases else again, now)
        outputs[place] = now[0]
    return ops.stack(outputs, 1), now


def _run(cell: Cell, input: Any, hx: Sequence[Any], params: Sequence[Any], how: dict[str, Any]) -> list[Any]:
    """All layers and directions."""
    places = input if how["batch_first"] else ops.swapaxes(input, 0, 1)
    each, directions = (4 if how["has_biases"] else 2), 2 if how["bidirectional"] else 1
    last: list[tuple[Any, ...]] = []
    for layer in range(how["num_layers"]):
        made = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = params[number * each : (number + 1) * each]
            states = [state[number] for state in hx]
            outputs, ended = _along(cell, places, states, weights, backwards=bool(direction))
            made.append(outputs)
            last.append(ended)
        places = made[0] if directions == 1 else ops.concatenate(made, -1)
    ends = [ops.stack([states[n] for states in last], 0) for n in range(len(hx))]
    return [places if how["batch_first"] else ops.swapaxes(places, 0, 1), *ends]


@carries_out("lstm.input")
def _lstm(input: Any, hx: list[Any], params: list[Any], **how: Any) -> list[Any]:
    return _run(_lstm_cell, input, hx, params, how)


@carries_out("gru.input")
def _gru(input: Any, hx: Any, params: list[Any], **how: Any) -> list[Any]:
    return _run(_gru_cell, input, [hx], params, how)


@carries_out("rnn_tanh.input")
def _rnn_tanh(input: Any, hx: Any, params: list[Any], **how: Any) -> list[Any]:
    return _run(_tanh_cell, input, [hx], params, how)


@carries_out("rnn_relu.input")
def _rnn_relu(input: Any, hx: Any, params: list[Any], **how: Any) -> list[Any]:
    return _run(_relu_cell, input, [hx], params, how)
