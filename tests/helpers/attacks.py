"""Programs with which trainings were killed, hung, or made to read memory elsewhere: a few hundred bytes."""

import base64
import json
import zlib
from typing import Any

import numpy as np

from modelkeeper.frontends.programs.program import FORMAT, VERSION
from modelkeeper.weights import Array

X = {"v": 0}


def numbers(array: Array, shape: list[Any] | None = None) -> list[Any]:
    """A constant. `shape`: what it is said to be."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
    return [array.dtype.name, list(array.shape) if shape is None else shape, data]


def ones(*shape: int, dtype: str = "float32") -> list[Any]:
    return numbers(np.ones(shape, dtype))


def program(
    *steps: list[Any],
    constants: list[Any] | None = None,
    inputs: list[Any] | None = None,
    tensors: list[Any] | None = None,
    layers: dict[str, int] | None = None,
) -> bytes:
    """A program that takes eight numbers an example; constants have the numbers from 1."""
    given = [["0", "float32", [{"b": 1}, 8]]] if inputs is None else inputs
    first = len(given) + len(tensors or ()) + len(constants or ())
    last = first + sum(step[2] if len(step) > 2 else 1 for step in steps) - 1
    document = {
        "format": FORMAT,
        "version": VERSION,
        "inputs": given,
        "tensors": tensors or [],
        "constants": constants or [],
        "steps": list(steps),
        "outputs": [last],
        "layers": {"last": last} if layers is None else layers,
    }
    return json.dumps(document).encode()


HONEST = program(["relu.default", [X]])
LSTM = [True, 1, 0.0, False, False, False]
SMALLEST, MINUS_ONE = numbers(np.full(8, -(2**63), np.int64)), numbers(np.full(8, -1, np.int64))
# Nothing but the numbers is wrong with it: no look at shapes finds it, and it ends the process that runs it.
KILLER = program(
    ["div.Tensor_mode", [{"v": 1}, {"v": 2}, "trunc"]],
    ["sum.default", [{"v": 3}]],
    ["add.Tensor", [X, {"v": 4}]],
    constants=[SMALLEST, MINUS_ONE],
)
# So few bytes, and nothing that is too large at once: but it does not end for minutes.
ENDLESS = program(
    ["full.default", [[2**25], 1.0]],
    *(["cumsum.default", [{"v": 1 + n}, 0]] for n in range(2000)),
)

ATTACKS = {
    "lstm, weights of other shapes": program(
        ["lstm.input", [{"v": 1}, [{"v": 2}, {"v": 2}], [{"v": n} for n in (3, 3, 4, 4)], *LSTM], 3],
        constants=[ones(5, 2, 8), ones(1, 2, 400), ones(1, 1), ones(1)],
    ),
    "lstm, weights that are too small": program(
        ["lstm.input", [{"v": 1}, [{"v": 2}, {"v": 2}], [{"v": n} for n in (3, 4, 5, 5)], *LSTM], 3],
        constants=[ones(5, 2, 8), ones(1, 2, 4), ones(16, 8), ones(16, 2), ones(16)],
    ),
    "weight norm, no gain": program(["_weight_norm.default", [X, {"v": 1}, 0]], constants=[ones(0)]),
    "weight norm, too many gains": program(
        ["_weight_norm.default", [X, {"v": 1}, 0]], constants=[ones(40000, 1)]
    ),
    "attention, no batch": program(
        ["scaled_dot_product_attention.default", [{"v": 1}] * 3], constants=[ones(0, 2, 4, 8)]
    ),
    "attention, no heads": program(
        ["scaled_dot_product_attention.default", [{"v": 1}] * 3], constants=[ones(2, 0, 4, 8)]
    ),
    "fourier, an axis far away": program(
        ["_fft_c2c.default", [{"v": 1}, [2147483647], 0, True]], constants=[ones(2, 4, dtype="complex64")]
    ),
    "no groups": program(["group_norm.default", [{"v": 1}, 0]], constants=[ones(2, 8, 1)]),
    "native norm, no groups": program(
        ["native_group_norm.default", [{"v": 1}, None, None, 2, 8, 1, 0, 1e-5], 3], constants=[ones(2, 8, 1)]
    ),
    "16 GiB": program(["full.default", [[2**32], 1.0]]),
    "16 GiB in pieces": program(
        *(["full.default", [[2**28], 1.0]] for _ in range(16)),
        ["cat.default", [[{"v": n} for n in range(1, 17)]]],
    ),
    "a constant that grows, and its sum": program(
        ["sum.default", [{"v": 1}]], constants=[numbers(np.ones(1, np.float32), [{"b": 2**50}])]
    ),
    "a constant that grows a little less": program(
        *(["sum.default", [{"v": 1}]] for _ in range(3)),
        constants=[numbers(np.ones((1, 1), np.float32), [{"b": 2**18}, {"b": 2**16}])],
    ),
    "einsum, work that nobody sees": program(
        ["full.default", [[8192, 8192], 1.0]],
        ["einsum.default", ["ab,bc,cd,de,ef,fg,gh,hi,ij,ja->", [{"v": 1}] * 10]],
    ),
    "einsum, products that nobody sees": program(
        ["einsum.default", ["ab,cd,ac,bd->", [{"v": 1}] * 4]], constants=[ones(256, 256)]
    ),
    "attention, scores that nobody sees": program(
        ["scaled_dot_product_attention.default", [{"v": 1}] * 3], constants=[ones(1, 32768, 1)]
    ),
    "a dtype that is a number": program(["full_like.default", [X, 1, 2147483647]]),
    "a step of nothing": program(["unfold.default", [X, 1, 2, 0]]),
    "a shuffle of nothing": program(["channel_shuffle.default", [{"v": 1}, 0]], constants=[ones(1, 4, 2, 2)]),
    "pieces of no size": program(["split.Tensor", [X, 0, 1]]),
    "a range without end": program(["arange.start_step", [0, 1e18, 1e-9]]),
    "not a number of numbers": program(["arange.default", [{"f": "nan"}]]),
    "sizes beyond 64 bits": program(["full.default", [[{"b": 2**62}], 1.0]]),
    "the smallest number by -1": KILLER,
    "an escape sequence": program(["einsum.default", ["\x1b[31mhi", [X]]]),
}
