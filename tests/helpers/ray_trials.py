"""What trials of Ray train in tests: workers import it, so that nothing of a test file is sent to them."""

import os
import tempfile
from typing import Any

import torch
from ray import train, tune
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.ray import load_checkpoint, process, report, save_checkpoint, warm_start

META = {"data": "digits", "task": "classification"}


def net(width: int) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def learn(model: nn.Module, by: float = 0.01) -> None:
    """Something that changes all weights, and can be seen in them."""
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(by)


def of_a_grid(config: dict[str, Any]) -> None:
    """A trial that ends by itself, after three epochs."""
    model = net(config["width"])
    warm_start(model)
    for epoch in range(config.get("epochs", 3)):
        learn(model)
        report({"accuracy": config.get("good", 0.5) + epoch / 100}, model)
        if config.get("dies") == epoch:
            opened = process._open
            assert opened is not None
            assert opened.warm.run is not None
            opened.warm.run.flush()  # as if some seconds had passed
            os._exit(1)


def with_a_client_of_its_own(config: dict[str, Any], client: ModelKeeperClient) -> None:
    """A trial of a plain tuner, which sends a client to it."""
    model = net(config["width"])
    answer = warm_start(model, META, client=client)
    learn(model)
    report({"accuracy": 0.6, "cold": answer is None or answer.cold}, model)


def of_a_population(config: dict[str, Any]) -> None:
    """A trial that goes on from the checkpoint of another one, whatever its width was."""
    model = net(config["width"])
    loaded = load_checkpoint(model, tune.get_checkpoint())
    warm_start(model)
    exact = -1 if loaded is None else int(loaded.exact)
    for _ in range(4):
        learn(model)
        with tempfile.TemporaryDirectory() as folder:
            save_checkpoint(folder, model)
            torch.save(config, os.path.join(folder, "config.pt"))
            accuracy = min(0.99, 0.2 + config["width"] / 100)
            checkpoint = tune.Checkpoint.from_directory(folder)
            report({"accuracy": accuracy, "exact": exact}, model, checkpoint=checkpoint)


class Stepwise(tune.Trainable):  # type: ignore[misc]  # Ray is not followed
    """A class, which may be used for several trials."""

    def setup(self, config: dict[str, Any]) -> None:
        """A trial begins."""
        self.model = net(config["width"])
        self.good, self.epoch = config["good"], 0
        warm_start(self.model)

    def step(self) -> dict[str, Any]:
        """An epoch."""
        learn(self.model)
        self.epoch += 1
        return {"accuracy": self.good + self.epoch / 100}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """For Tune."""
        save_checkpoint(checkpoint_dir, self.model)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """From Tune."""
        load_checkpoint(self.model, checkpoint)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Another trial begins."""
        self.setup(new_config)
        return True


def on_each_rank(config: dict[str, Any]) -> None:
    """What a TorchTrainer runs."""
    import ray.train.torch

    model = net(config["width"])
    warm_start(model)
    before = float(next(model.parameters()).detach().sum())
    prepared = ray.train.torch.prepare_model(model)
    learn(prepared)
    weight = float(next(model.parameters()).detach().sum())
    rank = train.get_context().get_world_rank()
    with open(os.path.join(config["folder"], f"{rank}"), "w") as file:
        file.write(f"{weight}")
    report({"accuracy": config["good"], "before": before}, prepared)
