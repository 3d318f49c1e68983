"""A service as people run it: a process of its own, started, used, told to stop and killed."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from modelkeeper.cli import main
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import DiskFull, ModelKeeperError
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from tests.helpers.generated import Builder
from tests.helpers.service import network, probe, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification")
LEAN = """
import sys
sys.modules.update(dict.fromkeys(("torch", "tensorflow", "keras", "jax")))  # importing one of them fails
from modelkeeper.cli import main
main()
"""


class Process:
    """A `modelkeeper serve` on a free port."""

    def __init__(self, home: Path, *options: str) -> None:
        command = [sys.executable, "-c", LEAN, "serve", "--home", str(home), "--port", "0"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if found := re.search(r"listens at (\S+)", line):
                self.url = found[1]
                break
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    @property
    def memory(self) -> int:
        """Bytes that it holds; files that are mapped into memory belong to the system."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+([0-9]+)", status)[0]) * 1024

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[int]]:
        """How much memory it held at most in a block, and before: two numbers at its end."""
        seen, done = [self.memory], threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                seen.append(self.memory)

        thread = threading.Thread(target=watch)
        thread.start()
        found: list[int] = []
        try:
            yield found
        finally:
            done.set()
            thread.join()
            found += [max(seen), seen[0]]

    def stop(self, sign: int = signal.SIGTERM) -> int:
        if sign:
            self.process.send_signal(sign)
        code = self.process.wait(60)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@contextlib.contextmanager
def process(home: Path, *options: str) -> Iterator[Process]:
    made = Process(home, *options)
    try:
        yield made
    finally:
        if made.process.stderr is not None and not made.process.stderr.closed:
            made.stop()


