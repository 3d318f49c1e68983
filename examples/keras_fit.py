"""Does a warm start shorten `model.fit`? On handwritten digits, with Keras on any backend, in a minute.

    KERAS_BACKEND=jax python examples/keras_fit.py

A small network is trained and registered. Then a wider one is trained twice for each seed, cold and warm:
same initial values, same order of images, same number of epochs. What is shown was measured on images
that neither has trained on; the keeper was told of the parent's accuracy on yet others.
"""

import argparse
from collections.abc import Sequence
from statistics import mean
from typing import Any

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from modelkeeper import ModelKeeperClient
from modelkeeper.integrations.keras import WarmStart

TASK = {"data": "digits", "task": "classification"}


def network(width: int, seed: int) -> Any:
    """Two convolutions and a linear layer."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * width, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, register, train again, compare."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--epochs", type=int, default=4)
    options.add_argument("--parent-epochs", type=int, default=15)
    options.add_argument("--seeds", type=int, default=2)
    chosen = options.parse_args(arguments)

    images, labels = load_digits(return_X_y=True)
    x, x_rest, y, y_rest = train_test_split(
        images.reshape(-1, 8, 8, 1) / 16, labels, test_size=0.5, random_state=0
    )
    x_parent, x_test, y_parent, y_test = train_test_split(x_rest, y_rest, test_size=0.5, random_state=0)

    with ModelKeeperClient(":memory:") as client:
        warm = WarmStart(client, TASK, verbose=True)
        parent = network(8, seed=0)
        parent.fit(
            x,
            y,
            epochs=chosen.parent_epochs,
            validation_data=(x_parent, y_parent),
            verbose=0,
            callbacks=[warm],
        )

        curves: dict[str, list[list[float]]] = {"cold": [], "warm": []}
        for seed in range(1, chosen.seeds + 1):
            for start, callbacks in (
                ("cold", []),
                ("warm", [WarmStart(client, TASK, register=False, verbose=True)]),
            ):
                history = network(12, seed).fit(
                    x,
                    y,
                    epochs=chosen.epochs,
                    validation_data=(x_test, y_test),
                    verbose=0,
                    callbacks=callbacks,
                )
                curves[start].append(history.history["val_accuracy"])
        print(f"\nAccuracy on test images, mean of {chosen.seeds} seeds")
        print("epoch " + "".join(f"{start:>8}" for start in curves))
        for epoch in range(chosen.epochs):
            values = [mean(curve[epoch] for curve in runs) for runs in curves.values()]
            print(f"{epoch + 1:>5} " + "".join(f"{value:>8.3f}" for value in values))


if __name__ == "__main__":
    main()
