"""One conversation with an upstream, within a time: which of its models would do, and its files.

    with Line(url, token, settings, seconds, via) as line:
        answer = line.query(graph, query)
        record = line.record(answer.parent)
        line.weights(record, path)

All that comes is looked at as what any coordinator says: ids, sizes, checksums; but a line that broke is not
tried again, since a training waits. What arrived of weights stays in its file, for the next time.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import msgspec

from modelkeeper.coordinator.remote.allowance import Allowance
from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.remote.downloads import download
from modelkeeper.coordinator.wire import VIA, QueryRequest
from modelkeeper.graph import Graph, to_json
from modelkeeper.meta import Query
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.records import Record


class _Strict(Allowance):
    """So many seconds, however much comes."""

    def came(self, size: int) -> None:
        """Whoever asked waits no longer for that."""


class Line:
    """The line to one upstream, for one query."""

    def __init__(self, url: str, token: str, timeout: float, seconds: float, via: Sequence[str]) -> None:
        self.url = url
        headers = {VIA: ",".join(via)}
        self._calls = Calls(url, token, min(timeout, seconds), headers=headers, pauses=())
        self._left = _Strict(seconds)
        self._left.__enter__()  # the time of all that is done with it counts

    def __enter__(self) -> "Line":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._calls.close()

    def query(self, graph: Graph, query: Query, *, dry_run: bool) -> Answer:
        """Which models of theirs would lend to this one, the best first."""
        raw = msgspec.Raw(to_json(graph))
        body = msgspec.json.encode(QueryRequest(graph=raw, query=query, dry_run=dry_run, runners_up=True))
        return self._calls.ask("POST", "/query", Answer, body=body, allowance=self._left)

    def record(self, model: str) -> Record:
        """What they say of a model."""
        record = self._calls.ask("GET", f"/models/{model}", Record, allowance=self._left)
        if record.id != model:
            self._calls.refuse(f"{record.id} instead of {model}")
        return record

    def graph(self, record: Record) -> bytes:
        """The graph of a model, as it was registered there."""
        return bytes(self._calls.ask("GET", f"/models/{record.id}/graph", msgspec.Raw, allowance=self._left))

    def program(self, record: Record) -> bytes:
        """The program of a model; b"": it has none."""
        kind = bytes | None
        path = f"/models/{record.id}/program"
        return self._calls.ask("GET", path, kind, allowance=self._left) or b""  # type: ignore[arg-type]

    def signature(self, record: Record) -> bytes:
        """What somebody signed of a model; b"": nobody did."""
        kind = bytes | None
        path = f"/models/{record.id}/signature"
        return self._calls.ask("GET", path, kind, allowance=self._left) or b""  # type: ignore[arg-type]

    def weights(self, record: Record, path: Path) -> None:
        """Its weights into a file, compared with the checksum of its record."""
        download(self._calls, record, path, self._left)

    def refuse(self, problem: str) -> NoReturn:
        """Raise the error for what they cannot mean."""
        self._calls.refuse(problem)
