"""Does a warm start shorten `trainer.fit`? On handwritten digits, with Lightning, in half a minute.

A small network is trained and registered. Then a wider one is trained twice, cold and warm.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from modelkeeper.integrations.lightning import WarmStart

QUIET: Any = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


class Classifier(pl.LightningModule):  # type: ignore[misc]
    """A network of two hidden layers, and what trains it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
        self.model = nn.Sequential(*sizes)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("val_acc", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.002)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, register, train again, compare."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--zoo", default=":memory:", help="a folder, or the address of a service")
    options.add_argument("--epochs", type=int, default=10)
    chosen = options.parse_args(arguments)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, valid = torch.utils.data.random_split(data, [0.7, 0.3], torch.Generator().manual_seed(0))
    warm = WarmStart(chosen.zoo, {"data": "digits", "task": "classification"})
    for width, epochs, callbacks in ((32, chosen.epochs, [warm]), (48, 1, []), (48, 1, [warm])):
        pl.seed_everything(1, verbose=False)
        trainer = pl.Trainer(max_epochs=epochs, callbacks=callbacks, **QUIET)
        trainer.fit(Classifier(width), DataLoader(train, 64, shuffle=True), DataLoader(valid, 512))
        start = warm.facts()["modelkeeper.start"] if callbacks else "cold, without the keeper"
        print(f"width {width}, {epochs} epochs, {start}: {trainer.callback_metrics['val_acc']:.3f}")


if __name__ == "__main__":
    main()
