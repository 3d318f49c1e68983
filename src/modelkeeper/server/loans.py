"""Which loans does a service remember between two requests? What `/query` planned, `/weights` streams.

    loans.remember(graph_bytes, query, loan)                what a query planned, for the request that follows
    key, loan = loans.find(graph_bytes, query, parents)     its weights: planned once, not again
    loans.stream(key, loan, total, start)                   their bytes, and their checksum behind them

All of it is memory that may be lost at any moment: a service that restarts plans again, and gives the same
bytes. Who may see parents, and whether they lend, is asked anew for every request. Of a loan that nobody has
fetched the plan is kept alone: a file that is mapped into memory would take up the disk after it is deleted.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modelkeeper.coordinator.base import ServedCoordinator, ServedLoan
from modelkeeper.coordinator.wire import weights_key
from modelkeeper.errors import ModelKeeperError
from modelkeeper.meta import Query
from modelkeeper.server.graphs import read_graph
from modelkeeper.zoo.database.recent import Recent
from modelkeeper.zoo.records import Viewer

if TYPE_CHECKING:
    from modelkeeper.transform import Decisions

PIECE = 2**20  # bytes handed to the network at a time
MOST_PLANNED = 64  # plans that a query made, for whoever fetches what they lend
MOST_PLANNED_BYTES = 16 * 2**20  # of their graphs as JSON; a plan takes up some 25 times as much
MOST_BEGUN = 16  # streams that are begun again without planning again
MOST_CHECKSUMS = 1000


class Loans:
    """The loans of one service that were planned or sent lately."""

    def __init__(self, coordinator: ServedCoordinator, seconds: float = math.inf) -> None:
        """A plan that must be made again may take so many seconds."""
        self._coordinator, self._seconds = coordinator, seconds
        self._planned: Recent[str, Decisions] = Recent(MOST_PLANNED, MOST_PLANNED_BYTES)
        self._begun: Recent[str, ServedLoan] = Recent(MOST_BEGUN)
        self._checksums: Recent[str, str] = Recent(MOST_CHECKSUMS)

    def remember(self, graph: bytes, query: Query, loan: ServedLoan) -> None:
        """Keep what a query planned, for the request of its weights."""
        if loan.plan is not None and not loan.answer.dry_run:
            ids = [parent.id for parent in loan.answer.parents]
            self._planned.put(_plan_key(ids, graph, query), loan.plan, len(graph))

    def find(
        self, graph: bytes, query: Query, parents: Sequence[str], viewer: Viewer | None
    ) -> tuple[str, ServedLoan]:
        """What parents (ids) lend to a model together, and the name of just these bytes.

        Raises:
            UnknownModel: One of them is not there for the viewer, or lends to nobody any more.
        """
        checksums = [self._coordinator.show(parent, viewer).checksum for parent in parents]
        key = weights_key(checksums, graph, query)
        loan = self._begun.get(key)  # a stream that was begun goes on, whatever became of the parents since
        if loan is None:
            plan = self._planned.get(_plan_key(parents, graph, query))
            loan = self._coordinator.lend(
                read_graph(graph), query, parents, viewer, plan=plan, seconds=self._seconds
            )
        self._begun.put(key, loan)
        return key, loan

    def stream(
        self, key: str, loan: ServedLoan, total: int, start: int, *, sealed: bool = False
    ) -> Iterator[memoryview]:
        """The bytes of a loan from a place on, if `sealed` with their SHA-256 (of all of them) behind them.

        A parent that is removed or damaged on the way ends the stream early; whoever goes on is told so.
        """
        digest, at = hashlib.sha256(), 0
        for chunk in self._until_lost(key, loan):
            digest.update(chunk)
            if at + len(chunk) == total:  # before its last byte leaves, so that nobody can ask too early
                self._checksums.put(key, digest.hexdigest())
            view = memoryview(chunk)[max(0, start - at) :]
            for begin in range(0, len(view), PIECE):
                yield view[begin : begin + PIECE]
            at += len(chunk)
        if sealed:
            yield memoryview(digest.digest())[max(0, start - total) :]

    def _until_lost(self, key: str, loan: ServedLoan) -> Iterator[memoryview | bytes]:
        try:
            yield from loan.stream()
        except ModelKeeperError:
            self._begun.drop(key)
            raise

    def checksum(self, key: str) -> str | None:
        """The checksum of a stream that this process has sent to its end."""
        return self._checksums.get(key)


def _plan_key(parents: Sequence[str], graph: bytes, query: Query) -> str:
    """Names a plan: by the ids of the parents, as models with the same weights may have other graphs."""
    return weights_key(parents, graph, query)
