"""Tests of the Keras front end run on the backend that KERAS_BACKEND names, each in a process of its own.

Where nothing is named, `tests/conftest.py` chooses.
"""

import os

import pytest

# JAX compiles each operation that it meets: not as well as it could, and in half the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


# Keras copies its tensors by `np.array`, in a way that NumPy 2 warns of.
FOREIGN = r"ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning:keras"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.filterwarnings(FOREIGN))
