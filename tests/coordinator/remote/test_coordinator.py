"""What happens to a training when the coordinator is down, slow, restarting or answering nonsense?

A line that breaks is made by a relay between client and service, which cuts, holds back or spoils bytes.
"""

import contextlib
import errno
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from torch import nn

from modelkeeper import KeeperWarning, ModelKeeperClient
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator, address
from modelkeeper.errors import (
    CoordinatorUnreachable,
    DiskFull,
    InvalidGraph,
    InvalidSetting,
    ModelRefused,
    ZooUnusable,
)
from modelkeeper.frontends.torch import describe
from modelkeeper.meta import Query
from modelkeeper.server.serve import serving
from modelkeeper.server.upload_store import FolderUploads
from modelkeeper.settings import ServiceSettings, Settings, is_address
from tests.helpers.service import network, tensors, told

GRAPH = network(32)
ASKED = Query(data="digits", task="classification")
OPEN = ServiceSettings(port=0, auth=False)
META = {"data": "digits", "task": "classification"}


class Relay(socketserver.ThreadingTCPServer):
    """Passes bytes on to a service. `spoil(connection, sent, chunk)` may change what comes back, or raise."""

    allow_reuse_address = daemon_threads = True

    def __init__(
        self, target: str, up: Callable[..., bytes] | None = None, down: Callable[..., bytes] | None = None
    ):
        super().__init__(("127.0.0.1", 0), _Relayed)
        url = httpx.URL(target)
        self.target, self.up, self.down = (url.host, url.port), up, down
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Relayed(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        self.server.connections += 1
        number = self.server.connections
        with socket.create_connection(self.server.target) as there:
            back = threading.Thread(target=self._pump, args=(there, self.request, self.server.down, number))
            back.start()
            self._pump(self.request, there, self.server.up, number)
            back.join()

    def _pump(
        self, source: socket.socket, sink: socket.socket, spoil: Callable[..., bytes] | None, number: int
    ) -> None:
        sent = 0
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(spoil(number, sent, chunk) if spoil else chunk)
                sent += len(chunk)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def relay(target: str, **spoil: Callable[..., bytes]) -> Iterator[Relay]:
    with Relay(target, **spoil) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    local.register(GRAPH, told(), tensors(GRAPH).items())
    with serving(local, OPEN) as url:
        yield url
    local.close()


@contextlib.contextmanager
def remote(url: str, folder: Path, timeout: float = 10.0) -> Iterator[RemoteCoordinator]:
    made = RemoteCoordinator(url, spool=folder / "spool", timeout=timeout)
    yield made
    made.close()


def test_a_download_goes_on_where_the_line_broke(service: str, tmp_path: Path) -> None:
    def cut(number: int, sent: int, chunk: bytes) -> bytes:
        if number == 2 and sent > 30_000:
            raise OSError("cut")
        return chunk

    with relay(service, down=cut) as line, remote(line.url, tmp_path) as coordinator:
        coordinator._calls.client.headers["connection"] = "close"
        lent = dict(coordinator.query(GRAPH, ASKED).weights())
        assert line.connections >= 3
    for name, array in tensors(GRAPH).items():
        np.testing.assert_array_equal(lent[name], array)


def test_a_file_goes_on_where_the_line_broke(service: str, tmp_path: Path) -> None:
    def cut(number: int, sent: int, chunk: bytes) -> bytes:
        if number == 2 and sent > 30_000:
            raise OSError("cut")
        return chunk

    with relay(service, down=cut) as line, remote(line.url, tmp_path) as coordinator:
        coordinator._calls.client.headers["connection"] = "close"
        record = coordinator.show("net")
        coordinator.download(record, tmp_path / "file")
        assert (tmp_path / "file").stat().st_size == record.bytes
        (tmp_path / "again.part").write_bytes((tmp_path / "file").read_bytes()[:1000])
        coordinator.download(record, tmp_path / "again")
        (tmp_path / "wrong.part").write_bytes(b"x" * 1000)
        with pytest.raises(CoordinatorUnreachable, match="damaged"):
            coordinator.download(record, tmp_path / "wrong")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "file").read_bytes()
    assert not (tmp_path / "wrong").exists()


def test_an_upload_goes_on_where_the_line_broke(service: str, tmp_path: Path) -> None:
    def cut(number: int, sent: int, chunk: bytes) -> bytes:
        if number in (2, 4) and sent > 40_000:
            raise OSError("cut")
        return chunk

    with relay(service, up=cut) as line, remote(line.url, tmp_path) as coordinator:
        coordinator._calls.client.headers["connection"] = "close"
        done = coordinator.register(GRAPH, told("sent"), tensors(GRAPH, 5).items())
        assert line.connections >= 5
        assert coordinator.show("sent").checksum == done.record.checksum
        assert coordinator.spool.entries() == []


