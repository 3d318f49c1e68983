"""A tracking store of MLflow in a temporary folder. What MLflow warns of is no warning of ours."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
mlflow: Any = pytest.importorskip("mlflow")

FOREIGN = (
    r"ignore::DeprecationWarning:mlflow",
    r"ignore::FutureWarning:mlflow",
    r"ignore::UserWarning:mlflow",
    r"ignore::DeprecationWarning:pytorch_lightning",
    r"ignore::FutureWarning:pytorch_lightning",
    r"ignore::UserWarning:pytorch_lightning",
    r"ignore::DeprecationWarning:lightning_fabric",
    r"ignore::ResourceWarning",  # SQLite connections that MLflow leaves to the garbage collector
    r"ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for text in FOREIGN:
                item.add_marker(pytest.mark.filterwarnings(text))


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where MLflow keeps runs and models, as in a process of its own."""
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    yield folder
    mlflow.set_tracking_uri(before)


@pytest.fixture
def experiment(store: Path, request: pytest.FixtureRequest) -> str:
    """An experiment for one test, the one that runs are in."""
    name = request.node.name
    mlflow.create_experiment(name, artifact_location=(store / name).as_uri())
    mlflow.set_experiment(name)
    return str(name)
