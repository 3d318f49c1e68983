"""Is what an extra brings installed? Who needs it and has it not is told which to install.

    need("zoo")     nothing, or NotInstalled: ... pip install "modelkeeper[zoo]"

Without extras there is what `modelkeeper.transfer` needs. Nothing is imported for the answer.
"""

from importlib.util import find_spec

from modelkeeper.errors import NotInstalled

# What is imported of an extra, in the order of pyproject.toml.
MODULES = {
    "zoo": ("alembic", "click", "cryptography", "httpcore", "httpx", "obstore", "safetensors", "sqlalchemy"),
}


def need(extra: str, what: str) -> None:
    """Make sure that an extra is installed.

    Args:
        extra: Its name in pyproject.toml.
        what: What needs it, for the message.

    Raises:
        NotInstalled: One of its packages is missing.
    """
    missing = tuple(name for name in MODULES[extra] if find_spec(name) is None)
    if missing:
        raise NotInstalled(what, missing, extra)
