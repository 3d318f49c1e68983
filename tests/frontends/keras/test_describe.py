"""Small models of all kinds are described, it is true of them, and nothing of it is left behind."""

import json
import random
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops
from keras.src.backend.common import global_state

from benchmarks.helpers.orders import shuffled
from modelkeeper.errors import CannotDescribe
from modelkeeper.frontends import describe
from modelkeeper.frontends.keras import FRONTEND
from modelkeeper.frontends.keras.describe import study
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.graph import Graph
from modelkeeper.weights import Array
from tests.helpers.keras_models import MODELS, Residual, randomise

# JAX compiles each operation of each model; the graphs that are tested are the same on every backend.
SLOW_ON_JAX = [pytest.mark.slow] if keras.config.backend() == "jax" else []

FINGERPRINTS = Path(__file__).parent / "golden" / "fingerprints.json"
SAME = 2e-5  # what rounding in single precision may change


def outputs(model: Any, seed: int = 1) -> Array:
    """What a model computes on random inputs."""
    rng = np.random.default_rng(seed)

    def numbers(tensor: Any) -> Any:
        whole = rng.integers(1, 20, tensor.shape)
        return rng.normal(size=tensor.shape).astype("float32") if "float" in tensor.dtype else whole

    inputs = study(model).trace.ran_on
    args, kwargs = keras.tree.map_structure(numbers, (inputs.args, dict(inputs.kwargs)))
    made = keras.tree.flatten(model(*args, **kwargs, training=False))
    return np.concatenate([to_numpy(tensor).astype("float64").reshape(-1) for tensor in made])


def change(before: Array, after: Array) -> float:
    return float(np.abs(before - after).max() / np.abs(before - before.mean()).max())


def notes(graph: Graph, topic: str) -> list[str]:
    return [f"{note.where} {note.text}" for note in graph.notes if note.topic == topic]


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW_ON_JAX) for name in MODELS])
def test_units_that_are_shuffled_on_all_axes_of_a_space_change_nothing(name: str) -> None:
    model = randomise(MODELS[name]())
    graph = describe(FRONTEND, model)
    assert not notes(graph, "opaque")
    assert not notes(graph, "conflict")
    before = outputs(model)
    FRONTEND.load(model, shuffled(graph, {name: array.copy() for name, array in FRONTEND.read(model)}))
    assert change(before, outputs(model)) < (2e-2 if name == "mixed_precision" else SAME)


def test_the_same_model_is_the_same_graph_on_every_backend() -> None:
    found = {name: describe(FRONTEND, build()).fingerprint for name, build in MODELS.items()}
    assert found == json.loads(FINGERPRINTS.read_text())


def test_dropout_is_no_part_of_the_architecture() -> None:
    plain, dropping = (describe(FRONTEND, MODELS[n]()) for n in ("transformer", "transformer_with_dropout"))
    assert plain.fingerprint == dropping.fingerprint


def test_tensors_have_the_dtypes_that_variables_have() -> None:
    trace = FRONTEND.trace(MODELS["mixed_precision"]())
    assert {tensor.dtype for tensor in trace.tensors} == {"float32"}
    assert {step.outputs[0].dtype for step in trace.steps if step.name == "conv2d"} == {"bfloat16"}


def test_moving_statistics_are_buffers_and_frozen_weights_are_not() -> None:
    model = MODELS["channels_last"]()
    for layer in model.layers:
        layer.trainable = False
    tensors = {tensor.names[0].rpartition(".")[2]: tensor for tensor in FRONTEND.trace(model).tensors}
    assert not tensors["moving_mean"].parameter
    assert not tensors["moving_variance"].parameter
    assert tensors["kernel"].parameter
    assert not tensors["kernel"].trainable


def test_statistics_of_the_data_are_never_read_or_loaded() -> None:
    model = MODELS["preprocessed"]()
    adapted = [tensor for tensor in FRONTEND.trace(model).tensors if "normalization" in tensor.names[0]]
    assert adapted
    assert not any(tensor.stored for tensor in adapted)
    assert not any("normalization" in name for name, _ in FRONTEND.read(model))


def test_seeds_metrics_and_the_optimizer_are_no_tensors_of_the_model() -> None:
    model = MODELS["sequential"]()
    before = describe(FRONTEND, model)
    model.compile("adam", "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    assert describe(FRONTEND, model).fingerprint == before.fingerprint
    assert {name for name, _ in FRONTEND.read(model)} == {v.path.replace("/", ".") for v in model.weights}


# -- what cannot be seen through ---------------------------------------------------------------------


class Direct(layers.Layer):  # type: ignore[misc]
    """Asks for numbers, which a symbolic tensor does not have."""

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], 6), name="w")

    def call(self, x: Any) -> Any:
        if isinstance(x, keras.KerasTensor):
            raise TypeError("only real tensors here")
        return ops.relu(ops.matmul(x, self.w))

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], 6)


