"""What does an Optuna study gain when its trials start from each other? On handwritten digits.

python examples/optuna_search.py
"""

import argparse
from collections.abc import Sequence
from functools import partial

import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.optuna import summary, warm_trial

META = {"data": "digits", "task": "classification"}
images, labels = load_digits(return_X_y=True)
X, Y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)


def objective(trial: optuna.Trial, client: ModelKeeperClient, register: bool, epochs: int) -> float:
    """Train one network; how wide and how deep is to be found."""
    torch.manual_seed(0)
    width, layers = trial.suggest_int("width", 16, 64, step=16), list[nn.Module]()
    for inputs in [64, *[width] * (trial.suggest_int("depth", 1, 3) - 1)]:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    with warm_trial(trial, model, META, client=client, metric="accuracy", register=register) as run:
        optimizer = torch.optim.Adam(model.parameters(), 0.003)  # after the warm start
        for epoch in range(epochs):
            for batch in torch.randperm(1200).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(X[batch]), Y[batch]).backward()
                optimizer.step()
            accuracy = (model(X[1200:]).argmax(1) == Y[1200:]).float().mean().item()
            run.report(accuracy, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
    return float(accuracy)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search twice with the same seed, without and with a keeper, and compare."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--trials", type=int, default=8)
    options.add_argument("--epochs", type=int, default=3)
    chosen = options.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for name, register in (("cold", False), ("warm", True)):  # in a zoo that stays empty all start cold
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(0))
        search = partial(objective, client=ModelKeeperClient(":memory:"), register=register)
        study.optimize(partial(search, epochs=chosen.epochs), chosen.trials)
        print(f"{name}: best accuracy {study.best_value:.3f}\n{summary(study)}")


if __name__ == "__main__":
    main()
