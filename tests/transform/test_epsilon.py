"""Norms that add another epsilon: a batch norm's is made up for, whatever the variances; others say so."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.frontends.torch import describe
from modelkeeper.matching import align

IMAGE = torch.randn(4, 3, 6, 6)
EPSILONS = [1e-8, 1e-5, 1e-3, 0.1]
IN_TRAINING = 0.1  # of the deviation: a parent's statistics divide by one example less


class Net(nn.Module):
    """Two convolutions, each with its norm."""

    def __init__(self, width: int, epsilon: float, gains: bool = True, **norm: Any) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, width, 3), nn.Conv2d(width, 5, 1, bias=False)
        self.norm_a = nn.BatchNorm2d(width, epsilon, affine=gains, **norm)
        self.norm_b = nn.BatchNorm2d(5, epsilon, affine=gains, **norm)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm_a(self.a(x)))
        return self.head(torch.relu(self.norm_b(self.b(x))).mean((2, 3)))


def prepared(net: nn.Module, variances: float | None = None) -> nn.Module:
    randomise(net.double().eval())
    for name, buffer in net.named_buffers():
        if variances is not None and name.endswith("var"):
            buffer.copy_(torch.rand(buffer.shape) * variances)
    return net


@pytest.mark.parametrize("width", [6, 9])
@pytest.mark.parametrize("variances", [1.0, 1e-3, 1e-6, 0.0])
@pytest.mark.parametrize(("theirs", "ours"), [(1e-5, 1e-3), (1e-3, 1e-5), (1e-5, 1e-5), (1e-3, 0.0)])
def test_a_batch_norm_of_another_epsilon_computes_the_same(
    theirs: float, ours: float, variances: float, width: int
) -> None:
    torch.manual_seed(0)
    if not ours:
        variances = max(variances, 1e-6)  # nothing divides by zero
    parent, child = prepared(Net(6, theirs), variances), Net(width, ours).double().eval()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-9
    assert torch.equal(child.get_buffer("norm_b.running_var"), parent.get_buffer("norm_b.running_var"))
    if theirs != ours:
        entry = next(e for e in report.plan.entries if e.tensor == "norm_b.weight")
        assert "makes up for epsilon" in entry.why


@pytest.mark.parametrize(("theirs", "ours"), [(1e-5, 1e-3), (1e-3, 1e-5)])
def test_batches_like_those_that_the_parent_saw_are_normalised_likewise(theirs: float, ours: float) -> None:
    """In training mode, too: statistics are those of the activations, and the gain makes up for the rest."""
    torch.manual_seed(0)
    parent, child = prepared(Net(6, theirs)), Net(6, ours).double()
    with torch.no_grad():
        for parameter in (parent.get_parameter("a.weight"), parent.get_parameter("b.weight")):
            parameter.mul_(0.01)  # variances that feel an epsilon
    examples = IMAGE.double()
    parent.train()
    for _ in range(400):
        parent(examples)  # until its statistics are those of the batch
    transfer(parent.eval(), child, examples)
    wanted = parent.train()(examples).detach()
    assert torch.allclose(child.train()(examples), wanted, atol=IN_TRAINING * float(wanted.std()))


def test_without_gains_a_variance_makes_up_for_a_smaller_epsilon() -> None:
    torch.manual_seed(0)
    parent, child = prepared(Net(6, 1e-3, gains=False)), Net(6, 1e-5, gains=False).double().eval()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-9


def test_without_gains_a_larger_epsilon_may_be_too_large_and_the_plan_says_so() -> None:
    torch.manual_seed(0)
    parent, child = prepared(Net(6, 1e-5, gains=False), 0.01), Net(6, 1e-3, gains=False).double().eval()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert not report.exact
    assert any("eps 1e-05 became 0.001" in doubt for doubt in report.plan.doubts)
    assert float(child.get_buffer("norm_b.running_var").min()) >= 0


@pytest.mark.parametrize("ours", [1e-5, 1e-3])
def test_gains_that_the_parent_does_not_have_are_ones_or_make_up_for_the_epsilon(ours: float) -> None:
    torch.manual_seed(0)
    parent, child = prepared(Net(6, 1e-5, gains=False), 0.01), Net(9, ours).double().eval()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-9


def test_statistics_of_each_batch_are_not_made_up_for() -> None:
    parent, child = Net(6, 1e-5, track_running_stats=False), Net(6, 1e-3, track_running_stats=False)
    report = transfer(parent, child, IMAGE)
    assert any("eps 1e-05 became 0.001" in doubt for doubt in report.plan.doubts)


class Shared(nn.Module):
    """One norm, used twice, each time with an epsilon of its own."""

    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.epsilons = first, second

    def forward(self, x: Tensor) -> Tensor:
        for layer, epsilon in zip((self.a, self.b), self.epsilons, strict=True):
            norm, x = self.norm, layer(x)
            x = torch.relu(
                nn.functional.batch_norm(
                    x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=epsilon
                )
            )
        return x


@pytest.mark.parametrize("theirs", [(1e-5, 1e-5), (1e-5, 1e-3), (1e-3, 1e-5)])
@pytest.mark.parametrize("ours", [(1e-5, 1e-5), (1e-3, 1e-3), (1e-5, 1e-3)])
def test_a_norm_that_is_used_twice_can_suit_only_one_epsilon(
    theirs: tuple[float, float], ours: tuple[float, float]
) -> None:
    torch.manual_seed(0)
    parent, child = prepared(Shared(*theirs), 0.01), Shared(*ours).double().eval()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert report.difference is not None
    assert not report.exact or report.difference < 1e-9, report.plan.doubts
    assert report.exact == (theirs == ours or (theirs[0] == theirs[1] and ours[0] == ours[1]))


@pytest.mark.parametrize(
    "norm",
    [lambda e: nn.GroupNorm(2, 8, eps=e), lambda e: nn.LayerNorm((6, 6), eps=e), lambda e: nn.RMSNorm(6, e)],
)
def test_norms_of_each_example_differ_a_little_and_the_plan_says_so(norm: Any) -> None:
    def net(epsilon: float) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 1), norm(epsilon), nn.ReLU(), nn.Conv2d(8, 4, 1))

    torch.manual_seed(0)
    parent, child = prepared(net(1e-6)), net(1e-5).double()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert any("eps 1e-06 became 1e-05" in doubt for doubt in report.plan.doubts)
    assert report.difference is not None
    assert report.difference < 1e-3
    first, second = describe(parent, IMAGE.double()), describe(child, IMAGE.double())
    assert 0.999 < align(first, second).similarity < 1


@given(
    st.sampled_from(EPSILONS), st.sampled_from(EPSILONS), st.integers(4, 7), st.floats(0, 0.01), st.booleans()
)
def test_what_is_called_exact_is_for_any_epsilons(
    theirs: float, ours: float, width: int, variances: float, gains: bool
) -> None:
    torch.manual_seed(width)
    parent, child = prepared(Net(4, theirs, gains), variances), Net(width, ours, gains).double().eval()
    report = transfer(parent, child, IMAGE.double(), verify=True)
    assert report.exact == (gains or theirs >= ours)
    assert report.difference is not None
    assert not report.exact or report.difference < 1e-8
    assert all(np.isfinite(t.detach().numpy()).all() for t in child.state_dict().values())
