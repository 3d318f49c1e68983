"""How do random generators, and Keras' counters of names, go on as if nothing had happened?"""

import importlib
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import keras
import numpy as np
from keras.src.backend.common import global_state

from modelkeeper.frontends.keras.numbers import to_numpy

_SEEDS = "global_seed_generator"  # where Keras keeps the generator of those who name no seed
_UIDS = "object_name_uids"  # where Keras counts names


@contextmanager
def keep_random_state(seed: int | None = None) -> Iterator[None]:
    """Put back the state of all random generators afterwards. `seed`: draw from this one meanwhile.

    Those of Python, of NumPy, of Keras, and of PyTorch if that is the backend: dropout draws from it there.
    """
    with _backend(seed), _kept(seed):
        yield


def _backend(seed: int | None) -> AbstractContextManager[None]:
    if keras.backend.backend() != "torch":
        return nullcontext()
    module = importlib.import_module("modelkeeper.frontends.torch.random_state")
    kept: AbstractContextManager[None] = module.keep_random_state(seed)
    return kept


@contextmanager
def _kept(seed: int | None) -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()
    seeds = global_state.get_global_attribute(_SEEDS)
    state = None if seeds is None else np.array(to_numpy(seeds.state))
    try:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            if seeds is not None and state is not None:
                seeds.state.assign(np.array([seed, 0], state.dtype))
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
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
