"""Is the zoo of this process ready to be served, and what does it share with other services of the zoo?"""

import contextlib
from typing import TYPE_CHECKING

from modelkeeper.zoo.zoo import Zoo

if TYPE_CHECKING:
    from modelkeeper.zoo.replicas.replica import Replica


class LocalReplica:
    """What a service does with a coordinator beside requests."""

    zoo: Zoo

    def ready(self) -> None:
        """Return if the catalog and the store answer: see `ServedCoordinator`."""
        self.zoo.expect_catalog()
        self.zoo.catalog.clock()
        self.zoo.expect_store()

    @property
    def replica(self) -> "Replica":
        """What a service of it shares with other services of the same zoo; each time another one."""
        from modelkeeper.zoo.replicas.replica import Replica

        return Replica(self.zoo.catalog.database)

    def follow(self) -> None:
        """Bring the search index up to date, ahead of queries; the first time it is opened."""
        with contextlib.nullcontext() if self.zoo.index_open else self.zoo.snapshots.turn():
            self.zoo.expect_index()

    def share_index(self) -> None:
        """Put the search index where new replicas find it, if enough has changed. The leader does so."""
        self.zoo.share_index()
