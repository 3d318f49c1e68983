"""Does the callback ask once, at the right moment, and register what was measured? On every backend."""

import copy
from typing import Any

import keras
import numpy as np
import pytest

from modelkeeper import KeeperWarning
from modelkeeper.errors import InvalidMeta, InvalidSetting
from modelkeeper.integrations.keras import WarmStart
from tests.helpers.recording_client import LENT, RecordingClient, heights

META = {"data": "halves", "task": "classification"}
RNG = np.random.default_rng(0)
X = RNG.random((64, 6)).astype("float32")
Y = (X.sum(1) > 3).astype("int32")


def network(*, rate: float = 0.0, built: bool = True, optimizer: str = "Adam", eager: bool = True) -> Any:
    """Two layers; with a learning rate of 0 they stay as they are. Eager: nothing is compiled, for speed."""
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2, activation="softmax")]
    model = keras.Sequential([keras.Input((6,)), *layers] if built else layers)
    chosen = getattr(keras.optimizers, optimizer)(rate)
    model.compile(chosen, "sparse_categorical_crossentropy", metrics=["accuracy"], run_eagerly=eager)
    return model


def fit(model: Any, warm: Any, *others: Any, **options: Any) -> Any:
    given = {"epochs": 2, "batch_size": 16, "validation_split": 0.25, "verbose": 0} | options
    return model.fit(X, Y, callbacks=[warm, *others], **given)


