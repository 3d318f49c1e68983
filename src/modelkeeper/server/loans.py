"""Which loans does a service remember between two requests? What `/query` planned, `/weights` streams.

    loans.remember(graph_bytes, query, loan)                what a query planned, for the request that follows
    key, loan = loans.find(graph_bytes, query, parent)      its weights: planned once, not again
    loans.stream(key, loan, total, start)                   their bytes; at the end their checksum is known

All of it is memory that may be lost at any moment: a service that restarts plans again, and gives the same
bytes. Who may see a parent is asked anew for every request.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from modelkeeper.coordinator.base import ServedCoordinator, ServedLoan
from modelkeeper.coordinator.wire import weights_key
from modelkeeper.errors import InvalidMeta
from modelkeeper.meta import Query
from modelkeeper.server.graphs import read_graph
from modelkeeper.zoo.records import ACTIVE, Viewer, is_id

PIECE = 2**20  # bytes handed to the network at a time
MOST_PLANNED = 64  # loans that a query planned and nobody has fetched yet
MOST_BEGUN = 16  # streams that are begun again without planning again
MOST_CHECKSUMS = 1000

V = TypeVar("V")


class Recent(Generic[V]):
    """A mapping that forgets what was put into it longest ago. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._values: OrderedDict[str, V] = OrderedDict()

    def put(self, key: str, value: V) -> None:
        """Remember a value as the newest."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def get(self, key: str) -> V | None:
        """The value, if it is remembered."""
        with self._lock:
            return self._values.get(key)


class Loans:
    """The loans of one service that were planned or sent lately."""

    def __init__(self, coordinator: ServedCoordinator) -> None:
        self._coordinator = coordinator
        self._planned: Recent[ServedLoan] = Recent(MOST_PLANNED)
        self._begun: Recent[ServedLoan] = Recent(MOST_BEGUN)
        self._checksums: Recent[str] = Recent(MOST_CHECKSUMS)

    def remember(self, graph: bytes, query: Query, loan: ServedLoan) -> None:
        """Keep what a query planned, for the request of its weights."""
        parent = loan.answer.parent
        if parent is None or loan.answer.dry_run:
            return
        record = self._coordinator.known([parent]).get(parent)
        if record is not None:
            self._planned.put(weights_key(record.checksum, graph, query), loan)

    def find(self, graph: bytes, query: Query, parent: str, viewer: Viewer | None) -> tuple[str, ServedLoan]:
        """What a parent lends to a model, and the name of just these bytes.

        Raises:
            UnknownModel: There is no such parent that the viewer may see, or it lends to nobody any more.
        """
        if not is_id(parent):
            raise InvalidMeta("parent", repr(parent[:80]), "give the id that the answer names")
        record = self._coordinator.show(parent, viewer)
        key = weights_key(record.checksum, graph, query)
        loan = self._begun.get(key)  # a stream that was begun goes on, whatever became of the parent since
        if loan is None and record.state == ACTIVE:
            loan = self._planned.get(key)
        if loan is None:
            loan = self._coordinator.lend(read_graph(graph), query, record.id, viewer)
        self._begun.put(key, loan)
        return key, loan

    def stream(self, key: str, loan: ServedLoan, total: int, start: int) -> Iterator[memoryview]:
        """The bytes of a loan from a place on; at their end their checksum is known."""
        digest, at = hashlib.sha256(), 0
        for chunk in loan.stream():
            digest.update(chunk)
            if at + len(chunk) == total:  # before its last byte leaves, so that nobody can ask too early
                self._checksums.put(key, digest.hexdigest())
            view = memoryview(chunk)[max(0, start - at) :]
            for begin in range(0, len(view), PIECE):
                yield view[begin : begin + PIECE]
            at += len(chunk)

    def checksum(self, key: str) -> str | None:
        """The checksum of a stream that this process has sent to its end."""
        return self._checksums.get(key)
