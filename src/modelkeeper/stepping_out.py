"""Does whoever waits for something slow keep others from working? They step out of their pool, and come back.

    with in_place(leave, come_back): ...   a pool says, in its thread, how the place of this work is given up
    with stepped_out(): ...                work that waits for a store: another may have the place meanwhile

A place stands for a core. Who waits for a store needs none: without this, a few who wait for one that hangs
would keep everybody from queries that need no store at all.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

_here = threading.local()


@contextlib.contextmanager
def in_place(leave: Callable[[], bool], come_back: Callable[[], None]) -> Iterator[None]:
    """While the block runs, this thread has a place that it can leave (False: not now) and come back to."""
    before, _here.place = getattr(_here, "place", None), (leave, come_back)
    try:
        yield
    finally:
        _here.place = before


def has_place() -> bool:
    """Has this thread a place of some pool?"""
    return getattr(_here, "place", None) is not None


@contextlib.contextmanager
def stepped_out() -> Iterator[None]:
    """While the block runs, another may have the place of this thread, if it has one."""
    place, _here.place = getattr(_here, "place", None), None  # whoever is out cannot leave again
    left = place is not None and place[0]()
    try:
        yield
    finally:
        _here.place = place
        if place is not None and left:
            place[1]()