def test_spoilt_bytes_are_noticed(service: str, tmp_path: Path) -> None:
    def flip(number: int, sent: int, chunk: bytes) -> bytes:
        at = 50_000 - sent  # among the weights, of which there are more
        if number > 2 or not 0 <= at < len(chunk):
            return chunk
        return chunk[:at] + bytes([chunk[at] ^ 1]) + chunk[at + 1 :]

    damaged = pytest.raises(CoordinatorUnreachable, match="damaged on their way")
    with relay(service, down=flip) as line, remote(line.url, tmp_path) as coordinator, damaged:
        dict(coordinator.query(GRAPH, ASKED).weights())

    with relay(service, up=flip) as line, remote(line.url, tmp_path) as coordinator:
        coordinator._calls.client.headers["connection"] = "close"
        done = coordinator.register(GRAPH, told("sent"), tensors(GRAPH, 5).items())  # sent again, whole
        assert done.record.name == "sent"


def test_a_restart_between_the_question_and_the_weights(tmp_path: Path) -> None:
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    local.register(GRAPH, told(), tensors(GRAPH).items())
    with serving(local, OPEN) as url:
        port = httpx.URL(url).port
        assert port is not None
        made = RemoteCoordinator(url, spool=tmp_path / "spool")
        found = made.query(GRAPH, ASKED)
    with serving(local, ServiceSettings(port=port, auth=False)):
        assert len(dict(found.weights())) == len(tensors(GRAPH))
        made.close()
    local.close()


