"""Are models that are divided among processes described, loaded and read as whole ones are?"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from modelkeeper import ModelKeeperClient
from modelkeeper.client import KeeperWarning
from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.torch import describe
from modelkeeper.frontends.torch.read_load import load
from tests.helpers.processes import run

META = {"data": "digits", "task": "classification"}
SCORED = META | {"accuracy": 0.9}
Weights = dict[str, Any]


class Network(nn.Module):
    """Widths that two processes cannot share evenly, tied weights, statistics, a type of its own."""

    def __init__(self, width: int = 13) -> None:
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.up = nn.Linear(width, 2 * width, dtype=torch.bfloat16)
        self.down = nn.Linear(2 * width, width, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        x = x + self.down(self.up(x.to(torch.bfloat16)).relu()).float()
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


def client(home: str, **settings: Any) -> ModelKeeperClient:
    return ModelKeeperClient(home, user="ann", **settings)


def shard(model: nn.Module, mesh: Any = None) -> nn.Module:
    fully_shard([model.get_submodule("up"), model.get_submodule("down")], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model: nn.Module) -> Weights:
    """All numbers of a divided model, put together; all processes call."""
    tensors = {
        name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in model.state_dict().items()
    }
    return {name: tensor.detach().float().numpy().copy() for name, tensor in tensors.items()}


def equal(first: Weights, second: Weights) -> None:
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    tokens = torch.randint(0, 11, (4, 5))
    model(tokens).square().sum().backward()
    optimizer.step()


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A zoo with one model."""
    torch.manual_seed(7)
    with client(str(tmp_path / "zoo")) as keeper:
        assert keeper.register_model(Network(9), SCORED) is not None
    return str(tmp_path / "zoo")


@pytest.fixture
def expected(home: str) -> Weights:
    """What a model in one process gets from the zoo."""
    model = Network()
    with client(home) as keeper:
        _, answer = keeper.query_for_model(model, META)
    assert not answer.cold
    assert answer.transferred == 100
    return whole(model)


