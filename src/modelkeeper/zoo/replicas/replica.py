"""What does one of several services over a zoo share with the others? Counts, a leader, and users' rates.

    replica = Replica(catalog.database)
    replica.counts()                        have models or accounts changed?
    replica.leader.take()                   is it for this one to tidy up?
    replica.settle(spent)                   what users may still ask of all of them
    with replica.listening(wake): ...       where the database tells what others do

All of it lies in the catalog; a service alone does the same.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from modelkeeper.zoo.database import notices
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.replicas import shared_rates
from modelkeeper.zoo.replicas.leader import Leader, who_leads
from modelkeeper.zoo.replicas.shared_rates import Spent


class Replica:
    """One of those who serve a zoo. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.leader = Leader(database)

    def counts(self) -> tuple[int, int]:
        """How many changes of models, and of accounts, there have been."""
        return notices.counts(self._database)

    def listening(self, wake: Callable[[], None]) -> AbstractContextManager[bool]:
        """Call `wake` whenever others have changed something: see `notices`."""
        return notices.listening(self._database, wake)

    def settle(self, spent: Mapping[str, Spent]) -> dict[str, float]:
        """Take what users have asked for from what they may ask of all replicas: see `shared_rates`."""
        return {} if self._database.read_only else shared_rates.settle(self._database, spent)

    def forget_rates(self) -> None:
        """Forget who has asked for nothing for long."""
        shared_rates.forget(self._database)

    def who_leads(self) -> str:
        """Who leads, as `machine:process`; "": nobody."""
        return who_leads(self._database)
