"""Are weights that are no numbers, or not what was sent, handed to a model? Whoever sends the rest?"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.wire import SEAL
from modelkeeper.errors import CoordinatorUnreachable
from modelkeeper.meta import Query
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.weights import Header, stream
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.service import RoundRobin, network, spread, tensors, told

GRAPH = network()
ASKED = Query(data="digits", task="classification")
FIRST = next(name for name, tensor in GRAPH.tensors.items() if not tensor.buffer)


def hostile(folder: Path, value: float, name: str, seal: str = "right") -> RemoteCoordinator:
    """A coordinator that sends what it likes, with the right checksum: in the stream, or as older ones do."""
    sent = tensors(GRAPH)
    sent[name] = sent[name].copy()
    sent[name].flat[-1] = value
    header = Header.of(stored_tensors(GRAPH))
    content = b"".join(bytes(chunk) for chunk in stream(header, sent.items()))

    def reply(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/query"):
            return httpx.Response(200, json={"parent": "0" * 16, "similarity": 1.0})
        if request.url.path.endswith("/checksum"):
            return httpx.Response(200, json={"checksum": hashlib.sha256(content).hexdigest()})
        assert SEAL in request.headers
        sent = content + {"right": hashlib.sha256(content).digest(), "wrong": bytes(32), "": b""}[seal]
        headers = {"etag": '"' + "0" * 64 + '"', "content-length": str(len(sent))} | (
            {SEAL: "sha256"} if seal else {}
        )
        return httpx.Response(200, stream=httpx.ByteStream(sent), headers=headers)

    coordinator = RemoteCoordinator("http://keeper", spool=folder)
    calls = coordinator._calls
    calls._client = httpx.Client(base_url="http://keeper", transport=httpx.MockTransport(reply))
    calls._process = os.getpid()
    return coordinator


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused_before_the_first_tensor(tmp_path: Path, value: float) -> None:
    coordinator = hostile(tmp_path, value, FIRST)
    coming = coordinator.query(GRAPH, Query()).weights()
    with pytest.raises(CoordinatorUnreachable, match=r"weights hold (NaN|infinity)"):
        next(coming)
    coordinator.close()


@pytest.mark.parametrize("seal", ["right", ""])
def test_numbers_are_taken(tmp_path: Path, seal: str) -> None:
    """Also from a service that sends no checksum behind the weights, and is asked for it."""
    coordinator = hostile(tmp_path, 3.0, FIRST, seal)
    received = dict(coordinator.query(GRAPH, Query()).weights())
    assert np.float32(3.0) == received[FIRST].flat[-1]
    coordinator.close()


def test_what_was_damaged_on_its_way_is_given_to_nobody(tmp_path: Path) -> None:
    coordinator = hostile(tmp_path, 3.0, FIRST, "wrong")
    with pytest.raises(CoordinatorUnreachable, match="damaged on their way"):
        next(coordinator.query(GRAPH, Query()).weights())
    coordinator.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RemoteCoordinator, RoundRobin]]:
    """A client of two services of one zoo, which take its requests in turn."""
    home = Settings(home=str(tmp_path / "zoo"))
    with contextlib.ExitStack() as stack:
        urls = []
        for _ in range(2):
            local = LocalCoordinator(home)
            stack.callback(local.close)
            urls.append(stack.enter_context(serving(local, ServiceSettings(port=0, auth=False))))
        client, line = spread(urls, tmp_path / "spool")
        stack.callback(client.close)
        yield client, line


def test_any_service_of_a_zoo_knows_what_a_stream_must_be(pair: tuple[RemoteCoordinator, RoundRobin]) -> None:
    """15 of 43 downloads behind a proxy failed: no such stream had ended at the other process."""
    client, line = pair
    client.register(GRAPH, told(), tensors(GRAPH).items())
    for _ in range(3):
        lent = dict(client.query(GRAPH, ASKED).weights())
        for name, array in tensors(GRAPH).items():
            np.testing.assert_array_equal(lent[name], array)
    at = {
        kind: {number for number, _, path in line.taken if path.endswith(kind)}
        for kind in ("/query", "/weights")
    }
    assert at["/query"].isdisjoint(at["/weights"])
    assert not any(path.endswith("/checksum") for _, _, path in line.taken)


class Breaking(httpx.SyncByteStream):
    """A body that breaks off after so many bytes."""

    def __init__(self, stream: httpx.SyncByteStream, after: int) -> None:
        self._stream, self._after = stream, after

    def __iter__(self) -> Iterator[bytes]:
        left = self._after
        for chunk in self._stream:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                raise httpx.ReadError("the line broke")

    def close(self) -> None:
        self._stream.close()


def test_another_service_goes_on_with_a_stream_that_broke(
    pair: tuple[RemoteCoordinator, RoundRobin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that is: in the weights, or in the checksum behind them; and a proxy says 502 meanwhile."""
    client, line = pair
    client.register(GRAPH, told(), tensors(GRAPH).items())
    child = network(12)
    whole = {name: array.copy() for name, array in client.query(child, ASKED).weights()}
    handle, total = line.handle_request, 0
    breaks: list[int] = []

    def breaking(request: httpx.Request) -> httpx.Response:
        nonlocal total
        reply = handle(request)
        if request.url.path.endswith("/weights"):
            total = total or int(reply.headers["content-length"])
            if breaks and (after := breaks.pop(0)) == 0:
                reply.close()
                return httpx.Response(502, text="bad gateway")
            if breaks:
                assert isinstance(reply.stream, httpx.SyncByteStream)
                reply.stream = Breaking(reply.stream, after)
        return reply

    monkeypatch.setattr(line, "handle_request", breaking)
    dict(client.query(child, ASKED).weights())
    assert total > 1000
    for first in (1, 700, total - 33, total - 32, total - 31, total - 1):
        breaks[:] = [first, 0, -1]
        lent = dict(client.query(child, ASKED).weights())
        assert not breaks
        assert lent.keys() == whole.keys()
        for name, array in whole.items():
            np.testing.assert_array_equal(lent[name], array)
