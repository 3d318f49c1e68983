"""The Keras front end keeps the promises of all front ends, on the backend that this process has."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from modelkeeper.frontends.keras import FRONTEND
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.testing import FrontendTests
from modelkeeper.weights import Array

pytestmark = pytest.mark.usefixtures("alone")


class KerasTests(FrontendTests):
    frontend = FRONTEND

    def layers(self, width: int) -> list[Any]:
        raise NotImplementedError

    def make(self, width: int, seed: int) -> Any:
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input(self.input_shape[1:]), *self.layers(width)], name="model")
        rng = np.random.default_rng(seed)
        for variable in model.weights:  # no statistics and no offsets that are all alike
            variable.assign(to_numpy(variable) + rng.uniform(0.1, 0.5, variable.shape))
        return model

    def outputs(self, model: Any) -> Array | None:
        given = np.random.default_rng(5).normal(size=self.input_shape).astype("float32")
        return to_numpy(model(given, training=False))


class TestDense(KerasTests):
    input_shape = (2, 5)

    def layers(self, width: int) -> list[Any]:
        return [
            layers.Dense(width, activation="relu", name="first"),
            layers.Dense(width, activation="tanh", name="second"),
            layers.Dense(3, name="head"),
        ]


class TestConvolutional(KerasTests):
    input_shape = (2, 9, 8, 3)

    def layers(self, width: int) -> list[Any]:
        return [
            layers.Conv2D(width, 3, padding="same", name="first"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(width, 3, name="second"),
            layers.Flatten(),
            layers.Dense(width, name="inner"),
            layers.Dense(3, name="head"),
        ]
