"""Small real models as graphs with weights, and services to keep them: what the tests of a service share."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.graph import Graph
from modelkeeper.meta import read_registration
from modelkeeper.server.serve import serving
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.weights import Array, dtype_of
from modelkeeper.zoo.records import Registration
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.generated import vgg


def network(width: int = 8) -> Graph:
    return vgg((width, 2 * width))


def tensors(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=shape).astype(dtype_of(dtype)) for name, dtype, shape in stored_tensors(graph)
    }


def told(name: str = "net", accuracy: float = 0.9, **more: Any) -> Registration:
    meta = {"data": "digits", "task": "classification", "accuracy": accuracy, "name": name}
    return read_registration(meta | more, name)


def probe(url: str, until: int = 200) -> httpx.Response:
    """What `/readyz` says when it replies with this status at last."""
    end = time.monotonic() + 60
    while True:
        reply = httpx.get(f"{url}/readyz", timeout=60)
        if reply.status_code == until or time.monotonic() > end:
            assert reply.status_code == until, reply.text
            return reply
        time.sleep(0.01)


class Team:
    """A service with users."""

    def __init__(self, coordinator: LocalCoordinator, url: str, spool: Path) -> None:
        self.coordinator, self.url, self.accounts = coordinator, url, coordinator.accounts
        self._spool = spool
        self._joined: list[RemoteCoordinator] = []

    def token(self, user: str, scope: str = "write", **quotas: Any) -> str:
        self.accounts.add_user(user, **quotas)
        return self.accounts.add_token(user, scope)

    def join(self, user: str, scope: str = "write", **quotas: Any) -> RemoteCoordinator:
        token = self.token(user, scope, **quotas)
        self._joined.append(RemoteCoordinator(self.url, token=token, spool=self._spool, timeout=20))
        return self._joined[-1]

    def close(self) -> None:
        for each in self._joined:
            each.close()


@contextlib.contextmanager
def team(folder: Path, *, capacity: int | None = None, **settings: Any) -> Iterator[Team]:
    """A service with auth in a thread."""
    local = LocalCoordinator(Settings(home=str(folder / "zoo"), capacity=capacity))
    with serving(local, ServiceSettings(port=0, **settings)) as url:
        found = Team(local, url, folder / "spool")
        yield found
        found.close()
    local.close()


class RoundRobin(httpx.BaseTransport):
    """As a proxy does it: each request goes to the next of several services."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls, self._turn = [httpx.URL(url) for url in urls], itertools.count()
        self._line = httpx.HTTPTransport()
        self.taken: list[tuple[int, str, str]] = []  # which service, method and path

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        number = next(self._turn) % len(self._urls)
        self.taken.append((number, request.method, request.url.path))
        place = self._urls[number]
        request.url = request.url.copy_with(host=place.host, port=place.port)
        return self._line.handle_request(request)

    def close(self) -> None:
        self._line.close()


def spread(
    urls: Sequence[str], spool: Path, token: str = "", **more: Any
) -> tuple[RemoteCoordinator, RoundRobin]:
    """A client whose requests go to several services in turn."""
    client = RemoteCoordinator(urls[0], token=token, spool=spool, timeout=30, **more)
    line = RoundRobin(urls)
    calls = client._calls
    calls._client = httpx.Client(base_url=urls[0] + "/v1", headers=calls._headers, transport=line, timeout=30)
    calls._process = os.getpid()
    return client, line
