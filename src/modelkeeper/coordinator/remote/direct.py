"""How do large files go straight to and from the store, past the coordinator and whatever proxies it?

    calls.direct.send(url, file, size, allowance)        True: the store has it
    calls.direct.fetch(url, start, total, allowance)     its bytes from a place on, as far as they come

The coordinator gives out a URL for just one object, for some minutes, after its own checks; it is signed, and
the only one that is believed, since who gave it is authenticated. No token goes to the store, and no redirect
is followed. What comes is checked as if the coordinator had sent it. A store that cannot be reached from here
costs one line in the log, and the coordinator carries the bytes.
"""

import time
from collections.abc import Iterator
from typing import BinaryIO

import httpx

from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.certificates import trusted
from modelkeeper.coordinator.remote.long_bodies import body_of
from modelkeeper.logs import logger

CONNECT = 3.0  # seconds to reach the store: the other way is there
AGAIN = 600.0  # seconds after which a store that could not be reached is tried again
PIECE = 2**20
_log = logger()


class Direct:
    """The way to the store of one coordinator. Safe to use from several threads."""

    def __init__(self, coordinator: str, timeout: float, *, wanted: bool) -> None:
        """`coordinator`: its URL; over https, the store must be, too."""
        self._secure, self._timeout = coordinator.startswith("https:"), timeout
        self._wanted, self._closed_until = wanted, 0.0

    @property
    def open(self) -> bool:
        """Is it worth asking for a URL?"""
        return self._wanted and time.monotonic() >= self._closed_until

    def send(self, url: str, file: BinaryIO, size: int, allowance: Allowance) -> bool:
        """Send a whole file. Did the store take it?"""

        def pieces() -> Iterator[bytes]:
            while (piece := file.read(PIECE)) and allowance.left() > 0:
                yield piece

        try:
            headers = {"content-length": str(size), "content-type": "application/octet-stream"}
            with self._client(url) as client, allowance:
                reply = client.put(url, content=pieces(), headers=headers)
            if reply.is_success:
                return True
            self._close(url, f"HTTP status {reply.status_code}")
        except httpx.HTTPError as problem:
            self._close(url, str(problem) or type(problem).__name__)
        return False

    def fetch(self, url: str, start: int, total: int, allowance: Allowance) -> Iterator[bytes]:
        """The bytes of a file of this length from a place on; if they end early, the rest is elsewhere."""
        headers = {"range": f"bytes={start}-", "accept-encoding": "identity"}
        try:
            with self._client(url) as client, client.stream("GET", url, headers=headers) as reply:
                whole = reply.status_code == 200 and not start
                if not whole and reply.headers.get("content-range") != f"bytes {start}-{total - 1}/{total}":
                    self._close(url, f"HTTP status {reply.status_code}")
                    return
                left = total - start
                for chunk in body_of(reply):
                    yield chunk[:left]
                    left -= len(chunk)
                    allowance.came(len(chunk))
                    if left <= 0 or allowance.left() <= 0:
                        return
        except httpx.HTTPError as problem:
            self._close(url, str(problem) or type(problem).__name__)

    def _client(self, url: str) -> httpx.Client:
        """A connection without anything that a coordinator knows us by.

        Raises:
            UnsupportedProtocol: The URL is none that may be used.
        """
        place = httpx.URL(url)
        if place.scheme not in (("https",) if self._secure else ("http", "https")) or place.userinfo:
            raise httpx.UnsupportedProtocol("a URL that is not as safe as the coordinator's")
        timeout = httpx.Timeout(self._timeout, connect=min(CONNECT, self._timeout))
        return httpx.Client(follow_redirects=False, timeout=timeout, verify=trusted())

    def _close(self, url: str, problem: str) -> None:
        self._closed_until = time.monotonic() + AGAIN
        host = httpx.URL(url).host
        _log.warning(
            "the store at %s is not used directly: %s; the coordinator carries weights", host, problem
        )
