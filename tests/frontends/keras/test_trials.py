"""Copies of Keras models in training: same random numbers for all, and no trace on the model."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from modelkeeper import ModelKeeperClient
from modelkeeper.errors import CannotProbe
from modelkeeper.frontends.keras import FRONTEND
from modelkeeper.frontends.keras.trials import KerasTrial, duplicate, labelled
from modelkeeper.weights import Array
from tests.helpers.keras_models import MODELS, randomise

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(256, 6)).astype("float32")
CLASSES = (ROWS @ RANDOM.normal(size=(6, 3))).argmax(1)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(width: int = 8, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    made = [
        layers.Dense(width, activation="relu", name="first"),
        layers.Dropout(0.5),
        layers.Dense(3, name="head"),
    ]
    return keras.Sequential([keras.Input((6,)), *made], name="network")


def weights(model: Any) -> dict[str, Array]:
    return {name: np.array(array) for name, array in FRONTEND.read(model)}


def same(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def test_trials_with_the_same_start_train_alike_whatever_runs_between_them() -> None:
    model, batches = network(), labelled((ROWS, CLASSES), 8)
    before, other = weights(model), weights(network(seed=1))
    first = KerasTrial(model, {}, LOSS, "sgd")
    alone = [first.step(batch) for batch in batches]
    trials = [KerasTrial(model, start, LOSS, "sgd") for start in ({}, other, before)]
    runs = [[trial.step(batch) for trial in trials] for batch in batches]
    assert [run[0] for run in runs] == pytest.approx(alone, rel=1e-5)
    assert [run[2] for run in runs] == pytest.approx(alone, rel=1e-5)
    assert runs[0][1] != pytest.approx(alone[0], rel=1e-3)
    assert same(weights(model), before)


def test_a_trial_learns_by_what_the_model_was_compiled_with_and_leaves_its_optimizer_alone() -> None:
    model = network()
    model.compile(keras.optimizers.Adam(0.01), LOSS)
    model.train_on_batch(ROWS[:32], CLASSES[:32])
    before = weights(model)
    slots = [np.array(keras.ops.convert_to_numpy(slot)) for slot in model.optimizer.variables]
    trial = KerasTrial(model, {}, None, None)
    losses = [trial.step(batch) for batch in labelled((ROWS, CLASSES), 8) * 6]
    assert np.mean(losses[-8:]) < np.mean(losses[:8])
    assert same(weights(model), before)
    after = [np.array(keras.ops.convert_to_numpy(slot)) for slot in model.optimizer.variables]
    assert all(np.array_equal(old, new) for old, new in zip(slots, after, strict=True))
    model.train_on_batch(ROWS[:32], CLASSES[:32])  # its memory was not used up


@pytest.mark.parametrize("name", ["sequential", "subclassed", "nested", "lstm", "transformer", "several"])
def test_a_copy_has_the_weights_of_its_model_under_the_same_names(name: str) -> None:
    model = randomise(MODELS[name]())
    before = weights(model)
    copied = duplicate(model)
    assert copied is not model
    assert same(weights(copied), before)
    FRONTEND.load(copied, {key: 0 * array for key, array in before.items()})
    assert same(weights(model), before)
    assert not same(weights(copied), before)


def test_a_model_that_says_nothing_of_its_configuration_cannot_be_copied() -> None:
    class Closed(keras.Model):  # type: ignore[misc]
        def __init__(self, inner: object) -> None:
            super().__init__()
            self.inner, self.head = inner, layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.head(x)

    model = Closed(object())
    model(ROWS[:2])
    with pytest.raises(CannotProbe, match="get_config"):
        duplicate(model)


def test_batches_are_labelled_and_enough() -> None:
    assert len(labelled((ROWS, CLASSES), 50)) == 8
    pairs = [(ROWS[n : n + 16], CLASSES[n : n + 16]) for n in range(0, 256, 16)]
    assert len(labelled(pairs, 10)) == 10
    for wrong, problem in (
        ([], "0 batches"),
        ([(ROWS,)] * 5, "no labels"),
        (ROWS, "no labels"),
        ((ROWS[:5], CLASSES[:5]), "5 examples"),
        (3, "int"),
    ):
        with pytest.raises(CannotProbe, match=problem):
            labelled(wrong, 50)


FAULTS: dict[str, tuple[Any, Any, str]] = {
    "no loss": (None, None, "made small"),
    "an unknown loss": ("no such loss", None, "loss"),
    "an optimizer that is none": (LOSS, lambda: 3, "optimizer"),
}


@pytest.mark.parametrize(("loss", "optimizer", "problem"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_train_is_said(loss: Any, optimizer: Any, problem: str) -> None:
    with pytest.raises(CannotProbe, match=problem):
        KerasTrial(network(), {}, loss, optimizer).step(labelled((ROWS, CLASSES), 8)[0])


def test_a_client_lets_starts_race(tmp_path: Path) -> None:
    parent = network(16)
    parent.compile(keras.optimizers.Adam(0.02), LOSS)
    parent.fit(ROWS, CLASSES, epochs=10, verbose=0)
    client = ModelKeeperClient(tmp_path)
    client.register_model(parent, {"accuracy": 0.9, "data": "rows"})
    child = network(10, seed=3)
    child.compile(keras.optimizers.SGD(0.02), LOSS)
    _, answer = client.query_for_model(child, {"data": "rows"}, probe=(ROWS, CLASSES))
    assert answer.warnings == ()
    assert answer.probe is not None
    starts = {runner.start for runner in answer.probe.runners}
    assert {"warm", "cold", "calibrated"} <= starts
    assert answer.probe.winner != "cold"
