"""Shapes that are worked out here are those that torch works out, and torch's compiler stays unimported."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.aten import aten_operator
from modelkeeper.frontends.torch.known_shapes import known_shape

ATEN = torch.ops.aten


def meta(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta")


KNOWN: dict[str, tuple[torch._ops.OpOverload, tuple[object, ...]]] = {
    "linear": (ATEN.linear.default, (meta(2, 5, 4), meta(3, 4), meta(3))),
    "linear of a vector": (ATEN.linear.default, (meta(4), meta(3, 4))),
    "conv": (ATEN.conv2d.default, (meta(2, 4, 9, 8), meta(6, 4, 3, 3))),
    "conv, all said": (
        ATEN.conv2d.default,
        (meta(2, 4, 19, 18), meta(6, 2, 3, 5), meta(6), [2, 3], [1, 2], [2, 1], 2),
    ),
    "conv, one number": (ATEN.conv1d.default, (meta(2, 4, 9), meta(6, 4, 3), None, [2], [1])),
    "conv of volumes": (ATEN.conv3d.default, (meta(2, 4, 5, 6, 7), meta(6, 4, 3, 3, 3))),
    "relu": (ATEN.relu.default, (meta(2, 3),)),
    "relu, channels last": (
        ATEN.relu.default,
        (meta(2, 3, 4, 5).to(memory_format=torch.channels_last),),
    ),
    "leaky relu": (ATEN.leaky_relu.default, (meta(2, 3), 0.2)),
    "times a number": (ATEN.mul.Tensor, (meta(2, 3), 2.0)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_what_torch_says(name: str) -> None:
    func, args = KNOWN[name]
    found, expected = known_shape(func, aten_operator(func), args), func(*args)
    assert found is not None
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)


UNUSUAL: dict[str, tuple[torch._ops.OpOverload, tuple[object, ...]]] = {
    "wrong width": (ATEN.linear.default, (meta(2, 5), meta(3, 4))),
    "other types": (ATEN.linear.default, (meta(2, 4), meta(3, 4).double())),
    "wrong channels": (ATEN.conv2d.default, (meta(2, 5, 9, 8), meta(6, 4, 3, 3))),
    "too small": (ATEN.conv2d.default, (meta(2, 4, 2, 2), meta(6, 4, 3, 3))),
    "padding by name": (ATEN.conv2d.padding, (meta(2, 4, 9, 8), meta(6, 4, 3, 3), None, 1, "same")),
    "two operands": (ATEN.mul.Tensor, (meta(2, 3), meta(3))),
    "whole numbers": (ATEN.relu.default, (torch.empty(3, dtype=torch.int64, device="meta"),)),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_torch_is_asked_where_anything_is_unusual(name: str) -> None:
    func, args = UNUSUAL[name]
    assert known_shape(func, aten_operator(func), args) is None


FIRST_QUERY = """
import sys
import torch
from torch import nn
from modelkeeper import ModelKeeperClient
with ModelKeeperClient(":memory:", on_error="raise") as client:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 4)
    client.query_for_model(nn.Sequential(*layers))
slow = {"torch._dynamo", "sympy", "torch._inductor", "rich", "fastapi"} & set(sys.modules)
sys.exit(f"imported {slow}" if slow else 0)
"""


def test_the_first_query_of_a_process_imports_nothing_that_is_slow() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_QUERY], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_model_with_a_compiled_function_in_it_is_described() -> None:
    compiled: Callable[[Tensor], Tensor] = torch.compile(lambda x: F.gelu(x) * 2, backend="eager")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(compiled(self.first(x)))

    net = Net()
    expected = [layer.kind for layer in describe(net).layers]
    net(torch.ones(2, 4))
    assert (
        [layer.kind for layer in describe(net).layers] == expected == ["input", "linear", "linear", "output"]
    )
