"""Does a long reply arrive whole when it is read from the line itself, and are errors those of httpx?"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from modelkeeper.coordinator.remote import long_bodies
from modelkeeper.coordinator.remote.long_bodies import LONG, body_of

CONTENT = bytes(range(256)) * (LONG // 128)  # twice as much as is long
HEAD = f"HTTP/1.1 200 OK\r\ncontent-length: {len(CONTENT)}\r\n\r\n".encode()


@contextlib.contextmanager
def answering(*answers: Callable[[socket.socket], None]) -> Iterator[str]:
    """A service that answers one request on each line, in its way."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        for answer in answers:
            line, _ = listening.accept()
            with line, contextlib.suppress(OSError):
                said = b""
                while b"\r\n\r\n" not in said:
                    said += line.recv(65536)
                answer(line)
        over.wait(30)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        thread.join()
        listening.close()


def whole(line: socket.socket) -> None:
    line.sendall(HEAD + CONTENT)


def short(line: socket.socket) -> None:
    line.sendall(HEAD + CONTENT[:-1])


def in_chunks(line: socket.socket) -> None:
    line.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    half = len(CONTENT) // 2
    for part in (CONTENT[:half], CONTENT[half:], b""):
        line.sendall(b"%x\r\n%s\r\n" % (len(part), part))


def test_a_long_body_is_read_from_the_line() -> None:
    with answering(whole, whole) as url, httpx.Client() as client:
        for _ in range(2):  # the second time on a new line
            with client.stream("GET", url) as reply:
                chunks = list(body_of(reply))
            assert b"".join(chunks) == CONTENT
            assert max(map(len, chunks)) > 2**16  # more than httpx reads at a time


def test_one_that_is_not_long_leaves_the_line_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_bodies, "LONG", 2 * len(CONTENT))

    def twice(line: socket.socket) -> None:
        whole(line)
        line.recv(65536)
        whole(line)

    with answering(twice) as url, httpx.Client() as client:
        for _ in range(2):
            with client.stream("GET", url) as reply:
                assert b"".join(body_of(reply)) == CONTENT


def test_one_in_chunks_arrives_too() -> None:
    with answering(in_chunks) as url, httpx.stream("GET", url) as reply:
        assert b"".join(body_of(reply)) == CONTENT


def test_a_line_that_breaks_is_an_error_of_httpx() -> None:
    with answering(short) as url, httpx.stream("GET", url) as reply:
        came: list[bytes] = []
        with pytest.raises(httpx.RemoteProtocolError):
            came.extend(body_of(reply))
    assert b"".join(came) == CONTENT[:-1]


def test_a_line_that_falls_silent_is_an_error_of_httpx() -> None:
    over = threading.Event()

    def silent(line: socket.socket) -> None:
        short(line)
        over.wait(30)

    with answering(silent) as url, httpx.stream("GET", url, timeout=0.5) as reply:
        with pytest.raises(httpx.ReadTimeout):
            list(body_of(reply))
        over.set()


def test_without_a_line_it_is_what_httpx_gives() -> None:
    sent = httpx.MockTransport(lambda request: httpx.Response(200, stream=httpx.ByteStream(CONTENT)))
    with httpx.Client(transport=sent) as client, client.stream("GET", "http://keeper") as reply:
        assert b"".join(body_of(reply)) == CONTENT
