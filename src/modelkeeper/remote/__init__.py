"""A coordinator behind HTTP, with the same methods, errors and results as one in this process."""

from modelkeeper.remote.calls import address
from modelkeeper.remote.coordinator import RemoteCoordinator
from modelkeeper.remote.spool import Spool, default_spool

__all__ = ["RemoteCoordinator", "Spool", "address", "default_spool"]
