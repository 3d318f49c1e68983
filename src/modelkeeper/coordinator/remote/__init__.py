"""A coordinator behind HTTP, with the same methods, errors and results as one in this process."""

from modelkeeper.coordinator.remote.calls import address
from modelkeeper.coordinator.remote.coordinator import RemoteCoordinator
from modelkeeper.coordinator.remote.spool import Spool

__all__ = ["RemoteCoordinator", "Spool", "address"]
