"""Keras models start from those of PyTorch, and lend back to them, with no PyTorch: on any backend."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from modelkeeper import ModelKeeperClient
from modelkeeper.frontends import describe, frontend_for
from modelkeeper.graph import from_json
from modelkeeper.matching import align
from modelkeeper.transform import apply, make_plan
from modelkeeper.weights import Array
from tests.helpers.keras_models import randomise
from tests.helpers.lend import WIDTH, ZOO, difference
from tests.helpers.written_in_keras import NETWORKS

TOLERANCE = 1e-5
WIDER = {"bert": 16}
# Keras on PyTorch makes arrays in a way that NumPy is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")


def computed(model: Any, given: Array) -> Array:
    moved = given if given.ndim == 2 else given.transpose(0, 2, 3, 1)
    return np.asarray(model.predict_on_batch(moved))  # compiled as a whole: quickest on JAX


@pytest.mark.parametrize("wider", [False, True], ids=["same", "wider"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_of_pytorch_lends_to_one_of_keras(name: str, wider: bool, lent: Path) -> None:
    keras.utils.set_random_seed(0)
    width = WIDER.get(name, 12) if wider else WIDTH
    child, kept = randomise(NETWORKS[name](width)), np.load(lent / f"{name}.npz")
    with ModelKeeperClient(lent / ZOO) as client:
        child, answer = client.query_for_model(child, {"task": name}, trained="replace")
    assert (answer.parent_name, answer.framework, answer.exact) == (name, "torch", True), answer
    assert wider or (answer.similarity or 0) >= 0.98
    assert difference(computed(child, kept["given"]), kept["made"]) < TOLERANCE
    assert keras.backend.backend() == "torch" or "torch" not in sys.modules


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_of_keras_lends_back_what_it_took(name: str, lent: Path) -> None:
    """To the graph of the PyTorch model: what it gets is what the model had, though epsilons differ."""
    keras.utils.set_random_seed(0)
    parent = randomise(NETWORKS[name](WIDTH))
    with ModelKeeperClient(lent / ZOO) as client:
        parent, _ = client.query_for_model(parent, {"task": name}, trained="replace")
    frontend = frontend_for(parent)
    graphs = describe(frontend, parent), from_json((lent / f"{name}.graph.json").read_bytes())
    plan = make_plan(*graphs, align(*graphs))
    assert plan.exact, plan.doubts
    had = np.load(lent / f"{name}.weights.npz")
    for tensor, array in apply(plan, dict(frontend.read(parent))):
        np.testing.assert_allclose(array, had[tensor], rtol=1e-5, atol=1e-6)
