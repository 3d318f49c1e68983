"""Weights come out in the order of the graph and go in as Keras stores them, all or none."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import modelkeeper
from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends import describe
from modelkeeper.frontends.keras import FRONTEND
from modelkeeper.frontends.keras.numbers import to_numpy
from tests.helpers.keras_models import MODELS, randomise


def weights_of(model: Any) -> dict[str, Any]:
    return {name: array.copy() for name, array in FRONTEND.read(model)}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_has_the_shapes_of_the_graph_and_loads_as_it_was(name: str) -> None:
    model = randomise(MODELS[name]())
    tensors = describe(FRONTEND, model).tensors
    weights = weights_of(model)
    assert {n: a.shape for n, a in weights.items()} == {n: t.shape for n, t in tensors.items() if t.stored}
    before = [to_numpy(variable).copy() for variable in model.weights]
    FRONTEND.load(model, {n: np.zeros_like(a) for n, a in weights.items()})
    FRONTEND.load(model, weights)
    for old, variable in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), old)


def test_gates_of_a_gru_stand_in_the_order_of_the_graph() -> None:
    model = keras.Sequential([keras.Input((3, 2)), layers.GRU(4, name="gru")])
    cell = model.layers[0].cell
    randomise(model)
    weights = weights_of(model)
    kernel, bias = to_numpy(cell.kernel), to_numpy(cell.bias)
    prefix = cell.kernel.path.replace("/", ".").removesuffix(".kernel")
    update, reset, new = np.split(kernel, 3, axis=1)
    np.testing.assert_array_equal(weights[f"{prefix}.kernel"], np.concatenate([reset, update, new], 1).T)
    assert weights[f"{prefix}.bias.recurrent"].shape == (12,)
    np.testing.assert_array_equal(weights[f"{prefix}.bias.input"][:4], bias[0, 4:8])
    FRONTEND.load(model, {f"{prefix}.bias.input": np.ones(12, "float32")})
    np.testing.assert_array_equal(to_numpy(cell.bias), np.stack([np.ones(12), bias[1]]))


def test_the_second_bias_of_an_lstm_is_added_to_the_first() -> None:
    model = keras.Sequential([keras.Input((3, 2)), layers.LSTM(4, name="lstm")])
    cell = model.layers[0].cell
    prefix = cell.kernel.path.replace("/", ".").removesuffix(".kernel")
    assert not weights_of(model)[f"{prefix}.bias.recurrent"].any()
    one, two = np.ones(16, "float32"), np.full(16, 2, "float32")
    FRONTEND.load(model, {f"{prefix}.bias.recurrent": two, f"{prefix}.bias": one})
    np.testing.assert_array_equal(to_numpy(cell.bias), one + two)


def test_the_optimizer_goes_on_with_the_same_variables() -> None:
    model = MODELS["sequential"]()
    model.compile("adam", "mse")
    x, y = np.ones((4, 12, 12, 3), "float32"), np.ones((4, 5), "float32")
    model.train_on_batch(x, y)
    variables, slots = list(model.trainable_variables), list(model.optimizer.variables)
    FRONTEND.load(model, weights_of(model))
    assert all(a is b for a, b in zip(model.trainable_variables, variables, strict=True))
    assert all(a is b for a, b in zip(model.optimizer.variables, slots, strict=True))
    model.train_on_batch(x, y)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("hed.kernel", np.zeros((3, 8)), "did you mean 'head.kernel'"),
        ("head.kernel", np.zeros((8, 3)), "shape"),
        ("head.kernel", np.zeros((3, 8), complex), "cannot become"),
        ("head.kernel", [["a"] * 8] * 3, "cannot become|no array"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(name: str, value: Any, problem: str) -> None:
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, name="first"), layers.Dense(3, name="head")], name="model"
    )
    before = weights_of(model)
    prefix = next(iter(before)).partition("first.")[0]
    good = {f"{prefix}first.bias": np.ones(8, "float32")}
    problem = problem.replace("'head", f"'{prefix}head")
    with pytest.raises(InvalidWeights, match=problem):
        FRONTEND.load(model, good | {f"{prefix}{name}": value})
    after = weights_of(model)
    assert all(np.array_equal(before[n], after[n]) for n in before)


def test_other_kinds_of_numbers_are_converted() -> None:
    model = MODELS["built_later"]()
    weights = {name: np.round(array * 8).astype("int64") for name, array in FRONTEND.read(model)}
    FRONTEND.load(model, weights)
    assert all(array.dtype == "float32" for _, array in FRONTEND.read(model))
    assert all(np.array_equal(array, weights[name]) for name, array in FRONTEND.read(model))


def test_layers_that_are_not_trainable_are_frozen_with_their_statistics() -> None:
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization()]
    )
    describe(FRONTEND, model)
    assert FRONTEND.frozen(model) == frozenset()
    model.get_layer("conv").trainable = False
    assert {name.rpartition(".")[2] for name in FRONTEND.frozen(model)} == {"kernel", "bias"}
    model.trainable = False
    assert FRONTEND.frozen(model) == {name for name, _ in FRONTEND.read(model)}
    model.trainable = True
    assert FRONTEND.frozen(model) == frozenset()


def test_a_transfer_leaves_frozen_layers_alone() -> None:
    def net(seed: int) -> Any:
        parts = [
            keras.Input((6,)),
            layers.Dense(5, name="first"),
            layers.ReLU(),
            layers.Dense(2, name="head"),
        ]
        return randomise(keras.Sequential(parts), seed)

    source, target = net(0), net(1)
    target.get_layer("first").trainable = False
    before = [to_numpy(variable).copy() for variable in target.weights]
    report = modelkeeper.transfer(source, target)
    assert not report.exact
    changed = [
        not np.array_equal(old, to_numpy(new)) for old, new in zip(before, target.weights, strict=True)
    ]
    assert changed == [False, False, True, True]
    assert modelkeeper.transfer(source, target, frozen="replace").exact


def test_a_model_that_is_trained_already_is_recognised() -> None:
    def net() -> Any:
        parts = [keras.Input((6,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(2)]
        return keras.Sequential(parts)

    recurrent = keras.Sequential([keras.Input((3, 2)), layers.LSTM(4), layers.Dense(2)])
    assert FRONTEND.trained(net()) == ""
    assert FRONTEND.trained(recurrent) == ""
    assert "not as they are initialised" in FRONTEND.trained(randomise(net()))
    model = net()
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 6)), np.ones((4, 2)), verbose=0)
    assert FRONTEND.trained(model) == "its optimizer has made 1 steps"
