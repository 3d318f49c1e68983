"""Tests that need PyTorch and Keras in one process: Keras on PyTorch."""

import importlib.util
import os

missing = [name for name in ("torch", "keras") if importlib.util.find_spec(name) is None]
on_torch = os.environ.get("KERAS_BACKEND", "torch") == "torch"
collect_ignore_glob = ["test_*"] if missing or not on_torch else []
