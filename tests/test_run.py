"""Run: registering while training. What is kept of a training that ends, that is stopped, that is killed?"""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from modelkeeper import KeeperWarning, ModelKeeperClient
from modelkeeper.errors import InvalidMeta, InvalidMetric, InvalidSetting
from modelkeeper.run import Version, _Writer
from modelkeeper.zoo.catalog.starts import StartFilter
from modelkeeper.zoo.records import REPLACED, Filter

META = {"data": "digits", "task": "classification"}


def net(value: float = 0.0) -> nn.Linear:
    """A model whose weights are all one number."""
    model = nn.Linear(3, 2)
    fill(model, value)
    return model


def fill(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.fill_(value)


def value_of(client: ModelKeeperClient, name: str = "Linear") -> float:
    """What the weights of a model in the zoo are."""
    copy = net(-1.0)
    client.query_for_model(copy, META | {"parents": [name], "minimum_similarity": 0})
    return float(copy.weight.detach().mean())


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ModelKeeperClient]:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", user="ann") as opened:
        yield opened


def test_what_was_reported_becomes_the_curve_of_the_model(client: ModelKeeperClient) -> None:
    run = client.start(net(), META | {"name": "mine"}, every=0)
    for epoch in range(3):
        run.report(train_loss=1.0)  # measured on the data trained on: no point
        run.report(val_loss=1 / (epoch + 1), step=10 * epoch)
        run.report(accuracy=0.5 + epoch / 10, step=epoch)
    run.report(accuracy=float("nan"), step=3)
    record = run.finish({"accuracy": 0.6})
    assert record is not None
    curve = client.coordinator.curve(record)
    assert curve is not None
    assert (curve.metric, curve.lower_is_better) == ("accuracy", False)
    assert [(point.step, point.score) for point in curve.points] == [(0, 0.5), (1, 0.6), (2, 0.7), (3, 0.6)]
    seconds = [point.seconds for point in curve.points]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_a_start_knows_what_was_trained_from_it_and_how_it_raced(client: ModelKeeperClient) -> None:
    cold = client.start(net(), META | {"name": "first"})
    cold.report(accuracy=0.9)
    first = cold.finish()
    assert first is not None
    [start] = client.coordinator.starts(StartFilter(model=first.id))
    assert (start.id, start.cold, start.race, start.user) == (cold.answer.start, True, None, "ann")
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(12, 8, 3, generator=generator)
    batches = [(each, (each.sum(1) > 0).long()) for each in inputs]
    loss = nn.functional.cross_entropy
    model, answer = client.query_for_model(net(), META, probe=batches, loss=loss, probe_steps=12)
    assert answer.probe is not None
    record = client.register_model(model, META | {"accuracy": 0.9, "name": "second"})
    assert record is not None
    [start] = client.coordinator.starts(StartFilter(model=record.id))
    assert (start.id, start.race) == (answer.start, answer.probe)
    with client.training(net(), META) as run:
        run.report(accuracy=0.9, model=run.model)
        run.flush()
        [start] = client.coordinator.starts(StartFilter(model=run.record.id if run.record else ""))
    assert run.record is not None
    assert [each.id for each in client.coordinator.starts(StartFilter(model=run.record.id))] == [start.id]


