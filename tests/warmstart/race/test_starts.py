"""Probing: the better start is found, a poor parent does no harm, the model bears no trace of it."""

import copy
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.helpers.catalogue import transformer
from modelkeeper import KeeperWarning, ModelKeeperClient, Report, transfer
from modelkeeper.errors import CannotProbe, InvalidSetting
from modelkeeper.frontends.torch import FRONTEND, labelled
from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.race.race import Terms, race
from modelkeeper.warmstart.race.rules import Race

LONG = 1_000.0  # seconds to calibrate: no budget, so that a busy machine gives the same results
META = {"data": "pictures", "task": "classification"}


class Net(nn.Sequential):
    """A convolution, batch norm, dropout and a head."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(16 * width, 4),
        )


def made(width: int, seed: int) -> Net:
    torch.manual_seed(seed)
    return Net(width)


def examples(count: int = 1_600) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, 1, 8, 8, generator=generator)
    quarters = torch.stack([x[..., :4, :4], x[..., :4, 4:], x[..., 4:, :4], x[..., 4:, 4:]], 1)
    return x, quarters.square().mean((2, 3, 4)).argmax(1)


X, Y = examples()
BATCHES = list(zip(X.split(32), Y.split(32), strict=True))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.05, momentum=0.9)


@pytest.fixture(scope="module")
def good() -> Net:
    """A parent that knows the task."""
    model = made(8, 0)
    optimizer = sgd(model.parameters())
    for _ in range(4):
        for x, y in BATCHES:
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(x), y))
            optimizer.step()
    return model.eval()


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(model: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def probed(parent: nn.Module, child: nn.Module, batches: Any = BATCHES, **options: Any) -> Report:
    given: dict[str, Any] = {"loss": cross_entropy, "optimizer": sgd} | options
    return transfer(parent, child, probe=batches, **given)


# -- who wins ---------------------------------------------------------------------------------------


def test_a_good_parent_wins_and_the_model_gets_its_starting_weights(good: Net) -> None:
    plain, child = made(12, 1), made(12, 1)
    assert transfer(good, plain, X[:2]).exact
    report = probed(good, child)
    assert report.race is not None
    assert report.race.winner == "warm"
    assert report.exact
    assert same(child, state(plain))
    assert report.race.steps <= 100
    assert {each.start for each in report.race.runners} == {"warm", "shrunk", "cold"}
    assert "shrunk" in str(report)
    assert "taken" in str(report)


def test_where_a_transfer_is_not_exact_a_calibrated_start_races_too(good: Net) -> None:
    child, before = made(4, 1), state(made(4, 1))
    report = probed(good, child, seconds=LONG)
    assert report.race is not None
    assert report.race.winner != "cold"
    assert "calibrated" in {each.start for each in report.race.runners}
    assert not same(child, before)
    report = probed(good, made(4, 1), calibrate=X[:256], seconds=LONG)
    assert report.calibration is not None
    assert report.calibration.examples == 256


def test_a_parent_that_hurts_is_not_taken() -> None:
    """Its features say nothing: all that it does is to be confident and wrong."""
    parent = made(8, 2).eval()
    with torch.no_grad():
        parent.get_parameter("0.weight").zero_()
        parent.get_parameter("5.weight").mul_(30)
    child, before = made(12, 1), state(made(12, 1))
    report = probed(parent, child)
    assert report.race is not None
    assert report.race.winner == "cold"
    assert not report.exact
    assert same(child, before)


def test_a_start_with_a_loss_that_is_no_number_loses() -> None:
    model = made(4, 0)
    broken = {name: torch.full_like(tensor, torch.inf) for name, tensor in model.named_parameters()}
    starts: dict[str, Any] = {"warm": broken, "cold": {}}
    found = race(FRONTEND.trials, model, starts, labelled(BATCHES, 20), Terms(cross_entropy, sgd))
    assert found.winner == "cold"
    assert found.runners[-1].verdict == "its loss is no number"
    assert msgspec.convert(found.to_dict(), Race) == found
    assert found.to_dict()["runners"][-1]["loss"] is None


def test_time_ends_a_race(good: Net) -> None:
    report = probed(good, made(12, 1), probe_seconds=1e-9)
    assert report.race is not None
    assert report.race.steps <= 3 * 4
    for wrong in ({"probe_seconds": 0.0}, {"probe_steps": 3}, {"probe_steps": True}):
        with pytest.raises(InvalidSetting, match="probe_"):
            probed(good, made(12, 1), **wrong)


# -- no trace ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("given_one", [True, False])
def test_a_race_leaves_no_trace(good: Net, training: bool, given_one: bool) -> None:
    child = made(12, 1).train(training)
    child[1].eval()  # a mode that is mixed stays mixed
    optimizer = sgd(child.parameters())
    torch.autograd.backward(cross_entropy(child(X[:8]), Y[:8]))
    optimizer.step()
    held = copy.deepcopy(optimizer.state_dict())
    modes = [module.training for module in child.modules()]
    parameters = [id(each) for each in child.parameters()]
    gradients = [None if each.grad is None else each.grad.clone() for each in child.parameters()]
    chance = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    loader = DataLoader(TensorDataset(X, Y), batch_size=32, shuffle=True)
    probed(good, child, loader, optimizer=optimizer if given_one else sgd)
    assert torch.equal(chance[0], torch.get_rng_state())
    assert (chance[1] == np.random.get_state()[1]).all()  # type: ignore[index]
    assert chance[2] == random.getstate()
    assert modes == [module.training for module in child.modules()]
    assert parameters == [id(each) for each in child.parameters()]
    for before, parameter in zip(gradients, child.parameters(), strict=True):
        assert (before is None) == (parameter.grad is None)
        assert before is None or parameter.grad is None or torch.equal(before, parameter.grad)
    after = optimizer.state_dict()
    assert held["param_groups"] == after["param_groups"]
    for number, buffers in held["state"].items():
        assert torch.equal(buffers["momentum_buffer"], after["state"][number]["momentum_buffer"])


def fails(outputs: Tensor, labels: Tensor) -> Tensor:
    raise RuntimeError("no such loss")


def unsteady() -> Callable[[Tensor, Tensor], Tensor]:
    """A loss that raises in the middle of the race."""
    calls: list[int] = []

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        calls.append(1)
        return fails(outputs, labels) if len(calls) > 30 else cross_entropy(outputs, labels)

    return loss


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a loss that raises": (BATCHES, {"loss": fails}, "no such loss"),
    "a loss that raises later": (BATCHES, {"loss": unsteady()}, "no such loss"),
    "NaN for all": (BATCHES, {"loss": lambda out, y: out.sum() * torch.nan}, "no start"),
    "a loss of each example": (BATCHES, {"loss": lambda out, y: out}, "a training step failed"),
    "no loss": (BATCHES, {"loss": None}, "loss="),
    "no optimizer": (BATCHES, {"optimizer": lambda p: 1 / 0}, "optimizer="),
    "no batches": ([], {}, "0 batches"),
    "few batches": (BATCHES[:3], {}, "3 batches"),
    "one small batch": ([(X[:5], Y[:5])], {}, "one batch, of 5"),
    "no labels": (list(X.split(32)), {}, "no labels"),
    "no tensors": ([("cat", "dog")] * 9, {}, "no tensors"),
    "a number": (7, {}, "int"),
    "labels that do not fit": (list(zip(X.split(32), Y.split(16)[:50], strict=True)), {}, "failed"),
}


@pytest.mark.parametrize(("batches", "options", "message"), BAD.values(), ids=BAD)
def test_what_does_not_serve_is_refused_and_changes_nothing(
    good: Net, batches: Any, options: dict[str, Any], message: str
) -> None:
    child, before = made(12, 1), state(made(12, 1))
    with pytest.raises(CannotProbe, match=message):
        probed(good, child, batches, **options)
    assert same(child, before)


def test_batches_come_in_many_forms(good: Net) -> None:
    forms: dict[str, Any] = {
        "one large batch": (X[:256], Y[:256]),
        "an iterator without end": itertools.cycle(BATCHES),
        "names": [{"input": x, "labels": y} for x, y in BATCHES],
    }
    for batches in forms.values():
        found = probed(good, made(12, 1), batches).race
        assert found is not None
        assert found.winner == "warm"


def test_a_language_model_brings_its_own_loss() -> None:
    torch.manual_seed(0)
    parent, child = transformer("gpt2").eval(), transformer("gpt2")
    tokens = torch.randint(0, 90, (64, 12))
    batches = [{"input_ids": part, "labels": part} for part in tokens.split(8)]
    found = transfer(parent, child, probe=batches, probe_steps=12).race
    assert found is not None
    assert found.steps <= 18


# -- the client -------------------------------------------------------------------------------------


@pytest.fixture
def client(good: Net, tmp_path: Path) -> Iterator[ModelKeeperClient]:
    with ModelKeeperClient(tmp_path) as found:
        found.register_model(good, META | {"accuracy": 0.9, "name": "good"}, example_inputs=X[:2])
        yield found


def asked(client: ModelKeeperClient, model: nn.Module, **options: Any) -> Any:
    given: dict[str, Any] = {"probe": BATCHES, "loss": cross_entropy, "optimizer": sgd} | options
    return client.query_for_model(model, META, example_inputs=X[:2], **given)[1]


def test_the_answer_shows_the_race(client: ModelKeeperClient) -> None:
    child = made(4, 1)
    answer = asked(client, child)
    assert answer.parent_name == "good"
    assert answer.probe.winner in ("warm", "calibrated")
    assert (answer.calibration is not None) == (answer.probe.winner == "calibrated")
    assert "first loss" in str(answer)
    assert answer.to_dict()["probe"] == answer["probe"] == answer.probe.to_dict()
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer).probe == answer.probe
    assert client.register_model(child, META | {"accuracy": 0.9}, example_inputs=X[:2]).parent  # type: ignore[union-attr]
    plain = asked(client, made(4, 1), calibrate=False)
    assert "calibrated" not in {each["start"] for each in plain["probe"]["runners"]}


def test_a_cold_start_that_wins_is_an_answer_and_leaves_no_lineage(tmp_path: Path) -> None:
    parent = made(8, 2).eval()
    with torch.no_grad():
        parent.get_parameter("0.weight").zero_()
        parent.get_parameter("5.weight").mul_(30)
    child, before = made(12, 1), state(made(12, 1))
    with ModelKeeperClient(tmp_path) as client:
        client.register_model(parent, META | {"accuracy": 0.9, "name": "bad"}, example_inputs=X[:2])
        answer = asked(client, child)
        assert answer.cold
        assert "bad" in answer.reason
        assert answer.runners_up[0].why == "lost the race against a cold start"
        assert same(child, before)
        record = client.register_model(child, META | {"accuracy": 0.9}, example_inputs=X[:2])
        assert record is not None
        assert not record.parent


def test_a_second_parent_races_and_may_win(good: Net, tmp_path: Path) -> None:
    """The worse of two has the better record."""
    worse = copy.deepcopy(good)
    with torch.no_grad():
        for tensor in (worse.get_parameter("5.weight"), worse.get_parameter("5.bias")):
            tensor.copy_(tensor.flip(0))
    with ModelKeeperClient(tmp_path) as client:
        client.register_model(worse, META | {"accuracy": 0.95, "name": "worse"}, example_inputs=X[:2])
        client.register_model(good, META | {"accuracy": 0.9, "name": "good"}, example_inputs=X[:2])
        answer = asked(client, made(12, 1))
        assert answer.probe.winner == "second parent"
        assert answer.parent_name == "good"
        assert answer.exact


def test_a_probe_that_fails_leaves_a_plain_warm_start(client: ModelKeeperClient) -> None:
    plain, child = made(12, 1), made(12, 1)
    client.query_for_model(plain, META, example_inputs=X[:2])
    with pytest.warns(KeeperWarning, match="starts warm, but unprobed.*no such loss"):
        answer = asked(client, child, loss=fails)
    assert answer.probe is None
    assert "no such loss" in answer.warnings[0]
    assert same(child, state(plain))


def test_a_coordinator_that_is_down_means_a_cold_start() -> None:
    child, before = made(12, 1), state(made(12, 1))
    with ModelKeeperClient("http://127.0.0.1:9", timeout=1) as client:
        with pytest.warns(KeeperWarning, match="starts cold"):
            answer = asked(client, child)
        assert answer.cold
        assert answer.probe is None
        assert same(child, before)


@settings(max_examples=5)
@given(st.integers(0, 3))
def test_the_same_race_has_the_same_outcome(seed: int) -> None:
    model, parent = made(4, seed), dict(made(4, seed + 9).named_parameters())
    terms = Terms(cross_entropy, sgd, steps=16)
    first, second = (
        race(FRONTEND.trials, model, {"warm": parent, "cold": {}}, labelled(BATCHES, 8), terms)
        for _ in range(2)
    )
    assert [each.loss for each in first.runners] == [each.loss for each in second.runners]
