"""Is there an end to waiting, whatever a coordinator does?"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.remote.allowance import SLOW_LINE, Allowance
from modelkeeper.coordinator.remote.downloads import receive
from modelkeeper.errors import CoordinatorUnreachable
from modelkeeper.meta import Query
from tests.helpers.service import network, tensors, told

GRAPH = network()
ETAG = '"' + "0" * 64 + '"'


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until it is moved."""
    now = [1000.0]
    monkeypatch.setattr("modelkeeper.coordinator.remote.allowance.time.monotonic", lambda: now[0])
    return now


def test_only_the_time_inside_counts(clock: list[float]) -> None:
    allowed = Allowance(10.0)
    with allowed:
        clock[0] += 4
        with allowed:
            clock[0] += 1
        assert allowed.left() == 5
    clock[0] += 100  # describing, racing
    assert allowed.left() == 5
    allowed.came(3 * SLOW_LINE)
    assert allowed.left() == 8
    with allowed:
        clock[0] += 9
        assert allowed.left() == 0


@contextlib.contextmanager
def against(answer: "itertools.count[int]", folder: Path, deadline: float) -> Iterator[RemoteCoordinator]:
    """A coordinator that sends one byte of its weights, and then breaks the line; again and again."""

    def reply(request: httpx.Request) -> httpx.Response:
        at = int(request.headers.get("range", "bytes=0-")[6:-1])
        next(answer)
        headers = {"etag": ETAG, "content-length": str(1000 - at)}
        if at:
            headers["content-range"] = f"bytes {at}-999/1000"
        return httpx.Response(206 if at else 200, headers=headers, stream=_Breaks())

    coordinator = RemoteCoordinator("http://keeper", spool=folder, deadline=deadline)
    calls = coordinator._calls
    calls._client = httpx.Client(base_url="http://keeper", transport=httpx.MockTransport(reply))
    calls._process = os.getpid()
    yield coordinator
    coordinator.close()


class _Breaks(httpx.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"x"
        raise httpx.ReadError("the line broke")


def test_progress_of_a_byte_at_a_time_ends(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte was progress, after which all attempts were there again."""

    def sleep(seconds: float) -> None:
        clock[0] += seconds + 1.0

    monkeypatch.setattr("modelkeeper.coordinator.remote.downloads.time.sleep", sleep)
    requests = itertools.count()
    with against(requests, tmp_path, 30.0) as coordinator:
        waiting = Allowance(30.0)
        with (
            waiting,
            pytest.raises(CoordinatorUnreachable, match="kept this training waiting for more than 30 s"),
        ):
            list(receive(coordinator._calls, b"", GRAPH, waiting))
    assert next(requests) < 40


def test_an_upload_that_never_gets_on_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that says after each attempt that a byte more has come."""
    offsets = itertools.count()

    def reply(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            raise httpx.WriteError("the line broke")
        identity = next(iter(tmp_path.glob("[0-9a-f]*"))).name
        return httpx.Response(200, json={"id": identity, "offset": next(offsets), "size": 10**6})

    coordinator = RemoteCoordinator("http://keeper", spool=tmp_path, deadline=0.3)
    calls = coordinator._calls
    calls._client = httpx.Client(base_url="http://keeper", transport=httpx.MockTransport(reply))
    calls._process = os.getpid()
    with pytest.raises(CoordinatorUnreachable, match=r"kept this training waiting|too long"):
        coordinator.register(GRAPH, told(), tensors(GRAPH).items())
    assert len(coordinator.spool.entries()) == 1  # it waits
    coordinator.close()


def test_a_query_has_one_allowance_for_all_its_steps(tmp_path: Path, clock: list[float]) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        clock[0] += 8
        return httpx.Response(200, json={"parent": "0" * 16})

    coordinator = RemoteCoordinator("http://keeper", spool=tmp_path, deadline=10.0)
    calls = coordinator._calls
    calls._client = httpx.Client(base_url="http://keeper", transport=httpx.MockTransport(reply))
    calls._process = os.getpid()
    loan = coordinator.query(GRAPH, Query())
    with pytest.raises(CoordinatorUnreachable), loan.lender():
        pass
    coordinator.close()
