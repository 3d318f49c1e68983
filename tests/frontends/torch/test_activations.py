"""Every activation of torch.nn is known: what runs through it stays free to change its width."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import activation

from modelkeeper.frontends.torch import describe
from modelkeeper.graph.vocabulary import OPAQUE

ARGUMENTS: dict[str, dict[str, Any]] = {
    "Threshold": {"threshold": 0.1, "value": 0.2},
    **{name: {"dim": 1} for name in ("GLU", "Softmax", "LogSoftmax", "Softmin")},
}
OVER_ALL = {"Softmax", "Softmax2d", "LogSoftmax", "Softmin"}  # takes all units together: pinned, not opaque
HALVES = {"GLU"}
NAMES = sorted({*activation.__all__} - {"MultiheadAttention"})  # a layer of its own


def modules() -> list[Any]:
    """Every activation module, and in place where it can be."""
    made = []
    for name in NAMES:
        make = getattr(nn, name)
        made.append(pytest.param(name, make(**ARGUMENTS.get(name, {})), id=name))
        if "inplace" in make.__init__.__annotations__:
            in_place = make(**ARGUMENTS.get(name, {}), inplace=True)
            made.append(pytest.param(name, in_place, id=f"{name}-in-place"))
    return made


@pytest.mark.parametrize(("name", "module"), modules())
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_an_activation_pins_nothing(name: str, module: nn.Module, training: bool) -> None:
    wide = 16 if name in HALVES else 32
    net = nn.Sequential(nn.Conv2d(3, 32, 1), module, nn.Conv2d(wide, 4, 1)).train(training)
    graph = describe(net, torch.zeros(2, 3, 5, 5))
    codes = {pin.code for pin in graph.spaces[0].pins}
    assert not codes & OPAQUE
    assert graph.spaces[0].free == (name not in OVER_ALL)
    assert not [note for note in graph.notes if note.topic == "opaque"]


def test_there_are_some_in_place() -> None:
    assert sum(str(parameters.id).endswith("in-place") for parameters in modules()) >= 10
