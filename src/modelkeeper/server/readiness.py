"""Can this replica take requests now, and if not, why?

    readiness.expect()      or NotReady, StoreSilent, ZooUnusable: what `/readyz` says

It can when the catalog and the store answer, the search index is there with all that was registered before
the replica started, and nobody has told it to stop.
"""

from modelkeeper.coordinator.base import ServedCoordinator
from modelkeeper.errors import NotReady


class Readiness:
    """What one service waits for before it says that it is ready."""

    def __init__(self, coordinator: ServedCoordinator) -> None:
        self._coordinator = coordinator
        self.index_open = False  # has the index caught up, once? From then on each query sees to it
        self.stopping = False  # was it told to stop? Then what is under way is finished

    def expect(self) -> None:
        """Return if requests can be taken.

        Raises:
            NotReady: The index is not there yet, or the service was told to stop.
            StoreSilent: The store does not answer in time.
            ZooUnusable: The catalog does not answer, or the store is not the one that it belongs to.
        """
        if self.stopping:
            raise NotReady("it was told to stop", "Ask another one.")
        self._coordinator.ready()
        if not self.index_open:
            raise NotReady("its search index is being opened", "Wait for it.")
