"""Calibrating Keras models: a narrower child comes closer to its parent, whatever examples are given as."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from modelkeeper import ModelKeeperClient, transfer
from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.keras.behaviour import recalibrate
from modelkeeper.frontends.keras.examples import collect, example_of
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.weights import Array

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(96, 8, 8, 3)).astype("float32")
CLASSES = (IMAGES.mean((1, 2)) @ RANDOM.normal(size=(3, 3))).argmax(1)
LONG = 1_000.0  # seconds: no budget, so that a busy machine gives the same results


def network(width: int, seed: int) -> Any:
    """Strided and padded convolutions with norms, and a head that ends with probabilities."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(width, 3, strides=2, padding="same", use_bias=False, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="rectified"),
            layers.Conv2D(width, 3, name="second"),
            layers.GlobalAveragePooling2D(name="pooled"),
            layers.Dense(3, activation="softmax", name="head"),
        ],
        name="network",
    )
    for variable in model.weights:
        if "moving_variance" not in variable.path:
            variable.assign(to_numpy(variable) + 0.3 * RANDOM.normal(size=variable.shape))
    return model


def error(model: Any, parent: Any) -> float:
    made, wanted = (each.predict(IMAGES, verbose=0) for each in (model, parent))
    return float(np.square(made - wanted).mean())


def weights(model: Any) -> list[Array]:
    return [np.array(array) for array in model.get_weights()]


@pytest.fixture(scope="module")
def parent() -> Any:
    """A wide one that computes what a narrow one can."""
    narrow, wide = network(6, 0), network(12, 1)
    assert transfer(narrow, wide).exact
    return wide


def test_a_narrower_child_comes_closer_to_its_parent_than_by_the_plan_alone(parent: Any) -> None:
    plain, child = network(6, 2), network(6, 2)
    child.set_weights(plain.get_weights())
    transfer(parent, plain)
    labels = parent.predict(IMAGES, verbose=0).argmax(1)
    report = transfer(parent, child, calibrate=(IMAGES, labels), seconds=LONG)
    found = report.calibration
    assert found is not None
    assert found.kept
    assert "labels" in found.measure
    assert found.fitted >= 2
    assert error(child, parent) < 0.1 * error(plain, parent)


@pytest.mark.usefixtures("unhurried")
def test_a_client_calibrates_from_a_program_in_the_zoo(parent: Any, tmp_path: Path) -> None:
    client = ModelKeeperClient(tmp_path)
    client.register_model(parent, {"accuracy": 0.9, "data": "patches"})
    plain, child = network(6, 2), network(6, 2)
    child.set_weights(plain.get_weights())
    client.query_for_model(plain, {"data": "patches"}, trained="replace")
    _, answer = client.query_for_model(child, {"data": "patches"}, calibrate=IMAGES, trained="replace")
    assert answer.warnings == ()
    assert answer.calibration is not None
    assert answer.calibration.kept
    assert error(child, parent) < 0.1 * error(plain, parent)


def test_a_model_that_has_no_program_starts_with_the_plain_weights(tmp_path: Path) -> None:
    def noisy(width: int) -> Any:
        class Noise(layers.Layer):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.seeds = keras.random.SeedGenerator(0)

            def call(self, x: Any) -> Any:
                return x + keras.random.normal(keras.ops.shape(x), seed=self.seeds) * 0

        made = [layers.Dense(width, name="first"), Noise(), layers.Dense(3, name="head")]
        return keras.Sequential([keras.Input((6,)), *made], name="noisy")

    client = ModelKeeperClient(tmp_path)
    client.register_model(noisy(9), {"accuracy": 0.9, "data": "rows"})
    child = noisy(5)
    before = weights(child)
    with pytest.warns(UserWarning, match=r"uncalibrated(.|\n)*program"):
        _, answer = client.query_for_model(child, {"data": "rows"}, calibrate=np.ones((8, 6), "float32"))
    assert answer.parent is not None
    assert answer.calibration is None
    assert any("program" in warning for warning in answer.warnings)
    assert any(not np.array_equal(old, new) for old, new in zip(before, weights(child), strict=True))


