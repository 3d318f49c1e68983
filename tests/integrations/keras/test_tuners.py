"""Do real searches of KerasTuner and AutoKeras start warm, trial by trial?"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from modelkeeper.errors import InvalidSetting
from modelkeeper.integrations.keras import WarmStart
from modelkeeper.integrations.keras.tuners import of_tuner
from tests.helpers.recording_client import RecordingClient

kt: Any = pytest.importorskip("keras_tuner")

RNG = np.random.default_rng(0)
X = RNG.random((48, 6)).astype("float32")
Y = (X.sum(1) > 3).astype("int32")
META = {"data": "halves", "task": "classification"}
DATA = {"x": X, "y": Y, "validation_split": 0.25, "verbose": 0, "batch_size": 36}
TENSORFLOW = keras.backend.backend() == "tensorflow"
once_is_enough = pytest.mark.skipif(
    not TENSORFLOW, reason="the tuner's own code is the same on every backend"
)


def build(hp: Any) -> Any:
    """A layer of a chosen width."""
    width = hp.Choice("width", [4, 6, 8, 10])
    layers = [keras.layers.Dense(width, activation="relu"), keras.layers.Dense(2, activation="softmax")]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=TENSORFLOW)
    return model


@once_is_enough
@pytest.mark.parametrize("search", [kt.RandomSearch, kt.BayesianOptimization])
def test_a_search_with_the_callback(search: Any, tmp_path: Path) -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    tuner = search(build, objective="val_accuracy", max_trials=3, directory=tmp_path, seed=0)
    tuner.search(**DATA, epochs=2, callbacks=[warm])
    assert len(client.asked) == len(client.registered) == len(warm.answers) == len(warm.records) == 3
    scores = [trial.score for trial in tuner.oracle.trials.values()]
    assert [meta["metric"].value for meta in client.registered] == pytest.approx(scores)


@once_is_enough
def test_hyperband_resumes_trials_with_their_own_weights(tmp_path: Path) -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    tuner = kt.Hyperband(build, objective="val_loss", max_epochs=3, factor=3, directory=tmp_path, seed=0)
    tuner.search(**DATA, callbacks=[warm])
    resumed = [t for t in tuner.oracle.trials.values() if t.hyperparameters.values["tuner/initial_epoch"]]
    assert resumed
    assert len(client.asked) == len(tuner.oracle.trials) - len(resumed)
    assert len(client.registered) == len(tuner.oracle.trials)
    assert sum("goes on at epoch" in training.why_not_asked for training in warm.trainings) == len(resumed)


def test_a_tuner_of_ours_knows_its_objective_and_registers_a_trial_once(tmp_path: Path) -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    tuner = warm.tuner(kt.RandomSearch)(
        build, objective="val_loss", max_trials=2, executions_per_trial=2, directory=tmp_path, seed=0
    )
    tuner.search(**DATA, epochs=1)
    assert len(warm.trainings) == 4
    assert [meta["metric"].name for meta in client.registered] == ["loss", "loss"]
    assert [meta["name"] for meta in client.registered] == ["untitled_project-0", "untitled_project-1"]


@once_is_enough
def test_several_objectives_are_added_up_as_the_tuner_does(tmp_path: Path) -> None:
    client = RecordingClient()
    tuner = WarmStart(client, META).tuner(kt.RandomSearch)(
        build, objective=["val_loss", "val_accuracy"], max_trials=1, directory=tmp_path
    )
    tuner.search(**DATA, epochs=1)
    trial = next(iter(tuner.oracle.trials.values()))
    assert client.registered[0]["metric"].value == pytest.approx(trial.score)


class Fails(keras.callbacks.Callback):  # type: ignore[misc]
    """The second epoch of every training is too much."""

    def __deepcopy__(self, memo: Any) -> "Fails":
        return Fails()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            raise kt.errors.FailedTrialError("too much")


@once_is_enough
def test_a_trial_that_fails_is_registered_with_what_it_had(tmp_path: Path) -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    tuner = warm.tuner(kt.RandomSearch)(build, objective="val_accuracy", max_trials=2, directory=tmp_path)
    tuner.search(**DATA, epochs=3, callbacks=[Fails()])
    assert {trial.status for trial in tuner.oracle.trials.values()} == {"FAILED"}
    assert len(client.registered) == 2
    assert all(training.epoch == 0 for training in warm.trainings)


@once_is_enough
def test_hyper_model_fit(tmp_path: Path) -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)

    class Network(kt.HyperModel):  # type: ignore[misc]
        def build(self, hp: Any) -> Any:
            return build(hp)

        def fit(self, hp: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            return warm.fit(model, *args, shuffle=hp.Boolean("shuffle"), **kwargs)

    tuner = kt.RandomSearch(Network(), objective="val_loss", max_trials=2, directory=tmp_path, seed=0)
    tuner.search(**DATA, epochs=1)
    assert [meta["metric"].name for meta in client.registered] == ["loss", "loss"]


@pytest.mark.parametrize("wrong", [3, dict, "best"])
def test_what_is_no_tuner_is_refused(wrong: Any) -> None:
    if isinstance(wrong, str):
        pytest.importorskip("autokeras")
    with pytest.raises(InvalidSetting, match="tuner cannot be"):
        WarmStart(RecordingClient(), META).tuner(wrong)


def test_the_objective_of_a_tuner_counts_and_several_are_added_up() -> None:
    loss, accuracy = (
        SimpleNamespace(name="val_loss", direction="min"),
        SimpleNamespace(name="val_accuracy", direction="max"),
    )
    single = of_tuner(accuracy)
    assert single is not None
    assert single.parts == (("val_accuracy", False),)
    several = of_tuner(SimpleNamespace(name="multi_objective", direction="min", objectives=[loss, accuracy]))
    assert several is not None
    metric = several.measure({"val_loss": 1.5, "val_accuracy": 0.75})
    assert metric is not None
    assert metric.value == 0.75
    assert metric.lower_is_better
    assert several.measure({"val_loss": 1.5}) is None
    assert of_tuner(SimpleNamespace(name="default_objective", direction="min")) is None