class Script(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets every weight to the epoch's number and reports the accuracy that the test wants."""

    def __init__(self, values: list[float], name: str = "val_accuracy") -> None:
        super().__init__()
        self.values, self.name = values, name

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.set_weights([np.full_like(w, epoch + 1) for w in self.model.get_weights()])
        logs[self.name] = self.values[epoch]


def scripted(values: list[float], *after: Any, client: RecordingClient | None = None, **options: Any) -> Any:
    """A training whose accuracies are given: the callback sees them as others left them."""
    client = client or RecordingClient()
    warm, model = WarmStart(client, META), network()
    history = model.fit(
        X,
        Y,
        callbacks=[Script(values), warm, *after],
        **({"epochs": len(values), "validation_split": 0.25, "verbose": 0} | options),
    )
    return client, warm, model, history


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_what_was_lent_is_what_training_starts_from(optimizer: str) -> None:
    client, model = RecordingClient(), network(optimizer=optimizer, eager=False)
    warm = WarmStart(client, META)
    fit(model, warm)
    assert heights(model.get_weights()) == [LENT] * 4  # the learning rate is 0: nothing else has changed
    assert client.asked == [META]
    assert [answer.parent_name for answer in warm.answers] == ["parent"]


def test_a_model_that_is_built_by_its_first_batch_starts_warm_too() -> None:
    client, model = RecordingClient(), network(built=False, eager=False)
    fit(model, WarmStart(client, META))
    assert len(client.asked) == 1
    assert heights(model.get_weights()) == [LENT] * 4


def test_an_optimizer_that_has_stepped_before_the_start_begins_anew() -> None:
    steps = []

    class Look(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            optimizer = self.model.optimizer
            slots = [v.numpy() for v in optimizer.variables[2:]]  # rate, steps, slots
            steps.append((int(optimizer.iterations.numpy()), max(heights(slots), default=0.0)))

    model = network(built=False, rate=0.01, eager=False)
    fit(model, WarmStart(RecordingClient(), META), Look(), epochs=1)
    assert steps[0] == (0, 0.0)
    # TensorFlow builds the model in its first step, which is taken back; the others have built it before.
    assert (steps[1] == (0, 0.0)) == (keras.backend.backend() == "tensorflow")


def test_only_a_training_that_begins_is_asked_for() -> None:
    client, model = RecordingClient(), network()
    warm = WarmStart(client, META)
    fit(model, warm, initial_epoch=1, epochs=3)
    assert client.asked == []
    assert warm.trainings[0].why_not_asked == "it goes on at epoch 1"
    fit(model, warm)
    assert client.asked == []  # it has been trained
    assert warm.trainings[1].why_not_asked == "the model has been trained before"
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    fit(model, warm)
    assert len(client.asked) == 1
    assert len(client.registered) == 3


def test_the_best_epoch_is_registered_with_its_weights() -> None:
    client, warm, model, _ = scripted([0.5, 0.75, 0.625])
    assert client.registered[0]["metric"].name == "accuracy"
    assert client.registered[0]["metric"].value == 0.75
    assert client.registered[0]["metrics"]["val_accuracy"] == 0.75
    assert heights(client.weights[0]) == [2.0] * 4
    assert heights(model.get_weights()) == [3.0] * 4  # what is trained on stays the user's
    assert warm.trainings[0].epoch == 1
    assert warm.trainings[0].model is None  # nothing is held longer than needed
    assert warm.trainings[0].weights is None


@pytest.mark.parametrize("first", [True, False])
def test_early_stopping_that_restores_weights_may_stand_before_or_after(first: bool) -> None:
    stop = keras.callbacks.EarlyStopping(
        monitor="val_accuracy", mode="max", patience=1, restore_best_weights=True
    )
    client, model = RecordingClient(), network()
    warm = WarmStart(client, META)
    script, both = Script([0.5, 0.75, 0.625, 0.5]), [stop, warm] if first else [warm, stop]
    model.fit(X, Y, callbacks=[script, *both], epochs=4, validation_split=0.25, verbose=0)
    assert heights(client.weights[0]) == [2.0] * 4
    assert heights(model.get_weights()) == [2.0] * 4
    assert client.registered[0]["metric"].value == 0.75


def test_epochs_that_diverge_are_no_best_ones() -> None:
    client, *_ = scripted([float("nan"), 0.5, float("nan")])
    assert client.registered[0]["metric"].value == 0.5


def test_validation_in_some_epochs_only() -> None:
    client, model = RecordingClient(), network()
    warm = WarmStart(client, META)
    fit(model, warm, epochs=4, validation_freq=2)
    assert warm.trainings[0].epoch in (1, 3)
    assert len(client.registered) == 1


def test_a_training_without_validation_is_not_registered_and_says_why() -> None:
    client, model = RecordingClient(), network()
    warm = WarmStart(client, META)
    with pytest.warns(KeeperWarning, match="val_ metrics are not in its logs.*validation_data"):
        fit(model, warm, validation_split=0.0)
    assert client.registered == []
    assert warm.records == []
    assert "not registered: val_" in warm.summary()


def test_a_last_fit_without_validation_after_measured_ones_says_it_in_the_summary_alone() -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    fit(network(), warm)
    fit(network(), warm, validation_split=0.0)
    assert len(client.asked) == 2
    assert len(client.registered) == 1
    assert warm.trainings[1].why_not_registered.startswith("val_accuracy is not in its logs")


def test_a_user_may_name_what_counts() -> None:
    client = RecordingClient()
    fit(network(), WarmStart(client, META, monitor="loss"), validation_split=0.0)
    assert (client.registered[0]["metric"].name, client.registered[0]["metric"].lower_is_better) == (
        "loss",
        True,
    )


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    """Raises in the midst of the third epoch."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_training_is_registered_on_leaving_the_block(error: type[BaseException]) -> None:
    client = RecordingClient()
    with pytest.raises(error), WarmStart(client, META) as warm:
        fit(network(), warm, Interrupt(error), epochs=4)
    assert len(client.registered) == 1
    assert len(warm.records) == 1


def test_an_interrupted_training_is_registered_when_the_next_begins() -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    with pytest.raises(MemoryError):
        fit(network(), warm, Interrupt(MemoryError), epochs=4)
    assert client.registered == []
    fit(network(), copy.deepcopy(warm))
    assert [training.record is not None for training in warm.trainings] == [True, True]
    warm.finish()
    assert len(client.registered) == 2


def test_fit_registers_what_was_interrupted() -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    with pytest.raises(KeyboardInterrupt):
        warm.fit(
            network(),
            X,
            Y,
            epochs=4,
            validation_split=0.25,
            verbose=0,
            callbacks=[Interrupt(KeyboardInterrupt)],
        )
    assert len(client.registered) == 1
    history = warm.fit(network(), X, Y, validation_split=0.25, verbose=0)
    assert "val_loss" in history.history
    assert len(client.registered) == 2


def test_stop_training_ends_as_every_training_does() -> None:
    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    client = RecordingClient()
    fit(network(), WarmStart(client, META), Stop(), epochs=5)
    assert len(client.registered) == 1


def test_copies_share_what_they_have_seen_and_two_in_one_list_act_once() -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    fit(network(), copy.deepcopy(warm), copy.deepcopy(warm))
    assert len(client.asked) == len(client.registered) == len(warm.trainings) == 1
    assert copy.deepcopy(warm).trainings is warm.trainings


def test_trainings_of_one_trial_are_registered_once() -> None:
    client = RecordingClient()
    warm = WarmStart(client, META)
    with warm.trial(name="first"):
        for value in (0.5, 0.75, 0.625):
            network().fit(
                X, Y, callbacks=[Script([value]), copy.deepcopy(warm)], validation_split=0.25, verbose=0
            )
        assert client.registered == []
    assert [meta["metric"].value for meta in client.registered] == [0.75]
    assert client.registered[0]["name"] == "first"
    assert [training.record is not None for training in warm.trainings] == [False, True, False]
    assert warm.trainings[0].why_not_registered == "another execution of its trial was better"


@pytest.mark.parametrize("call", ["query", "register"])
def test_no_fault_of_the_keeper_stops_a_training(call: str) -> None:
    def trouble(called: str) -> None:
        if called == call:
            raise OSError("no route to the zoo")

    client, model = RecordingClient(trouble), network()
    warm = WarmStart(client, META)
    with pytest.warns(KeeperWarning, match="OSError: no route to the zoo"):
        history = fit(model, warm)
    assert len(history.history["val_loss"]) == 2
    with pytest.raises(OSError, match="no route"):
        fit(network(), WarmStart(RecordingClient(trouble, on_error="raise"), META))


def test_what_cannot_be_so_is_said_before_the_training() -> None:
    client = RecordingClient()
    with pytest.raises(InvalidMeta, match="did you mean 'data'"):
        WarmStart(client, {"dat": "x"})
    with pytest.raises(InvalidMeta, match="monitor"):
        WarmStart(client, {"accuracy": 0.5})
    with pytest.raises(InvalidSetting, match="mode"):
        WarmStart(client, monitor="val_cheer")


def test_what_a_user_says_reaches_the_client() -> None:
    client = RecordingClient()
    meta = META | {"tags": ["night"], "minimum_similarity": 0.5, "name": "mine", "metrics": {"flops": 3.0}}
    fit(network(), WarmStart(client, meta, calibrate=X, labels=Y, example_inputs=X[:1]))
    asked = client.asked[0]
    assert {key: asked[key] for key in ("data", "tags", "minimum_similarity")} == {
        "data": "halves",
        "tags": ["night"],
        "minimum_similarity": 0.5,
    }
    assert asked["calibrate"] is X
    assert asked["labels"] is Y
    assert asked["example_inputs"] is not None
    registered = client.registered[0]
    assert registered["name"] == "mine"
    assert registered["metrics"]["flops"] == 3.0
    assert "minimum_similarity" not in registered


def test_progress_and_a_summary_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    warm = WarmStart(RecordingClient(), META, verbose=True)
    fit(network(), warm)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ModelKeeper: warm from parent (similarity 1.00)"
    assert lines[1].startswith("ModelKeeper: registered as model, accuracy ")
    assert "warm from parent" in warm.summary()
