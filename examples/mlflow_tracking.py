"""Which training did a run of MLflow start from, and how do its models come into a zoo?

python examples/mlflow_tracking.py            # writes to a temporary folder
"""

import tempfile
from pathlib import Path

import mlflow
import torch
from sklearn.datasets import load_digits
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.importing import import_runs
from modelkeeper.integrations.mlflow import log_start, register_run

META = {"data": "digits", "task": "classification"}
images, labels = load_digits(return_X_y=True)
X, Y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)


def train(client: ModelKeeperClient, width: int, epochs: int = 2) -> None:
    """Train a network in a run of its own, starting from what earlier runs have learned."""
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    with mlflow.start_run() as run:
        mlflow.log_param("width", width)
        _, answer = client.query_for_model(model, META)
        log_start(answer)  # parent, similarity and advice become tags of the run
        optimizer = torch.optim.Adam(model.parameters(), 0.003)
        for epoch in range(epochs):
            for batch in torch.randperm(1200).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(X[batch]), Y[batch]).backward()
                optimizer.step()
            accuracy = (model(X[1200:]).argmax(1) == Y[1200:]).float().mean().item()
            mlflow.log_metric("val_accuracy", accuracy, step=epoch)
        mlflow.pytorch.log_model(
            model, name=f"net{width}", serialization_format="pickle", pip_requirements=[]
        )
        register_run(client, model, META)  # with the metrics and parameters of the run
    tags = mlflow.get_run(run.info.run_id).data.tags
    print(f"width {width}: {tags['modelkeeper.start']} {tags.get('modelkeeper.parent', '')} {accuracy:.3f}")


def main() -> None:
    """Two runs, then all models of the experiment in a second zoo."""
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.create_experiment("digits", artifact_location=Path(folder, "artifacts").as_uri())
        mlflow.set_experiment("digits")
        with ModelKeeperClient(f"{folder}/zoo") as client, ModelKeeperClient(f"{folder}/other") as other:
            for width in (16, 24):
                train(client, width)
            for outcome in import_runs(other, experiment="digits", meta=META, trust=True):  # our own pickles
                print(f"{outcome.name}: {outcome.status} {outcome.reason}")


if __name__ == "__main__":
    main()
