"""Somebody with a token who means harm, or is careless: what honest clients must not notice.

    with attacking(url, token, until, counts): ...

Each attack goes on until the time is over, whatever it is answered.
"""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import httpx
import msgspec

from benchmarks.helpers.wiring import vgg
from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.graph import to_json
from modelkeeper.meta import read_registration
from modelkeeper.weights import Header
from modelkeeper.zoo.records import new_id
from modelkeeper.zoo.zoo import stored_tensors

JSON = {"content-type": "application/json"}
HEAVY_LAYERS = 1_500


class Attacker:
    """One user, who does all of it at once."""

    def __init__(self, url: str, token: str, until: float, counts: "Counter[str]", idle: int) -> None:
        self._url, self._token, self._until, self._counts, self._idle = url, token, until, counts, idle
        self._where = httpx.URL(url)
        self._sent = {"authorization": f"Bearer {token}"}
        self._small, self._heavy = vgg((8, 16)), to_json(vgg([8] * (HEAVY_LAYERS // 2)))

    def attacks(self) -> list[Callable[[], None]]:
        """All of them; several run more than once at a time."""
        return [
            self.say_nothing,
            self.begin_bodies,
            *[self.ask_heavily] * 4,
            *[self.announce] * 8,
            *[self.send_garbage] * 2,
            self.try_tokens,
        ]

    def _going(self) -> bool:
        return time.monotonic() < self._until

    def _line(self, said: bytes) -> socket.socket:
        line = socket.create_connection((self._where.host, self._where.port or 80), timeout=5)
        line.sendall(said)
        return line

    def _held(self, what: str, said: bytes, many: int, seconds: float) -> None:
        """Open many connections that say this, and hold them for a while; again and again."""
        while self._going():
            with contextlib.ExitStack() as stack:
                for _ in range(many):
                    try:
                        stack.enter_context(self._line(said))
                        self._counts[what] += 1
                    except OSError:
                        time.sleep(0.05)
                    if not self._going():
                        return
                time.sleep(min(seconds, max(0.0, self._until - time.monotonic())))

    def say_nothing(self) -> None:
        """Connections without a request."""
        self._held("hostile: idle connections", b"", self._idle, 5.0)

    def begin_bodies(self) -> None:
        """Bodies of 19.9 MB that never end."""
        head = f"POST /v1/query HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {self._token}\r\n"
        head += "content-type: application/json\r\ncontent-length: 19900000\r\n\r\n"
        self._held("hostile: unfinished bodies", head.encode() + b"{" * 10_000, 100, 5.0)

    def _ask(self, client: httpx.Client, what: str, method: str, path: str, content: bytes = b"") -> int:
        try:
            status = client.request(method, path, content=content, headers=JSON).status_code
        except httpx.HTTPError:
            status = 0
            time.sleep(0.1)
        self._counts[f"hostile: {what}"] += 1
        if status in (403, 429):
            self._counts[f"hostile: {what}, refused"] += 1
            time.sleep(0.02)
        return status

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._url, headers=self._sent, timeout=60)

    def ask_heavily(self) -> None:
        """Queries of a model with many layers."""
        body = b'{"graph": ' + self._heavy + b', "runners_up": true}'
        with self._client() as client:
            while self._going():
                self._ask(client, "heavy queries", "POST", "/v1/query", body)

    def _announcement(self, identity: str) -> tuple[bytes, int]:
        header = Header.of(stored_tensors(self._small))
        size = len(header.to_bytes()) + header.data_bytes
        request = UploadRequest(
            id=identity,
            graph=msgspec.Raw(to_json(self._small)),
            registration=read_registration({"data": "x", "task": "classification", "accuracy": 1.0}, "best"),
            size=size,
            checksum="0" * 64,
            program=b"x" * 2_000_000,
        )
        return msgspec.json.encode(request), size

    def announce(self) -> None:
        """Models that never come, many at a time, each with a large program."""
        with self._client() as client:
            while self._going():
                body, _ = self._announcement(new_id())
                self._ask(client, "announcements", "POST", "/v1/uploads", body)

    def send_garbage(self) -> None:
        """Bytes that are no weights."""
        with self._client() as client:
            while self._going():
                identity = new_id()
                body, size = self._announcement(identity)
                self._ask(client, "garbage uploads", "POST", "/v1/uploads", body)
                self._ask(client, "garbage uploads", "PUT", f"/v1/uploads/{identity}", b"\xff" * size)
                self._ask(client, "garbage uploads", "POST", f"/v1/uploads/{identity}/complete")

    def try_tokens(self) -> None:
        """Tokens that nobody has."""
        with httpx.Client(base_url=self._url, timeout=10) as client:
            while self._going():
                client.headers["authorization"] = f"Bearer mk_{new_id()}_{'A' * 43}"
                self._ask(client, "wrong tokens", "GET", "/v1/models")
                time.sleep(0.005)


@contextlib.contextmanager
def attacking(
    url: str, token: str, until: float, counts: "Counter[str]", idle: int = 1_100
) -> Iterator[None]:
    """Attack a service while the block runs; `idle`: so many connections that say nothing."""
    attacker = Attacker(url, token, until, counts, idle)
    threads = [threading.Thread(target=attack, daemon=True) for attack in attacker.attacks()]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(90)