def query_sharded(home: str) -> tuple[Weights, Any, Weights, Any]:
    plain = describe(Network())
    model = shard(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.eval()(torch.randint(0, 11, (4, 5)))  # leaves whole parameters behind
    assert describe(model) == plain
    keeper = client(home)
    _, answer = keeper.query_for_model(model, META)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    started = whole(model)
    step(model, optimizer)
    record = keeper.register_model(model, SCORED | {"name": "trained"})
    return started, answer, whole(model), record


def test_a_sharded_model_starts_trains_and_is_registered(
    home: str, expected: Weights, tmp_path: Path
) -> None:
    ranks = run(query_sharded, tmp_path, home)
    (started, answer, trained, record), (_, same_answer, _, same_record) = ranks
    equal(started, expected)
    assert answer == same_answer
    assert record == same_record
    assert record.parent == answer.parent
    assert np.abs(started["up.weight"] - trained["up.weight"]).max() > 0
    copy = Network()
    with client(home) as keeper:
        _, found = keeper.query_for_model(copy, META | {"parents": ["trained"]})
        assert found.parent == record.id
        assert sum(each.hits for each in keeper.coordinator.models() if each.id != record.id) == 2
    equal(whole(copy), trained)


def query_from_meta(home: str) -> Weights:
    with torch.device("meta"):
        model = Network()
    with pytest.raises(InvalidWeights, match="to_empty"):
        client(home, on_error="raise").query_for_model(model, META)
    shard(model)
    with pytest.raises(InvalidWeights, match="to_empty"):
        client(home, on_error="raise").query_for_model(model, META)
    model.to_empty(device="cpu")
    _, answer = client(home).query_for_model(model, META)
    assert answer.transferred == 100
    return whole(model)


def test_a_model_that_was_sharded_without_numbers_gets_them(
    home: str, expected: Weights, tmp_path: Path
) -> None:
    for started in run(query_from_meta, tmp_path, home):
        equal(started, expected)


def query_on_a_mesh(home: str) -> tuple[Weights, bool]:
    replicated = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = shard(Network(), replicated)
    _, answer = client(home).query_for_model(model, META)
    parallel = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    both = parallelize_module(
        Network(), parallel["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    shard(both, parallel["data"])
    client(home).query_for_model(both, META)
    mine = whole(model)
    equal(mine, whole(both))
    assert client(home).register_model(both, SCORED | {"name": "both"}) is not None
    return mine, answer.cold


def test_replicas_of_shards_and_tensor_parallel_models_start_equal(
    home: str, expected: Weights, tmp_path: Path
) -> None:
    for started, cold in run(query_on_a_mesh, tmp_path, home, size=4):
        assert not cold
        equal(started, expected)


def troubles(home: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    model = shard(Network())
    if dist.get_rank() == 0:
        with pytest.warns(KeeperWarning, match="on every rank"):
            client(home, patience=0.5).query_for_model(model, META)
        with pytest.warns(KeeperWarning, match="on every rank"):
            client(home, patience=0.5).register_model(model, SCORED)
    dist.barrier()
    narrow, tokens = shard(Network(5)), torch.randint(0, 11, (64, 5))
    batches = [(tokens, tokens)] * 8
    asked: dict[str, dict[str, Any]] = {"calibrate": {"calibrate": tokens}, "probe": {"probe": batches}}
    for name, extra in asked.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, answer = client(home).query_for_model(narrow, META, **extra)
        seen[name] = answer.cold, [str(w.message) for w in caught if w.category is KeeperWarning]
    with torch.no_grad():
        weight = model.get_parameter("down.weight")
        assert isinstance(weight, DTensor)
        weight.to_local().fill_(float("nan"))
    with pytest.raises(InvalidWeights, match="NaN"):
        client(home, on_error="raise").register_model(model, SCORED)
    seen["after"] = client(home).query_for_model(model, META)[1].cold  # nobody waits for anything
    with pytest.raises(InvalidWeights, match="no such tensor"):
        load(model, {"upp.weight": np.zeros(3)})
    return seen


def test_troubles_with_a_sharded_model_leave_nobody_waiting(home: str, tmp_path: Path) -> None:
    first, second = run(troubles, tmp_path, home)
    for name, said in (("calibrate", "only a part of it is in this process"), ("probe", "Leave probe= out")):
        cold, (warned,) = first[name]
        assert not cold
        assert said in warned
        assert second[name] == (False, [])  # one warning, by the one who acted
    assert (first["after"], second["after"]) == (False, False)


def report(home: str, everyone: bool) -> tuple[Any, Weights, list[str]]:
    model, rank = shard(Network()), dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = client(home, patience=60 if everyone else 0.5).start(model, META | {"name": "mine"}, every=0)
    best: Weights = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for accuracy in (0.6, 0.8, 0.7):
            step(model, optimizer)
            if everyone or rank == 0:
                training.report(accuracy=accuracy, model=model)
            best = whole(model) if accuracy == 0.8 else best
        record = training.finish() if everyone or rank == 0 else None
    return record, best, [str(w.message) for w in caught if w.category is KeeperWarning]


def test_all_processes_report_a_sharded_model_together(home: str, tmp_path: Path) -> None:
    (record, best, warned), (same_record, _, _) = run(report, tmp_path, home, True)
    assert record == same_record
    assert record.value == 0.8
    assert warned == []
    copy = Network()
    with client(home) as keeper:
        keeper.query_for_model(copy, META | {"parents": ["mine"]})
    equal(whole(copy), best)


def test_one_process_alone_cannot_report_a_sharded_model_and_goes_on(home: str, tmp_path: Path) -> None:
    (record, _, warned), _ = run(report, tmp_path, home, False)
    assert record is None
    assert len(warned) == 2  # once for all reports, and for the end
    assert all("on every rank" in text for text in warned)


def alone(home: str) -> Weights:
    model = shard(Network())
    _, answer = client(home).query_for_model(model, META)
    assert not answer.cold
    assert client(home).register_model(model, SCORED) is not None
    return whole(model)


def test_a_group_of_one_may_shard_as_well(home: str, expected: Weights, tmp_path: Path) -> None:
    (started,) = run(alone, tmp_path, home, size=1)
    equal(started, expected)
