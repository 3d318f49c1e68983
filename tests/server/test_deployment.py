"""The files under deploy/ as they are, but for paths and ports: a unit, a proxy with TLS, a container."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.meta import Query
from modelkeeper.settings import ServiceSettings
from tests.helpers.parts import Proxy, certificate, free_ports, or_skip, replaced
from tests.helpers.service import probe, told
from tests.server.test_serve import large, process

ROOT = Path(__file__).parents[2]
UNIT, PROXY, CONTAINER = (
    (ROOT / "deploy" / name).read_text() for name in ("modelkeeper.service", "nginx.conf", "Containerfile")
)


def needed(program: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    return found or pytest.skip(f"{program} is not installed")


def test_the_unit(tmp_path: Path) -> None:
    """systemd takes it, what it runs runs, and it waits longer for the end than the service does."""
    [command] = re.findall(r"^ExecStart=/opt/modelkeeper/bin/modelkeeper serve (.*)$", UNIT, re.M)
    options = shlex.split(command.replace("/var/lib/modelkeeper", str(tmp_path / "zoo")))
    with process(tmp_path / "zoo", *options) as service:
        probe(service.url)
    [patience] = re.findall(r"^TimeoutStopSec=([0-9]+)$", UNIT, re.M)
    assert int(patience) > ServiceSettings().shutdown
    path = tmp_path / "modelkeeper.service"
    path.write_text(
        replaced(UNIT, **{"/opt/modelkeeper/bin/modelkeeper": sys.executable, "=modelkeeper\nS": "=root\nS"})
    )
    run = subprocess.run([needed("systemd-analyze"), "verify", str(path)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert path.name not in run.stderr, run.stderr


def test_the_container(tmp_path: Path) -> None:
    """No container is built here: what it would install is there, and what it would run runs."""
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", CONTAINER, re.M)
    name, command, *options = json.loads(entry)
    assert (name, command) == ("modelkeeper", "serve")
    installed = re.findall(r"^RUN pip install --no-cache-dir (.*)$", CONTAINER, re.M)
    assert installed == [
        "--require-hashes --only-binary :all: -r /requirements.txt",  # see tests/test_dependencies.py
        "--no-deps --no-build-isolation /src",
    ]
    with process(
        tmp_path / "zoo", *(option.replace("/zoo", str(tmp_path / "zoo")) for option in options)
    ) as service:
        port = f":{httpx.URL(service.url).port}/"
        [check] = re.findall(r"^HEALTHCHECK CMD python (.*)$", CONTAINER, re.M)
        healthy = [sys.executable, *shlex.split(check.replace(":7433/", port))]
        assert subprocess.run(healthy, timeout=30).returncode == 0
    assert subprocess.run(healthy, timeout=30, stderr=subprocess.DEVNULL).returncode != 0


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """An nginx with TLS, and the port of the coordinator that it expects behind it."""
    ports = free_ports(2)
    blocks = replaced(
        PROXY,
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{ports[0]} ssl",
            "keeper.example.org": "localhost",
            "/etc/ssl": str(tmp_path),
            "127.0.0.1:7433": f"127.0.0.1:{ports[1]}",
        },
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "keeper.pem"))
    with or_skip():
        certificate(tmp_path)
        server = Proxy(blocks, tmp_path / "nginx")
    with server:
        yield f"https://localhost:{ports[0]}", ports[1]


def test_the_proxy(proxy: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model larger than any buffer on the way goes up and down through TLS, with a token."""
    url, port = proxy
    monkeypatch.setenv("MODELKEEPER_HOSTS", "localhost")
    graph = large(1024, 6)
    numbers = {name: np.full(tensor.shape, 0.5, np.float32) for name, tensor in graph.tensors.items()}
    with process(tmp_path / "zoo", "--port", str(port)) as service:
        [token] = re.findall(r"mk_\S+", service.said)
        assert httpx.get(f"{service.url}/v1/stats").status_code == 403  # by another name than it has
        assert httpx.get(f"{url}/v1/stats").status_code == 401
        coordinator = RemoteCoordinator(url, token=token, spool=tmp_path / "spool", timeout=30)
        record = coordinator.register(graph, told(), numbers.items()).record
        assert record.bytes > 20 * 10**6
        coordinator.download(record, tmp_path / "copy")
        lent = dict(coordinator.query(graph, Query(task="classification")).weights())
        assert all(np.array_equal(lent[name], numbers[name]) for name in numbers)
        coordinator.close()
