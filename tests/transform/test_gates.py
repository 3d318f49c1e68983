"""New gates begin half open, what they gate twice as large: nothing changes, and both can learn."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.transform import Plan
from modelkeeper.warmstart.transfer import Report

IMAGE = torch.randn(3, 2, 6, 6).double()
OPENINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "hardsigmoid": nn.functional.hardsigmoid,
    "tanh": torch.tanh,
}


class Net(nn.Module):
    """A residual block, and an activation before a last projection; each may have a gate in it."""

    def __init__(self, width: int, gates: str = "", opening: str = "sigmoid", norms: bool = True) -> None:
        super().__init__()
        self.opening, self.gates = OPENINGS[opening], gates
        self.stem, self.body = nn.Conv2d(2, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width) if norms else nn.Identity()
        self.last, self.head = nn.Conv2d(width, 2 * width, 3), nn.Linear(2 * width, 4)
        for place in gates:
            squeeze = nn.Sequential(nn.Conv2d(width, 3, 1), nn.ReLU(), nn.Conv2d(3, width, 1))
            self.add_module(f"gate_{place}", squeeze)

    def gated(self, x: Tensor, place: str) -> Tensor:
        if place not in self.gates:
            return x
        return x * self.opening(getattr(self, f"gate_{place}")(x.mean((2, 3), keepdim=True)))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.gated(self.norm(self.body(x)), "a")
        x = self.last(self.gated(nn.functional.silu(x), "b"))
        return self.head(torch.relu(x).mean((2, 3)))


def doubled(report: Report) -> frozenset[str]:
    assert isinstance(report.plan, Plan)
    return report.plan.doubled


def moved(parent: nn.Module, child: nn.Module) -> Report:
    randomise(parent.double().eval())
    report: Report = transfer(parent, child.double().eval(), IMAGE, verify=True)
    return report


@settings(max_examples=25)
@given(
    st.integers(2, 5),
    st.integers(0, 5),
    st.sampled_from(["a", "b", "ab"]),
    st.sampled_from(["sigmoid", "hardsigmoid"]),
    st.booleans(),
)
def test_new_gates_change_nothing(width: int, more: int, gates: str, opening: str, norms: bool) -> None:
    report = moved(Net(width, norms=norms), Net(width + more, gates, opening, norms))
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-9


def test_a_new_gate_can_learn_at_once() -> None:
    torch.manual_seed(0)
    child = Net(4, "ab")
    moved(Net(4), child)
    child.train()(IMAGE).square().sum().backward()
    for place in "ab":
        gradient = child.get_parameter(f"gate_{place}.2.weight").grad
        assert gradient is not None
        assert gradient.abs().max() > 0, place
        assert child.get_parameter(f"gate_{place}.2.weight").abs().max() == 0, place
        assert child.get_parameter(f"gate_{place}.0.weight").abs().max() > 0, place


def test_the_plan_says_what_is_doubled_and_why() -> None:
    report = moved(Net(4), Net(4, "a"))
    assert doubled(report) == {"norm.weight", "norm.bias"}
    assert "half open" in next(entry.why for entry in report.plan.entries if entry.tensor == "norm.weight")
    assert doubled(moved(Net(4), Net(4, "b"))) == {"last.weight"}


@pytest.mark.parametrize(
    ("parent", "child"), [(Net(4), Net(4, "a", "tanh")), (Net(4, "b"), Net(4, "ab", "tanh"))]
)
def test_a_gate_that_is_no_half_at_zero_is_doubted(parent: nn.Module, child: nn.Module) -> None:
    report = moved(parent, child)
    assert not report.exact
    assert not doubled(report)


def test_gates_that_the_parent_has_are_its_own() -> None:
    report = moved(Net(4, "ab"), Net(6, "ab"))
    assert report.exact, report.plan.doubts
    assert not doubled(report)


class TwoReaders(nn.Module):
    """What a new gate would have to double is read by something else, too."""

    def __init__(self, gate: bool) -> None:
        super().__init__()
        self.body, self.other, self.head = nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.gate = nn.Linear(4, 4) if gate else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        gated = x if self.gate is None else x * torch.sigmoid(self.gate(x))
        return self.head(torch.tanh(gated) + self.other(x))


def test_what_others_read_is_not_doubled() -> None:
    parent, child = TwoReaders(gate=False).double().eval(), TwoReaders(gate=True).double().eval()
    report = transfer(parent, child, torch.randn(3, 5).double(), verify=True)
    assert not report.exact
    assert not doubled(report)
