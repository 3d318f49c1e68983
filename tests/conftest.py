"""What all tests share: one thread for each worker, the same random numbers each time, real databases.

PyTorch reads the number of threads from the environment, so that nothing imports it here: tests of
the core run where it is not installed. So does Keras with its backend: PyTorch, where it is installed and no
other is named.
"""

import gc
import importlib.util
import os
import random
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.backends import bucket, object_store, postgres, postgres_url  # noqa: F401 (fixtures)

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("KERAS_BACKEND", "torch" if importlib.util.find_spec("torch") else "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# What tests write lies in memory where there is room for it: zoos wait for their disk at each commit, and
# tests kill processes, not machines.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# No deadline: a busy machine is no bug. In CI the same examples every time: a failure there is no news
# of luck, but of the change.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def _same_numbers() -> None:
    """Seed what tests draw from; whichever order and worker they run in, they draw the same."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


def pytest_collectstart() -> None:
    _same_numbers()  # for what a module draws as it is imported


def pytest_collection_finish() -> None:
    """What frameworks brought stays to the end: looking for garbage in it took a third of the time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _same_numbers()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    _same_numbers()  # whatever shared fixtures drew, or did not because they were there already


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations take as long as they need: on a busy machine they fit the same layers."""
    monkeypatch.setattr("modelkeeper.frontends.calibrating.calibrate.STEPS", 10**6)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that other tests left behind draw no random numbers: what all share may be put back."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)
