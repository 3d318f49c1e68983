"""The law of spaces and degrees: copy the units of every free space, and a model computes what it did."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from benchmarks.helpers.catalogue import build
from benchmarks.helpers.permutation import randomise
from benchmarks.helpers.replayed import EXACT, run_on_small, widened
from benchmarks.helpers.widening import copies, new_size
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.graph import Pin, Space
from tests.helpers.networks import BLOCKS, SCENARIOS, Chain, network
from tests.helpers.pitfalls import FREE, PITFALLS

SAMPLE = """resnet20_cifar10 seresnet20_cifar10 mobilenetv3_small_w7d20 shufflenetv2_wd2 squeezenet_v1_1
    bert-lm gpt_neo llama gemma t5 swin funnel""".split()


def prepared(kind: type[nn.Module]) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(1)
    model, inputs = kind().eval().double(), SCENARIOS[kind]
    randomise(model)
    return model, Inputs.of(inputs.double() if inputs.is_floating_point() else inputs)


@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_widening_changes_nothing(kind: type[nn.Module]) -> None:
    model, inputs = prepared(kind)
    widening = widened(model, inputs, [2, 1.5], seed=3)
    with torch.no_grad():
        assert torch.allclose(widening.before, model(*inputs.args).reshape(-1), rtol=1e-12)
    assert not widening.failures
    assert max(widening.changes.values()) < 1e-12
    wider, counted = widening.axes(2)
    assert wider >= 0.4 * counted > 0


@pytest.mark.parametrize("name", PITFALLS)
def test_what_is_free_can_be_copied(name: str) -> None:
    torch.manual_seed(2)
    make, inputs = PITFALLS[name]
    model = make().eval()
    widening = widened(
        model.double(), Inputs.of(inputs.double() if inputs.is_floating_point() else inputs), [2, 1.5]
    )
    assert not widening.failures
    assert max(widening.changes.values()) < 1e-12
    wider, counted = widening.axes(2)
    assert name not in FREE or wider == counted > 0


@given(
    st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(2, 6)), min_size=1, max_size=5),
    st.integers(2, 5),
    st.floats(1, 3),
    st.integers(0, 3),
)
def test_widening_changes_nothing_in_generated_networks(
    kinds: list[tuple[str, int]], width: int, factor: float, seed: int
) -> None:
    torch.manual_seed(seed)
    model = network(width, kinds).double().eval()
    randomise(model, seed)
    widening = widened(model, Inputs.of(torch.randn(2, 3, 6, 6, dtype=torch.float64)), [factor], seed)
    assert not widening.failures
    assert widening.changes[factor] < 1e-10


@pytest.mark.filterwarnings("ignore")  # of the libraries that build the models
@pytest.mark.parametrize("name", SAMPLE)
def test_widening_changes_nothing_in_real_architectures(name: str) -> None:
    model = build(name).double()
    randomise(model)
    inputs, _ = run_on_small(model)
    widening = widened(model, inputs, [2])
    assert not widening.failures
    assert widening.changes[2] < EXACT
    wider, _ = widening.axes(2)
    assert wider > 0


def test_shares_in_the_wrong_place_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = prepared(Chain)
    assert widened(model, inputs, [2]).exact(2)
    monkeypatch.setattr("benchmarks.helpers.widening.shares", lambda axis, units: np.ones(1))
    assert not widened(model, inputs, [2]).exact(2)


@given(st.integers(1, 9), st.integers(0, 20), st.integers(0, 5))
def test_copies_keep_every_unit_and_their_shares_sum_to_one(old: int, more: int, seed: int) -> None:
    units = copies(old, old + more, np.random.default_rng(seed))
    assert len(units.source) == old + more
    np.testing.assert_allclose(np.bincount(units.source, units.share, old), 1)
    counts = np.bincount(units.source, minlength=old)
    assert counts.max() - counts.min() <= 1


def test_how_wide_a_space_may_become() -> None:
    assert new_size(Space(6), 1.5) == 9
    assert new_size(Space(6, (Pin("output"),)), 1.5) == 6
    assert new_size(Space(6, (), averaged=True), 1.5) == 6
    assert new_size(Space(6, (), averaged=True), 2) == 12
