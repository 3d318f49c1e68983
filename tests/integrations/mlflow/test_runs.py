"""MLflow, the real one: do runs say how they started, and come their models into a zoo?"""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

mlflow: Any = pytest.importorskip("mlflow")
torch: Any = pytest.importorskip("torch")

from modelkeeper import ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMetric, InvalidSetting  # noqa: E402
from modelkeeper.importing import FAILED, IMPORTED, SKIPPED, import_runs  # noqa: E402
from modelkeeper.integrations.mlflow import log_start, register_run  # noqa: E402
from modelkeeper.integrations.warm_training import WarmTraining  # noqa: E402
from tests.helpers.pages import ROOT, run_page  # noqa: E402

META = {"data": "digits", "task": "classification"}


def net(width: int = 8) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ModelKeeperClient]:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", user="ann") as opened:
        yield opened


def test_an_active_run_says_how_it_started(experiment: str, client: ModelKeeperClient) -> None:
    parent = client.register_model(net(), META | {"accuracy": 0.9})
    assert parent is not None
    with mlflow.start_run() as active:
        warm = WarmTraining(client, META, track=active)
        model = net(12)
        warm.begin(model)
        warm.report({"val_acc": 0.8}, model, step=3)
        warm.finish()
    run = mlflow.get_run(active.info.run_id)
    assert run.data.tags["modelkeeper.parent"] == parent.id
    assert run.data.tags["modelkeeper.start"] == "warm"
    assert run.data.tags["modelkeeper.advice"]
    assert 0 < run.data.metrics["modelkeeper.similarity"] < 1
    assert run.data.metrics["modelkeeper.val_acc"] == 0.8
    with mlflow.start_run() as plain:
        _, answer = client.query_for_model(net(), META)
        log_start(answer)
    assert mlflow.get_run(plain.info.run_id).data.tags["modelkeeper.parent_name"] == "Sequential"


def test_without_an_active_run_nothing_is_logged(experiment: str, client: ModelKeeperClient) -> None:
    WarmTraining(client, META).begin(net())
    assert mlflow.search_runs(output_format="list") == []


def test_a_run_that_logs_is_registered_with_what_it_measured(
    experiment: str, client: ModelKeeperClient
) -> None:
    with mlflow.start_run() as active:
        mlflow.log_param("width", 8)
        for step, accuracy in enumerate((0.5, 0.7)):
            mlflow.log_metrics({"val_accuracy": accuracy, "train_loss": 0.1, "epoch": step}, step=step)
        record = register_run(client, net(), META)
    assert record is not None
    assert (record.metric, record.value, record.data) == ("accuracy", 0.7, "digits")
    assert "width=8" in record.tags
    run = mlflow.get_run(active.info.run_id)
    assert run.data.tags["modelkeeper.model"] == record.id
    with mlflow.start_run():
        mlflow.log_metrics({"score": 3.0, "points": 4.0})
        with pytest.raises(InvalidMetric, match="points"):
            register_run(client, net(), META)
        named = register_run(client, net(), META, monitor="score", mode="max")
    assert named is not None
    assert (named.metric, named.value) == ("score", 3.0)


def test_models_that_were_logged_come_into_a_zoo(experiment: str, client: ModelKeeperClient) -> None:
    import mlflow.onnx
    import mlflow.pytorch
    import onnx
    from onnx import TensorProto, helper

    with mlflow.start_run():
        mlflow.log_metrics({"val_accuracy": 0.6}, step=0)
        mlflow.log_metrics({"val_accuracy": 0.8, "epoch": 1}, step=1)
        mlflow.log_param("width", 8)
        mlflow.pytorch.log_model(net(), name="pickled", serialization_format="pickle", pip_requirements=[])
    with mlflow.start_run() as exported:
        example = torch.rand(2, 4).numpy()
        mlflow.pytorch.log_model(
            net(12),
            name="program",
            input_example=example,
            pip_requirements=[],
            registered_model_name="registered",
        )
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 2], [0.1] * 8)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [weight],
    )
    with mlflow.start_run():
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        mlflow.onnx.log_model(model, name="graph", pip_requirements=[])

    careful = {outcome.name: outcome for outcome in import_runs(client, experiment=experiment, meta=META)}
    assert {name: outcome.status for name, outcome in careful.items()} == {
        "pickled": FAILED,
        "program": FAILED,
        "graph": IMPORTED,
    }
    assert "trust" in careful["pickled"].reason
    assert "trust" in careful["program"].reason

    by_run = import_runs(client, run=exported.info.run_id, meta=META, trust=True)
    assert [(outcome.name, outcome.status) for outcome in by_run] == [("program", IMPORTED)]
    everything = {o.name: o for o in import_runs(client, experiment=experiment, meta=META, trust=True)}
    assert (everything["pickled"].status, everything["pickled"].value) == (IMPORTED, 0.8), everything
    assert everything["program"].status == everything["graph"].status == SKIPPED
    records = {record.name: record for record in client.coordinator.models()}
    assert set(records) == {"pickled", "program", "graph"}
    assert "width=8" in records["pickled"].tags
    registered = import_runs(client, registered_model="registered", meta=META, trust=True)
    assert [outcome.status for outcome in registered] == [SKIPPED]
    _, answer = client.query_for_model(net(8), META)
    assert answer.parent == records["pickled"].id


def test_what_cannot_be_found_is_said(experiment: str, client: ModelKeeperClient) -> None:
    with pytest.raises(InvalidSetting, match="none of this name"):
        import_runs(client, experiment="another")
    with pytest.raises(InvalidSetting, match="give one of"):
        import_runs(client)


def test_what_autolog_measured_counts(experiment: str, client: ModelKeeperClient, tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("pytorch_lightning")

    class Net(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", self.layer(batch[0]).square().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 4)), batch_size=4)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    mlflow.pytorch.autolog(log_models=False, checkpoint=False)
    try:
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, enable_checkpointing=False, **quiet
        )
        model = Net()
        trainer.fit(model, data, data)
    finally:
        mlflow.pytorch.autolog(disable=True)
    record = register_run(client, model, META, example_inputs=torch.ones(1, 4))
    assert record is not None
    assert record.metric == "loss"
    assert record.value == pytest.approx(float(trainer.callback_metrics["val_loss"]))


def test_the_page_and_the_example_run(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = mlflow.get_tracking_uri()
    try:
        run_page("docs/integrations/mlflow.md", capsys)
        runpy.run_path(str(ROOT / "examples" / "mlflow_tracking.py"), run_name="__main__")
    finally:
        mlflow.set_tracking_uri(before)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("width 16: cold")
    assert printed[1].startswith("width 24: warm")
    assert sorted(line.strip() for line in printed[2:]) == ["net16: imported", "net24: imported"]
