"""Grouped and depthwise convolutions become dense ones that compute the same."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.transform.spread import _spread
from modelkeeper.warmstart.transfer import Report

IMAGE = torch.randn(3, 2, 6, 6).double()


class Net(nn.Module):
    """A bottleneck whose middle may have groups, with or without a sum around it."""

    def __init__(
        self, width: int, groups: int, times: int = 1, around: bool = False, norms: bool = True
    ) -> None:
        super().__init__()
        self.around, out = around, width * times
        self.stem, self.into = nn.Conv2d(2, 5, 3, padding=1), nn.Conv2d(5, width, 1)
        self.middle = nn.Conv2d(width, out, 3, padding=1, groups=groups, bias=not norms)
        self.norm = nn.BatchNorm2d(out) if norms else nn.Identity()
        self.last, self.head = nn.Conv2d(out, 5, 1), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        made = self.last(torch.relu(self.norm(self.middle(torch.relu(self.into(x))))))
        return self.head(torch.relu(made + x if self.around else made).mean((2, 3)))


def moved(parent: nn.Module, child: nn.Module) -> Report:
    randomise(parent.double().eval())
    report: Report = transfer(parent, child.double().eval(), IMAGE, verify=True)
    return report


@settings(max_examples=25)
@given(
    st.integers(1, 4), st.integers(2, 4), st.integers(1, 2), st.integers(0, 5), st.booleans(), st.booleans()
)
def test_groups_become_dense(
    each: int, groups: int, times: int, more: int, around: bool, norms: bool
) -> None:
    width = groups * each
    parent, child = Net(width, groups, times, around, norms), Net(width + more, 1, times, around, norms)
    report = moved(parent, child)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-9


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_a_spread_weight_is_zero_between_groups_and_itself_within(
    groups: int, each: int, inputs: int
) -> None:
    weight = np.random.default_rng(0).normal(size=(groups * each, inputs, 2))
    dense = _spread(weight, groups, 0, 1).reshape(groups, each, groups, inputs, 2)
    for one in range(groups):
        for other in range(groups):
            within = weight[one * each : (one + 1) * each] if one == other else 0
            assert (dense[one, :, other] == within).all()


def test_zeros_between_groups_learn() -> None:
    child = Net(6, 1)
    moved(Net(6, 3), child)
    child.train()(IMAGE).square().sum().backward()
    gradient = child.middle.weight.grad
    assert gradient is not None
    # A channel that a rectifier shuts for every image moves nothing.
    moves = gradient.abs().amax((2, 3)) > 0
    alive = moves.any(1, keepdim=True) & moves.any(0)
    assert (moves == alive).all()
    assert moves.sum() > 6 * 6 / 3  # more than lie within the groups


@pytest.mark.parametrize(("theirs", "ours"), [(4, 2), (1, 2), (2, 4)])
def test_groups_that_become_other_groups_are_doubted(theirs: int, ours: int) -> None:
    assert not moved(Net(8, theirs), Net(8, ours)).exact


def test_a_narrower_dense_one_takes_what_fits() -> None:
    report = moved(Net(8, 8), Net(6, 1))
    assert not report.exact
    assert any("diagonal" in entry.why for entry in report.plan.entries)
