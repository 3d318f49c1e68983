"""Rules for recurrent layers, which arrive whole: gates and biases as the graph has them.

The graph has the gates of an LSTM as input, forget, cell, output and those of a GRU as reset, update, new;
Keras has the latter as update, reset, new. The graph has two biases, one for what comes in and one for what
comes again.
"""

import inspect
from typing import Any

from modelkeeper.frontends.keras.lower.lowering import Lowering
from modelkeeper.frontends.keras.lower.table import CannotLower, lowers
from modelkeeper.frontends.keras.recorder import Call, StandIn
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import Value

GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
_RESET_FIRST = (1, 0, 2)


@lowers(*GATES)
def _recurrent(low: Lowering, call: Call) -> list[Value]:
    layer, cell = call.operation, call.operation.cell
    bound = inspect.signature(type(layer).call).bind(layer, *call.args, **call.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    name = _step_name(call.name, cell)
    if given.get("mask") is not None:  # it hides places, not units
        low.approximate(call, "a mask over places is ignored")
    value = low.plain(given["sequences"])
    if layer.go_backwards:
        value = low.step("flip", value.shape, self=value, dims=[1])
    params, biased = _parameters(low, cell, call.name)
    batch, places, units = value.shape[0], value.shape[1], cell.units
    states = _initial(low, given.get("initial_state"), call.name, (1, batch, units))
    shapes = [(batch, places, units), *[(1, batch, units)] * len(states)]
    made = low.steps(
        name,
        shapes,
        input=value,
        hx=states if call.name == "LSTM" else states[0],
        params=params,
        has_biases=biased,
        num_layers=1,
        dropout=0.0,
        train=False,
        bidirectional=False,
        batch_first=True,
    )
    all_places = made[0]
    last = (batch, units)
    result = (
        all_places if layer.return_sequences else low.step("select", last, self=all_places, dim=1, index=-1)
    )
    return [result, *[low.build.view(state, last) for state in made[1:]]] if layer.return_state else [result]


def _step_name(name: str, cell: Any) -> str:
    """The operation of the vocabulary, if the cell computes what it computes."""
    activation = getattr(cell.activation, "__name__", "")
    gates = getattr(getattr(cell, "recurrent_activation", None), "__name__", "sigmoid")
    if gates != "sigmoid" or (name == "GRU" and not cell.reset_after):
        raise CannotLower(f"gates by {gates}" if gates != "sigmoid" else "a GRU that resets before")
    if name == "SimpleRNN" and activation in ("tanh", "relu"):
        return f"rnn_{activation}"
    if activation != "tanh":
        raise CannotLower(f"activation {activation}")
    return name.lower()


def _parameters(low: Lowering, cell: Any, name: str) -> tuple[list[Value], bool]:
    """Weights for what comes in and what comes again, and both biases."""
    gates, units = GATES[name], cell.units
    regroup = _RESET_FIRST if name == "GRU" else None
    params = []
    for kernel in map(_variable, (cell.kernel, cell.recurrent_kernel)):
        rows = kernel.shape[0]
        parts = None if regroup is None else (1, regroup)
        params.append(
            low.enter(kernel, Layout((rows, gates, units), (1, 2, 0), (gates * units, rows), parts))
        )
    if not cell.use_bias:
        return params, False
    bias = _variable(cell.bias)
    layout = Layout((gates, units), (0, 1), (gates * units,), None if regroup is None else (0, regroup))
    if len(bias.shape) == 2:
        params += [low.piece(bias, ".input", layout, 0), low.piece(bias, ".recurrent", layout, 1)]
    else:
        params += [low.piece(bias, "", layout, None), low.piece(bias, ".recurrent", layout, None, added=True)]
    return params, True


def _variable(thing: Any) -> Any:
    return thing.variable if isinstance(thing, StandIn) else thing


def _initial(low: Lowering, given: Any, name: str, shape: tuple[int, int, int]) -> list[Value]:
    """The first states: zeros, if nobody says otherwise."""
    count = 2 if name == "LSTM" else 1
    if given is None:
        return [low.step("zeros", shape, size=list(shape)) for _ in range(count)]
    states = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(states) != count:
        raise CannotLower(f"{len(states)} initial states")
    return [low.build.view(low.plain(state), shape) for state in states]
