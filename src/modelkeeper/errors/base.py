"""The root of all errors."""

from typing import ClassVar


class ModelKeeperError(Exception):
    """The root: `except ModelKeeperError` catches all that modelkeeper raises on purpose."""

    code: ClassVar[str] = "error"  # names the class on the wire; no other class has it, and it never changes
    status: ClassVar[int] = 500  # of HTTP; 500: nothing that a service says to those who call it
