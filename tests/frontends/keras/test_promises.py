"""Is anything called exact that is not? Pairs of models that differ in what weights do not show."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from modelkeeper import transfer
from modelkeeper.frontends import describe, frontend_for
from modelkeeper.frontends.keras.settings import settings_of

CLOSE = 1e-4
Pair = tuple[Callable[[], Any], Callable[[], Any]]


def chain(*between: Any, shape: tuple[int, ...] = (5, 6), dtype: str = "float32") -> Any:
    return keras.Sequential([keras.Input(shape, dtype=dtype), *between, layers.Dense(3)])


def attending(causal: bool, width: int = 8) -> Any:
    given = keras.Input((5, 6))
    taken = layers.Dense(width)(given)
    taken = layers.MultiHeadAttention(2, 4)(taken, taken, use_causal_mask=causal)
    return keras.Model(given, layers.Dense(3)(taken))


class Applied(layers.Layer):  # type: ignore[misc]
    """A function in the middle of a network."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def call(self, taken: Any) -> Any:
        return self._function(taken)


def applied(function: Callable[[Any], Any]) -> Any:
    return chain(layers.Dense(8), Applied(function))


def cut_at(place: int) -> Callable[[Any], Any]:
    def parted(taken: Any) -> Any:
        first, rest = ops.split(taken, [place], axis=1)
        return ops.max(first, axis=1) + ops.sum(rest, axis=1)

    return parted


def masked(zero: bool) -> Any:
    return chain(layers.Embedding(9, 6, mask_zero=zero), layers.LSTM(8), shape=(5,), dtype="int32")


PAIRS: dict[str, Pair] = {
    "a causal mask": (lambda: attending(True), lambda: attending(False)),
    "a mask over places": (lambda: masked(True), lambda: masked(False)),
    "cells": (
        lambda: chain(layers.LSTM(8, activation="relu")),
        lambda: chain(layers.LSTM(8, activation="elu")),
    ),
    "at least, at most": (
        lambda: applied(lambda y: ops.maximum(y, 0.2)),
        lambda: applied(lambda y: ops.minimum(y, 0.2)),
    ),
    "what is behind the point": (
        lambda: applied(lambda y: ops.cast(ops.cast(9 * y, "int32"), "float32")),
        lambda: applied(lambda y: 9 * y),
    ),
    "zero or not": (
        lambda: applied(lambda y: ops.cast(ops.cast(ops.relu(y), "bool"), "float32")),
        lambda: applied(lambda y: ops.relu(y)),
    ),
    "which place, or whether it is another than the first": (
        lambda: applied(lambda y: ops.cast(ops.cast(ops.argmax(y, axis=1), "bool"), "float32")),
        lambda: applied(lambda y: ops.cast(ops.argmax(y, axis=1), "float32")),
    ),
    "how often places are repeated": (
        lambda: applied(lambda y: ops.reshape(ops.sum(ops.tile(y, (1, 2, 1)), axis=1), (-1, 8))),
        lambda: applied(lambda y: ops.reshape(ops.sum(ops.tile(y, (1, 3, 1)), axis=1), (-1, 8))),
    ),
    "how often each place is repeated": (
        lambda: applied(lambda y: ops.sum(ops.repeat(y, 2, axis=1), axis=1)),
        lambda: applied(lambda y: ops.sum(ops.repeat(y, 3, axis=1), axis=1)),
    ),
    "where places are cut": (lambda: applied(cut_at(1)), lambda: applied(cut_at(2))),
    "how many places are picked": (
        lambda: applied(lambda y: ops.sum(ops.take(y, [0, 1], axis=1), axis=1)),
        lambda: applied(lambda y: ops.sum(ops.take(y, [0, 1, 2], axis=1), axis=1)),
    ),
    "bases": (lambda: applied(lambda y: 2**y), lambda: applied(lambda y: 3**y)),
    "orders": (
        lambda: applied(lambda y: ops.norm(y, ord=1, axis=-1, keepdims=True) * y),
        lambda: applied(lambda y: ops.norm(y, ord=2, axis=-1, keepdims=True) * y),
    ),
}


def filled(model: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(rng.normal(size=tuple(variable.shape)).astype(np.float32))
    return model


def inputs(model: Any) -> Any:
    rng = np.random.default_rng(0)
    if "int" in model.inputs[0].dtype:
        return np.array([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0]])
    return rng.normal(size=(2, *model.inputs[0].shape[1:])).astype(np.float32)


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_is_not_promised_and_what_is_the_same_is(name: str) -> None:
    for first, second in (PAIRS[name], PAIRS[name][::-1]):
        source, other, same = filled(first(), 0), filled(second(), 1), filled(first(), 2)
        report = transfer(source, other, source_inputs=None)
        assert not report.exact
        assert transfer(source, same, source_inputs=None).exact
        given = inputs(source)
        made = np.asarray(source.predict_on_batch(given))
        assert np.abs(np.asarray(same.predict_on_batch(given)) - made).max() < CLOSE * np.abs(made).max()
        assert np.abs(np.asarray(other.predict_on_batch(given)) - made).max() > CLOSE


def test_norms_over_places_are_widened_by_whole_factors_alone() -> None:
    def normed(width: int) -> Any:
        return chain(layers.Dense(width), layers.LayerNormalization(axis=[1, 2]))

    source = filled(normed(8), 0)
    assert transfer(source, filled(normed(16), 1)).exact
    assert not transfer(source, filled(normed(12), 1)).exact


def test_settings_are_equal_if_what_is_computed_is() -> None:
    one = settings_of(layers.LSTM(8, activation="relu", name="one", kernel_initializer="zeros"))
    assert one == settings_of(layers.LSTM(8, activation="relu", name="two", dtype="float16"))
    assert one != settings_of(layers.LSTM(8, activation="relu", go_backwards=True))


def test_an_operation_with_arguments_that_no_rule_expects_is_described() -> None:
    for model in (applied(lambda y: ops.normalize(y, axis=-1)), chain(layers.Activation("squareplus"))):
        assert describe(frontend_for(model), model).parameters > 0
