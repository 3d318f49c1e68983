"""Calls: what is tried again, and what is not."""

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.wire import Problem, to_problem
from modelkeeper.errors import CoordinatorUnreachable, ModelKeeperError, QuotaExceeded, TooManyRequests


@contextlib.contextmanager
def answering(error: ModelKeeperError | httpx.Response) -> Iterator[Calls]:
    """A line to a service that fails once, and then answers."""
    if isinstance(error, ModelKeeperError):
        error = httpx.Response(error.status, content=msgspec.json.encode(to_problem(error)))
    replies = [error]

    def reply(request: httpx.Request) -> httpx.Response:
        return replies.pop() if replies else httpx.Response(200, content=b"1")

    line = Calls("http://keeper", "", 5.0)
    line._client = httpx.Client(base_url=line.url, transport=httpx.MockTransport(reply))
    line._process = os.getpid()
    yield line
    line.close()


@pytest.mark.parametrize("seconds", ["0.000", "0.010"])
def test_who_asks_too_often_asks_again(seconds: str) -> None:
    with answering(TooManyRequests("more than 5 requests per second", "Wait.", seconds)) as line:
        assert line.ask("GET", "/count", int) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_what_a_proxy_says_of_a_service_that_died_is_no_answer(status: int) -> None:
    with answering(httpx.Response(status, content=b"Internal Server Error")) as line:
        assert line.ask("GET", "/count", int) == 1


def test_what_a_service_says_of_itself_is_one() -> None:
    failed = Problem(error="Internal", message="the coordinator failed", request="7")
    reply = httpx.Response(500, content=msgspec.json.encode(failed))
    with answering(reply) as line, pytest.raises(CoordinatorUnreachable, match="the coordinator failed"):
        line.ask("GET", "/count", int)


def test_who_keeps_too_much_does_not_ask_again() -> None:
    refused = QuotaExceeded("you keep 5 models, 5 are allowed", "Remove some.")
    with answering(refused) as line, pytest.raises(QuotaExceeded):
        line.ask("GET", "/count", int)


def test_threads_share_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of several threads that asked at once opened connections of its own, and lost all but the last."""
    made: list[httpx.Client] = []
    both, real = threading.Barrier(2), httpx.Client

    def slow(**options: Any) -> httpx.Client:
        made.append(real(**options))
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # for another one, who must not come
        return made[-1]

    monkeypatch.setattr("modelkeeper.coordinator.remote.calls.httpx.Client", slow)
    line = Calls("http://keeper", "", 1.0)
    with ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(lambda _: line.client, range(8)))
    assert len(made) == 1
    assert all(client is made[0] for client in clients)
    line.close()
