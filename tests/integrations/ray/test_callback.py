"""What does the driver register of trials that could not do it themselves?"""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

import ray
from ray.tune import Checkpoint

from modelkeeper import KeeperWarning, ModelKeeperClient
from modelkeeper.integrations.ray import KeepTrials, save_checkpoint
from modelkeeper.integrations.ray.checkpoint import say
from modelkeeper.policy.quality import Metric
from modelkeeper.zoo.records import Registration
from tests.helpers.ray_trials import net


def trial(folder: Path, value: float, run: str = "0" * 16) -> SimpleNamespace:
    """A trial that has left a checkpoint."""
    folder.mkdir()
    save_checkpoint(folder, net(4))
    say(folder, Registration(name="mine", metric=Metric("accuracy", value), run=run, finished=False))
    return SimpleNamespace(checkpoint=Checkpoint.from_directory(str(folder)))


def test_what_is_missing_comes_from_the_checkpoint(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        callback = KeepTrials(client)
        trials = [trial(tmp_path / "a", 0.5), SimpleNamespace(checkpoint=None)]
        callback.on_experiment_end(trials)
        callback.on_experiment_end(trials)
        (record,) = client.coordinator.models()
        assert (record.value, record.finished) == (0.5, False)
        for number, (value, expected) in enumerate([(0.4, 0.5), (0.6, 0.6)]):
            callback.on_trial_error(1, [], trial(tmp_path / str(number), value))
            (record,) = client.coordinator.models()
            assert record.value == expected


def test_a_search_goes_on_if_a_checkpoint_is_damaged(tmp_path: Path) -> None:
    damaged = trial(tmp_path / "a", 0.5)
    (tmp_path / "a" / "modelkeeper.json").write_text("nothing")
    with ModelKeeperClient(tmp_path / "zoo") as client, pytest.warns(KeeperWarning, match="left behind"):
        KeepTrials(client).on_experiment_end([damaged])


def test_a_folder_on_several_nodes_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True}, {"Alive": True}, {"Alive": False}])
    with pytest.warns(KeeperWarning, match="2 nodes.*modelkeeper serve"):
        KeepTrials(ModelKeeperClient(tmp_path)).setup()
    KeepTrials(ModelKeeperClient("http://10.0.0.7:7433")).setup()
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True}])
    KeepTrials(ModelKeeperClient(tmp_path)).setup()
