"""Files that hold a whole model: Keras, ONNX, torch.export."""

from pathlib import Path

import keras
import onnx
import pytest
import torch
from torch import nn

from modelkeeper import ModelKeeperClient, import_models
from modelkeeper.importing import FAILED, IMPORTED
from tests.helpers.onnx_models import perceptron


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning:keras")
def test_each_is_read_by_its_framework(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    torch.export.save(torch.export.export(net, (torch.zeros(2, 5),)), tmp_path / "exported.pt2")
    onnx.save(perceptron(6, seed=0), tmp_path / "open.onnx")
    layers = [keras.layers.Input((5,)), keras.layers.Dense(6, activation="relu"), keras.layers.Dense(3)]
    keras.Sequential(layers).save(tmp_path / "dense.keras")
    with ModelKeeperClient(tmp_path / "zoo") as client:
        outcomes = {each.name: each for each in import_models(client, tmp_path)}
        assert {name: each.status for name, each in outcomes.items()} == {
            "dense": IMPORTED,
            "exported": FAILED,
            "open": IMPORTED,
        }, outcomes
        assert "--trust" in outcomes["exported"].reason
        (outcome,) = import_models(client, tmp_path / "exported.pt2", trust=True)
        assert outcome.status == IMPORTED, outcome.reason
        assert {each.framework for each in client.coordinator.models()} == {"torch", "onnx", "keras"}
