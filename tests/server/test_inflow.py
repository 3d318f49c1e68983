"""Does a long body arrive whole, however it is cut on its way, and is what follows it understood?"""

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from modelkeeper.server import inflow
from modelkeeper.server.connections import Connection, Crowd
from modelkeeper.server.inflow import Inflow, LongBody
from modelkeeper.write_buffers import Buffer

ROOM = 1000  # bytes of a buffer
WANTED = 10_000


class Taking:
    """A service that takes bodies, and says how long they are: what it got, and how each of them ended."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ends: list[str] = []
        self.routes = FastAPI()
        self.routes.add_api_route("/", self.take, methods=["PUT"])

    async def take(self, request: Request) -> Response:
        body, buffer, came, end = LongBody(request, WANTED), Buffer(ROOM, ROOM), b"", "whole"
        more = True
        while more:
            try:
                more = await body.fill(buffer)
            except (ClientDisconnect, TimeoutError) as problem:
                more, end = False, type(problem).__name__
            came += bytes(buffer.view())
            buffer.held = 0
        self.got.append(came)
        self.ends.append(end)
        return Response(str(len(came)))

    def ended(self, count: int = 1) -> str:
        """How the last of so many bodies ended, once it has."""
        until = time.monotonic() + 30
        while len(self.ends) < count and time.monotonic() < until:
            time.sleep(0.01)
        return self.ends[count - 1]


@contextlib.contextmanager
def serving(routes: FastAPI) -> Iterator[int]:
    """The port of a service, with connections as ours are."""
    connection: Any = partial(Connection, Crowd(10, 10))
    config = uvicorn.Config(routes, http=connection, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def taking() -> Iterator[tuple[Taking, Callable[[], socket.socket]]]:
    made = Taking()
    with serving(made.routes) as port:
        yield made, lambda: socket.create_connection(("127.0.0.1", port), timeout=30)


Service = tuple[Taking, Callable[[], socket.socket]]


def head(length: int) -> bytes:
    return f"PUT / HTTP/1.1\r\nhost: here\r\ncontent-length: {length}\r\n\r\n".encode()


def status(line: socket.socket) -> bytes:
    """The status of the next reply."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += line.recv(1)
    length = int(said.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while length:
        length -= len(line.recv(length))
    return said.split(b" ")[1]


@given(bodies=st.lists(st.tuples(st.integers(0, 4 * ROOM), st.lists(st.integers(0, 4 * ROOM))), max_size=3))
def test_bodies_arrive_whole_however_they_are_cut(
    taking: Service, bodies: list[tuple[int, list[int]]]
) -> None:
    """Law: several requests on one line are each understood, wherever their bytes are cut."""
    service, connect = taking
    service.got.clear()
    contents = [bytes(number % 251 for number in range(length)) for length, _ in bodies]
    with connect() as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for content, (_, cuts) in zip(contents, bodies, strict=True):
            sent = head(len(content)) + content
            places = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
            for begin, end in itertools.pairwise(places):
                line.sendall(sent[begin:end])
            assert status(line) == b"200"
    assert service.got == contents


def test_the_middle_of_a_body_is_not_copied(taking: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service, connect = taking
    service.got.clear()
    direct: list[int] = []
    fill = Inflow.fill

    async def counted(self: Inflow) -> int:
        direct.append(await fill(self))
        return direct[-1]

    monkeypatch.setattr(Inflow, "fill", counted)
    content = bytes(range(250)) * 40
    with connect() as line:
        line.sendall(head(len(content)))
        time.sleep(0.2)  # so that nothing comes together with the head
        line.sendall(content)
        assert status(line) == b"200"
    assert service.got == [content]
    assert sum(direct) == len(content) - 1
    assert max(direct) <= ROOM


def test_a_body_in_chunks_arrives_too(taking: Service) -> None:
    service, connect = taking
    service.got.clear()
    with connect() as line:
        line.sendall(b"PUT / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(5):
            line.sendall(b"300\r\n" + b"x" * 0x300 + b"\r\n")
        line.sendall(b"0\r\n\r\n")
        assert status(line) == b"200"
    assert service.got == [b"x" * 0x300 * 5]


def test_what_came_before_the_line_broke_is_there(taking: Service) -> None:
    service, connect = taking
    service.got.clear()
    service.ends.clear()
    with connect() as line:
        line.sendall(head(5000) + b"x" * 10)
        time.sleep(0.1)
        line.sendall(b"x" * 3490)
        time.sleep(0.2)
    assert service.ended() == "ClientDisconnect"
    assert service.got == [b"x" * 3500]


def test_more_than_is_wanted_is_refused(taking: Service) -> None:
    service, connect = taking
    service.got.clear()
    with connect() as line:
        line.sendall(head(WANTED + 1) + b"x" * (WANTED + 1))
        assert status(line) == b"413"
    assert service.got == []


def test_who_says_nothing_for_long_is_not_waited_for(
    taking: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflow, "PAUSE", 0.3)
    monkeypatch.setattr(inflow, "LOOK", 0.05)
    service, connect = taking
    service.got.clear()
    service.ends.clear()
    with connect() as line:
        line.sendall(head(5000) + b"x" * 10)
        assert service.ended() == "TimeoutError"
        assert status(line) == b"200"
    assert service.got == [b"x" * 10]


def test_who_sends_too_slowly_is_not_waited_for(taking: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflow, "PAUSE", 0.5)
    monkeypatch.setattr(inflow, "LOOK", 0.05)
    service, connect = taking
    service.ends.clear()
    with connect() as line, contextlib.suppress(OSError):
        line.sendall(head(5000))
        while not service.ends:
            line.sendall(b"x")
            time.sleep(0.1)
    assert service.ended() == "TimeoutError"


def test_without_a_connection_of_ours_pieces_are_copied() -> None:
    messages = [{"type": "http.request", "body": bytes([each]) * 700, "more_body": True} for each in range(3)]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.request", "body": b"", "more_body": False}

    async def read() -> list[bytes]:
        body, buffer, parts = LongBody(Request({"type": "http"}, receive), WANTED), Buffer(ROOM, ROOM), []
        more = True
        while more:
            more = await body.fill(buffer)
            parts.append(bytes(buffer.view()))
            buffer.held = 0
        return parts

    parts = asyncio.run(read())
    assert [len(part) for part in parts] == [ROOM, ROOM, 100]
    assert b"".join(parts) == bytes(700) + b"\1" * 700 + b"\2" * 700
