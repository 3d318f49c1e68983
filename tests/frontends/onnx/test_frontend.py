"""ONNX models through the client: registered, asked for, warmed, like those of any framework."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from modelkeeper.client import ModelKeeperClient
from modelkeeper.frontends import frontend_for
from modelkeeper.frontends.onnx import FRONTEND, OnnxModel
from tests.helpers.onnx_models import computed, perceptron

META = {"data": "flowers", "task": "classification"}
INPUT = {"x": np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)}


def test_a_file_and_a_message_are_models_of_the_same_front_end(tmp_path: Path) -> None:
    onnx.save(perceptron(6), tmp_path / "model.onnx")
    assert frontend_for(OnnxModel(tmp_path / "model.onnx")) is FRONTEND
    assert frontend_for(perceptron(6)) is FRONTEND


@pytest.mark.parametrize("kind", ["file", "message"])
def test_the_client_registers_and_warms(kind: str, tmp_path: Path) -> None:
    parent, child = perceptron(6, seed=0), perceptron(9, seed=1)
    expected = computed(parent, INPUT)
    onnx.save(parent, tmp_path / "parent.onnx")
    onnx.save(child, tmp_path / "child.onnx")
    with ModelKeeperClient(str(tmp_path / "zoo")) as client:
        model = OnnxModel(tmp_path / "parent.onnx") if kind == "file" else parent
        registered = client.register_model(model, META | {"accuracy": 0.9})
        asked = OnnxModel(tmp_path / "child.onnx") if kind == "file" else child
        warmed, answer = client.query_for_model(asked, META)
    assert registered is not None
    assert answer.parent is not None
    assert warmed is asked
    if isinstance(warmed, OnnxModel):
        assert onnx.load(tmp_path / "child.onnx") == child  # in place, but not in its file
        warmed.save(tmp_path / "warmed.onnx")
    else:
        onnx.save(child, tmp_path / "warmed.onnx")
    np.testing.assert_allclose(computed(tmp_path / "warmed.onnx", INPUT), expected, rtol=1e-4, atol=1e-5)
