"""Whatever a thread draws while it draws privately, the shared generators are the same to the bit."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from modelkeeper.frontends.torch.private_random import PrivateRandom

ONES = torch.ones(1, 3, 4)
OWN = torch.Generator().manual_seed(5)
LSTM = torch.nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)
STATE = (torch.zeros(2, 1, 4), torch.zeros(2, 1, 4))

DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(3),
    "rand, given a generator": lambda: torch.rand(3, generator=OWN),
    "rand_like": lambda: torch.rand_like(ONES),
    "randn": lambda: torch.randn(3, dtype=torch.float64),
    "randint": lambda: torch.randint(1000, (3,)),
    "randint, low": lambda: torch.randint(5, 1000, (3,)),
    "randint_like": lambda: torch.randint_like(ONES, 1000),
    "randperm": lambda: torch.randperm(50),
    "normal_": lambda: torch.empty(3).normal_(),
    "uniform_": lambda: torch.empty(3).uniform_(),
    "normal": lambda: torch.normal(ONES, ONES),
    "bernoulli": lambda: torch.bernoulli(torch.full((99,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(50), 20),
    "poisson": lambda: torch.poisson(ONES * 100),
    "dropout": lambda: F.dropout(torch.ones(99)),
    "dropout of channels": lambda: F.dropout1d(torch.ones(1, 99, 2)),
    "alpha dropout": lambda: F.alpha_dropout(torch.ones(99), training=True),
    "native dropout": lambda: torch.native_dropout(torch.ones(99), 0.5, True)[0],
    "rrelu": lambda: F.rrelu(-ONES, training=True),
    "gumbel softmax": lambda: F.gumbel_softmax(ONES),
    "attention": lambda: F.scaled_dot_product_attention(ONES, ONES, ONES, dropout_p=0.5),
    "lstm": lambda: LSTM(ONES, STATE)[0],
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_it_draws_the_same_for_a_seed_and_leaves_the_shared_generators_alone(
    name: str, inference: bool
) -> None:
    before, own = torch.get_rng_state(), OWN.get_state()
    drawn = []
    for seed in (1, 1, 2):
        with torch.inference_mode(inference), PrivateRandom(seed):
            drawn.append(DRAWS[name]())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2]) or (inference and name == "lstm")  # oneDNN drops nothing out
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(OWN.get_state(), own)


def test_dropout_drops_by_its_chance_and_keeps_the_mean() -> None:
    with PrivateRandom(0):
        out, kept = torch.native_dropout(torch.ones(10_000), 0.2, True)
    assert 0.78 < kept.float().mean() < 0.82
    assert torch.equal(out, kept * 1.25)


def test_gradients_flow_through_what_was_drawn() -> None:
    weight = torch.ones(50, requires_grad=True)
    with PrivateRandom(0):
        F.dropout(weight, 0.5).sum().backward()
    assert weight.grad is not None
    assert set(weight.grad.tolist()) == {0.0, 2.0}


def test_what_draws_nothing_runs_as_it_is() -> None:
    with PrivateRandom(0):
        assert torch.equal(F.dropout(ONES, training=False), ONES)
        F.scaled_dot_product_attention(ONES, ONES, ONES)
        assert torch.rand(3, device="meta").is_meta
