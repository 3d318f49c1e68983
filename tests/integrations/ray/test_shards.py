"""Shards as real actors answer as one index does, also while some of them die, hang or are not there."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

import ray

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidSetting, ShardsUnreachable
from modelkeeper.integrations.ray import shards as ray_shards
from modelkeeper.integrations.ray.shards import RayShards, connect, open_shards
from modelkeeper.integrations.ray.sharing import expect_shared
from modelkeeper.matching import Index, prepare
from modelkeeper.matching.search import Wanted
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.index.shards import Spread, SpreadIndex
from tests.helpers import generated as net
from tests.helpers import zoos
from tests.helpers.parts import LOOPBACK, free_ports, wait_until

MODELS = 24
OUTSIDE = """
import contextlib, json, sys
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from tests.helpers import generated as net
settings = Settings(home=sys.argv[1], shards=sys.argv[2])
with contextlib.closing(LocalCoordinator(settings)) as coordinator:
    answer = coordinator.query(net.vgg([8, 12, 16]), Query(), dry_run=True).answer
    print(json.dumps([answer.parent, answer.similarity, answer.warnings]))
"""
PATIENCE = 60.0  # seconds for what Ray does in the background


@dataclass
class Zoo:
    """A zoo that two coordinators have open: one with an index of its own, one with shards."""

    plain: LocalCoordinator
    spread: LocalCoordinator
    index: Index

    @property
    def shards(self) -> RayShards:
        spread = self.spread.zoo.index()
        assert isinstance(spread, SpreadIndex)
        assert isinstance(spread._shards, RayShards)
        return spread._shards

    def actor(self, number: int, copy: int) -> Any:
        return self.shards.actor(number, copy)


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it has not come to that"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def zoo(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zoo]:
    """Two shards, two copies of each."""
    home = str(tmp_path_factory.mktemp("zoo"))
    rng = random.Random(0)
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(contextlib.closing(LocalCoordinator(Settings(home=home))))
        for number in range(MODELS):
            widths = [rng.choice((4, 8, 12, 16)) for _ in range(rng.randint(1, 4))]
            zoos.register(plain, net.vgg(widths, rng.random() < 0.5), f"net{number}")
        settings = Settings(home=home, shards="auto?shards=2&replicas=2")
        spread = stack.enter_context(contextlib.closing(LocalCoordinator(settings)))
        index = plain.zoo.index()
        assert isinstance(index, Index)
        made = Zoo(plain, spread, index)
        until(lambda: not made.shards.behind())
        yield made
        for number in range(2):
            for copy in range(2):
                ray.kill(made.actor(number, copy))


def test_actors_find_what_one_index_finds(zoo: Zoo) -> None:
    rng = random.Random(1)
    spread = zoo.spread.zoo.index()
    for widths in ((8,), (4, 16), (12, 12, 12), (8, 16, 24, 32)):
        child, keys = prepare(net.vgg(widths)), zoo.index.keys.tolist()
        for among in (None, rng.sample(keys, 9)):
            wanted: Wanted = {"buckets": rng.randint(1, 3), "floor": rng.choice((0.0, 0.5)), "among": among}
            one, several = zoo.index.search(child, **wanted), spread.search(child, **wanted)
            assert several.matches == one.matches
            assert several.considered == one.considered
            assert several.proven
        limited = spread.search(child, budget=3)
        assert limited.aligned <= 3
        assert not limited.proven or limited.matches == zoo.index.search(child).matches


def test_what_was_registered_elsewhere_is_found_at_once(zoo: Zoo) -> None:
    graph = net.vgg([20, 20, 20])
    record = zoos.register(zoo.plain, graph, "new")
    answer = zoo.spread.query(graph, Query(), dry_run=True).answer
    assert (answer.parent, answer.similarity, answer.warnings) == (record.id, 1.0, ())


def test_a_copy_answers_for_one_that_dies_and_it_comes_back(zoo: Zoo) -> None:
    child = prepare(net.vgg([8, 12]))
    spread, exact = zoo.spread.zoo.index(), zoo.index.search(child, buckets=2).matches
    before = ray.get(zoo.actor(0, 0).process.remote(), timeout=PATIENCE)
    os.kill(before, signal.SIGKILL)
    for _ in range(20):
        found = spread.search(child, buckets=2)
        assert (found.matches, found.proven, found.missing) == (exact, True, ())

    def back() -> bool:
        with contextlib.suppress(ray.exceptions.RayError):
            return bool(ray.get(zoo.actor(0, 0).process.remote(), timeout=PATIENCE) != before)
        return False

    until(back)


def test_without_any_copy_an_answer_says_so_in_time(zoo: Zoo) -> None:
    """Both copies of a shard hang; who asks has two seconds. When they go on, all is well again."""
    pids = [ray.get(zoo.actor(1, copy).process.remote(), timeout=PATIENCE) for copy in range(2)]
    graph = net.vgg([8, 12])
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        answer = zoo.spread.query(graph, Query(), dry_run=True, seconds=2.0).answer
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert "(shard 1) did not answer: there may be a better parent" in answer.warnings[0]
    until(lambda: not zoo.spread.query(graph, Query(), dry_run=True).answer.warnings)


@pytest.fixture
def client_server(cluster: Any, tmp_path: Path) -> Iterator[str]:
    """Where the cluster listens for Ray's clients, as `ray start --head` does at port 10001."""
    (port,) = free_ports(1)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "ray.util.client.server", "--mode", "legacy"]
    with (tmp_path / "client-server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", LOOPBACK, "--port", str(port), "--address", address], stdout=log, stderr=log
        )
    try:
        wait_until(lambda: listens(port), "the server for clients", process)
        yield f"{LOOPBACK}:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((LOOPBACK, port), 1.0).close()
        return True
    return False


def test_a_coordinator_outside_of_the_cluster_is_its_client(zoo: Zoo, client_server: str) -> None:
    """`--shards ray://host:port`, from a process that is no node: the same actors, the same answer."""
    graph = net.vgg([8, 12, 16])
    expected = zoo.spread.query(graph, Query(), dry_run=True).answer
    home, shards = zoo.plain.zoo.settings.home, f"ray://{client_server}?shards=2&replicas=2"
    told = subprocess.run(
        [sys.executable, "-c", OUTSIDE, home, shards],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout.splitlines()[-1]) == [expected.parent, expected.similarity, []]


def test_a_zoo_that_others_cannot_read_is_refused(tmp_path: Path) -> None:
    here = Settings(home=str(tmp_path))
    expect_shared(here, 1, blobs=True, what="shards")
    with pytest.raises(InvalidSetting, match="see no memory of this one"):
        open_shards(Spread("ray", "auto"), Settings(home=":memory:"))
    with pytest.raises(InvalidSetting, match="MODELKEEPER_CATALOG"):
        expect_shared(here, 2, blobs=False, what="shards")
    shared = Settings(home=str(tmp_path), catalog="postgresql+psycopg://zoo@db/zoo")
    expect_shared(shared, 2, blobs=False, what="shards")
    with pytest.raises(InvalidSetting, match="MODELKEEPER_BLOBS"):
        expect_shared(shared, 2, blobs=True, what="replicas")


def test_where_there_is_no_ray_a_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_shards, "CONNECTING", 1.0)
    with pytest.raises(ShardsUnreachable, match="ray start --head"):
        connect("127.0.0.1:9")
