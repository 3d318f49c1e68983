"""Ridge regressions from sums: they find what made the data, and keep what is never seen."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modelkeeper.frontends.calibrating.regression import (
    SPREAD,
    Affine,
    Solver,
    Sums,
    Window,
    at,
    cross_entropy,
    patches,
    spread,
    turned,
)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.integers(0, 99))
def test_a_ridge_regression_finds_the_projection_that_made_the_data(
    groups: int, inputs: int, outputs: int, intercept: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weight = random.normal(size=(groups, outputs, inputs))
    bias = random.normal(size=(groups, outputs)) * intercept
    x = random.normal(size=(groups, 200, inputs)) + 3
    sums = Sums(groups, inputs, outputs)
    sums.add(x, x @ turned(weight) + bias[:, None])
    start = np.zeros_like(weight), np.zeros_like(bias)
    found = Solver(sums, 1e-8, intercept=intercept).solve(sums.cross, *start)
    np.testing.assert_allclose(found[0], weight, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found[1], bias, atol=1e-4, rtol=1e-4)
    assert sums.error(*found) < 1e-9


@pytest.mark.parametrize("inputs", [7, 192, 500])
def test_systems_of_many_unknowns_are_solved_in_blocks(inputs: int) -> None:
    random = np.random.default_rng(0)
    weight = random.normal(size=(2, 3, inputs))
    x = random.normal(size=(2, 3 * inputs, inputs))
    sums = Sums(2, inputs, 3)
    sums.add(x, x @ turned(weight))
    found, _ = Solver(sums, 1e-10, intercept=False).solve(sums.cross, 0 * weight, np.zeros((2, 3)))
    np.testing.assert_allclose(found, weight, atol=1e-6)


def test_what_cannot_be_factored_is_not_a_number_and_spoils_no_other_group() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 50, 3))
    sums = Sums(2, 3, 1)
    sums.add(x, x[..., :1])
    sums.inner[1] = -np.eye(4)
    found, _ = Solver(sums, 1e-8, intercept=False).solve(sums.cross, np.zeros((2, 1, 3)), np.zeros((2, 1)))
    np.testing.assert_allclose(found[0], [[1, 0, 0]], atol=1e-6)
    assert np.isnan(found[1]).all()


@given(st.integers(1, 5), st.integers(0, 9))
def test_strain_is_what_noise_in_the_inputs_adds_to_the_error(scale: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = scale * random.normal(size=(1, 20_000, 4)) + 1
    weight = random.normal(size=(1, 3, 4))
    y = x @ turned(weight)
    sums, noisy = Sums(1, 4, 3), Sums(1, 4, 3)
    sums.add(x, y)
    noisy.add(x + scale * random.normal(size=x.shape), y)
    none = np.zeros((1, 3))
    assert sums.error(weight, none) < 1e-5
    assert noisy.error(weight, none) == pytest.approx(sums.strain(weight), rel=0.1)


def test_what_least_squares_shrinks_gets_its_variance_back_within_reason() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(1, 4_000, 3))
    y = x[..., :1] * np.array([1.0, 0.01]) + random.normal(size=(1, 4_000, 2)) + 5
    sums = Sums(1, 3, 2)
    sums.add(x, y)
    fit = Solver(sums, 1e-4, intercept=True).solve(sums.cross, np.zeros((1, 2, 3)), np.zeros((1, 2)))
    wide = spread(Affine(*fit), sums, np.ones((1, 2), bool))
    made = x @ turned(wide.weight) + wide.bias[:, None]
    assert made[0].mean(0).tolist() == pytest.approx([5, 5], abs=0.1)
    assert made[0, :, 0].std() == pytest.approx(y[0, :, 0].std(), rel=1e-3)
    np.testing.assert_allclose(wide.weight[0, 1], SPREAD * fit[0][0, 1])


def test_directions_that_are_never_seen_keep_the_prior() -> None:
    random = np.random.default_rng(0)
    sums = Sums(1, 3, 2)
    x = random.normal(size=(1, 100, 3))
    x[..., 2] = 0
    sums.add(x, random.normal(size=(1, 100, 2)))
    prior = random.normal(size=(1, 2, 3))
    weight, _ = Solver(sums, 1e-2, intercept=True).solve(sums.cross, prior, np.zeros((1, 2)))
    np.testing.assert_allclose(weight[..., 2], prior[..., 2])


@settings(max_examples=20)
@given(
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_patches_are_what_a_convolution_sees(
    rank: int, kernel: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    x = torch.randn(2, 4, *(7, 6)[:rank])
    weight = torch.randn(6, 4 // groups, *[kernel] * rank)
    convolve = (nn.functional.conv1d, nn.functional.conv2d)[rank - 1]
    y = convolve(x, weight, None, stride, padding, dilation, groups)
    window = Window((kernel,) * rank, (stride,) * rank, (padding,) * rank, (dilation,) * rank, groups)
    places = np.random.default_rng(0).permutation(y.shape[2:].numel())[:5]
    seen = patches(x.numpy(), window, places, y.shape[2:])
    found = seen @ turned(weight.numpy().reshape(groups, 6 // groups, -1))
    np.testing.assert_allclose(found, at(y.numpy(), places, groups), atol=1e-4, rtol=1e-4)


def test_cross_entropy_is_that_of_torch_also_for_large_scores() -> None:
    scores, classes = torch.randn(9, 4) * 300, torch.arange(9) % 4
    wanted = nn.functional.cross_entropy(scores, classes).item()
    assert cross_entropy(scores.numpy(), classes.numpy()) == pytest.approx(wanted, rel=1e-5)