def test_a_layer_that_needs_real_tensors_is_opaque_and_the_reason_is_said() -> None:
    given = keras.Input((10,))
    model = randomise(keras.Model(given, layers.Dense(3)(Direct(name="direct")(layers.Dense(8)(given)))))
    graph = describe(FRONTEND, model)
    (note,) = [note for note in graph.notes if note.topic == "opaque" and note.where == "direct"]
    assert "only real tensors here" in note.text
    assert not any(space.free for space in graph.spaces)
    before = outputs(model)
    FRONTEND.load(model, dict(FRONTEND.read(model)))
    assert change(before, outputs(model)) == 0


def test_a_quantised_layer_is_opaque() -> None:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Dense(3)])
    model.layers[0].quantize("int8")
    graph = describe(FRONTEND, model)
    assert "quantised to int8" in notes(graph, "opaque")[0]
    assert graph.tensors[model.layers[0]._kernel.path.replace("/", ".")].dtype == "int8"


def test_a_mask_over_places_is_said_to_be_ignored() -> None:
    (note,) = notes(describe(FRONTEND, MODELS["masked"]()), "approximate")
    assert "mask" in note


# -- inputs ------------------------------------------------------------------------------------------


def test_example_inputs_may_be_anything_with_a_shape() -> None:
    model = MODELS["sequential"]()
    expected = describe(FRONTEND, model).fingerprint
    array = np.zeros((2, 12, 12, 3), "float32")
    for example in (
        array,
        (array,),
        [array],
        ops.convert_to_tensor(array),
        keras.Input((12, 12, 3)),
        keras.KerasTensor((5, 12, 12, 3)),
    ):
        assert describe(FRONTEND, model, example).fingerprint == expected


def test_several_inputs_come_in_the_structure_of_the_model_or_in_a_row() -> None:
    a, b = np.zeros((2, 6), "float32"), np.zeros((2, 5), "float32")
    several, named = MODELS["several"](), MODELS["named_inputs"]()
    for example in ([a, b], (a, b)):
        assert describe(FRONTEND, several, example).fingerprint == describe(FRONTEND, several).fingerprint
    assert describe(FRONTEND, named, {"a": a, "b": b}).fingerprint == describe(FRONTEND, named).fingerprint


def test_a_model_that_was_never_called_is_built_from_example_inputs_or_refused() -> None:
    with pytest.raises(CannotDescribe, match="Pass example inputs"):
        describe(FRONTEND, Residual())
    model = Residual()
    graph = describe(FRONTEND, model, np.zeros((2, 8, 8, 3), "float32"))
    assert model.built
    assert graph.fingerprint == describe(FRONTEND, MODELS["subclassed"]()).fingerprint
    assert to_numpy(model(np.zeros((5, 8, 8, 3), "float32"))).shape == (5, 4)  # any number of examples


def test_sizes_that_a_model_leaves_open_are_filled_in() -> None:
    given = keras.Input((None, None, 3))
    model = keras.Model(given, layers.Dense(2)(layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(given))))
    assert FRONTEND.trace(model).inputs[0].shape == (1, 3, 224, 224)


def test_inputs_that_do_not_fit_are_refused_with_the_reason() -> None:
    with pytest.raises(CannotDescribe, match="did not run on"):
        describe(FRONTEND, MODELS["sequential"](), np.zeros((2, 7), "float32"))


# -- nothing is left behind --------------------------------------------------------------------------


def state(model: Any) -> tuple[Any, ...]:
    """All that describing could change."""
    return (
        [(v.path, id(v)) for v in model.variables],
        [to_numpy(v).tobytes() for v in model.variables],
        [len(each._inbound_nodes) for each in model.layers],
        [sorted(each.__dict__) for each in model.layers],
        random.getstate(),
        np.random.get_state()[1].tobytes(),  # type: ignore[index]
        dict(global_state.get_global_attribute("object_name_uids")),
    )


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["subclassed", "variational", "transformer_with_dropout", "preprocessed"])
def test_nothing_of_a_model_changes_when_it_is_described(name: str) -> None:
    keras.utils.set_random_seed(3)
    model = MODELS[name]()
    before = state(model)
    describe(FRONTEND, model)
    assert state(model) == before


def test_what_keras_does_itself_is_as_it_was_also_after_a_failure() -> None:
    operation, layer = keras.Operation.symbolic_call, layers.Layer.__call__
    with pytest.raises(CannotDescribe):
        describe(FRONTEND, MODELS["sequential"](), np.zeros((2, 7), "float32"))
    assert keras.Operation.symbolic_call is operation
    assert layers.Layer.__call__ is layer


def test_other_threads_build_models_while_one_describes() -> None:
    stop, problems = threading.Event(), []

    def build() -> None:
        try:
            while not stop.is_set():
                given = keras.Input((6,))
                made = keras.Model(given, layers.Dense(3)(layers.Dense(4, activation="relu")(given)))
                assert len(made.layers) == 3
                assert len(made.layers[1]._inbound_nodes) == 1
        except Exception as error:  # noqa: BLE001 (it is reported by the test)
            problems.append(error)

    other = threading.Thread(target=build)
    other.start()
    model = MODELS["several"]()
    expected = describe(FRONTEND, model).fingerprint
    for _ in range(10):
        assert describe(FRONTEND, model).fingerprint == expected
    stop.set()
    other.join()
    assert not problems
