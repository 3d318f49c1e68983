"""How is a property computed once, without a lock that a fork could leave locked?

    @cached_property
    def size(self) -> int: ...        as of functools, from Python 3.12 on

Before, that of functools held one lock for all instances while it computed: in a forked child it was held for
ever if another thread was just computing. Here two threads at once may both compute, and give the same.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801 (called as what it stands for)
    """A property that is computed when it is first asked for."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(compute)
        self.lock = contextlib.nullcontext()
