"""Does the service run on a real Ray Serve: two replicas over PostgreSQL and S3, behind Serve's proxy?"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

pytest.importorskip("ray.serve")

import ray
from ray import serve

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import InvalidSetting
from modelkeeper.integrations.ray import deployment
from modelkeeper.integrations.ray.serving import TARGET, from_here_alone
from modelkeeper.meta import Query
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.accounts.holders import WRITE
from tests.helpers.backends import empty_bucket, empty_database
from tests.helpers.service import network, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification")
PATIENCE = 60.0  # seconds for what Serve does in the background
# As `deployment` sets it, but that Serve decides at once.
QUICK = {
    "min_replicas": 2,
    "max_replicas": 3,
    "target_ongoing_requests": TARGET,
    "upscale_delay_s": 0.1,
    "metrics_interval_s": 0.1,
    "look_back_period_s": 0.5,
}


@dataclass
class Served:
    """A service on Ray Serve."""

    url: str
    token: str
    zoo: LocalCoordinator

    def client(self, spool: Path) -> RemoteCoordinator:
        return RemoteCoordinator(self.url, token=self.token, spool=spool, timeout=30)


def replicas() -> list[str]:
    """The names of the actors that are replicas."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in actors if actor["name"].startswith("SERVE_REPLICA::keeper#")]


