"""ModelKeeper: warm starts for neural-network training.

Importing it is cheap: what needs NumPy or a framework is imported where it is used.
"""

from modelkeeper.errors import ModelKeeperError

__all__ = ["ModelKeeperError", "__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is first asked for."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("modelkeeper")
