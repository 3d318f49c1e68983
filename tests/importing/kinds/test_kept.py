"""A model of one zoo goes into another with all that belongs to it."""

from pathlib import Path

from click.testing import CliRunner
from torch import nn

from modelkeeper import ModelKeeperClient, import_models
from modelkeeper.cli import main


def test_record_and_program_come_along(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    with ModelKeeperClient(tmp_path / "first") as first:
        record = first.register_model(net, {"name": "n", "data": "d", "task": "t", "accuracy": 0.9})
        assert record is not None
        program = first.coordinator.program(record)
    assert program
    folder = tmp_path / "first" / "models" / record.id
    with ModelKeeperClient(tmp_path / "second") as second:
        (outcome,) = import_models(second, tmp_path / "first")
        came = second.coordinator.show(outcome.id)
        assert (came.name, came.data, came.task, came.value) == ("n", "d", "t", 0.9)
        assert came.checksum == record.checksum
        assert second.coordinator.program(came) == program
    third = str(tmp_path / "third")
    for source in (folder, folder / "model.safetensors"):
        ran = CliRunner().invoke(main, ["register", str(source), "--zoo", third])
        assert ran.exit_code == 0, ran.output
    with ModelKeeperClient(third) as client:
        for kept in client.coordinator.models():
            assert client.coordinator.program(kept) == program
