"""Trackers, the real ones: do TensorBoard and Weights & Biases learn how a training started?"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidSetting  # noqa: E402
from modelkeeper.integrations.tracking import active, log_start, trackers  # noqa: E402
from modelkeeper.integrations.warm_training import WarmTraining  # noqa: E402
from tests.helpers.pages import run_page  # noqa: E402

META = {"data": "digits", "task": "classification"}


def train(client: ModelKeeperClient, track: Any = ()) -> None:
    """Two trainings, of which the second starts warm."""
    for accuracy in (0.8, 0.9):
        warm, model = WarmTraining(client, META, track=track), torch.nn.Linear(4, 2)
        warm.begin(model)
        for step in range(2):
            warm.report({"val_acc": accuracy + step / 100, "note": "text"}, model, step)
        warm.finish()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_tensorboard_gets_facts_and_curves(tmp_path: Path) -> None:
    reading: Any = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from torch.utils.tensorboard import SummaryWriter

    with ModelKeeperClient(tmp_path / "zoo") as client, SummaryWriter(str(tmp_path / "board")) as writer:
        train(client, track=writer)
        _, answer = client.query_for_model(torch.nn.Linear(4, 2), META)
        log_start(answer, writer)
    read = reading.EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    curve = [round(event.value, 2) for event in read.Scalars("modelkeeper/val_acc")]
    assert sorted(curve) == [0.8, 0.81, 0.9, 0.91]
    assert [event.value for event in read.Scalars("modelkeeper/similarity")] == [1.0, 1.0]
    (text, *_) = read.Tensors("modelkeeper/text_summary")
    assert b"start: cold" in text.tensor_proto.string_val[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:wandb", "ignore::ResourceWarning")
def test_weights_and_biases_gets_facts_and_keeps_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb: Any = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    quiet = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True)
    init = wandb.init(project="p", dir=str(tmp_path), settings=quiet)
    with ModelKeeperClient(tmp_path / "zoo") as client, init as run:
        train(client)
        facts = dict(run.config)["modelkeeper"]
        assert (facts["start"], facts["parent_name"], facts["similarity"]) == ("warm", "Linear", 1.0)
        before = run.step
        train(client, track=run)
        assert run.step == before  # the user's own steps are not moved
        run.log({"loss": 0.5})
        assert run.summary["modelkeeper/val_acc"] == 0.91
    assert active() == []


def test_what_is_no_tracker_is_refused_and_one_that_fails_stops_nothing(tmp_path: Path) -> None:
    class Full:
        def add_text(self, *_: Any) -> None:
            raise OSError("no space left")

        add_scalar = add_text

    with pytest.raises(InvalidSetting, match="SummaryWriter"):
        trackers(3)
    assert trackers(None) == []
    client = ModelKeeperClient(tmp_path)
    warm, model = WarmTraining(client, META, track=Full()), torch.nn.Linear(4, 2)
    with pytest.warns(KeeperWarning, match="was not logged"):
        warm.begin(model)
    with pytest.warns(KeeperWarning, match="was not logged"):
        warm.report({"val_acc": 0.5}, model)
    assert warm.finish() is not None


def test_no_tracker_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys, modelkeeper.integrations.warm_training; "
        "assert not {'mlflow', 'wandb', 'tensorboard', 'optuna'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    run_page("docs/integrations/trackers.md", capsys)
