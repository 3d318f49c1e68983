"""What the child has no layer for, a neighbour takes over where it can, and the function stays the same."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.frontends.torch import describe

IMAGE = torch.randn(2, 3, 6, 6)


class Net(nn.Module):
    """Two convolutions, each with or without a bias and a norm."""

    def __init__(self, width: int, bias: bool, norm: bool, affine: bool = True) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, width, 3, bias=bias), nn.Conv2d(width, 5, 1, bias=bias)
        self.norm_a = nn.BatchNorm2d(width, affine=affine) if norm else nn.Identity()
        self.norm_b = nn.BatchNorm2d(5, affine=affine) if norm else nn.Identity()
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm_a(self.a(x)))
        return self.head(torch.relu(self.norm_b(self.b(x))).mean((2, 3)))


FORMS = [(bias, norm) for bias, norm in product([True, False], repeat=2)]


@pytest.mark.parametrize("width", [6, 9])
@pytest.mark.parametrize(("parent_form", "child_form"), list(product(FORMS, FORMS)))
def test_norms_and_biases_that_go_leave_what_they_did(
    parent_form: tuple[bool, bool], child_form: tuple[bool, bool], width: int
) -> None:
    torch.manual_seed(0)
    parent, child = Net(6, *parent_form).eval(), Net(width, *child_form).eval()
    randomise(parent)
    report = transfer(parent, child, IMAGE, verify=True)
    possible = any(child_form) or not any(parent_form)  # a convolution alone can shift nothing
    assert report.exact == possible, report.plan.doubts
    assert report.difference is not None
    assert not report.exact or report.difference < 1e-5


def test_a_norm_without_a_bias_to_go_into_is_dropped_with_a_reason() -> None:
    report = transfer(Net(6, False, True), Net(6, False, False), IMAGE)
    assert any("norm_a is not used" in doubt for doubt in report.plan.doubts)


def test_a_norm_that_is_read_beside_its_projection_stays_dropped() -> None:
    class Both(Net):
        def forward(self, x: Tensor) -> Tensor:
            made = self.a(x)
            return self.head(torch.relu(self.b(self.norm_a(made) + made)).mean((2, 3)))

    parent, child = Both(6, True, True).eval(), Net(6, True, False).eval()
    randomise(parent)
    report = transfer(parent, child, IMAGE, verify=True)
    assert not report.exact
    assert describe(child, IMAGE).parameters == report.plan.child.parameters


class Mixed(nn.Module):
    """Convolutions, in groups and transposed, and a linear layer: each with a norm and maybe a bias."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.a, self.norm_a = nn.Conv1d(4, width, 3, bias=bias), nn.BatchNorm1d(width)
        self.b = nn.Conv1d(width, 2 * width, 3, groups=width, bias=bias)
        self.norm_b = nn.BatchNorm1d(2 * width)
        self.c, self.norm_c = nn.ConvTranspose1d(2 * width, 6, 3, bias=bias), nn.BatchNorm1d(6)
        self.d, self.norm_d = nn.Linear(6, width, bias=bias), nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm_a(self.a(x)))
        x = torch.relu(self.norm_b(self.b(x)))
        x = torch.relu(self.norm_c(self.c(x))).mean(-1)
        return self.head(torch.relu(self.norm_d(self.d(x))))


@pytest.mark.parametrize("width", [6, 9])
@pytest.mark.parametrize(("theirs", "ours"), list(product([True, False], repeat=2)))
def test_a_bias_before_a_norm_comes_and_goes(theirs: bool, ours: bool, width: int) -> None:
    torch.manual_seed(0)
    parent, child = Mixed(6, theirs).eval(), Mixed(width, ours).eval()
    randomise(parent)
    report = transfer(parent, child, torch.randn(3, 4, 9), verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5
