"""The root of all errors."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from modelkeeper.errors.words import printable

PAGE = "docs/troubleshooting.md"  # where each code has its cause and its remedy


class ModelKeeperError(Exception):
    """The root: `except ModelKeeperError` catches all that modelkeeper raises on purpose.

    Its fields are as they were given; its text never holds what would steer a terminal: see `words`.
    """

    code: ClassVar[str] = "error"  # names the class on the wire; no other class has it, and it never changes
    status: ClassVar[int] = 500  # of HTTP; 500: nothing that a service says to those who call it
    remedy: ClassVar[str] = ""  # what to do, whatever the values are; the docstring says what it is

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__str__" in cls.__dict__:
            cls.__str__ = _cleaned(cls.__str__)  # type: ignore[method-assign]

    @classmethod
    def page(cls) -> str:
        """Where more is said of errors of this kind."""
        return f"{PAGE}#{cls.code}"

    def __str__(self) -> str:
        return printable(super().__str__())


def kinds() -> list[type[ModelKeeperError]]:
    """All classes of errors but the root, each before those below it."""
    found: list[type[ModelKeeperError]] = []
    waiting = [ModelKeeperError]
    while waiting:
        below = [
            kind for kind in waiting.pop().__subclasses__() if kind.__module__.startswith("modelkeeper.")
        ]
        found += below
        waiting += below
    return found


def _cleaned(said: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(said)
    def text(error: ModelKeeperError) -> str:
        return printable(said(error))

    return text
