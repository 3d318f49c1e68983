"""The law, on every kind of network: a wider and deeper child computes what its parent computes."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from tests.helpers.families import FAMILIES, INPUTS, PICTURES, conv_norm

widths = st.sampled_from([(8, 8), (8, 16), (8, 12), (16, 24), (8, 20)])  # the same, x 2, x 1.5, x 2.5
# Wider and deeper at once, these do not always align block by block, and the plan says so.
EITHER = ("more groups", "attention", "tied")
depths = st.tuples(st.integers(1, 3), st.integers(0, 2))


def parent_of(family: str, width: int, depth: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = FAMILIES[family](width, depth).eval()
    randomise(model, seed)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=8)
@given(widths, depths, st.integers(0, 9))
def test_a_larger_child_computes_the_same(
    family: str, width: tuple[int, int], depth: tuple[int, int], seed: int
) -> None:
    first, more = depth if width[0] == width[1] or family not in EITHER else (depth[0], 0)
    parent = parent_of(family, width[0], first, seed)
    child = FAMILIES[family](width[1], first + more).eval()
    report = transfer(parent, child, INPUTS[family], verify=True)
    assert report.exact, report.plan.doubts
    assert report.difference is not None
    assert report.difference < 1e-5


@pytest.mark.parametrize("family", [name for name in FAMILIES if INPUTS[name] is PICTURES])
@settings(max_examples=4)
@given(widths, st.integers(1, 2), st.integers(0, 9))
def test_a_wider_child_computes_the_same_in_training_mode(
    family: str, width: tuple[int, int], depth: int, seed: int
) -> None:
    parent = parent_of(family, width[0], depth, seed).double()
    child = FAMILIES[family](width[1], depth).double()
    assert transfer(parent, child, PICTURES.double()).exact
    with torch.no_grad():
        torch.testing.assert_close(child.train()(PICTURES.double()), parent.train()(PICTURES.double()))


class Basic(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = conv_norm(width, width), conv_norm(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.b(F.relu(self.a(x))))


class Stages(nn.Module):
    """Residual blocks of one width, a convolution with a stride, and blocks of twice that width."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.stem, self.down = conv_norm(1, width), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.first = nn.Sequential(*(Basic(width) for _ in range(depth)))
        self.second = nn.Sequential(*(Basic(2 * width) for _ in range(depth)))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.down(self.first(F.relu(self.stem(x)))))
        return self.head(self.second(x).mean((2, 3)))


@pytest.mark.parametrize("family", [*FAMILIES, "stages"])
@settings(max_examples=6)
@given(st.sampled_from([(16, 8), (12, 8), (20, 12), (8, 12)]), st.integers(1, 2), st.integers(1, 2))
def test_whatever_the_child_something_passes_through_it(
    family: str, width: tuple[int, int], before: int, after: int
) -> None:
    """Narrower and deeper, or shallower: where nothing depends on the input, nothing could be trained."""
    build, inputs = FAMILIES.get(family, Stages), INPUTS.get(family, PICTURES[:, :1])
    torch.manual_seed(0)
    parent, child = build(width[0], before).eval(), build(width[1], after).eval()
    randomise(parent, 0)
    transfer(parent, child, inputs)
    for parameter in child.parameters():
        parameter.requires_grad_(True)
    made = child(inputs)
    assert made.flatten(1).std(0).max() > 1e-6
    made.square().sum().backward()
    stems = [p for p in child.parameters() if p.ndim > 1]
    assert stems[0].grad is not None
    assert stems[0].grad.abs().max() > 0
