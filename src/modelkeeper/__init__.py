"""ModelKeeper: warm starts for neural-network training.

Importing it is cheap: what needs NumPy or a framework is imported where it is used.
"""

from typing import TYPE_CHECKING, Any

from modelkeeper.errors import ModelKeeperError

if TYPE_CHECKING:
    from modelkeeper.client import KeeperWarning, ModelKeeperClient
    from modelkeeper.importing.bulk import import_models
    from modelkeeper.warmstart.transfer import Report, transfer

__all__ = [
    "KeeperWarning",
    "ModelKeeperClient",
    "ModelKeeperError",
    "Report",
    "__version__",
    "import_models",
    "transfer",
]

_HOMES = {
    "KeeperWarning": "modelkeeper.client",
    "ModelKeeperClient": "modelkeeper.client",
    "Report": "modelkeeper.warmstart.transfer",
    "import_models": "modelkeeper.importing.bulk",
    "transfer": "modelkeeper.warmstart.transfer",
}

__version__: str


def __getattr__(name: str) -> Any:
    """What is not cheap, looked up when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("modelkeeper")
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
