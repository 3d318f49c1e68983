"""How do random generators, and Keras' counters of names, go on as if nothing had happened?"""

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import keras
import numpy as np
from keras.src.backend.common import global_state

from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.python_random import keep_python_random

_SEEDS = "global_seed_generator"  # where Keras keeps the generator of those who name no seed
_UIDS = "object_name_uids"  # where Keras counts names


@contextmanager
def keep_random_state(seed: int | None = None) -> Iterator[None]:
    """Run what may draw random numbers, and let all generators go on as if it had not.

    Those of Keras, which each thread has for itself; of PyTorch if that is the backend, since dropout draws
    from it there; and of Python and NumPy, as far as that can be: see `frontends.python_random`.
    `seed`: draw from this one meanwhile.
    """
    with keep_python_random(seed), _backend(seed), _kept(seed):
        yield


def _backend(seed: int | None) -> AbstractContextManager[None]:
    if keras.backend.backend() != "torch":
        return nullcontext()
    module = importlib.import_module("modelkeeper.frontends.torch.random_state")
    kept: AbstractContextManager[None] = module.keep_random_state(seed)
    return kept


@contextmanager
def _kept(seed: int | None) -> Iterator[None]:
    seeds = global_state.get_global_attribute(_SEEDS)
    state = None if seeds is None else np.array(to_numpy(seeds.state))
    try:
        if seed is not None and seeds is not None and state is not None:
            seeds.state.assign(np.array([seed, 0], state.dtype))
        yield
    finally:
        if seeds is not None and state is not None and not np.array_equal(state, to_numpy(seeds.state)):
            seeds.state.assign(state)
        global_state.set_global_attribute(_SEEDS, seeds)


@contextmanager
def keep_names() -> Iterator[None]:
    """Let layers that are made meanwhile use up no names of the user's next layers."""
    counted = global_state.get_global_attribute(_UIDS)
    before = None if counted is None else dict(counted)
    try:
        yield
    finally:
        if counted is None or before is None:
            global_state.set_global_attribute(_UIDS, None)
        else:
            counted.clear()
            counted.update(before)
