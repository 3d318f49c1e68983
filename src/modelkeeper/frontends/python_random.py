"""May the generators that all threads share be put back? Those of Python and NumPy, whatever the framework.

`random` and `numpy.random` have one state for all threads, and nothing says which thread drew. Whoever puts
back an old state lets every other thread draw the same numbers again. So they are seeded and put back only
where this is the only thread. Among others they are left alone: what a user's own code draws from them
meanwhile is then drawn, as in any call of that code.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def alone() -> bool:
    """Is this the only thread? Then nobody else can draw meanwhile."""
    return threading.active_count() == 1


@contextmanager
def keep_python_random(seed: int | None = None) -> Iterator[None]:
    """Put back the states of Python's and NumPy's generators afterwards, if this is the only thread.

    `seed`: draw from this one meanwhile.
    """
    if not alone():
        yield
        return
    python, numpy = random.getstate(), np.random.get_state()
    try:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
