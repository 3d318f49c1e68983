"""How does every random generator go on as if nothing had been drawn? Also with several threads at once.

torch locks its generator while it makes a tensor of the state. If garbage is collected just then, and frees a
tensor, the collector lets go of the interpreter with the generator still locked; whoever seeds or sets the
generator next waits for it and holds the interpreter, and both wait for ever. So nothing is collected while a
state is read, and one thread reads at a time.
"""

import gc
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

_READING = threading.Lock()


@contextmanager
def keep_random_state(seed: int | None = None, *, devices: bool = True) -> Iterator[None]:
    """Put back the state of all random generators afterwards.

    `seed`: draw from this one meanwhile. `devices`: those of accelerators, too.
    """
    numpy_state, python_state, torch_state = np.random.get_state(), random.getstate(), _torch_state()
    on_devices = torch.cuda.get_rng_state_all() if devices and torch.cuda.is_available() else None
    try:
        if seed is not None:
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
        yield
    finally:
        torch.set_rng_state(torch_state)
        if on_devices is not None:
            torch.cuda.set_rng_state_all(on_devices)
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _torch_state() -> Tensor:
    """The state of torch's generator on the CPU, read while no garbage is collected."""
    with _READING:
        collecting = gc.isenabled()
        gc.disable()
        try:
            return torch.get_rng_state()
        finally:
            if collecting:
                gc.enable()
