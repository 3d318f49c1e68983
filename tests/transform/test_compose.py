"""Where a plain chain becomes shorter, a layer takes the product of those that it stands for."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.frontends.torch import recalibrate
from modelkeeper.transform import Plan

# Smooth, as pictures are: what a smaller kernel cannot see is then much like what it sees.
IMAGES = interpolate(
    torch.randn(64, 3, 3, 3, generator=torch.Generator().manual_seed(0)), (12, 12), mode="bilinear"
)


def chain(depth: int, activation: type[nn.Module], width: int = 12, bias: bool = False) -> nn.Sequential:
    """Stages of `depth` convolutions; between stages and at the end there is always a rectifier."""
    layers: list[nn.Module] = []
    last = 3
    for out in (width, 2 * width):
        for number in range(depth):
            layers += [nn.Conv2d(last, out, 3, padding=1, bias=bias), nn.BatchNorm2d(out)]
            layers.append(activation() if number < depth - 1 else nn.ReLU())
            last = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 7))


def alike(one: nn.Module, other: nn.Module) -> float:
    """The correlation of what two networks say."""
    with torch.inference_mode():
        a, b = ((said := model.eval()(IMAGES)) - said.mean(0) for model in (one, other))
    return float((a * b).sum() / a.norm() / b.norm())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("depth", [2, 3])
def test_layers_with_nothing_between_them_become_one(depth: int, bias: bool) -> None:
    def net(count: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for number in range(count):
            layers += [nn.Linear(6 if number == 0 else 9, 9, bias=bias), nn.BatchNorm1d(9)]
        return nn.Sequential(*layers, nn.ReLU(), nn.Linear(9, 5))

    torch.manual_seed(0)
    parent, child = net(depth).eval(), net(1).eval()
    randomise(parent)
    report = transfer(parent, child)
    x = torch.randn(8, 6)
    torch.testing.assert_close(child(x), parent(x), rtol=1e-4, atol=1e-4)
    assert not report.exact  # in training, the norm that went would have taken its own statistics
    assert any("in one" in doubt for doubt in report.plan.doubts)


def test_a_kernel_that_is_large_enough_holds_the_product() -> None:
    def net(*kernels: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for number, kernel in enumerate(kernels):
            layers += [nn.Conv2d(3 if number == 0 else 4, 4, kernel, bias=False), nn.BatchNorm2d(4)]
        return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))

    torch.manual_seed(0)
    parent, child = net(3, 3).eval(), net(5).eval()
    randomise(parent)
    transfer(parent, child, IMAGES[:2])
    torch.testing.assert_close(child(IMAGES), parent(IMAGES), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.GELU, nn.Tanh])
@pytest.mark.parametrize("depths", [(2, 1), (3, 2)])
def test_a_shorter_chain_says_nearly_the_same(depths: tuple[int, int], activation: type[nn.Module]) -> None:
    torch.manual_seed(0)
    parent, child = (chain(depth, activation) for depth in depths)
    recalibrate(parent, [IMAGES])
    unrelated = copy.deepcopy(child)
    report = transfer(parent, child, IMAGES[:2])
    assert sum("in one" in entry.why for entry in report.plan.entries if entry.tensor.endswith("weight")) == 2
    recalibrate(child, [IMAGES])
    recalibrate(unrelated, [IMAGES])
    assert alike(parent, child) > 0.35
    assert abs(alike(parent, unrelated)) < 0.15


class Branching(nn.Module):
    """What lies between two convolutions is also read elsewhere."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.rest = nn.ModuleList(
            nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)) for _ in range(depth - 1)
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        for block in self.rest:
            x = x + torch.relu(block(x))
        return self.head(x.mean((2, 3)))


def test_a_layer_that_is_read_twice_stays_by_itself() -> None:
    report = transfer(Branching(2), Branching(1), IMAGES[:2])
    assert not any("in one" in entry.why for entry in report.plan.entries)


def test_a_product_of_many_is_no_larger_than_the_childs_kernel() -> None:
    """Else a long chain, lent to a short one, would ask for a kernel as wide as the chain is long."""
    torch.manual_seed(0)
    parent, child = chain(24, nn.ReLU, width=2), chain(1, nn.ReLU, width=2)
    report = transfer(parent, child, IMAGES[:2])
    assert isinstance(report.plan, Plan)
    pairs = [report.plan.pairs[entry.tensor] for entry in report.plan.entries if "in one" in entry.why]
    assert any(pair.child.role == "weight" for pair in pairs)
    for pair in pairs:
        assert pair.parent.shape[2:] == pair.child.shape[2:]
    assert all(bool(tensor.isfinite().all()) for tensor in child.state_dict().values())