# -- examples ---------------------------------------------------------------------------------------


class Pieces(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> tuple[Array, Array]:
        part = slice(16 * number, 16 * (number + 1))
        return IMAGES[part], CLASSES[part]


def pieces() -> Iterator[tuple[Array, Array]]:
    yield from (Pieces()[number] for number in range(6))


def dataset() -> Any:
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((IMAGES, CLASSES)).batch(16)


FORMS: dict[str, Callable[[], Any]] = {
    "a pair": lambda: (IMAGES, CLASSES),
    "a pair with a column of labels": lambda: (IMAGES, CLASSES[:, None]),
    "a pair with one-hot labels": lambda: (IMAGES, np.eye(3)[CLASSES]),
    "a pair with weights": lambda: (IMAGES, CLASSES, np.ones(96)),
    "tensors": lambda: (keras.ops.convert_to_tensor(IMAGES), keras.ops.convert_to_tensor(CLASSES)),
    "a list of pairs": lambda: list(pieces()),
    "a generator": pieces,
    "a PyDataset": Pieces,
    "a tf.data.Dataset": dataset,
}


@pytest.mark.parametrize("form", FORMS)
def test_examples_come_in_many_forms(form: str) -> None:
    found = collect(FORMS[form](), None, 1_000)
    assert len(found) == 96
    np.testing.assert_array_equal(found.inputs, IMAGES)
    assert found.labels is not None
    np.testing.assert_array_equal(found.labels, CLASSES)


def test_inputs_by_name_and_in_lists_keep_their_structure() -> None:
    both = {"left": IMAGES, "right": CLASSES}
    found = collect(both, None, 10)
    assert [name for name, _ in found.arrays] == ["left", "right"]
    assert found.inputs["right"].shape == (10,)
    listed = collect(([IMAGES, CLASSES], CLASSES), None, 10)
    assert [array.shape for array in listed.inputs] == [(10, 8, 8, 3), (10,)]


def test_an_example_has_the_dtype_that_the_model_declares(parent: Any) -> None:
    (example,) = example_of(parent, (255 * np.abs(IMAGES)).astype("uint8"))
    assert example.shape == (2, 8, 8, 3)
    assert example.dtype == "float32"


BAD: dict[str, tuple[Any, str]] = {
    "nothing": ([], "0 examples"),
    "one example": (IMAGES[:1], "1 examples"),
    "NaN": (np.where(IMAGES > 3, np.nan, IMAGES), "NaN"),
    "no arrays": (["cat", "dog"], "no tensors"),
    "no batches": (7, "int"),
}


@pytest.mark.parametrize(("batches", "message"), BAD.values(), ids=BAD)
def test_examples_that_do_not_serve_are_refused(batches: Any, message: str) -> None:
    with pytest.raises(CannotCalibrate, match=message):
        collect(batches, None, 1_000)


# -- norms ------------------------------------------------------------------------------------------


def test_statistics_of_norms_are_estimated_anew_and_nothing_else_is_changed(parent: Any) -> None:
    model = network(12, 0)
    model.set_weights(parent.get_weights())
    before = weights(model)
    assert recalibrate(model, (IMAGES, CLASSES)) == 1
    norm = model.get_layer("norm")
    seen = keras.ops.convert_to_numpy(model.get_layer("first")(IMAGES))
    np.testing.assert_allclose(to_numpy(norm.moving_mean), seen.mean((0, 1, 2)), atol=1e-4)
    np.testing.assert_allclose(to_numpy(norm.moving_variance), seen.var((0, 1, 2)), rtol=1e-3)
    changed = [
        variable.path.rpartition("/")[2]
        for variable, old in zip(model.weights, before, strict=True)
        if not np.array_equal(to_numpy(variable), old)
    ]
    assert changed == ["moving_mean", "moving_variance"]
