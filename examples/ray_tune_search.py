"""A search of Ray Tune whose trials start from each other, on handwritten digits.

    python examples/ray_tune_search.py

A scheduler stops what lags behind (ASHA); each trial leaves one model in the zoo, also when it is stopped.
"""

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from sklearn.datasets import load_digits
from torch import nn

from modelkeeper.integrations.ray import TIME, WarmStart, report, warm_start


def train(config: dict[str, Any]) -> None:
    """One trial; how wide the network is and how fast it learns is to be found."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = nn.Sequential(nn.Linear(64, config["width"]), nn.ReLU(), nn.Linear(config["width"], 10))
    warm_start(model)  # before the optimizer is built
    optimizer = torch.optim.Adam(model.parameters(), config["rate"])
    for _ in range(8):
        for chosen in torch.randperm(900).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        accuracy = (model(x[900:]).argmax(1) == y[900:]).float().mean()
        report({"accuracy": float(accuracy)}, model)  # instead of tune.report


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and show how each trial started and what is kept of it."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--widths", type=int, nargs="+", default=[16, 24, 32, 48])
    space = {"width": tune.grid_search(options.parse_args(arguments).widths)}
    space["rate"] = tune.grid_search([0.003, 0.01])
    scheduler = ASHAScheduler(time_attr=TIME, max_t=8, reduction_factor=2)
    chosen = tune.TuneConfig(metric="accuracy", mode="max", scheduler=scheduler, reuse_actors=True)
    with tempfile.TemporaryDirectory() as folder:
        warm = WarmStart(f"{folder}/zoo", {"data": "digits", "task": "classification"})
        kept = tune.RunConfig(storage_path=folder, verbose=0)
        results: Any = warm.tuner(train, param_space=space, tune_config=chosen, run_config=kept).fit()
        for result in results:
            start, epochs = result.metrics["modelkeeper"]["start"], result.metrics["training_iteration"]
            print(f"{result.config}: {start}, {epochs} epochs, accuracy {result.metrics['accuracy']:.3f}")
        for record in warm.client.coordinator.models():
            print(f"in the zoo: {record.value:.3f}, {'finished' if record.finished else 'unfinished'}")


if __name__ == "__main__":
    main()
