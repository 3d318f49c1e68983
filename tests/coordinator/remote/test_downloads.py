"""Are weights that are no numbers handed to a model?"""

import hashlib
import os
from pathlib import Path

import httpx
import numpy as np
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import CoordinatorUnreachable
from modelkeeper.meta import Query
from modelkeeper.weights import Header, stream
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.service import network, tensors

GRAPH = network()
FIRST = next(name for name, tensor in GRAPH.tensors.items() if not tensor.buffer)


def hostile(folder: Path, value: float, name: str) -> RemoteCoordinator:
    """A coordinator that sends what it likes, with the right checksum."""
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
        headers = {"etag": '"' + "0" * 64 + '"', "content-length": str(len(content))}
        return httpx.Response(200, stream=httpx.ByteStream(content), headers=headers)

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


def test_numbers_are_taken(tmp_path: Path) -> None:
    coordinator = hostile(tmp_path, 3.0, FIRST)
    received = dict(coordinator.query(GRAPH, Query()).weights())
    assert np.float32(3.0) == received[FIRST].flat[-1]
    coordinator.close()
