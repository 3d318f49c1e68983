"""Tests of importing need PyTorch; those with Keras run it on PyTorch."""

import importlib.util
import os

missing = importlib.util.find_spec("torch") is None
on_torch = os.environ.setdefault("KERAS_BACKEND", "torch") == "torch"
collect_ignore_glob = ["**/test_*", "test_*"] if missing or not on_torch else []
