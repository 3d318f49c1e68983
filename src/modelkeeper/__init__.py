"""ModelKeeper: warm starts for neural-network training.

Importing it is cheap: what needs NumPy or a framework is imported where it is used.
"""

from typing import TYPE_CHECKING, Any

from modelkeeper.errors import ModelKeeperError

if TYPE_CHECKING:
    from modelkeeper.transferring import Report, transfer

__all__ = ["ModelKeeperError", "Report", "__version__", "transfer"]

__version__: str


def __getattr__(name: str) -> Any:
    """What is not cheap, looked up when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("modelkeeper")
    if name in ("Report", "transfer"):
        from modelkeeper import transferring

        return getattr(transferring, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
