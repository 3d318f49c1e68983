"""Receive weights: into a file, going on where the line broke, and sure that they are what was sent.

Nothing of what comes is believed: the tensors must be tensors of the model that asked, of its types and
shapes, in just the bytes that were announced, and all bytes together must have the checksum that the
coordinator computed while it sent them. It comes behind them, so none is given out before.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import numpy as np

from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.calls import PAUSES, Busy, Calls
from modelkeeper.coordinator.remote.long_bodies import body_of
from modelkeeper.coordinator.wire import DIRECT_BYTES, SEAL, SEAL_BYTES, Signed
from modelkeeper.errors import CoordinatorUnreachable, InvalidWeights
from modelkeeper.graph import Graph
from modelkeeper.weights import MAX_HEADER, Array, Header, holds_nan, map_file
from modelkeeper.write_buffers import BackgroundWriter
from modelkeeper.zoo.files.unusable import zoo_unusable
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.zoo import stored_tensors

PIECE = 2**20  # numbers that are looked at at a time
SLOWEST = 10_000  # bytes per second; whoever sends less holds up a training more than it helps


class Stream:
    """The body of a reply, from as many requests as it takes."""

    def __init__(
        self,
        calls: Calls,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        most: int,
        start: int = 0,
        allowance: Allowance,
        sealed: bool = False,
    ) -> None:
        """`most` is the largest size that can be meant, `start` how much of it is there already.

        If `sealed`, the SHA-256 of all is asked for behind it: `seal` at the end, "" from older services.
        """
        self._calls, self._method, self._path, self._body = calls, method, path, body
        self._most, self.at, self._allowance = most, start, allowance
        self._sealed, self._seal = sealed, bytearray()
        self.total, self.etag = -1, ""

    @property
    def seal(self) -> str:
        """The SHA-256 that came behind all, in hexadecimal."""
        return self._seal.hex()

    def __iter__(self) -> Iterator[bytes]:
        failures = 0
        while self.at != self.total:
            before = self.at
            try:
                with self._allowance:
                    yield from self._once()
                if self.at == before and self.at != self.total:
                    raise self._calls.unreachable("it sends nothing")
            except httpx.TimeoutException as late:
                raise self._calls.unreachable(f"it sent nothing for {self._calls.timeout:g} s") from late
            except httpx.HTTPError as broken:
                failures = failures + 1 if self.at == before else 1
                if failures > len(PAUSES):
                    if isinstance(broken, Busy):
                        raise broken.problem from None
                    raise self._calls.unreachable(f"the line broke at byte {self.at:,}: {broken}") from broken
                time.sleep(PAUSES[failures - 1])

    def _once(self) -> Iterator[bytes]:
        headers = {"content-type": "application/json"} if self._body is not None else {}
        if self._sealed:
            headers[SEAL] = "sha256"
        if self.at:
            headers["range"] = f"bytes={self.at}-"
            if self.etag:
                headers["if-range"] = self.etag
        left = self._calls.within(self._allowance, self._calls.timeout)
        with self._calls.client.stream(
            self._method, self._path, content=self._body, headers=headers, timeout=left
        ) as reply:
            if not reply.is_success:
                text = self._calls.read(reply, time.monotonic() + left)
                raise self._calls.broken(reply.status_code, text)
            end = self._understand(reply)
            begun, first = time.monotonic(), self.at
            for chunk in body_of(reply):
                body = max(0, end - self.at)  # of which the rest is the seal
                self.at += len(chunk)
                if self.at > self.total:
                    self._calls.refuse(f"more than the {self.total:,} bytes that it announced")
                if len(chunk) > body:
                    self._seal += chunk[body:]
                    chunk = chunk[:body]
                yield chunk
                self._allowance.came(len(chunk))
                self._calls.within(self._allowance, self._calls.timeout)
                spent = time.monotonic() - begun
                if spent > self._calls.timeout and self.at - first < spent * SLOWEST:
                    raise self._calls.unreachable(f"{self.at - first:,} bytes in {spent:.0f} s are too slow")

    def _understand(self, reply: httpx.Response) -> int:
        """Check what a reply says that it holds. Where does what is sealed end?"""
        try:
            length = int(reply.headers.get("content-length", ""))
        except ValueError:
            self._calls.refuse("weights of unknown length")
        total, etag = self.at + length, reply.headers.get("etag", "")
        if self.at:
            place = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+)", reply.headers.get("content-range", ""))
            if reply.status_code != 206 or place is None or int(place[1]) != self.at:
                raise self._calls.unreachable("the line broke, and what it would send now is something else")
        if self.total not in (-1, total) or self.etag not in ("", etag):
            raise self._calls.unreachable("the line broke, and what it would send now is something else")
        seal = SEAL_BYTES if self._sealed and SEAL in reply.headers else 0
        if not 0 < total - seal <= self._most or not re.fullmatch(r'"[0-9a-f]{64}"', etag):
            self._calls.refuse(f"weights of {total:,} bytes, named {etag[:80]!r}")
        self.total, self.etag = total, etag
        return total - seal


def receive(
    calls: Calls, body: bytes, graph: Graph, allowance: Allowance | None = None
) -> Iterator[tuple[str, Array]]:
    """The tensors that a parent lends to the model with this graph.

    They come into a temporary file without a name, and the first is given out when the last has come and all
    are what was sent: a line that breaks for good changes nothing in a model, and memory holds none of them.

    Raises:
        CoordinatorUnreachable: They do not come, or are not what can be meant.
        ZooUnusable: There is no room for them.
    """
    known = {name: (dtype, shape) for name, dtype, shape in stored_tensors(graph)}
    most = MAX_HEADER + Header.of(stored_tensors(graph)).data_bytes
    allowance = allowance or Allowance()
    stream = Stream(calls, "POST", "/weights", body, most=most, allowance=allowance, sealed=True)
    with _room(tempfile.gettempdir()), tempfile.TemporaryFile(prefix="modelkeeper-", buffering=0) as file:
        with BackgroundWriter(file, most) as writer:
            for chunk in stream:
                writer.add(chunk)
        seal = stream.seal or _asked_for(calls, stream, allowance)
        if seal != writer.digest.hexdigest():
            raise calls.unreachable("the weights were damaged on their way")
        try:
            weights = map_file(file, private=True)
        except InvalidWeights as problem:
            raise calls.nonsense(str(problem)) from problem
    for name, spec in weights.header.tensors.items():
        if known.get(name) != (spec.dtype, spec.shape):
            calls.refuse(f"the model has no tensor {name[:80]!r} of {spec.dtype} {spec.shape}")
    refuse_no_numbers(calls, graph, weights)
    yield from weights.items()


def refuse_no_numbers(calls: Calls, graph: Graph, weights: Mapping[str, Array]) -> None:
    """A model that holds NaN cannot be trained, nor one with infinite parameters; buffers may be masks."""
    for name, array in weights.items():
        endless = not graph.tensors[name].buffer and _holds_infinity(array)
        if endless or holds_nan(array):
            raise calls.unreachable(f"its weights hold {'infinity' if endless else 'NaN'}, in {name[:80]!r}")


def _holds_infinity(array: Array) -> bool:
    """Is any of the numbers infinite? A piece at a time."""
    if array.dtype.kind not in "fcV":
        return False
    flat = array.reshape(-1)
    return any(bool(np.isinf(flat[at : at + PIECE]).any()) for at in range(0, flat.size, PIECE))


def _asked_for(calls: Calls, stream: Stream, allowance: Allowance) -> str:
    """The checksum of a stream from a service that sends none behind it."""
    path = f"/weights/{stream.etag.strip(chr(34))}/checksum"
    return calls.ask("GET", path, dict[str, str], allowance=allowance).get("checksum", "")


def download(calls: Calls, record: Record, path: Path, allowance: Allowance | None = None) -> None:
    """The file of a model's weights, as it was registered. What is there of it already is not sent again.

    Raises:
        CoordinatorUnreachable: It does not come, or was damaged on its way.
        ZooUnusable: It cannot be written.
    """
    part = path.with_name(path.name + ".part")
    source = f"/models/{record.id}/model.safetensors"
    with _room(str(path.parent)), part.open("a+b", buffering=0) as file:
        start = min(file.seek(0, 2), record.bytes)
        file.truncate(start)
        file.seek(0)
        with BackgroundWriter(file, record.bytes) as writer:
            while piece := file.read(2**20):
                writer.digest.update(piece)
            within = allowance or Allowance()
            if url := direct_url(calls, record, within):
                for chunk in calls.direct.fetch(url, start, record.bytes, within):
                    start += len(chunk)
                    writer.add(chunk)
            stream = Stream(calls, "GET", source, most=record.bytes, start=start, allowance=within)
            stream.total, stream.etag = record.bytes, f'"{record.checksum}"'
            for chunk in stream:
                writer.add(chunk)
    if writer.digest.hexdigest() != record.checksum:
        part.unlink()
        raise calls.unreachable("the weights were damaged on their way")
    part.replace(path)


def direct_url(calls: Calls, record: Record, allowance: Allowance) -> str:
    """Where the file of a model can be had from its store; "": the coordinator sends it."""
    if record.bytes < DIRECT_BYTES or not calls.direct.open:
        return ""
    try:
        return calls.ask("GET", f"/models/{record.id}/url", Signed, allowance=allowance).url
    except CoordinatorUnreachable:  # an older one knows no such thing; another says so in the next request
        return ""


@contextlib.contextmanager
def _room(folder: str) -> Iterator[None]:
    """Say where a file could not be written."""
    try:
        yield
    except OSError as problem:
        advice = "Make room there; the variable TMPDIR names another folder for what is temporary."
        raise zoo_unusable(folder, problem.strerror or str(problem), advice, problem) from problem