def until_two() -> None:
    end = time.monotonic() + PATIENCE
    while len(replicas()) < 2 or serve.status().applications["keeper"].status != "RUNNING":
        assert time.monotonic() < end, "there are no two replicas"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def served(
    cluster: Any, postgres: str, object_store: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    home = str(tmp_path_factory.mktemp("home"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with contextlib.ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        catalog = stack.enter_context(empty_database(postgres))
        blobs, environment = empty_bucket(object_store)
        for name, value in environment.items():
            patched.setenv(name, value)
        settings = Settings(home=home, catalog=catalog, blobs=blobs, threads=1)
        zoo = stack.enter_context(contextlib.closing(LocalCoordinator(settings)))
        zoo.accounts.add_user("ada")
        token = zoo.accounts.add_token("ada", WRITE)
        keeper = deployment(settings, ServiceSettings(rate=10_000), min_replicas=2, max_replicas=3).options(
            autoscaling_config=QUICK,
            ray_actor_options={"num_cpus": 0.1, "runtime_env": {"env_vars": environment}},
        )
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        stack.callback(serve.shutdown)
        serve.run(keeper.bind(), name="keeper", route_prefix="/")
        yield Served(f"http://127.0.0.1:{port}", token, zoo)


def test_all_of_the_service_is_there(served: Served, tmp_path: Path) -> None:
    """Any replica takes any request: registrations in steps, queries, streams. Strangers are refused."""
    assert httpx.get(f"{served.url}/v1/models").status_code == 401
    assert httpx.get(f"{served.url}/readyz").status_code == 200
    with contextlib.closing(served.client(tmp_path)) as ada:
        for number in range(8):
            graph = network(4 + number)
            record = ada.register(graph, told(f"net{number}"), tensors(graph, number).items()).record
            loan = ada.query(graph, ASKED)
            assert (loan.answer.parent, loan.answer.similarity) == (record.id, 1.0)
            lent = dict(loan.weights())
            for name, array in tensors(graph, number).items():
                np.testing.assert_array_equal(lent[name], array)
            ada.download(record, tmp_path / "file")
            assert (tmp_path / "file").stat().st_size == record.bytes
        assert len(ada.models()) == 8
    assert served.zoo.count() == 8


@pytest.mark.slow
def test_clients_go_on_when_a_replica_is_killed(served: Served, tmp_path: Path) -> None:
    until_two()
    killed = threading.Event()

    def register(number: int) -> list[str]:
        done = []
        with contextlib.closing(served.client(tmp_path / str(number))) as client:
            for turn in range(6):
                if turn == 3 and number == 0:
                    ray.kill(ray.get_actor(replicas()[0], namespace="serve"))
                    killed.set()
                seed = 10 * number + turn
                done.append(client.register(GRAPH, told(f"k{seed}"), tensors(GRAPH, seed).items()).record.id)
                assert not client.query(GRAPH, ASKED).answer.cold
            assert killed.wait(PATIENCE)
        return done

    with ThreadPoolExecutor(3) as threads:
        acknowledged = [identity for ids in threads.map(register, range(3)) for identity in ids]
    assert len(set(acknowledged)) == 18
    assert set(served.zoo.known(acknowledged)) == set(acknowledged)
    until_two()


@pytest.mark.slow
def test_more_requests_under_way_bring_more_replicas(served: Served) -> None:
    """More than the target in each of two: uploads are announced whose bytes do not come."""
    until_two()
    host, port = served.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/uploads HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9999\r\n"
        f"Content-Type: application/json\r\nAuthorization: Bearer {served.token}\r\n\r\n"
    )
    with contextlib.ExitStack() as stack:
        for _ in range(2 * TARGET + 4):
            line = stack.enter_context(socket.create_connection((host, int(port))))
            line.sendall(head.encode() + b"{")
        end = time.monotonic() + PATIENCE
        while len(replicas()) < 3:
            assert time.monotonic() < end, "there is no third replica"
            time.sleep(0.1)
    assert httpx.get(f"{served.url}/readyz").status_code == 200


def test_a_replica_that_goes_finishes_what_is_under_way(served: Served, tmp_path: Path) -> None:
    """The application is deleted while a model is being sent, slowly: the request ends as it should."""
    end = threading.Thread(target=serve.delete, args=("keeper",))
    with contextlib.closing(served.client(tmp_path)) as ada:
        entry = ada.spool.keep(served.url, GRAPH, told("late"), tensors(GRAPH, 99).items(), "", "")
        client, request = ada._calls.client, entry.waiting.request
        announced = client.post(
            "/uploads",
            content=msgspec.json.encode(request),
            headers={"content-type": "application/json"},
        )
        assert announced.status_code == 200, announced.text
        data = entry.weights.read_bytes()

        def slowly() -> Iterator[bytes]:
            yield data[:1000]
            end.start()
            time.sleep(2.0)
            assert end.is_alive(), "it did not wait for what is under way"
            yield data[1000:]

        length = {"content-length": str(len(data))}
        sent = client.put(f"/uploads/{request.id}", content=slowly(), headers=length, timeout=PATIENCE)
    assert sent.status_code == 200, sent.text
    end.join(PATIENCE)
    assert replicas() == []


def until_ready(url: str) -> None:
    end = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TimeoutException):  # Serve lets calls wait for a replica
            if httpx.get(f"{url}/readyz", timeout=5.0).status_code == 200:
                return
        time.sleep(0.1)
    pytest.fail("it is not ready")


@pytest.mark.slow
def test_a_replica_that_is_unwell_for_long_is_replaced(served: Served, tmp_path: Path) -> None:
    """Its store goes away. Serve starts another one, which waits until the store is back."""
    settings = Settings(home=str(tmp_path / "home"), blobs=str(tmp_path / "store"), threads=1)
    keeper = deployment(settings, ServiceSettings(auth=False), max_replicas=1, unwell=0.2)
    serve.run(keeper.options(health_check_period_s=0.2).bind(), name="keeper", route_prefix="/")
    until_ready(served.url)
    (before,) = replicas()
    (tmp_path / "store").rename(tmp_path / "away")
    end = time.monotonic() + PATIENCE
    while before in replicas():
        assert time.monotonic() < end, "it was not replaced"
        time.sleep(0.1)
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    (tmp_path / "away").rename(tmp_path / "store")
    until_ready(served.url)
    serve.delete("keeper")


@pytest.mark.slow
def test_the_command_of_serve_runs_it(served: Served, tmp_path: Path) -> None:
    """`serve run modelkeeper.serve:app`, set by variables."""
    address = ray.get_runtime_context().gcs_address
    command = [str(Path(sys.executable).with_name("serve")), "run", "modelkeeper.serve:app"]
    subprocess.run(
        [*command, "--address", address, "--name", "keeper", "--non-blocking"],
        env=os.environ | {"MODELKEEPER_HOME": str(tmp_path), "MODELKEEPER_AUTH": "false"},
        check=True,
        capture_output=True,
        timeout=3 * PATIENCE,
    )
    until_ready(served.url)
    assert httpx.get(f"{served.url}/v1/models", timeout=PATIENCE).raise_for_status().json() == []
    assert (tmp_path / "catalog.db").exists()
    serve.delete("keeper")


def test_replicas_that_would_not_share_a_zoo_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    here = Settings(home=str(tmp_path))
    assert deployment(here, max_replicas=3).name == "modelkeeper"
    monkeypatch.setattr("modelkeeper.integrations.ray.serving.nodes", lambda: 2)
    with pytest.raises(InvalidSetting, match="MODELKEEPER_CATALOG"):
        deployment(here)
    with pytest.raises(InvalidSetting, match="MODELKEEPER_BLOBS"):
        deployment(Settings(home=str(tmp_path), catalog="postgresql+psycopg://zoo@db/zoo"))
    deployment(Settings(catalog="postgresql+psycopg://zoo@db/zoo", blobs="s3://bucket/zoo"))
    with pytest.raises(InvalidSetting, match="memory"):
        deployment(Settings(home=":memory:"))


def test_the_module_for_serve_run_is_set_by_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    monkeypatch.setenv("MODELKEEPER_HOME", str(tmp_path))
    monkeypatch.setenv("MODELKEEPER_SHUTDOWN", "7")
    from modelkeeper.serve import app

    assert isinstance(app, serve.Application)
    made = deployment()
    assert made._deployment_config.graceful_shutdown_timeout_s == 7


@pytest.mark.parametrize(("client", "status"), [(("127.0.0.1", 9), 200), (("10.0.0.7", 9), 403), (None, 403)])
def test_without_auth_only_this_machine_may_call(client: tuple[str, int] | None, status: int) -> None:
    """Wherever Serve's proxy listens, and whatever a stranger says is the host."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(from_here_alone(app)({"type": "http", "client": client}, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == status
    if status == 403:
        assert b"only this machine may call" in sent[1]["body"]
