"""Can others start from a checkpoint, whatever their widths, and can a zoo take it?"""

from pathlib import Path

import pytest
import torch

pytest.importorskip("ray")

from ray.tune import Checkpoint

from modelkeeper import ModelKeeperClient
from modelkeeper.errors import InvalidWeights
from modelkeeper.integrations.ray import load_checkpoint, save_checkpoint
from modelkeeper.integrations.ray.checkpoint import WEIGHTS, register, said_in, say
from modelkeeper.policy.quality import Metric
from modelkeeper.zoo.records import Registration
from tests.helpers.ray_trials import net


@pytest.mark.parametrize("width", [4, 10])
def test_a_model_of_any_width_goes_on_from_it(tmp_path: Path, width: int) -> None:
    model, other = net(4), net(width)
    save_checkpoint(tmp_path, model)
    report = load_checkpoint(other, Checkpoint.from_directory(str(tmp_path)))
    assert report is not None
    assert report.exact
    inputs = torch.randn(5, 4)
    torch.testing.assert_close(other(inputs), model(inputs))


def test_a_trial_that_begins_has_no_checkpoint() -> None:
    assert load_checkpoint(net(4), None) is None


def test_other_checkpoints_are_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(InvalidWeights, match="write it with save_checkpoint"):
        load_checkpoint(net(4), tmp_path)


def test_a_zoo_takes_it(tmp_path: Path) -> None:
    said = Registration(name="mine", metric=Metric("accuracy", 0.5), run="0" * 16, finished=False)
    say(tmp_path, said)
    assert said_in(tmp_path) is None, "there is no model in it yet"
    save_checkpoint(tmp_path, net(4))
    say(tmp_path, said)
    assert said_in(tmp_path) == said
    with ModelKeeperClient(tmp_path / "zoo") as client:
        record = register(client, tmp_path, said)
        assert (record.name, record.value, record.finished) == ("mine", 0.5, False)
        other = net(6)
        _, answer = client.query_for_model(other)
        assert answer.parent == record.id


def test_damaged_files_are_said(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(InvalidWeights):
        load_checkpoint(net(4), tmp_path)
