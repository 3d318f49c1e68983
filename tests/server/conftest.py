"""Services to test: see `tests.helpers.coordinators`."""

from tests.helpers.coordinators import coordinator, keeper

__all__ = ["coordinator", "keeper"]
