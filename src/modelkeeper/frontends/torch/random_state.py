"""How does every random generator go on as if nothing had been drawn? Also with several threads at once.

    alone              all generators are noted, seeded if that is wished, and put back
    among threads      torch draws from private generators, so that nothing has to be put back; the generators
                       of Python and NumPy are left alone: see `frontends.python_random`

torch locks its generator while it makes a tensor of the state. If garbage is collected just then, and frees a
tensor, the collector lets go of the interpreter with the generator still locked; another thread that seeds
the generator waits for it and holds the interpreter, and both wait for ever. So states are read only when
alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from modelkeeper.frontends.python_random import alone, keep_python_random
from modelkeeper.frontends.torch.private_random import PrivateRandom


@contextmanager
def keep_random_state(seed: int | None = None) -> Iterator[None]:
    """Run what may draw random numbers, and let all generators go on as if it had not.

    `seed`: draw from this one meanwhile. Default: alone, what would have been drawn anyway; among threads,
    numbers that follow from the seed that torch was last given.
    """
    if not alone():
        with PrivateRandom(torch.initial_seed() if seed is None else seed):
            yield
        return
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    try:
        with keep_state_if_alone(seed):
            if seed is not None and on_devices is not None:
                torch.cuda.manual_seed_all(seed)
            yield
    finally:
        if on_devices is not None:
            torch.cuda.set_rng_state_all(on_devices)


@contextmanager
def keep_state_if_alone(seed: int | None = None) -> Iterator[None]:
    """The same for what runs on the CPU and draws privately, unless the user's own code seeds torch."""
    if not alone():
        yield
        return
    state = torch.get_rng_state()
    try:
        with keep_python_random(seed):
            if seed is not None:
                torch.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_rng_state(state)
