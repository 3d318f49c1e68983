"""Calls: what is tried again, and what is not."""

import contextlib
import os
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.wire import to_problem
from modelkeeper.errors import ModelKeeperError, QuotaExceeded, TooManyRequests


@contextlib.contextmanager
def answering(error: ModelKeeperError) -> Iterator[Calls]:
    """A line to a service that fails once, and then answers."""
    replies = [httpx.Response(error.status, content=msgspec.json.encode(to_problem(error)))]

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


def test_who_keeps_too_much_does_not_ask_again() -> None:
    refused = QuotaExceeded("you keep 5 models, 5 are allowed", "Remove some.")
    with answering(refused) as line, pytest.raises(QuotaExceeded):
        line.ask("GET", "/count", int)
