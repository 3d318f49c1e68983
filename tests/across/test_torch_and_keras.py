"""Parents across frameworks: networks in PyTorch and in Keras lend to each other, and compute the same."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers
from torch import nn

from benchmarks.helpers.permutation import randomise as randomise_torch
from modelkeeper import ModelKeeperClient, transfer
from modelkeeper.frontends import describe, frontend_for
from modelkeeper.frontends.keras.frontend import KerasFrontend
from modelkeeper.layouts import Laid
from modelkeeper.matching import align
from modelkeeper.settings import login
from modelkeeper.weights import Array
from tests.helpers import written_in_keras, written_in_torch
from tests.helpers.keras_models import randomise as randomise_keras
from tests.helpers.lend import difference, inputs

NAMES = list(written_in_torch.NETWORKS)
WIDTH = 8
WIDER = {"bert": 16}  # what layer norms average over grows by a whole multiple
TOLERANCE = 1e-5
# Keras on PyTorch makes arrays in a way that NumPy is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")


def in_torch(name: str, width: int = WIDTH) -> nn.Module:
    torch.manual_seed(0)
    model = written_in_torch.NETWORKS[name](width).eval()
    randomise_torch(model)
    return model


def in_keras(name: str, width: int = WIDTH) -> Any:
    keras.utils.set_random_seed(0)
    return randomise_keras(written_in_keras.NETWORKS[name](width))


Make = Callable[[str, int], Any]
MAKERS: tuple[Make, Make] = in_torch, in_keras


def computed(model: Any, name: str) -> Array:
    """What a model of either framework makes of the same input."""
    given = inputs(name)
    if isinstance(model, keras.Model):
        moved = given if given.ndim == 2 else given.transpose(0, 2, 3, 1)
        return np.asarray(model(moved, training=False).detach())
    with torch.no_grad():
        return np.asarray(model.eval()(torch.from_numpy(given)))


@pytest.mark.parametrize("name", NAMES)
def test_they_are_nearly_the_same_architecture(name: str) -> None:
    model, other = in_torch(name), in_keras(name)
    example = torch.from_numpy(inputs(name))
    graphs = describe(frontend_for(model), model, example), describe(frontend_for(other), other)
    assert [graph.framework for graph in graphs] == ["torch", "keras"]
    assert align(*graphs).similarity >= 0.98
    assert align(*reversed(graphs)).similarity >= 0.98


@pytest.mark.parametrize("wider", [False, True], ids=["same", "wider"])
@pytest.mark.parametrize("lends", ["torch", "keras"])
@pytest.mark.parametrize("name", NAMES)
def test_a_child_that_contains_its_parent_computes_what_it_does(name: str, lends: str, wider: bool) -> None:
    width = WIDER.get(name, 12) if wider else WIDTH
    make_parent, make_child = MAKERS if lends == "torch" else MAKERS[::-1]
    parent, child = make_parent(name, WIDTH), make_child(name, width)
    wanted = computed(parent, name)
    assert difference(computed(child, name), wanted) > 0.1
    example = torch.from_numpy(inputs(name))
    given: dict[str, Any] = {"source_inputs" if lends == "torch" else "example_inputs": example}
    report = transfer(parent, child, **given)
    assert report.exact, report.plan.doubts
    assert report.plan.coverage > 0.99
    assert difference(computed(child, name), wanted) < TOLERANCE


@pytest.mark.parametrize("lends", ["torch", "keras"])
def test_through_a_zoo_that_says_which_framework_a_parent_is_of(lends: str, tmp_path: Path) -> None:
    make_parent, make_child = MAKERS if lends == "torch" else MAKERS[::-1]
    parent, child = make_parent("resnet", WIDTH), make_child("resnet", 12)
    with ModelKeeperClient(tmp_path) as client:
        client.register_model(parent, {"accuracy": 0.9, "name": "lender"})
        child, answer = client.query_for_model(child, trained="replace")
        assert (answer.parent_name, answer.framework, answer.exact) == ("lender", lends, True)
        assert f"warm from {login()}/lender ({answer.parent}), a {lends} model" in str(answer)
    assert difference(computed(child, "resnet"), computed(parent, "resnet")) < TOLERANCE


def test_keras_gets_weights_as_it_stores_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels, also those behind a flattening, are written in Keras' order when they are gathered."""
    loaded: dict[str, Any] = {}
    load = KerasFrontend.load

    def seen(self: KerasFrontend, model: Any, weights: Mapping[str, Any]) -> Any:
        loaded.update(weights)
        return load(self, model, weights)

    monkeypatch.setattr(KerasFrontend, "load", seen)
    transfer(in_torch("vgg"), in_keras("vgg", 12), source_inputs=torch.from_numpy(inputs("vgg")))
    kernels = {name: value for name, value in loaded.items() if name.endswith("kernel")}
    assert len(kernels) == 5
    assert all(isinstance(value, Laid) for value in kernels.values())
    assert not any(isinstance(loaded[name], Laid) for name in loaded.keys() - kernels.keys())


def test_strides_that_keras_pads_behind_are_approximate_and_said() -> None:
    parent, child = in_torch("mobilenet"), written_in_keras.same_strides(WIDTH)
    report = transfer(parent, child)
    assert report.similarity > 0.95
    assert not report.exact
    assert sum("padding 1x1 became 0x0x1x1" in doubt for doubt in report.plan.doubts) == 2
    assert report.plan.coverage > 0.99


@pytest.mark.parametrize("lends", ["torch", "keras"])
def test_a_bias_before_a_norm_comes_and_goes(lends: str) -> None:
    """Keras gives a convolution a bias unless it is told not to; in PyTorch most leave it out there."""

    def keras_net() -> Any:
        sizes = [layers.Conv2D(WIDTH, 3), layers.BatchNormalization(), layers.ReLU()]
        dense = [layers.Flatten(), layers.Dense(6), layers.BatchNormalization(), layers.Dense(3)]
        return randomise_keras(keras.Sequential([keras.Input((12, 12, 3)), *sizes, *dense]))

    def torch_net() -> nn.Module:
        conv = [nn.Conv2d(3, WIDTH, 3, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.Flatten()]
        dense = [nn.Linear(WIDTH * 100, 6, bias=False), nn.BatchNorm1d(6), nn.Linear(6, 3)]
        model = nn.Sequential(*conv, *dense).eval()
        randomise_torch(model)
        return model

    torch.manual_seed(0)
    parent, child = (torch_net(), keras_net()) if lends == "torch" else (keras_net(), torch_net())
    example = torch.from_numpy(inputs("vgg"))
    given: dict[str, Any] = {"source_inputs" if lends == "torch" else "example_inputs": example}
    report = transfer(parent, child, **given)
    assert report.exact, report.plan.doubts
    assert difference(computed(child, "vgg"), computed(parent, "vgg")) < TOLERANCE
