"""What does KerasTuner gain when trials start from each other? On handwritten digits, in a minute.

    KERAS_BACKEND=tensorflow python examples/keras_tuner_search.py

The same random search runs twice, with the same seed: the same networks, the same few epochs each. In the
second run every trial starts from what the trials before it have learned, wherever that fits.
"""

import argparse
import tempfile
from collections.abc import Sequence
from typing import Any

import keras
import keras_tuner
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.keras import WarmStart


def build(hp: Any) -> Any:
    """A convolutional network; how wide and how deep is to be found."""
    layers = keras.layers
    model = keras.Sequential([keras.Input((8, 8, 1))])
    for number in range(hp.Int("depth", 1, 2)):
        model.add(layers.Conv2D(hp.Choice(f"filters_{number}", [8, 12, 16]), 3, padding="same"))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10, activation="softmax"))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def search(kind: Any, data: dict[str, Any], epochs: int, trials: int) -> list[float]:
    """The accuracy of each trial of one search."""
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        tuner = kind(build, objective="val_accuracy", max_trials=trials, directory=folder, seed=0)
        tuner.search(**data, epochs=epochs, verbose=0)
        return [trial.score for trial in tuner.oracle.trials.values()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Search twice and compare."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--trials", type=int, default=6)
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--examples", type=int, help="how many, to be quicker; default: all")
    chosen = options.parse_args(arguments)

    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(
        images.reshape(-1, 8, 8, 1) / 16, labels, test_size=0.3, random_state=0
    )
    data = {"x": x[: chosen.examples], "y": y[: chosen.examples], "validation_data": (x_val, y_val)}
    with ModelKeeperClient(":memory:") as client:
        warm = WarmStart(client, {"data": "digits", "task": "classification"})
        alone = search(keras_tuner.RandomSearch, data, chosen.epochs, chosen.trials)
        kept = search(warm.tuner(keras_tuner.RandomSearch), data, chosen.epochs, chosen.trials)
    print(warm.summary())
    print("\nAccuracy on validation images after each trial's epochs")
    print("trial   alone  with the keeper")
    for number, (without, with_it) in enumerate(zip(alone, kept, strict=True), 1):
        print(f"{number:>5} {without:>7.3f} {with_it:>16.3f}")
    print(f" best {max(alone):>7.3f} {max(kept):>16.3f}")


if __name__ == "__main__":
    main()
