"""Calibrating across frameworks: a parent's program is plain data, and runs wherever its child is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

keras = pytest.importorskip("keras")

from modelkeeper import ModelKeeperClient  # noqa: E402
from modelkeeper.frontends.keras.numbers import to_numpy  # noqa: E402

IMAGES = np.random.default_rng(0).normal(size=(96, 3, 8, 8)).astype("float32")
META = {"accuracy": 0.9, "data": "patches"}


def in_torch(width: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    first = nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3), nn.ReLU()
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 5)).eval()


def in_keras(width: int, seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(2 * width, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ]
    )


def of_torch(model: nn.Module) -> Any:
    with torch.no_grad():
        return model(torch.from_numpy(IMAGES)).numpy()


def of_keras(model: Any) -> Any:
    return to_numpy(model(IMAGES.transpose(0, 2, 3, 1)))


def error(made: Any, wanted: Any) -> float:
    return float(np.square(made - wanted).sum() / np.square(wanted - wanted.mean(0)).sum())


@pytest.mark.usefixtures("unhurried")
def test_a_keras_child_is_calibrated_from_a_torch_parent(tmp_path: Path) -> None:
    client, parent = ModelKeeperClient(tmp_path), in_torch(12, 0)
    client.register_model(parent, META, example_inputs=torch.zeros(1, 3, 8, 8))
    plain, child = in_keras(8, 1), in_keras(8, 1)
    client.query_for_model(plain, {"data": "patches"})
    examples = IMAGES.transpose(0, 2, 3, 1)
    _, answer = client.query_for_model(child, {"data": "patches"}, calibrate=examples)
    assert answer.warnings == ()
    assert answer.calibration is not None
    assert answer.calibration.kept
    assert error(of_keras(child), of_torch(parent)) < 0.5 * error(of_keras(plain), of_torch(parent))


@pytest.mark.usefixtures("unhurried")
def test_a_torch_child_is_calibrated_from_a_keras_parent(tmp_path: Path) -> None:
    client, parent = ModelKeeperClient(tmp_path), in_keras(12, 0)
    client.register_model(parent, META)
    plain, child = in_torch(8, 1), in_torch(8, 1)
    client.query_for_model(plain, {"data": "patches"}, example_inputs=torch.zeros(1, 3, 8, 8))
    _, answer = client.query_for_model(child, {"data": "patches"}, calibrate=torch.from_numpy(IMAGES))
    assert answer.warnings == ()
    assert answer.calibration is not None
    assert answer.calibration.kept
    assert error(of_torch(child), of_keras(parent)) < 0.5 * error(of_torch(plain), of_keras(parent))


class Indexed(nn.Module):
    """Asks for the places of its maxima, which Keras does not have."""

    def __init__(self, width: int) -> None:
        super().__init__()
        taken = (3, width, width, width)
        self.convolutions = nn.ModuleList(nn.Conv2d(n, width, 3, padding=1) for n in taken)
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions:
            x = torch.relu(convolution(x))
        most, _ = nn.functional.max_pool2d(x, 2, return_indices=True)
        made: torch.Tensor = self.head(most.mean((2, 3)))
        return made


def test_a_program_that_keras_cannot_run_leaves_the_plain_weights(tmp_path: Path) -> None:
    client = ModelKeeperClient(tmp_path)
    client.register_model(Indexed(12).eval(), META, example_inputs=torch.zeros(1, 3, 8, 8))
    keras.utils.set_random_seed(0)
    layers = keras.layers
    child = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            *(layers.Conv2D(8, 3, padding="same", activation="relu") for _ in range(4)),
            layers.MaxPooling2D(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ]
    )
    with pytest.warns(UserWarning, match=r"uncalibrated(.|\n)*does not carry it out"):
        _, answer = client.query_for_model(child, {"data": "patches"}, calibrate=IMAGES.transpose(0, 2, 3, 1))
    assert answer.parent is not None
    assert answer.calibration is None
