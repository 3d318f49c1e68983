"""Learned positions are sampled anew where their number changes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from modelkeeper import transfer
from modelkeeper.frontends.torch import describe, read
from modelkeeper.matching import align
from modelkeeper.transform import apply, make_plan
from modelkeeper.transform.positions import line, resampling

sizes = st.integers(1, 40)


@given(sizes, sizes)
def test_every_new_position_is_an_average_of_old_ones(parents: int, size: int) -> None:
    matrix = resampling(parents, size)
    assert matrix.shape == (size, parents)
    assert (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(1), 1)
    assert (matrix.sum(0) > 0).all(), "a position that nothing takes from"
    if parents == size:
        np.testing.assert_allclose(matrix, np.eye(size), atol=1e-12)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["line", "grid"]))
def test_it_is_the_interpolation_that_is_known_for_images(old: int, new: int, kind: str) -> None:
    if kind == "line":
        values = np.random.default_rng(old).normal(size=(old, 3))
        wanted = nn.functional.interpolate(
            torch.tensor(values.T[None, :, None]), size=(1, new), mode="bilinear", antialias=True
        )[0, :, 0].T
        np.testing.assert_allclose(line(old, new) @ values, wanted, atol=1e-6)
        return
    values = np.random.default_rng(old).normal(size=(old * old + 1, 3))
    grid = torch.tensor(values[1:].reshape(1, old, old, 3)).permute(0, 3, 1, 2)
    wanted = nn.functional.interpolate(grid, size=(new, new), mode="bilinear", antialias=True)
    made = resampling(old * old + 1, new * new + 1) @ values
    np.testing.assert_allclose(made[1:], wanted[0].permute(1, 2, 0).reshape(-1, 3), atol=1e-6)
    np.testing.assert_allclose(made[0], values[0])


class Patches(nn.Module):
    """Patches of an image with a class token, each with a learned position."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token, self.places = (
            nn.Parameter(torch.randn(1, 1, 8)),
            nn.Parameter(torch.randn(1, side**2 + 1, 8)),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(torch.tanh(x).mean(1))


@pytest.mark.parametrize("side", [2, 5])
def test_a_grid_of_patches_is_stretched(side: int) -> None:
    parent, child = Patches(3), Patches(side)
    graphs = (
        describe(parent, torch.randn(1, 3, 12, 12)),
        describe(child, torch.randn(1, 3, 4 * side, 4 * side)),
    )
    plan = make_plan(*graphs, align(*graphs))
    assert not plan.exact
    made = dict(apply(plan, dict(read(parent))))["places"]
    places = parent.places.detach().numpy()
    np.testing.assert_array_equal(made[0, 0], places[0, 0])
    grid = made[0, 1:].reshape(side, side, 8)
    if side > 3:
        np.testing.assert_allclose(grid[0, 0], places[0, 1], rtol=1e-6)
        np.testing.assert_allclose(grid[-1, -1], places[0, -1], rtol=1e-6)
        np.testing.assert_allclose(grid[2, 2], places[0, 5], rtol=1e-6)


def test_looked_up_positions_stay_where_they_were() -> None:
    class Sliced(nn.Module):
        def __init__(self, length: int) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(9, 8), nn.Parameter(torch.randn(1, length, 8))
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.tokens(x) + self.places[:, : x.shape[1]]))

    parent, child = Sliced(16), Sliced(20)
    tokens = torch.randint(0, 9, (2, 6))
    report = transfer(parent, child, tokens, verify=True)
    assert torch.equal(child.places[:, :16], parent.places)
    assert report.difference == 0


def test_whole_numbers_are_not_stretched() -> None:
    class Indexed(nn.Module):
        def __init__(self, length: int) -> None:
            super().__init__()
            self.register_buffer("order", torch.arange(length))
            self.places, self.head = nn.Embedding(30, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x[..., None] * self.places(self.order))

    parent, child = Indexed(6), Indexed(9)
    graphs = describe(parent, torch.randn(2, 6)), describe(child, torch.randn(2, 9))
    plan = make_plan(*graphs, align(*graphs))
    assert {entry.tensor: entry.action for entry in plan.entries}["order"] == "kept"
