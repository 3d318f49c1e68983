"""The files under deploy/ as they are, but for paths and ports: a unit, a proxy with TLS, a container."""

import json
import re
import shlex
import shutil
import socket
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
from tests.helpers.service import told
from tests.server.test_serve import large, process

ROOT = Path(__file__).parents[2]
UNIT, PROXY, CONTAINER = (
    (ROOT / "deploy" / name).read_text() for name in ("modelkeeper.service", "nginx.conf", "Containerfile")
)


def replaced(text: str, **changes: str) -> str:
    """A file with other paths and ports; each must be in it."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def needed(program: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    return found or pytest.skip(f"{program} is not installed")


def test_the_unit(tmp_path: Path) -> None:
    """systemd takes it, what it runs runs, and it waits longer for the end than the service does."""
    [command] = re.findall(r"^ExecStart=/opt/modelkeeper/bin/modelkeeper serve (.*)$", UNIT, re.M)
    options = shlex.split(command.replace("/var/lib/modelkeeper", str(tmp_path / "zoo")))
    with process(tmp_path / "zoo", *options) as service:
        assert httpx.get(f"{service.url}/readyz").status_code == 200
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
    nginx, openssl = needed("nginx"), needed("openssl")
    made = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", str(tmp_path / "keeper.key"), "-out", str(tmp_path / "keeper.pem")]
    subprocess.run([openssl, *made.split(), *files], check=True, capture_output=True)
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    server = replaced(
        PROXY,
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{ports[0]} ssl",
            "keeper.example.org": "localhost",
            "/etc/ssl": str(tmp_path),
            "127.0.0.1:7433": f"127.0.0.1:{ports[1]}",
        },
    )
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{server}}}\n"
    )
    running = subprocess.Popen(
        [nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")], stderr=subprocess.DEVNULL
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "keeper.pem"))
    yield f"https://localhost:{ports[0]}", ports[1]
    running.terminate()
    running.wait(30)


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