def test_who_is_not_to_send_a_curve_sends_none(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", history=False) as client:
        run = client.start(net(), META)
        run.report(accuracy=0.5)
        record = run.finish()
        assert record is not None
        assert client.coordinator.curve(record) is None


def test_reports_are_versions_of_one_model_and_the_best_is_registered(client: ModelKeeperClient) -> None:
    model = net()
    run = client.start(model, META | {"name": "mine"}, every=0)
    for step, accuracy in enumerate((0.3, 0.9, 0.5)):
        fill(model, step + 1)
        run.report(accuracy=accuracy, step=step, model=model)
        run.flush()
    (unfinished,) = client.coordinator.models()
    assert (unfinished.value, unfinished.finished, unfinished.run) == (0.9, False, run.identity)
    record = run.finish()
    assert record is not None
    assert client.coordinator.models() == [record]
    assert (record.value, record.finished, record.metrics) == (0.9, True, {"accuracy": 0.9, "step": 1.0})
    assert value_of(client, "mine") == 2.0
    assert client.coordinator.count(Filter(states=(REPLACED,))) == 2
    assert run.finish() == record


def test_files_of_replaced_versions_are_gone(client: ModelKeeperClient, tmp_path: Path) -> None:
    model = net()
    run = client.start(model, META, every=0)
    for accuracy in (0.1, 0.2, 0.3):
        run.report(accuracy=accuracy, model=model)
        run.flush()
    run.finish()
    assert len(list((tmp_path / "zoo" / "models").iterdir())) == 1


def test_the_last_state_may_be_kept_instead(client: ModelKeeperClient) -> None:
    model = net()
    run = client.start(model, META, keep="last", every=0)
    for value, accuracy in ((1.0, 0.9), (2.0, 0.5)):
        fill(model, value)
        run.report(accuracy=accuracy, model=model)
    record = run.finish()
    assert record is not None
    assert record.value == 0.5
    assert value_of(client) == 2.0


def test_a_training_that_is_stopped_leaves_its_best_as_unfinished(client: ModelKeeperClient) -> None:
    def pruned() -> None:
        with client.training(model, META, every=3600) as run:
            run.report(accuracy=0.4, model=model)
            fill(model, 7.0)
            run.report(accuracy=0.6, model=model)
            raise KeyboardInterrupt

    model = net()
    with pytest.raises(KeyboardInterrupt):
        pruned()
    (record,) = client.coordinator.models()
    assert (record.value, record.finished) == (0.6, False)
    assert value_of(client) == 7.0


def test_versions_are_not_written_more_often_than_every_few_seconds(client: ModelKeeperClient) -> None:
    model = net()
    run = client.start(model, META, every=3600)
    for step in range(20):
        run.report(accuracy=0.1 + step / 100, model=model)
    run.finish()
    assert client.coordinator.count(Filter(states=(REPLACED,))) <= 1


def test_a_killed_process_leaves_its_last_report(tmp_path: Path) -> None:
    script = f"""
        import os, signal
        import torch
        from modelkeeper import ModelKeeperClient
        client = ModelKeeperClient({str(tmp_path)!r}, on_error="raise")
        model = torch.nn.Linear(3, 2)
        run = client.start(model, {META!r}, every=0)
        run.report(accuracy=0.7, model=model)
        run.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -signal.SIGKILL
    with ModelKeeperClient(tmp_path) as client:
        (record,) = client.coordinator.models()
        assert (record.value, record.finished) == (0.7, False)


def test_a_process_that_ends_writes_what_waits_first(tmp_path: Path) -> None:
    script = f"""
        import torch
        from modelkeeper import ModelKeeperClient
        client = ModelKeeperClient({str(tmp_path)!r}, on_error="raise")
        model = torch.nn.Linear(3, 2)
        run = client.start(model, {META!r}, every=3600)
        run.report(accuracy=0.6, model=model)
        run.report(accuracy=0.7, model=model)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
    with ModelKeeperClient(tmp_path) as client:
        (record,) = client.coordinator.models()
        assert (record.value, record.finished) == (0.7, False)


def test_nan_is_an_outcome(client: ModelKeeperClient) -> None:
    model = net()
    run = client.start(model, META, every=0)
    run.report(accuracy=0.5, model=model)
    fill(model, float("nan"))
    run.report(accuracy=float("nan"), model=model)
    record = run.finish()
    assert record is not None
    assert record.value == 0.5


def test_weights_that_diverged_are_not_registered_and_nothing_is_raised(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path) as client:
        broken = net(float("nan"))
        with pytest.warns(KeeperWarning, match="NaN"):
            assert client.register_model(broken, META | {"accuracy": 0.5}) is None
        with pytest.warns(KeeperWarning, match="not finite"):
            assert client.register_model(net(), META | {"accuracy": float("nan")}) is None
        assert client.coordinator.models() == []


def test_a_report_must_say_how_good_the_model_is(client: ModelKeeperClient) -> None:
    run = client.start(net(), META)
    with pytest.raises(InvalidMetric, match="does not say how good"):
        run.report(epoch=3, model=run.model)
    with pytest.raises(InvalidMetric, match="out of range"):
        run.report(accuracy=-1)
    run.report({"val/f1": 0.5, "train_loss": 0.1}, step=1, model=run.model)
    record = run.finish()
    assert record is not None
    assert (record.metric, record.value) == ("f1", 0.5)


@pytest.mark.parametrize("wrong", [{"keep": "all"}, {"every": -1}, {"monitor": "val_cheer"}])
def test_settings_are_checked_before_the_training(client: ModelKeeperClient, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        client.start(net(), META, **wrong)
    with pytest.raises(InvalidMeta, match="the training measures it"):
        client.start(net(), META | {"accuracy": 0.9})


def test_a_training_that_goes_on_does_not_ask_and_is_the_same_model(client: ModelKeeperClient) -> None:
    client.register_model(net(9.0), META | {"accuracy": 0.9, "name": "parent"})
    model = net(1.0)
    first = client.start(model, META, key="trial 7", every=0)
    assert first.answer.parent_name == "parent"
    first.report(accuracy=0.5, model=model)
    first.stop()
    fill(model, 5.0)
    second = client.start(model, META, key="trial 7", resumed=True)
    assert second.answer.cold
    assert float(model.weight.detach().mean()) == 5.0
    second.report(accuracy=0.6, model=model)
    record = second.finish()
    assert record is not None
    assert {one.name for one in client.coordinator.models()} == {"parent", "Linear"}
    assert record.run == first.identity


def test_an_unfinished_version_never_replaces_the_end(client: ModelKeeperClient) -> None:
    for finished, accuracy in ((True, 0.9), (False, 0.95)):
        run = client.start(net(), META, key="one", resumed=True, every=0)
        run.report(accuracy=accuracy, model=run.model)
        record = run.finish() if finished else run.stop()
        assert record is not None
        assert (record.value, record.finished) == (0.9, True)
    assert client.coordinator.count() == 1


def test_somebody_elses_run_is_not_replaced(client: ModelKeeperClient, tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", user="bob") as other:
        for owner in (client, other):
            run = owner.start(net(), META, key="the same")
            run.report(accuracy=0.5, model=run.model)
            run.finish()
    assert {record.owner for record in client.coordinator.models()} == {"ann", "bob"}


def test_of_equals_what_was_trained_to_its_end_is_lent(client: ModelKeeperClient) -> None:
    ended, stopped = net(1.0), net(2.0)
    client.register_model(ended, META | {"accuracy": 0.9, "name": "ended"})
    run = client.start(stopped, META | {"name": "stopped", "exclude": ["ended"]}, every=0)
    run.report(accuracy=0.9, model=stopped)
    run.stop()
    _, answer = client.query_for_model(net(), META)
    assert answer.parent_name == "ended"


def test_a_keeper_that_fails_does_not_stop_reports(tmp_path: Path) -> None:
    (tmp_path / "zoo").write_text("no folder")
    client = ModelKeeperClient(tmp_path / "zoo")
    with pytest.warns(KeeperWarning, match="starts cold"):
        run = client.start(net(), META, every=3600)
    run.report(accuracy=0.5)
    with pytest.warns(KeeperWarning, match="not registered"):
        assert run.finish() is None


def test_a_writer_whose_work_fails_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda failure: None)
    failed = threading.Event()

    def write(version: Version) -> None:
        failed.set()
        raise SystemExit

    writer = _Writer(write, 0)
    writer.offer(Version({}, None, {}))
    assert failed.wait(10)
    writer.offer(Version({}, None, {}))
    writer.flush()
    writer.stop()
    assert writer._thread is not None
    writer._thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_ends_without_waiting_for_the_writer(client: ModelKeeperClient) -> None:
    script = f"""
        import os, sys, time
        import torch
        from modelkeeper import ModelKeeperClient
        client = ModelKeeperClient({str(client.uri)!r}, on_error="raise")
        model = torch.nn.Linear(3, 2)
        run = client.start(model, {META!r}, every=3600)
        run.report(accuracy=0.5, model=model)
        run.flush()
        run.report(accuracy=0.6, model=model)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        assert time.monotonic() - began < 30
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_a_client_can_be_pickled(client: ModelKeeperClient, tmp_path: Path) -> None:
    client.register_model(net(), META | {"accuracy": 0.9})
    again = pickle.loads(pickle.dumps(client))
    assert again.coordinator.count() == 1
    assert (again.on_error, again.register_model(net(1.0), META | {"accuracy": 0.9}).owner) == (
        "raise",
        "ann",
    )
    again.stop()
    with pytest.raises(TypeError, match="give it a folder"):
        pickle.dumps(ModelKeeperClient(":memory:"))


def test_a_relative_folder_is_the_same_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(ModelKeeperClient("zoo"))
    monkeypatch.chdir("/")
    assert pickle.loads(data).settings.folder == tmp_path / "zoo"


def test_folds_of_a_cross_validation_do_not_leak(client: ModelKeeperClient) -> None:
    """What was trained on the other folds, or came from it, has seen what this fold is validated on."""
    whole = client.register_model(net(1.0), META | {"accuracy": 0.9, "name": "whole"})
    first = client.register_model(net(2.0), META | {"accuracy": 0.9, "name": "first", "fold": 1})
    heir = {"data": "other", "task": META["task"], "accuracy": 0.99, "name": "heir", "parent": "first"}
    client.register_model(net(3.0), heir)
    assert whole is not None
    assert first is not None
    assert first.fold == "1"
    assert client.query_for_model(net(), META)[1].parent_name in {"whole", "first"}
    assert client.query_for_model(net(), META | {"fold": 1})[1].parent_name == "first"
    assert client.query_for_model(net(), META | {"fold": 2})[1].cold
    client.register_model(net(4.0), {**META, "data": "elsewhere", "accuracy": 0.5, "name": "stranger"})
    assert client.query_for_model(net(), META | {"fold": 2})[1].parent_name == "stranger"
    with pytest.raises(InvalidMeta, match="of which data set"):
        client.query_for_model(net(), {"fold": 2})