def run(*arguments: str, fails: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == fails, result.output
    return result.output


def test_a_team_uses_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(tmp_path / "zoo")
    with process(tmp_path / "zoo") as service:
        [first] = re.findall(r"mk_\S+", service.said)
        assert "is a user" in run("user", "add", "ada", "--models", "1", "--bytes", "1MB", "--home", home)
        run("user", "add", "bob", "--home", home)
        assert "2 members" in run("project", "add", "vision", "ada", "bob", "--home", home)
        token = run("token", "add", "ada", "--home", home).strip()
        ada = RemoteCoordinator(service.url, token=token, spool=tmp_path / "spool")
        mine = ada.register(
            GRAPH, told("mine", project="vision", visibility="project"), tensors(GRAPH).items()
        )
        ada.close()
        monkeypatch.setenv("MODELKEEPER_TOKEN", first)
        listed = json.loads(run("models", "--zoo", service.url, "--json"))
        assert [each["id"] for each in listed] == [mine.record.id]
        monkeypatch.setenv("MODELKEEPER_TOKEN", "mk_wrong")
        assert "not valid" in run("models", "--zoo", service.url, fails=1)
        users = json.loads(run("user", "list", "--home", home, "--json"))
        assert {each["name"] for each in users} == {"admin", "ada", "bob"}
        assert "vision" in run("project", "list", "--home", home)
        [identity] = [
            each["id"]
            for each in json.loads(run("token", "list", "--home", home, "--json"))
            if each["user"] == "ada"
        ]
        assert "revoked" in run("token", "revoke", identity, "--home", home)
        run("token", "revoke", identity, "--home", home, fails=1)
        run("project", "leave", "vision", "bob", "--home", home)
        run("project", "remove", "vision", "--home", home)
        run("user", "remove", "bob", "--home", home)
        time.sleep(2.1)
        assert (
            httpx.get(f"{service.url}/v1/stats", headers={"authorization": f"Bearer {token}"}).status_code
            == 401
        )
        assert service.stop() == 0
        assert token not in service.said
    with process(tmp_path / "zoo") as again:
        assert "mk_" not in again.said


def test_refusals_on_the_command_line(tmp_path: Path) -> None:
    output = run("serve", "--home", str(tmp_path), "--no-auth", "--host", "0.0.0.0", fails=2)
    assert "Leave out --no-auth" in output
    assert "scope" in run("token", "add", "ada", "--scope", "root", "--home", str(tmp_path), fails=2)
    assert "there is no zoo" in run("token", "add", "ada", "--home", str(tmp_path), fails=1)
    run("user", "add", "bob", "--home", str(tmp_path))
    assert "user add ada" in run("token", "add", "ada", "--home", str(tmp_path), fails=2)


def test_models_that_wait_are_sent(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with process(tmp_path / "zoo", "--no-auth") as service:
        coordinator = RemoteCoordinator(service.url, spool=spool)
        coordinator.spool.keep(service.url, GRAPH, told("late"), tensors(GRAPH).items(), "ada", "")
        assert "registered" in run("sync", "--spool", str(spool))
        assert "Nothing waits" in run("sync", "--spool", str(spool))
        assert coordinator.show("late").owner == "ada"
        coordinator.close()
        url = service.url
    RemoteCoordinator(url, spool=spool).spool.keep(url, GRAPH, told(), tensors(GRAPH).items(), "", "")
    assert "cannot be used" in run("sync", "--spool", str(spool), fails=1).replace("\n", " ")
    assert len(list(spool.iterdir())) == 1


def test_an_upload_under_way_is_finished_before_the_end(tmp_path: Path) -> None:
    with process(tmp_path / "zoo", "--no-auth") as service:
        coordinator = RemoteCoordinator(service.url, spool=tmp_path / "spool")
        entry = coordinator.spool.keep(service.url, GRAPH, told(), tensors(GRAPH).items(), "", "")
        request = entry.waiting.request
        client = coordinator._calls.client
        sent = {"content": msgspec.json.encode(request), "headers": {"content-type": "application/json"}}
        client.post("/uploads", **sent)  # type: ignore[arg-type]
        whole = entry.weights.read_bytes()

        def slowly() -> Iterator[bytes]:
            yield whole[:100]
            service.process.send_signal(signal.SIGTERM)
            assert "told to stop" in probe(service.url, 503).text
            yield whole[100:]

        reply = client.put(f"/uploads/{request.id}", content=slowly(), timeout=30)
        assert reply.json()["offset"] == len(whole)
        coordinator.close()
        assert service.stop(0) == 0


def test_killed_in_the_middle_it_goes_on_where_it_was(tmp_path: Path) -> None:
    with process(tmp_path / "zoo", "--no-auth") as service:
        coordinator = RemoteCoordinator(service.url, spool=tmp_path / "spool")
        entry = coordinator.spool.keep(service.url, GRAPH, told(), tensors(GRAPH).items(), "", "")
        request, whole = entry.waiting.request, entry.weights.read_bytes()
        sent = {"content": msgspec.json.encode(request), "headers": {"content-type": "application/json"}}
        client = coordinator._calls.client
        client.post("/uploads", **sent)  # type: ignore[arg-type]
        client.put(f"/uploads/{request.id}", content=whole[:1000])
        coordinator.close()
        service.stop(signal.SIGKILL)
        port = str(httpx.URL(service.url).port)
    with process(tmp_path / "zoo", "--no-auth", "--port", port) as service:
        assert client is not coordinator._calls.client
        assert coordinator._calls.client.get(f"/uploads/{request.id}").json()["offset"] == 1000
        done = coordinator.send(entry)
        assert done.record.checksum == request.checksum
        coordinator.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full(small_disk: Path, tmp_path: Path) -> None:
    """What does not fit is refused and waits; what is there is lent; with room, what waits is sent."""
    big = large(1024, 2)
    numbers = {name: np.full(tensor.shape, 0.5, np.float32) for name, tensor in big.tensors.items()}
    with process(small_disk / "zoo", "--no-auth") as service:
        coordinator = RemoteCoordinator(service.url, spool=tmp_path / "spool")
        first = coordinator.register(GRAPH, told("first"), tensors(GRAPH).items()).record
        with pytest.raises(DiskFull, match=r"disk is full.*modelkeeper sync"):
            coordinator.register(big, told("big"), numbers.items())
        assert [record.id for record in coordinator.models()] == [first.id]
        coordinator.download(first, tmp_path / "copy")
        subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
        [(_, sent)] = coordinator.sync()
        assert not isinstance(sent, ModelKeeperError)
        assert coordinator.query(big, ASKED).answer.parent == sent.record.id
        coordinator.close()


def test_parts_of_a_file_and_files_that_did_not_change(tmp_path: Path) -> None:
    with process(tmp_path / "zoo", "--no-auth") as service:
        coordinator = RemoteCoordinator(service.url, spool=tmp_path / "spool")
        record = coordinator.register(GRAPH, told(), tensors(GRAPH).items()).record
        path = f"/models/{record.id}/model.safetensors"
        client, etag = coordinator._calls.client, f'"{record.checksum}"'
        whole = client.get(path)
        assert (whole.status_code, whole.headers["etag"], len(whole.content)) == (200, etag, record.bytes)
        assert whole.headers["accept-ranges"] == "bytes"
        part = client.get(path, headers={"range": "bytes=100-", "if-range": etag})
        assert (part.status_code, part.content) == (206, whole.content[100:])
        assert part.headers["content-range"] == f"bytes 100-{record.bytes - 1}/{record.bytes}"
        other = client.get(path, headers={"range": "bytes=100-", "if-range": '"another"'})
        assert (other.status_code, len(other.content)) == (200, record.bytes)
        assert client.get(path, headers={"range": f"bytes={record.bytes}-"}).status_code == 416
        assert client.get(path, headers={"if-none-match": etag}).status_code == 304
        coordinator.close()


def large(width: int, layers: int) -> Graph:
    b = Builder()
    last: int = b.add("input")
    for _ in range(layers):
        last = b.linear(b.relu(last), width, width)
    b.add("output", last)
    return b.graph()


@pytest.mark.skipif(sys.platform != "linux", reason="memory as Linux counts it")
def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    """200 MB go in and out of a service that takes 100 MB more for it; `benchmarks/service.py` sends 2 GB."""
    graph, wider = large(1024, 48), large(1056, 48)
    numbers = {name: np.full(tensor.shape, 0.5, np.float32) for name, tensor in graph.tensors.items()}
    with process(tmp_path / "zoo", "--no-auth") as service:
        coordinator = RemoteCoordinator(service.url, spool=tmp_path / "spool", timeout=60)
        coordinator.register(GRAPH, told(data="other"), tensors(GRAPH).items())  # what comes with the first
        dict(coordinator.query(GRAPH, Query(data="other")).weights())
        with service.watched() as memory:
            record = coordinator.register(graph, told(), numbers.items()).record
            coordinator.download(record, tmp_path / "copy")
            found = coordinator.query(wider, ASKED)
            received = sum(array.nbytes for _, array in found.weights())
        coordinator.close()
    assert not found.answer.cold
    assert min(record.bytes, received) > 200 * 10**6
    assert memory[0] - memory[1] < 100 * 10**6
