"""May this go on, or has whoever waits for it lost patience? Asked inside of loops that may be long.

    with waiting(late):      late() says when it is over
        ...
        go_on()              raises OutOfPatience when it is; without anybody who waits it never does

Who waits stands in the context of the thread, so that loops far below need not hand it down.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_late: ContextVar[Callable[[], bool] | None] = ContextVar("_late", default=None)


class OutOfPatience(Exception):
    """It took longer than whoever waits for it would wait."""


@contextlib.contextmanager
def waiting(late: Callable[[], bool]) -> Iterator[None]:
    """Wait until `late()`: while the block runs, `go_on` asks."""
    before = _late.set(late)
    try:
        yield
    finally:
        _late.reset(before)


def go_on() -> None:
    """Return if there is time left.

    Raises:
        OutOfPatience: There is none.
    """
    late = _late.get()
    if late is not None and late():
        raise OutOfPatience
