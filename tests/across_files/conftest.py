"""Tests that take what PyTorch models lend from a folder, and run where there is no PyTorch."""

import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

collect_ignore_glob = [] if importlib.util.find_spec("keras") else ["test_*"]
FOLDER = Path(os.environ.get("MODELKEEPER_LENT", "build/lent"))


@pytest.fixture(autouse=True)
def nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are built of zeros: JAX compiles for each shape that is drawn; tests draw their own numbers."""
    from keras import initializers

    def zeros(self: object, shape: tuple[int, ...], dtype: str | None = None) -> object:
        return np.zeros(shape, dtype or "float32")

    for random in (initializers.VarianceScaling, initializers.RandomUniform):
        monkeypatch.setattr(random, "__call__", zeros)


@pytest.fixture
def lent(tmp_path: Path) -> Path:
    """A copy of what `python -m tests.helpers.lend build/lent` wrote."""
    if not FOLDER.is_dir():
        pytest.skip(f"no {FOLDER}: `python -m tests.helpers.lend {FOLDER}` makes it, where PyTorch is")
    shutil.copytree(FOLDER, tmp_path / "lent")
    return tmp_path / "lent"
