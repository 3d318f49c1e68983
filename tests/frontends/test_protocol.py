"""A front end with the required methods alone, whose models cannot be changed in place."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modelkeeper import KeeperWarning, ModelKeeperClient
from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends import register, unregister
from modelkeeper.frontends.torch import FRONTEND
from modelkeeper.testing import FrontendTests
from modelkeeper.tracing.trace import Trace
from modelkeeper.weights import Array


class Frozen:
    """A perceptron as values: two weights and two biases, for good."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = {name: np.array(array) for name, array in weights.items()}
        for array in self.weights.values():
            array.setflags(write=False)

    def twin(self) -> nn.Module:
        """The same as a module, for its graph."""
        width = self.weights["0.weight"].shape[0]
        return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))


class FrozenFrontend:
    name = "frozen"
    runner = None
    trials = None

    def takes(self, model: object) -> bool:
        return isinstance(model, Frozen)

    def trace(self, model: Frozen, example_inputs: Any = None) -> Trace:
        trace = FRONTEND.trace(model.twin(), example_inputs)
        trace.framework = self.name
        return trace

    def read(self, model: Frozen) -> Iterator[tuple[str, Array]]:
        return iter(model.weights.items())

    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        for name, array in weights.items():
            if name not in model.weights or model.weights[name].shape != np.shape(array):
                raise InvalidWeights(name, "it has another name or shape")
        return Frozen(model.weights | dict(weights))

    def example(self, shape: Iterable[int], dtype: str = "float32") -> Any:
        return FRONTEND.example(shape, dtype)


def perceptron(width: int, seed: int) -> Frozen:
    generator = np.random.default_rng(seed)
    shapes = {"0.weight": (width, 5), "0.bias": (width,), "2.weight": (3, width), "2.bias": (3,)}
    return Frozen({name: generator.normal(size=shape).astype("f") for name, shape in shapes.items()})


class TestFrozen(FrontendTests):
    frontend = FrozenFrontend()
    input_shape = (2, 5)

    def make(self, width: int, seed: int) -> Frozen:
        return perceptron(width, seed)

    def outputs(self, model: Frozen) -> Array:
        x = np.linspace(-1, 1, 20, dtype="f").reshape(4, 5)
        hidden = np.maximum(x @ model.weights["0.weight"].T + model.weights["0.bias"], 0)
        made: Array = hidden @ model.weights["2.weight"].T + model.weights["2.bias"]
        return made


@pytest.fixture
def client() -> Iterator[ModelKeeperClient]:
    register(FrozenFrontend())
    with ModelKeeperClient(":memory:") as client:
        yield client
    unregister("frozen")


def test_a_client_returns_the_new_model_and_remembers_its_parent(client: ModelKeeperClient) -> None:
    parent = client.register_model(perceptron(6, 0), {"accuracy": 0.9})
    assert parent is not None
    model, answer = client.query_for_model(given := perceptron(6, 1))
    assert answer.exact
    assert model is not given
    assert np.array_equal(model.weights["2.bias"], perceptron(6, 0).weights["2.bias"])
    child = client.register_model(model, {"accuracy": 0.9})
    assert child is not None
    assert child.parent == parent.id


def test_wishes_that_the_front_end_cannot_fulfil_leave_a_plain_warm_start(client: ModelKeeperClient) -> None:
    client.register_model(perceptron(8, 0), {"accuracy": 0.9})
    for wish, consequence in (
        ({"calibrate": [torch.zeros(9, 5)]}, "uncalibrated.*does not run models. Leave calibrate= out"),
        ({"probe": [(torch.zeros(9, 5), 0)]}, "unprobed.*does not train models. Leave probe= out"),
    ):
        with pytest.warns(KeeperWarning, match=f"starts warm, but {consequence}"):
            _, answer = client.query_for_model(perceptron(7, 1), **wish)
        assert not answer.cold
        assert len(answer.warnings) == 1
