"""WarmTraining: what all integrations share. Does it ask once, register once, and never raise?"""

import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")  # the suites where there is no PyTorch have Keras' own integration

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMeta, InvalidSetting  # noqa: E402
from modelkeeper.integrations.warm_training import WarmTraining  # noqa: E402

META = {"data": "digits", "task": "classification"}


def net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def test_a_training_from_its_start_to_its_end(tmp_path: Path) -> None:
    for accuracy, start in ((0.8, "cold"), (0.9, "warm")):
        warm = WarmTraining(tmp_path, META)
        model = net()
        answer = warm.begin(model)
        assert answer is not None
        assert warm.facts()["modelkeeper.start"] == start
        warm.report({"train_loss": 0.1, "epoch": 1, "val_acc": accuracy, "note": "text"}, model, step=1)
        warm.report({"train_loss": 0.1, "epoch": 2}, model, step=2)
        record = warm.finish()
        assert record is not None
        assert (record.metric, record.value, record.finished) == ("accuracy", accuracy, True)
        warm.client.stop()


def test_only_asking(tmp_path: Path) -> None:
    warm = WarmTraining(tmp_path, META, register=False)
    warm.begin(net())
    warm.report({"accuracy": 0.9}, net())
    assert warm.finish() is None
    assert warm.client.coordinator.count() == 0


def test_what_cannot_be_so_is_said_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidMeta, match="did you mean"):
        WarmTraining(tmp_path, {"dat": "x"})
    with pytest.raises(InvalidSetting, match="mode="):
        WarmTraining(tmp_path, META, monitor="cheer")


def test_a_training_without_a_metric_warns_and_one_that_was_not_begun_does_nothing(tmp_path: Path) -> None:
    warm = WarmTraining(tmp_path, META)
    assert warm.finish() is None
    warm.report({"accuracy": 0.5}, net())
    assert warm.stop() is None
    warm.begin(net())
    warm.report({"epoch": 1, "train_loss": 0.5}, net())
    with pytest.warns(KeeperWarning, match="not registered"):
        assert warm.finish() is None


def test_nothing_raises_whatever_the_model_is(tmp_path: Path) -> None:
    warm = WarmTraining(tmp_path, META)
    with pytest.warns(KeeperWarning, match="starts cold"):
        assert warm.begin(object()) is None
    warm.report({"accuracy": 0.5}, object())
    assert warm.finish() is None
    strict = WarmTraining(ModelKeeperClient(tmp_path, on_error="raise"), META)
    with pytest.raises(Exception, match="object"):
        strict.begin(object())


def test_a_copy_in_another_process_has_not_begun(tmp_path: Path) -> None:
    warm = WarmTraining(tmp_path, META, monitor="val_loss")
    warm.begin(net())
    again = pickle.loads(pickle.dumps(warm))
    assert (again.run, again.meta) == (None, META)
    again.begin(net())
    again.report({"val_loss": 0.5}, net())
    assert again.finish().value == 0.5


def test_a_model_that_has_begun_goes_on_as_one_training_with_its_parent(tmp_path: Path) -> None:
    first = WarmTraining(tmp_path, META)
    parent = net()
    first.begin(parent)
    first.report({"accuracy": 0.8}, parent)
    started = first.finish()
    assert started is not None
    warm, model = WarmTraining(tmp_path, META), net()
    assert not warm.knows(model)
    warm.begin(model)
    key = warm.key
    warm.report({"accuracy": 0.85}, model)
    warm.stop()
    assert warm.knows(model)
    answer = warm.begin(model, resumed=warm.knows(model))
    assert answer is not None
    assert answer.cold  # it was not asked
    warm.report({"accuracy": 0.9}, model)
    record = warm.finish()
    assert record is not None
    assert (warm.key, warm.parent, record.parent) == (key, started.id, started.id)
    assert warm.client.coordinator.count() == 2


def test_what_a_model_runs_on_can_be_said_when_it_begins(tmp_path: Path) -> None:
    warm = WarmTraining(tmp_path, META)
    model = torch.nn.Bilinear(3, 4, 5)  # takes two
    warm.begin(model, example_inputs=(torch.zeros(1, 3), torch.zeros(1, 4)))
    warm.report({"accuracy": 0.8}, model)
    assert warm.finish() is not None