class Small(nn.Module):
    """A model to train."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def starts_cold(client: ModelKeeperClient, within: float) -> str:
    """Query and register with a coordinator in trouble. What did the one warning of each say?"""
    model = Small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    begun = time.monotonic()
    describe(model, torch.zeros(1, 4))
    within += 3 * (time.monotonic() - begun)  # on a busy machine, that takes seconds
    begun = time.monotonic()
    with pytest.warns(KeeperWarning, match="starts cold") as caught:
        _, answer = client.query_for_model(model, META, example_inputs=torch.zeros(1, 4))
    assert time.monotonic() - begun < within
    assert answer.cold
    assert len(caught) == 1
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    return str(caught[0].message)


def test_a_port_that_swallows_everything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as hole:  # connects, and says nothing
        client = ModelKeeperClient(f"127.0.0.1:{hole.getsockname()[1]}", timeout=1.0, spool=str(tmp_path))
        assert "did not answer within 1 s" in starts_cold(client, 9.0)
        client.stop()


def test_packets_that_are_dropped(tmp_path: Path) -> None:
    """A queue of connections that is full: the system then drops what knocks, as a firewall does."""
    with socket.socket() as hole, contextlib.ExitStack() as knocking:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(2):  # one more than the queue takes
            line = knocking.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(hole.getsockname())
        with pytest.raises(TimeoutError):  # nothing comes back, not even a refusal
            socket.create_connection(hole.getsockname(), timeout=0.3)
        client = ModelKeeperClient(f"127.0.0.1:{hole.getsockname()[1]}", timeout=1.0, spool=str(tmp_path))
        assert "did not answer within 1 s" in starts_cold(client, 9.0)
        client.stop()


def test_nobody_there_and_sent_later(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = ModelKeeperClient(f"127.0.0.1:{port}", spool=str(tmp_path / "spool"), user="ada")
    assert "Connection refused" in starts_cold(client, 9.0)
    model = Small()
    with pytest.warns(KeeperWarning, match=r"waits in .*modelkeeper sync") as caught:
        record = client.register_model(model, META | {"accuracy": 0.9}, example_inputs=torch.zeros(1, 4))
    assert record is None
    assert len(caught) == 1
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    with serving(local, ServiceSettings(port=port, auth=False)):
        coordinator = client.coordinator
        assert isinstance(coordinator, RemoteCoordinator)
        [(_, done)] = list(coordinator.sync())
        assert done.record.owner == "ada"  # type: ignore[union-attr]
        assert list(coordinator.sync()) == []
        other = Small()
        _, answer = client.query_for_model(other, META, example_inputs=torch.zeros(1, 4))
        assert answer["parent"] == done.record.id  # type: ignore[union-attr]
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
        client.stop()
    local.close()


NONSENSE = {
    "html": b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>",
    "empty": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "null": b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnull",
    "deep": b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"[" * 100_000,
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "error": b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno",
    "known error": b'HTTP/1.1 400 No\r\ncontent-length: 41\r\n\r\n{"error":"UnknownModel","fields":[1,2,3]}',
    "elsewhere": b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    "a parent": b'HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\n{"parent":"x", "similarity":0.9}',
}


@pytest.mark.parametrize("kind", NONSENSE)
def test_an_answer_that_makes_no_sense(kind: str, tmp_path: Path) -> None:
    with relay("http://127.0.0.1:1") as line:
        line.RequestHandlerClass = _says(NONSENSE[kind])
        client = ModelKeeperClient(line.url, timeout=5.0, spool=str(tmp_path))
        if kind == "empty":  # an answer of nothing but defaults: a cold start
            assert client.query_for_model(Small(), META, example_inputs=torch.zeros(1, 4))[1].cold
        else:
            starts_cold(client, 10.0)
        client.stop()


def _says(text: bytes) -> type[socketserver.BaseRequestHandler]:
    class Says(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with contextlib.suppress(OSError):
                self.request.sendall(text)
                self.request.shutdown(socket.SHUT_WR)
                while self.request.recv(65536):
                    pass

    return Says


def test_a_full_disk_is_said_and_the_model_waits(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("/secret/path", "nothing fits any more", "") from OSError(errno.ENOSPC, "full")

    with remote(service, tmp_path) as coordinator:
        with monkeypatch.context() as patch:
            patch.setattr(FolderUploads, "write", full)
            with pytest.raises(DiskFull, match="disk is full") as caught:
                coordinator.register(GRAPH, told("later"), tensors(GRAPH).items())
        assert "/secret/path" not in str(caught.value)
        assert "modelkeeper sync" in str(caught.value)
        [(_, done)] = list(coordinator.sync())
        assert done.record.name == "later"  # type: ignore[union-attr]


def test_what_the_zoo_refuses_does_not_wait(service: str, tmp_path: Path) -> None:
    with remote(service, tmp_path) as coordinator:
        for number in range(5):
            coordinator.register(GRAPH, told(f"n{number}"), tensors(GRAPH, number).items())
        with pytest.raises(ModelRefused):
            coordinator.register(GRAPH, told("failed", 0.01), tensors(GRAPH).items())
        assert coordinator.spool.entries() == []


def test_a_model_waits_for_a_service_that_does_not_know_its_format_yet(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(text: bytes) -> None:
        raise InvalidGraph("document", "version 2; this modelkeeper reads version 1: update it")

    with remote(service, tmp_path) as coordinator:
        with monkeypatch.context() as patch:
            patch.setattr("modelkeeper.server.service.read_graph", older)
            with pytest.raises(CoordinatorUnreachable, match=r"version 2.* waits in") as caught:
                coordinator.register(GRAPH, told("later"), tensors(GRAPH).items())
        assert f"the coordinator at {service} cannot be used" in str(caught.value)
        [(_, done)] = list(coordinator.sync())  # it was updated
        assert done.record.name == "later"  # type: ignore[union-attr]


def test_a_spool_that_cannot_be_written_to(service: str, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file, no folder")
    with remote(service, tmp_path) as coordinator, pytest.raises(ZooUnusable, match="MODELKEEPER_SPOOL"):
        coordinator.register(GRAPH, told(), tensors(GRAPH).items())


def test_what_is_an_address() -> None:
    assert address("10.0.0.7") == "http://10.0.0.7:7433"
    assert address("10.0.0.7:80") == "http://10.0.0.7:80"
    assert address("keeper:7000") == "http://keeper:7000"
    assert address("localhost") == "http://localhost:7433"
    assert address("::1") == address("[::1]") == "http://[::1]:7433"
    assert address("[::1]:80") == "http://[::1]:80"
    assert address("https://keeper.example.org/team/") == "https://keeper.example.org/team"
    for folder in ("zoo/", "zoo", "", ":memory:", "/tmp/10.0.0.7", "./a:b", "C:\\zoo", "~/zoo"):
        assert not is_address(folder), folder
    for wrong in ("http://", "http://user:secret@host", "https://host?token=secret", "host:99999"):
        with pytest.raises(InvalidSetting) as caught:
            address(wrong)
        assert "user:secret" not in str(caught.value)


def test_settings_of_a_zoo_elsewhere_are_an_error() -> None:
    with pytest.raises(InvalidSetting, match="capacity"):
        ModelKeeperClient("10.0.0.7", capacity=10**9)
