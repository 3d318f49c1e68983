"""Do processes that train together get one answer and equal weights, and does none wait for ever?"""

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from modelkeeper import ModelKeeperClient
from modelkeeper.client import KeeperWarning
from modelkeeper.errors import InvalidMeta, InvalidWeights
from modelkeeper.warmstart.answer import Answer
from tests.helpers.processes import SECONDS, run

ROOT = Path(__file__).parents[3]
META = {"data": "digits", "task": "classification"}
SCORED = META | {"accuracy": 0.9}
Weights = dict[str, Any]


def network(width: int = 16, classes: int = 4) -> nn.Sequential:
    """A small network with statistics and a counter."""
    return nn.Sequential(
        nn.Linear(6, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )


def client(home: str, **settings: Any) -> ModelKeeperClient:
    return ModelKeeperClient(home, user="ann", **settings)


def numbers(model: nn.Module) -> Weights:
    """All numbers of a model, as this process has them."""
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def train(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, steps: int = 3) -> None:
    """Train on numbers that differ from rank to rank."""
    model.train()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        outputs: Tensor = model(torch.randn(8, 6))
        outputs.square().sum().backward()
        optimizer.step()


def same(ranks: list[Weights]) -> None:
    """Have all ranks equal numbers?"""
    for other in ranks[1:]:
        assert other.keys() == ranks[0].keys()
        for name, array in ranks[0].items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


def quietly(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a call returns, and of what it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        returned = call()
    return returned, [str(warning.message) for warning in caught if warning.category is KeeperWarning]


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A zoo with one model."""
    torch.manual_seed(7)
    with client(str(tmp_path / "zoo")) as keeper:
        assert keeper.register_model(network(12), SCORED) is not None
    return str(tmp_path / "zoo")


def lent(home: str) -> int:
    """How often the models of a zoo have lent their weights."""
    with client(home) as keeper:
        return sum(record.hits for record in keeper.coordinator.models())


# -- queries ----------------------------------------------------------------------------------------------


def parameters(model: nn.Module) -> Weights:
    """What is trained: statistics of batch norms differ between ranks, as they saw different examples."""
    return {name: tensor.detach().numpy().copy() for name, tensor in model.named_parameters()}


def query_then_wrap(home: str) -> tuple[Weights, Weights, Answer]:
    model = network(16, classes=7)  # a head that nobody lends is kept from the model's own values
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given, answer = client(home).query_for_model(model, META)
    assert given is model
    started = numbers(model)
    train(nn.parallel.DistributedDataParallel(model, init_sync=False), optimizer)
    return started, parameters(model), answer


def test_all_ranks_start_equal_with_one_query(home: str, tmp_path: Path) -> None:
    ranks = run(query_then_wrap, tmp_path, home)
    same([started for started, _, _ in ranks])
    same([trained for _, trained, _ in ranks])
    assert ranks[0][2] == ranks[1][2]
    assert not ranks[0][2].cold
    assert lent(home) == 1


def wrap_then_query(home: str, only: int | None) -> tuple[Weights, Answer | None, list[str], float]:
    wrapped = nn.parallel.DistributedDataParallel(network(16))
    answer, warned, began = None, list[str](), time.monotonic()
    if only is None or dist.get_rank() == only:
        keeper = client(home, patience=30 if only is None else 0.5)
        (_, answer), warned = quietly(lambda: keeper.query_for_model(wrapped, META))
    took = time.monotonic() - began
    train(wrapped)
    return parameters(wrapped), answer, warned, took


def test_all_ranks_stay_equal_after_a_query_for_a_wrapped_model(home: str, tmp_path: Path) -> None:
    (first, answer, warned, _), (second, same_answer, _, _) = run(wrap_then_query, tmp_path, home, None)
    same([first, second])
    assert answer == same_answer
    assert answer is not None
    assert not answer.cold
    assert warned == []


@pytest.mark.parametrize("only", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_query_by_one_rank_alone_changes_nothing_and_says_so(home: str, tmp_path: Path, only: int) -> None:
    ranks = run(wrap_then_query, tmp_path, home, only)
    same([ranks[0][0], ranks[1][0]])
    _, answer, warned, took = ranks[only]
    assert answer is not None
    assert answer.cold
    assert len(warned) == 1
    assert "on every rank" in warned[0]
    assert 0.5 <= took < 20
    assert lent(home) == 0


def come_and_go(home: str) -> list[bool]:
    """Rank 0 asks alone, then both; rank 1 comes too late once, then both again."""
    keeper, rank = client(home, patience=1), dist.get_rank()

    def cold() -> bool:
        (_, answer), _ = quietly(lambda: keeper.query_for_model(network(16), META))
        return bool(answer.cold)

    answers = [cold()] if rank == 0 else []
    dist.barrier()
    answers.append(cold())
    if rank == 1:
        time.sleep(2)
    answers.append(cold())
    dist.barrier()
    return [*answers, cold()]


def test_ranks_find_together_again(home: str, tmp_path: Path) -> None:
    first, second = run(come_and_go, tmp_path, home)
    assert first == [True, False, True, False]
    assert second == [False, True, False]


class Moody(nn.Module):
    """A model that rank 0 cannot describe."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        if dist.get_rank() == 0:
            raise RuntimeError("not today")
        return self.layer(x)


def faults(home: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    model = network(16)
    for name, uri, asked in (("describe", home, Moody()), ("coordinator", "http://127.0.0.1:9", model)):
        before = numbers(asked)
        (_, answer), warned = quietly(lambda: client(uri).query_for_model(asked, META))  # noqa: B023
        same([before, numbers(asked)])
        seen[name] = answer, len(warned)
        with pytest.raises(Exception, match=r"not today|127\.0\.0\.1"):
            client(uri, on_error="raise").query_for_model(asked, META)
    try:  # one rank with a typo does not hold up the other
        meta = META if dist.get_rank() == 0 else {"tsak": "classification"}
        (_, answer), _ = quietly(lambda: client(home, patience=0.5).query_for_model(model, meta))
        seen["typo"] = answer.cold
    except InvalidMeta:
        seen["typo"] = "raised"
    return seen


def test_faults_leave_all_ranks_cold_and_none_waiting(home: str, tmp_path: Path) -> None:
    first, second = run(faults, tmp_path, home)
    for name in ("describe", "coordinator"):
        assert first[name][0] == second[name][0]
        assert first[name][0].cold
        assert (first[name][1], second[name][1]) == (1, 0)  # one warning, by the one who acted
    assert (first["typo"], second["typo"]) == (True, "raised")


def own_models(home: str) -> tuple[Answer, Any]:
    keeper, rank = client(home), dist.get_rank()
    model = network(16 + rank)
    _, answer = keeper.query_for_model(model, META)
    record = keeper.register_model(model, SCORED | {"name": f"model {rank}"})
    return answer, record


def test_processes_with_models_of_their_own_ask_and_register_for_themselves(
    home: str, tmp_path: Path
) -> None:
    (_, first), (_, second) = run(own_models, tmp_path, home)
    assert (first.name, second.name) == ("model 0", "model 1")


def half_of_the_world(home: str) -> Weights | None:
    groups = [dist.new_group([0]), dist.new_group([1, 2])]
    rank = dist.get_rank()
    wrapped = nn.parallel.DistributedDataParallel(network(16), process_group=groups[rank > 0])
    _, answer = client(home).query_for_model(wrapped, META)
    assert not answer.cold
    return parameters(wrapped) if rank else None


def test_each_group_of_processes_asks_once(home: str, tmp_path: Path) -> None:
    alone, *both = run(half_of_the_world, tmp_path, home, size=3)
    assert alone is None
    same(both)
    assert lent(home) == 2


def calibrated(home: str) -> tuple[Weights, Answer]:
    model = network(8)
    _, answer = client(home).query_for_model(model, META, calibrate=torch.randn(256, 6))
    return numbers(model), answer


def test_one_rank_calibrates_for_all(home: str, tmp_path: Path) -> None:
    (first, answer), (second, _) = run(calibrated, tmp_path, home)
    same([first, second])
    assert answer.calibration is not None


# -- registrations ----------------------------------------------------------------------------------------


def register(home: str, only: int | None) -> tuple[Any, list[str], float]:
    wrapped = nn.parallel.DistributedDataParallel(network(16))
    began = time.monotonic()
    keeper = client(home, patience=0.5)
    if only is not None and dist.get_rank() != only:
        return None, [], 0.0
    record, warned = quietly(lambda: keeper.register_model(wrapped, SCORED | {"name": "mine"}))
    return record, warned, time.monotonic() - began


def kept(home: str) -> list[str]:
    with client(home) as keeper:
        return [record.name for record in keeper.coordinator.models()]


def test_a_model_is_registered_once_and_all_ranks_know_it(home: str, tmp_path: Path) -> None:
    (first, warned, _), (second, _, _) = run(register, tmp_path, home, None)
    assert first == second
    assert first.name == "mine"
    assert warned == []
    assert kept(home).count("mine") == 1


def test_rank_0_may_register_alone_and_no_other(home: str, tmp_path: Path) -> None:
    (record, warned, _), _ = run(register, tmp_path, home, 0)
    assert record is not None
    assert warned == []
    _, (record, warned, _) = run(register, tmp_path, home, 1)
    assert record is None
    assert "on every rank" in warned[0]
    assert kept(home).count("mine") == 1


def spoiled(home: str) -> tuple[Any, list[str], str]:
    model = network(16)
    nn.init.constant_(model.get_parameter("0.weight"), float("nan"))
    record, warned = quietly(lambda: client(home).register_model(model, SCORED))
    with pytest.raises(InvalidWeights) as error:
        client(home, on_error="raise").register_model(model, SCORED)
    return record, warned, str(error.value)


def test_weights_that_hold_nan_are_an_outcome_on_all_ranks(home: str, tmp_path: Path) -> None:
    (first, warned, error), (second, unwarned, same_error) = run(spoiled, tmp_path, home)
    assert first is second is None
    assert "NaN" in warned[0]
    assert unwarned == []
    assert error == same_error


# -- trainings --------------------------------------------------------------------------------------------


def report(home: str, everyone: bool) -> tuple[Any, Any, float]:
    """A training that is reported by all ranks, or by rank 0 alone."""
    model = network(16)
    training = client(home).start(model, META | {"name": "mine"}, every=0)
    wrapped = nn.parallel.DistributedDataParallel(model)
    speaks = everyone or dist.get_rank() == 0
    for step in range(3):
        train(wrapped, steps=1)
        if speaks:
            training.report(accuracy=0.5 + step / 10, step=step, model=wrapped)
    training.flush()
    with client(home) as keeper:
        unfinished = [record.finished for record in keeper.coordinator.models() if record.name == "mine"]
    dist.barrier()
    began = time.monotonic()
    record = training.finish() if speaks else None
    return record, unfinished, time.monotonic() - began


@pytest.mark.parametrize("everyone", [True, False])
def test_a_training_is_reported_once(home: str, tmp_path: Path, everyone: bool) -> None:
    (record, unfinished, took), (other, _, _) = run(report, tmp_path, home, everyone)
    assert unfinished == [False]
    assert record.finished
    assert record.value == 0.7
    assert other == (record if everyone else None)
    assert kept(home).count("mine") == 1
    assert took < 20


# -- the example ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_example_runs(tmp_path: Path, size: int) -> None:
    launch = (
        [] if size == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    )
    script = str(ROOT / "examples" / "distributed_ddp.py")
    command = [sys.executable, *launch, script, "--zoo", str(tmp_path / "zoo")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("digits-32 registered") == size
    assert ran.stdout.count("started from digits-32") == size
    assert sorted(kept(str(tmp_path / "zoo"))) == ["digits-32", "digits-48"]
