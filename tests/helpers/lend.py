"""Write what PyTorch models lend into a folder, for tests that run where there is no PyTorch.

    python -m tests.helpers.lend build/lent

The folder then holds a zoo with the networks of `written_in_torch`, and for each of them an input, what the
network makes of it, and its graph. `tests/across_files` reads them, on whichever backend Keras has there.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from modelkeeper.weights import Array

WIDTH, WORDS, LENGTH, SIZE = 8, 11, 7, 12
ZOO = "zoo"


def inputs(name: str) -> Array:
    """Some inputs for a network, always the same: pictures with channels first, or words."""
    rng = np.random.default_rng(1)
    if name == "bert":
        return rng.integers(0, WORDS, (3, LENGTH))
    return rng.normal(size=(3, 3, SIZE, SIZE)).astype(np.float32)


def difference(one: Array, other: Array) -> float:
    """By how much two outputs differ, at most, relative to how much they vary."""
    wide = other.astype(np.float64)
    return float(np.abs(one - wide).max() / wide.std())


def lend(folder: Path) -> None:
    """Register every network in a zoo in the folder, and write down what it computes."""
    import torch

    from benchmarks.helpers.permutation import randomise
    from modelkeeper import ModelKeeperClient
    from modelkeeper.frontends.torch import describe
    from modelkeeper.graph import to_json
    from tests.helpers.written_in_torch import NETWORKS

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with ModelKeeperClient(folder / ZOO) as client:
        for name, make in NETWORKS.items():
            torch.manual_seed(0)
            model = make(WIDTH).eval()
            randomise(model)
            example = torch.from_numpy(inputs(name))
            with torch.no_grad():
                made = model(example).numpy()
            client.register_model(
                model, {"accuracy": 0.9, "name": name, "task": name}, example_inputs=example
            )
            np.savez(folder / f"{name}.npz", given=example.numpy(), made=made)
            state: dict[str, Any] = {tensor: array.numpy() for tensor, array in model.state_dict().items()}
            np.savez(folder / f"{name}.weights.npz", **state)
            (folder / f"{name}.graph.json").write_bytes(to_json(describe(model, example)))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    lend(Path(sys.argv[1]))
