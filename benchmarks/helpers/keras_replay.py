"""Does a Keras model compute the same when it is widened without its constructor?

The operations of the vocabulary are ATen's, so a trace of a Keras model is run by PyTorch, step by step, in
double precision, as `steps` runs those of PyTorch's own models: only what an operation is called has to be
found.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.helpers.permutation import difference
from benchmarks.helpers.replayed import Widened
from benchmarks.helpers.steps import replay
from benchmarks.helpers.widening import choose, widen
from modelkeeper.frontends.keras.describe import Study
from modelkeeper.frontends.torch.describe import TorchAccount
from modelkeeper.frontends.torch.trace import AtenCall, Constant, TorchTrace
from modelkeeper.tracing.describe import Account
from modelkeeper.weights import Array

FACTOR = 2.0
ATEN = torch.ops.aten


def widened(
    studied: Study, account: Account, weights: Mapping[str, Array], inputs: Sequence[Array], expected: Array
) -> dict[str, Any]:
    """By how much outputs change in a replay, and when every free space is wider."""
    torch.set_num_threads(1)
    calls = {
        step.number: AtenCall(_function(step.name), step.arguments, writes=False)  # type: ignore[arg-type]
        for step in studied.trace.steps
    }
    constants = {
        number: Constant(torch.from_numpy(np.ascontiguousarray(array)))
        for number, array in studied.constants.items()
    }
    both = TorchAccount(account, TorchTrace(studied.trace, calls, constants))
    tensors = {name: _double(array) for name, array in weights.items()}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if tensor.is_floating_point()}
    taken = [
        _double(np.transpose(array, order)) for array, order in zip(inputs, studied.input_orders, strict=True)
    ]

    def run(sizes: Sequence[int], new: Mapping[str, Tensor]) -> Tensor:
        made = replay(both, tensors | dict(new), taken, sizes)
        back = [
            tensor.permute(list(np.argsort(order)))
            for tensor, order in zip(made, studied.output_orders, strict=True)
        ]
        return torch.cat([tensor.reshape(-1) for tensor in back])

    before = run([space.size for space in account.graph.spaces], {})
    units = choose(account.graph, FACTOR, 0)
    wide = {name: torch.from_numpy(array) for name, array in widen(account.graph, units, arrays).items()}
    sizes = [len(each.source) for each in units]
    result = Widened(account.graph, before, 0.0, sizes={FACTOR: sizes})
    wider, axes = result.axes(FACTOR)
    return {
        "replay": difference(torch.from_numpy(expected), before),
        "widened": difference(before, run(sizes, wide)),
        "wider": wider,
        "axes": axes,
    }


def _double(array: Array) -> Tensor:
    floating = "float" in array.dtype.name
    return torch.from_numpy(np.array(array, np.float64 if floating else array.dtype, order="C"))


def _function(name: str) -> Callable[..., Any]:
    """What carries out an operation of the vocabulary."""
    packet: Any = getattr(ATEN, name, None)

    def function(**given: Any) -> Any:
        match name:
            case "batch_norm":
                return packet(
                    **_all(given, "weight", "bias", "running_mean", "running_var"), cudnn_enabled=False
                )
            case "zeros" | "rand" | "randn":
                return getattr(torch, name)(given["size"], dtype=torch.float64)
            case "upsample_nearest1d" | "upsample_nearest2d" | "upsample_nearest3d":
                return packet(given["input"], given["output_size"], None)
            case "upsample_bilinear2d" | "upsample_bicubic2d":
                return packet(given["input"], given["output_size"], False, None)
        pads = given.get("padding")
        places = int(name[-2]) if name.endswith("d") and name[-2].isdigit() else 0
        if places and pads is not None and len(pads) == 2 * places:
            return _asymmetric(name, packet, given, places)
        if places and "weight" in given:
            given = _all(given, "bias")
        return packet(**given)

    return function


def _all(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Arguments together with those that ATen wants to be said that they are not there."""
    return dict.fromkeys(names) | given


def _asymmetric(name: str, packet: Any, given: dict[str, Any], places: int) -> Any:
    """Padding that is not the same before and behind: a border of its own, or a part that is cut off."""
    pads = given.pop("padding")
    before, behind = pads[:places], pads[places:]
    border = [width for n in reversed(range(places)) for width in (before[n], behind[n])]
    source = "input" if "weight" in given else "self"
    if name.startswith("conv_transpose"):
        made = packet(**_all(given, "bias"))
        return torch.nn.functional.pad(made, [-width for width in border])
    if name.startswith("avg"):
        given.pop("count_include_pad", None)
        ones = torch.nn.functional.pad(torch.ones_like(given[source]), border)
        summed = packet(**given | {source: torch.nn.functional.pad(given[source], border)})
        return summed / packet(**given | {source: ones})
    fill = float("-inf") if name.startswith("max") else 0.0
    given[source] = torch.nn.functional.pad(given[source], border, value=fill)
    return packet(**(_all(given, "bias") if "weight" in given else given))
