"""Does a real zoo lend to trainings? fit on every backend, KerasTuner; AutoKeras on images, text, tables.

What is shown in docs/keras.md and the programs under examples/ are run, too.
"""

import re
import runpy
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.keras import WarmStart

ROOT = Path(__file__).parents[3]
META = {"data": "halves", "task": "classification"}
X = np.random.default_rng(0).random((64, 6)).astype("float32")
Y = (X.sum(1) > 3).astype("int32")
TENSORFLOW = keras.backend.backend() == "tensorflow"


@pytest.fixture
def quick() -> Iterator[None]:
    """Where many small models are trained for a few steps, compiling them takes longest."""
    if not TENSORFLOW:
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def network(width: int, *, inputs: bool = True) -> Any:
    layers = [keras.layers.Dense(width, activation="relu"), keras.layers.Dense(2, activation="softmax")]
    model = keras.Sequential([keras.Input((6,)), *layers] if inputs else layers)
    model.compile(keras.optimizers.Adam(0.0), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.mark.parametrize("inputs", [True, False])
def test_a_wider_model_computes_what_its_parent_did_when_training_begins(inputs: bool) -> None:
    """The learning rate is 0: what the model computes after `fit` is what it computed at the start."""
    client = ModelKeeperClient(":memory:", on_error="raise", admission="off", minimum_benefit=0.0)
    warm = WarmStart(client, META)
    parent, child = network(8), network(12, inputs=inputs)
    for model in (parent, child):
        model.fit(X, Y, validation_split=0.25, batch_size=16, verbose=0, callbacks=[warm])
    assert [answer.cold for answer in warm.answers] == [True, False]
    assert warm.answers[1].exact
    np.testing.assert_allclose(child.predict(X, verbose=0), parent.predict(X, verbose=0), atol=1e-6)
    first, second = warm.records
    assert (first.metric, first.data, first.framework) == ("accuracy", "halves", "keras")
    assert second.parent == first.id


def test_trials_of_a_search_start_from_each_other(tmp_path: Path) -> None:
    kt: Any = pytest.importorskip("keras_tuner")
    client = ModelKeeperClient(":memory:", on_error="raise", admission="off", minimum_benefit=0.0)
    warm = WarmStart(client, META)
    tuner = warm.tuner(kt.GridSearch)(
        lambda hp: network(hp.Choice("width", [6, 9])), objective="val_loss", directory=tmp_path
    )
    tuner.search(X, Y, validation_split=0.25, batch_size=48, verbose=0)
    assert [answer.cold for answer in warm.answers] == [True, False]
    assert warm.answers[1].exact
    scores = [trial.score for trial in tuner.oracle.trials.values()]
    assert [record.value for record in warm.records] == pytest.approx(scores)
    assert warm.records[1].parent == warm.records[0].id


def program(name: str) -> dict[str, Any]:
    """What an example defines."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name=name)


def test_the_example_of_fit_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program("keras_fit")["main"](["--epochs", "1", "--parent-epochs", "1", "--seeds", "1"])
    shown = capsys.readouterr().out
    assert "warm from Sequential" in shown
    assert "mean of 1 seeds" in shown


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(not TENSORFLOW, reason="one backend tells enough")
def test_the_example_of_keras_tuner_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("keras_tuner")
    program("keras_tuner_search")["main"](["--epochs", "1", "--trials", "2", "--examples", "64"])
    shown = capsys.readouterr().out
    assert "with the keeper" in shown
    assert "untitled_project-1" in shown


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(not TENSORFLOW, reason="AutoKeras needs TensorFlow")
@pytest.mark.parametrize("kind", ["text", "structured"])
def test_autokeras_searches_warm(kind: str) -> None:
    pytest.importorskip("autokeras")
    example = program("autokeras_search")
    warm = WarmStart(ModelKeeperClient(":memory:", on_error="raise"), {"data": kind})
    chosen = SimpleNamespace(trials=1, epochs=1, examples=128)
    scores = example["search"](example[kind], warm.tuner("random"), chosen)
    assert [record.value for record in warm.records] == pytest.approx(scores)
    final = warm.trainings[1]  # of the same network, on all data
    assert final.answer is not None
    assert final.answer.parent == warm.records[0].id
    assert final.why_not_registered.startswith("val_accuracy is not in its logs")


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(not TENSORFLOW, reason="AutoKeras needs TensorFlow")
def test_the_example_of_autokeras_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("autokeras")
    program("autokeras_search")["main"](["image", "--epochs", "1", "--trials", "1", "--examples", "128"])
    shown = capsys.readouterr().out
    assert "registered as auto_model-0" in shown
    assert "warm from auto_model-0" in shown  # AutoKeras' final fit, of the best network


@pytest.mark.usefixtures("quick")
def test_the_page_on_keras_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Up to the first block that needs what is not installed, or another backend."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs/keras.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 5
    space: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        needed = re.findall(r"^import (keras_tuner|autokeras)", block, re.MULTILINE)
        if needed and not (TENSORFLOW and all(map(find_spec, needed))):
            return
        exec(compile(block, "docs/keras.md", "exec"), space)
        assert capsys.readouterr().out.splitlines() == re.findall(r"# -> (.*)", block)
