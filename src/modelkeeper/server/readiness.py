"""Can this replica take requests now, and if not, why?

    readiness.expect()      or NotReady, StoreSilent, ZooUnusable: what `/readyz` says
    readiness.kept_up()     the search index has all that was registered up to now: see `following`
    readiness.fell_behind(problem)      it has not, and why

It can when the catalog and the store answer, the search index is there with all that was registered, and
nobody has told it to stop. That is asked anew again and again: shards can be lost, and an index that does not
keep up for long is of no use to queries, which would have to wait for it.
"""

import time

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.errors import ModelKeeperError, NotReady, ShardsUnreachable

STALE = 30.0  # seconds after which an index that has not been seen to keep up does not


class Readiness:
    """What one service waits for before it says that it is ready."""

    def __init__(self, coordinator: ServedCoordinator) -> None:
        self._coordinator = coordinator
        self._kept_up: float | None = None  # when the index last had everything; None: it never had
        self._problem: ModelKeeperError | None = None  # why it had not, the last time
        self.stopping = False  # was it told to stop? Then what is under way is finished

    @property
    def index_open(self) -> bool:
        """Has the index had everything, once?"""
        return self._kept_up is not None

    def kept_up(self) -> None:
        """The index has all that was registered up to now."""
        self._kept_up, self._problem = time.monotonic(), None

    def fell_behind(self, problem: ModelKeeperError | None) -> None:
        """The index could not be brought up to date; None: for a reason that nobody thought of."""
        self._problem = problem

    def expect(self) -> None:
        """Return if requests can be taken.

        Raises:
            NotReady: The index is not there, or does not keep up, or the service was told to stop.
            StoreSilent: The store does not answer in time.
            ZooUnusable: The catalog or shards do not answer, or the store is not the one that it belongs to.
        """
        if self.stopping:
            raise NotReady("it was told to stop", "Ask another one.")
        self._coordinator.ready()
        kept_up, problem = self._kept_up, self._problem
        if kept_up is None:
            raise NotReady("its search index is being opened", "Wait for it.")
        if isinstance(problem, NotReady | ShardsUnreachable):  # what queries need is not there
            raise type(problem)(*problem.args)
        age = time.monotonic() - kept_up
        if age > STALE:
            raise NotReady(f"its search index has not kept up for {age:.0f} s", "Its log says more.")
