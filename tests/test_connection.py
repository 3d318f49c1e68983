"""Processes that come from one with an open zoo have their own way to it, and leave the other's as it was."""

import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from modelkeeper import ModelKeeperClient
from modelkeeper.client import KeeperWarning

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
SECONDS = 60  # a child that hangs is ended


def net(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ModelKeeperClient]:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as opened:
        opened.register_model(net(), {"accuracy": 0.5, "name": "before"})
        opened.query_for_model(net())
        yield opened


def in_a_fork(act: Callable[[], None]) -> int:
    """What a forked process ends with: 0 if nothing was raised."""
    return os.waitpid(forked(act), 0)[1]


def forked(act: Callable[[], None]) -> int:
    """A process that does something and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads
        child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return child


def test_what_threads_held_when_a_process_was_forked_is_not_waited_for(client: ModelKeeperClient) -> None:
    def act() -> None:
        _, answer = client.query_for_model(net(12))
        assert answer.parent_name == "before"
        client.register_model(net(12), {"accuracy": 0.6, "name": "in the child"})
        client.stop()

    zoo = client.coordinator.zoo  # type: ignore[attr-defined]
    with client._opening, zoo.follower._lock, zoo._opening:
        assert in_a_fork(act) == 0
    assert client.coordinator.zoo is zoo  # type: ignore[attr-defined]
    assert {record.name for record in client.coordinator.models()} == {"before", "in the child"}
    _, answer = client.query_for_model(net(12))
    assert answer.parent_name == "in the child"


def test_a_child_writes_after_its_parent_let_go(client: ModelKeeperClient) -> None:
    """SQLite deletes its log when the last connection goes: the child's has to be one of its own."""
    reading, writing = os.pipe()

    def act() -> None:
        client.register_model(net(), {"accuracy": 0.6, "name": "first"})
        os.read(reading, 1)
        client.register_model(net(), {"accuracy": 0.6, "name": "second"})

    child = forked(act)
    client.stop()
    os.write(writing, b".")
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)
    os.close(writing)
    assert {record.name for record in client.coordinator.models()} == {"before", "first", "second"}


def test_a_zoo_in_memory_stays_with_its_process() -> None:
    """What serves its files are threads, which a forked process does not have."""
    with ModelKeeperClient(":memory:") as client:
        client.register_model(net(), {"accuracy": 0.5})

        def act() -> None:
            with pytest.warns(KeeperWarning, match="give it a folder"):
                _, answer = client.query_for_model(net())
            assert answer.cold
            client.stop()

        assert in_a_fork(act) == 0
        assert client.coordinator.count() == 1


class Asking(Dataset[Tensor]):
    """Data that asks a zoo for each item."""

    def __init__(self, client: ModelKeeperClient) -> None:
        self._client = client

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> Tensor:
        model, answer = self._client.query_for_model(net(8 + number))
        self._client.register_model(model, {"accuracy": 0.1 * number, "name": f"item {number}"})
        return torch.tensor([os.getpid(), not answer.cold])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forking with threads
def test_a_worker_of_a_data_loader_asks_by_its_own_way(client: ModelKeeperClient) -> None:
    loader = DataLoader(Asking(client), batch_size=None, num_workers=1, multiprocessing_context="fork")
    asked = [item.tolist() for item in loader]
    assert [warm for _, warm in asked] == [1, 1]
    assert os.getpid() not in {process for process, _ in asked}
    assert {record.name for record in client.coordinator.models()} == {"before", "item 0", "item 1"}
