"""What becomes of a zoo when its process forks? The child opens it anew, and no lock stays taken in it.

    with passing(): ...                   nobody forks in the middle, but waits for the end of the block
    renew_after_fork(self, Zoo._renew)    in each forked child: _renew(self), as long as self is alive

A forked child has the thread that forked, and the locks of all. One that another thread held is held for ever
there: those of SQLite and SQLAlchemy cannot be replaced, so a fork waits until nobody is inside of them; our
own are replaced by whoever has them. A module that another thread is importing would never be imported in
the child, so a fork waits for that, too. Workers of data loaders, Ray and multiprocessing fork.
"""

import contextlib
import importlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

try:
    import _imp  # CPython's own; elsewhere nobody waits for imports
except ImportError:
    _imp = None  # type: ignore[assignment]

PATIENCE = 5.0  # seconds after which a fork waits no longer; a writer may itself wait for others
T = TypeVar("T")


class _Gate:
    """How many are inside, and does anybody wait for them to leave?"""

    def __init__(self, inside: int = 0) -> None:
        self.changed = threading.Condition()
        self.inside, self.forking = inside, 0


_gate = _Gate()
_here = threading.local()  # how often this thread is inside
_renewals: list[tuple["weakref.ref[Any]", Callable[[Any], None]]] = []


@contextlib.contextmanager
def passing() -> Iterator[None]:
    """While the block runs, other threads do not fork, for a while."""
    depth = getattr(_here, "depth", 0)
    gate, end = _gate, time.monotonic() + PATIENCE
    with gate.changed:
        while gate.forking and not depth and time.monotonic() < end:  # who is inside already must get out
            gate.changed.wait(PATIENCE)
        gate.inside += 1
    _here.depth = depth + 1
    try:
        yield
    finally:
        _here.depth = depth
        with _gate.changed:  # another one if a fork lies between
            _gate.inside -= 1
            if _gate.forking:
                _gate.changed.notify_all()


def renew_after_fork(owner: T, renew: Callable[[T], None]) -> None:
    """Call `renew(owner)` in every child that is forked while `owner` is alive."""
    _renewals[:] = [entry for entry in _renewals if entry[0]() is not None]
    _renewals.append((weakref.ref(owner), renew))


def _before() -> None:
    gate, end = _gate, time.monotonic() + PATIENCE
    gate.changed.acquire()  # held across the fork, so that it is free of others in the child
    gate.forking += 1
    while True:
        while gate.inside > getattr(_here, "depth", 0) and time.monotonic() < end:
            gate.changed.wait(max(0.0, end - time.monotonic()))
        if _imp is None:
            return
        _imp.acquire_lock()  # held across the fork, too: nobody begins to import
        if not _others_import() or time.monotonic() >= end:
            return
        _imp.release_lock()
        gate.changed.wait(0.002)


def _others_import() -> bool:
    """Is another thread in the middle of importing a module? Python holds a lock for each such module."""
    bootstrap = getattr(importlib, "_bootstrap", None)
    locks = [lock() for lock in list(getattr(bootstrap, "_module_locks", {}).values())]
    return any(getattr(lock, "owner", None) not in (None, threading.get_ident()) for lock in locks)


def _in_parent() -> None:
    if _imp is not None:
        _imp.release_lock()
    _gate.forking -= 1
    _gate.changed.notify_all()
    _gate.changed.release()


def _in_child() -> None:
    global _gate
    if _imp is not None:
        _imp.release_lock()
    _gate = _Gate(getattr(_here, "depth", 0))
    for reference, renew in _renewals:
        if (owner := reference()) is not None:
            renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
