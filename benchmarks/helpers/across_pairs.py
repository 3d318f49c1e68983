"""Pairs of models of two frameworks, and what a transfer between them does: PyTorch and Keras on PyTorch.

Real ones are pytorchcv's and keras.applications'; those of `tests.helpers` are written in both frameworks.
Everything runs in single precision, which is what Keras models have.
"""

import os
from collections.abc import Callable
from itertools import product
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
import torch
from torch import nn

from benchmarks.helpers.permutation import randomise as randomise_torch
from benchmarks.helpers.real_pairs import of
from modelkeeper import transfer
from modelkeeper.weights import Array
from tests.helpers import written_in_keras, written_in_torch
from tests.helpers.keras_models import randomise as randomise_keras
from tests.helpers.lend import difference, inputs

SIZE = 64
WAYS = {"torch": "torch to keras", "keras": "keras to torch"}  # by who lends
PROMISE = 1e-5  # of the deviation of the outputs: in single precision


def pooled(model: nn.Module) -> nn.Module:
    """A network of pytorchcv that takes pictures of any size."""
    model.get_submodule("features").add_module("final_pool", nn.AdaptiveAvgPool2d(1))
    return model


def application(name: str) -> Any:
    """A network of keras.applications, without weights."""
    make = getattr(keras.applications, name)
    return make(weights=None, input_shape=(SIZE, SIZE, 3), classifier_activation=None)


Make = Callable[[], Any]
# name -> in PyTorch, in Keras, and whether each contains the other
REAL: dict[str, tuple[Make, Make, bool]] = {
    "resnet50": (lambda: pooled(of("resnet", blocks=50)), lambda: application("ResNet50"), True),
    "mobilenetv2": (
        lambda: pooled(of("mobilenetv2", width_scale=1.0)),
        lambda: application("MobileNetV2"),
        False,  # Keras pads behind where there is a stride, and PyTorch around
    ),
}


def measure_across(name: str, lends: str, wider: bool = False) -> dict[str, Any]:
    """The row of one pair: who lends to whom, what the plan says, and by how much outputs differ."""
    torch.manual_seed(0)
    keras.utils.set_random_seed(0)
    if name in REAL:
        in_torch, in_keras, contains = REAL[name]
        models = in_torch(), in_keras()
        given = np.random.default_rng(0).normal(size=(2, 3, SIZE, SIZE)).astype(np.float32)
    else:
        widths = (8, 16) if wider else (8, 8)
        first, second = widths if lends == "torch" else widths[::-1]
        models = written_in_torch.NETWORKS[name](first), written_in_keras.NETWORKS[name](second)
        contains, given = True, inputs(name)
    randomise_torch(models[0].eval())
    randomise_keras(models[1])
    parent, child = models if lends == "torch" else models[::-1]
    example = torch.from_numpy(given)
    inputs_of: dict[str, Any] = {"source_inputs" if lends == "torch" else "example_inputs": example}
    report = transfer(parent, child, **inputs_of)
    return {
        "pair": f"{name}{', twice as wide' if wider else ''}, {WAYS[lends]}",
        "contains": contains,
        "similarity": round(report.similarity, 4),
        "exact": report.exact,
        "doubts": list(report.plan.doubts),
        "difference": difference(computed(child, given), computed(parent, given)),
        "summary": {action: row["percent"] for action, row in report.plan.summary().items()},
        "promise": PROMISE,
    }


def measure_in_keras(name: str) -> dict[str, Any]:
    """The row of two Keras models side by side in one that is twice as wide."""
    parents = []
    for seed in range(2):
        keras.utils.set_random_seed(seed)
        parents.append(written_in_keras.NETWORKS[name](8))
        randomise_keras(parents[-1], seed)
    report = transfer(parents, written_in_keras.NETWORKS[name](16), verify=True)
    return {
        "pair": f"{name} in Keras, twice",
        "exact": report.exact,
        "plan": "exact" if report.exact else report.plan.doubts[0],
        "difference": report.difference,
        "doubts": list(report.plan.doubts),
        "promise": PROMISE,
    }


def computed(model: Any, given: Array) -> Array:
    """What a model of either framework makes of pictures with channels first, or of words."""
    with torch.no_grad():
        if isinstance(model, keras.Model):
            moved = given if given.ndim == 2 else given.transpose(0, 2, 3, 1)
            return np.asarray(model(moved, training=False))
        return np.asarray(model.eval()(torch.from_numpy(given)))


def all_across() -> list[tuple[str, str, bool]]:
    """Every pair: its name, who lends, and whether the child is wider."""
    real = [(name, lends, False) for name, lends in product(REAL, WAYS)]
    return real + list(product(written_in_torch.NETWORKS, WAYS, (False, True)))
