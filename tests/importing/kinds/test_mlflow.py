"""What MLflow logged is found by its flavour, with the metrics of its run."""

import subprocess
import sys
from pathlib import Path

import pytest

from modelkeeper import ModelKeeperClient, import_models
from modelkeeper.importing import FAILED, IMPORTED

LOG = """
import mlflow, onnx, torch
from torch import nn
from tests.helpers.onnx_models import perceptron
mlflow.set_tracking_uri("mlruns")
with mlflow.start_run():
    mlflow.log_metric("val_accuracy", 0.91, step=0)
    mlflow.log_metric("val_accuracy", 0.93, step=1)
    mlflow.onnx.log_model(perceptron(6, seed=0), name="small", pip_requirements=[])
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    mlflow.pytorch.log_model(net, name="pickled", pip_requirements=[], serialization_format="pickle")
"""


@pytest.mark.slow
def test_a_store_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOG], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    with ModelKeeperClient(tmp_path / "zoo") as client:
        outcomes = {each.name: each for each in import_models(client, tmp_path / "mlruns")}
        assert {name: each.status for name, each in outcomes.items()} == {
            "small": IMPORTED,
            "pickled": FAILED,
        }
        assert (outcomes["small"].metric, outcomes["small"].value) == ("accuracy", 0.93)
        assert "--trust" in outcomes["pickled"].reason
        trusted = {each.name: each.status for each in import_models(client, tmp_path / "mlruns", trust=True)}
        assert trusted["pickled"] == IMPORTED
