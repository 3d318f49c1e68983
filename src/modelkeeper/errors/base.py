"""The root of all errors."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from modelkeeper.errors.words import printable


class ModelKeeperError(Exception):
    """The root: `except ModelKeeperError` catches all that modelkeeper raises on purpose.

    Its fields are as they were given; its text never holds what would steer a terminal: see `words`.
    """

    code: ClassVar[str] = "error"  # names the class on the wire; no other class has it, and it never changes
    status: ClassVar[int] = 500  # of HTTP; 500: nothing that a service says to those who call it

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__str__" in cls.__dict__:
            cls.__str__ = _cleaned(cls.__str__)  # type: ignore[method-assign]

    def __str__(self) -> str:
        return printable(super().__str__())


def _cleaned(said: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(said)
    def text(error: ModelKeeperError) -> str:
        return printable(said(error))

    return text
