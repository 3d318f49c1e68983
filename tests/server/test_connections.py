"""Do connections that say nothing, or too little, keep out those who have something to ask?"""

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server import connections
from modelkeeper.server.connections import LEAST, room_for
from modelkeeper.server.serve import serving
from modelkeeper.server.sparing_log import Sparing
from modelkeeper.settings import ServiceSettings, Settings
from tests.helpers.service import Team, team


@contextlib.contextmanager
def small(tmp_path: Path, most: int) -> Iterator[str]:
    """A service that has room for few connections."""
    local = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    with serving(local, ServiceSettings(port=0, auth=False, connections=most)) as url:
        yield url
    local.close()


def opened(url: str, said: bytes = b"") -> socket.socket:
    where = httpx.URL(url)
    line = socket.create_connection((where.host, where.port), timeout=30)
    if said:
        line.sendall(said)
    return line


def closed(line: socket.socket) -> bool:
    """Does the other side hang up, before the test gives up?"""
    try:
        while line.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def trickle(line: socket.socket) -> None:
    """A byte now and then, for long."""
    for _ in range(300):
        line.sendall(b"x")
        time.sleep(0.05)


def turned_away(line: socket.socket) -> bool:
    """Is a request refused that has not ended? Either it is told so, or it has made room since."""
    line.settimeout(0.2)
    try:
        return b" 429 " in line.recv(200)
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_who_says_nothing_keeps_nobody_out(tmp_path: Path) -> None:
    with small(tmp_path, 20) as url, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(opened(url)) for _ in range(100)]
        for _ in range(5):
            assert httpx.get(f"{url}/v1/stats", timeout=30).status_code == 200
        assert sum(closed(line) for line in idle[:50]) == 50  # they gave way


def test_who_keeps_many_connections_open_finds_them_closed_one_by_one(tmp_path: Path) -> None:
    """Connections that had a request, and have none now, give way; the ones that work do not."""
    with small(tmp_path, 20) as url:
        clients = [httpx.Client(base_url=url, timeout=30) for _ in range(40)]
        with contextlib.ExitStack() as stack:
            for client in clients:
                stack.enter_context(client)
                assert client.get("/v1/count").json() == 0


HEAD = b"POST /v1/query HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /v1/st",
        b"GET /v1/stats HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        b"GET /v1/nothing HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /v1",
        b"PUT /v1/nothing HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\nsome",
    ],
)
def test_a_head_has_its_time(tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD", 0.3)
    monkeypatch.setattr(connections, "KEPT", 1)
    monkeypatch.setattr("modelkeeper.server.serve.KEPT", 1)
    with small(tmp_path, 20) as url, opened(url, said) as line:
        assert closed(line)


def test_a_byte_now_and_then_is_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD", 0.5)
    with small(tmp_path, 20) as url:
        with opened(url) as line, pytest.raises(OSError):  # noqa: PT011 (reset, or a broken pipe)
            trickle(line)


def test_a_body_that_nobody_reads_any_more_has_its_time_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its reply a connection that goes on sending was kept for ever."""
    monkeypatch.setattr(connections, "HEAD", 0.5)
    with team(tmp_path) as keeper:
        head = b"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-length: 99999\r\n\r\n"
        with opened(keeper.url, head) as line, pytest.raises(OSError):  # noqa: PT011
            trickle(line)


def test_a_reply_that_nobody_reads_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting_for: Callable[[Callable[[], bool]], None]
) -> None:
    monkeypatch.setattr(connections, "STALLED", 0.3)
    crowds: list[connections.Crowd] = []
    made = connections.Crowd.__init__

    def remembered(self: connections.Crowd, most: int, of_one: int) -> None:
        made(self, most, of_one)
        crowds.append(self)

    monkeypatch.setattr(connections.Crowd, "__init__", remembered)
    with small(tmp_path, 20) as url:
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        where = httpx.URL(url)
        line.connect((where.host, where.port))
        line.settimeout(1)
        asked = b"GET /openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        with contextlib.suppress(OSError):
            for _ in range(3000):
                line.sendall(asked)
        waiting_for(lambda: len(crowds[0]) == 0)
        line.close()


@pytest.fixture
def waiting_for() -> Callable[[Callable[[], bool]], None]:
    def wait(happened: Callable[[], bool]) -> None:
        for _ in range(600):
            if happened():
                return
            time.sleep(0.05)
        raise AssertionError("it did not happen")

    return wait


def test_one_address_gets_a_part() -> None:
    class Line:
        def __init__(self, address: str) -> None:
            self.address, self.transport = address, self
            self.gone = False

        def abort(self) -> None:
            self.gone = True

    crowd = connections.Crowd(4, 2)
    mallory = [Line("10.0.0.1") for _ in range(3)]
    for line in mallory[:2]:
        assert crowd.enter(line)  # type: ignore[arg-type]
        crowd.work(line)  # type: ignore[arg-type]
    assert not crowd.enter(mallory[2])  # type: ignore[arg-type]  # both of its connections have a request
    crowd.rest(mallory[0])  # type: ignore[arg-type]
    assert crowd.enter(mallory[2])  # type: ignore[arg-type]
    assert mallory[0].gone
    others = [Line(f"10.0.0.{number}") for number in (2, 3, 4)]
    for line in others:
        assert crowd.enter(line)  # type: ignore[arg-type]
    assert mallory[2].gone  # it had no request, and was there first
    assert len(crowd) == 4


def test_there_are_never_more_connections_than_files() -> None:
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert room_for(10**9, more_files=False) < soft or soft == resource.RLIM_INFINITY
    assert room_for(LEAST, more_files=False) == LEAST


def test_one_user_does_not_take_all_connections(tmp_path: Path) -> None:
    with team(tmp_path, connections=20) as keeper:
        ada, token = keeper.join("ada"), keeper.token("mallory")
        head = HEAD + f"authorization: Bearer {token}\r\ncontent-length: 1000\r\n\r\n{{".encode()
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(opened(keeper.url, head)) for _ in range(30)]
            assert sum(map(turned_away, lines)) == 20
            assert ada.count() == 0


def test_lines_about_strangers_are_few(keeper: Team, caplog: pytest.LogCaptureFixture) -> None:
    logger, spared = logging.getLogger("modelkeeper.server.refused"), Sparing(lines=5, seconds=1000.0)
    caplog.set_level("INFO", "modelkeeper.server.refused")
    logger.addFilter(spared)
    try:
        with httpx.Client(base_url=keeper.url) as client:
            for _ in range(40):
                assert client.get("/v1/stats").status_code == 401
    finally:
        logger.removeFilter(spared)
    assert len([record for record in caplog.records if record.name == "modelkeeper.server.refused"]) == 5
