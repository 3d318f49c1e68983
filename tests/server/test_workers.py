"""Several processes serve one address: as real processes, over one SQLite file."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import InvalidSetting
from modelkeeper.meta import Query
from modelkeeper.server import workers
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.index import index_sync
from tests.helpers import zoos
from tests.helpers.service import network, probe, tensors, told
from tests.server.test_serve import Process, process, run

WAIT = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are for Linux")


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def children(service: Process) -> set[int]:
    """The workers of a service."""
    supervisor = service.process.pid
    found = (path for path in Path("/proc").iterdir() if path.name.isdecimal())
    return {int(path.name) for path in found if _is_worker(path, supervisor)}


def _is_worker(path: Path, supervisor: int) -> bool:
    try:
        parent = re.findall(r"PPid:\s+([0-9]+)", (path / "status").read_text())
        return parent == [str(supervisor)] and b"spawn_main" in (path / "cmdline").read_bytes()
    except OSError:
        return False


def mapped(worker: int) -> set[str]:
    """The files of an index that a process has mapped into its memory."""
    return set(
        re.findall(r"/index/[0-9]+-[0-9a-f]+/[0-9a-f]+\.segment", Path(f"/proc/{worker}/maps").read_text())
    )


def counted(url: str, route: str, headers: dict[str, str]) -> float:
    text = httpx.get(f"{url}/metrics", headers=headers).text
    line = rf'^modelkeeper_requests_total{{method="GET",route="{route}",status="200"}} (\S+)$'
    return sum(float(value) for value in re.findall(line, text, re.M))


def test_workers_serve_one_zoo_and_none_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers map one index, register, lend and count together; one is killed, all are told to stop."""
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 3)
    home = tmp_path / "zoo"
    local = LocalCoordinator(Settings(home=str(home), threads=1, admission="off"))
    for width in range(4, 12):
        zoos.register(local, zoos.net(width))
    local.zoo.index()
    local.accounts.add_user("ada")
    headers = {"authorization": f"Bearer {local.accounts.add_token('ada', 'admin')}"}
    local.close()
    with process(home, "--workers", "2") as service:
        probe(service.url)
        until(lambda: len(children(service)) == 2)
        first = children(service)
        until(lambda: all(mapped(worker) for worker in first))
        assert len({frozenset(mapped(worker)) for worker in first}) == 1, "the same files"
        for _ in range(12):  # each over a connection of its own
            assert httpx.get(f"{service.url}/healthz").status_code == 200
        assert counted(service.url, "/healthz", headers) == 12, "whichever is asked answers for both"
        dies = min(first)
        os.kill(dies, signal.SIGKILL)
        until(lambda: len(children(service)) == 2 and dies not in children(service))
        assert "a worker ended (-9)" in service.said
        until(lambda: all(mapped(worker) for worker in children(service)))
        assert counted(service.url, "/healthz", headers) >= 12, "what the dead one counted stays"
        graph, line = (
            network(),
            RemoteCoordinator(
                service.url, token=headers["authorization"].split()[1], spool=tmp_path / "spool", timeout=WAIT
            ),
        )
        for turn in range(4):
            done = line.register(graph, told(f"net-{turn}"), tensors(graph, turn).items()).record
            assert line.query(graph, Query(data="digits", task="classification")).answer.parent is not None
            assert line.show(done.id).id == done.id
        line.close()
        last = children(service)
        assert service.stop() == 0
        assert not any(Path(f"/proc/{worker}").exists() for worker in last)


def test_an_address_is_theirs_alone_and_without_a_supervisor_they_stop(tmp_path: Path) -> None:
    with process(tmp_path / "zoo", "--no-auth", "--workers", "2") as service:
        more = ("serve", "--home", str(tmp_path / "other"), "--no-auth", "--workers", "2", "--port")
        assert "choose others" in run(*more, str(httpx.URL(service.url).port), fails=2)
        until(lambda: len(children(service)) == 2)
        left = children(service)
        probe(service.url)
        service.process.kill()
        until(lambda: not any(_alive(worker) for worker in left))
        service.stop(0)


def _alive(worker: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{worker}/status").read_text()
    except OSError:
        return False


def test_what_cannot_have_workers_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "one process's" in run("serve", "--home", ":memory:", "--no-auth", "--workers", "2", fails=2)
    with pytest.raises(InvalidSetting, match="workers"):
        ServiceSettings(workers=0)
    monkeypatch.setattr("modelkeeper.server.workers.sys", SimpleNamespace(platform="darwin"))
    with pytest.raises(InvalidSetting, match="only Linux"):
        workers.supervise({}, ServiceSettings(workers=2), print)
