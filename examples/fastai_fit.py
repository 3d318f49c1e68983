"""Does a warm start shorten `learn.fit`? On handwritten digits, with fastai, in half a minute.

    python examples/fastai_fit.py

A small network is trained and registered. Then a wider one is trained twice, cold and warm.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import torch
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.metrics import accuracy
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from modelkeeper.integrations.fastai import WarmStart


def network(width: int) -> nn.Module:
    """Two hidden layers."""
    torch.manual_seed(1)
    layers = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    return nn.Sequential(*layers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, register, train again, compare."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--zoo", default=":memory:", help="a folder, or the address of a service")
    options.add_argument("--epochs", type=int, default=10)
    chosen = options.parse_args(arguments)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid = random_split(data, [0.7, 0.3], torch.Generator().manual_seed(0))
    warm = WarmStart(chosen.zoo, {"data": "digits", "task": "classification"})
    for width, epochs, callbacks in ((32, chosen.epochs, [warm]), (48, 1, []), (48, 1, [warm])):
        loaders: Any = DataLoaders(DataLoader(train, 64, shuffle=True), DataLoader(valid, 512), device="cpu")
        learn = Learner(loaders, network(width), nn.CrossEntropyLoss(), metrics=accuracy, cbs=callbacks)
        with learn.no_logging():
            learn.fit(epochs, lr=0.002)
        start = warm.facts()["modelkeeper.start"] if callbacks else "cold, without the keeper"
        print(f"width {width}, {epochs} epochs, {start}: {learn.recorder.values[-1][-1]:.3f}")


if __name__ == "__main__":
    main()
