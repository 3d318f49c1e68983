"""An architecture is the same graph in Keras and in PyTorch; a widened Keras model computes the same."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.helpers.keras_replay import widened
from benchmarks.keras_coverage import feed, run
from modelkeeper.frontends import describe, frontend_for
from modelkeeper.frontends.keras import FRONTEND as KERAS
from modelkeeper.frontends.keras.describe import study
from modelkeeper.frontends.torch import FRONTEND as TORCH
from modelkeeper.matching import align
from modelkeeper.tracing.describe import account_for
from modelkeeper.transform import apply, make_plan
from tests.helpers.keras_models import MODELS, randomise

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")

Pair = tuple[Any, nn.Module, tuple[int, ...]]
EPS = 1e-3  # of Keras' norms
PAIRS: dict[str, Callable[[], Pair]] = {}


def pair(build: Callable[[], Pair]) -> Callable[[], Pair]:
    PAIRS[build.__name__] = build
    return build


def stacked(shape: tuple[int, ...], *parts: Any) -> Any:
    return keras.Sequential([keras.Input(shape), *parts])


@pair
def perceptron() -> Pair:
    ours = stacked(
        (6,),
        layers.Dense(8, activation="relu"),
        layers.Dense(7, activation="gelu"),
        layers.Dense(3, activation="softmax"),
    )
    theirs = nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 7), nn.GELU(), nn.Linear(7, 3), nn.Softmax(-1)
    )
    return ours, theirs, (6,)


@pair
def convolutional() -> Pair:
    ours = stacked(
        (12, 12, 3),
        layers.Conv2D(8, 3, padding="same", use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(6.0),
        layers.MaxPooling2D(),
        layers.Conv2D(12, 3),
        layers.AveragePooling2D(2),
        layers.Flatten(),
        layers.Dense(20, activation="elu"),
        layers.Dense(5),
    )
    theirs = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8, eps=EPS),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(48, 20),
        nn.ELU(),
        nn.Linear(20, 5),
    )
    return ours, theirs, (3, 12, 12)


@pair
def padded() -> Pair:
    ours = stacked(
        (32, 32, 3),
        layers.ZeroPadding2D(3),
        layers.Conv2D(8, 7, strides=2),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.ZeroPadding2D(1),
        layers.MaxPooling2D(3, strides=2),
        layers.DepthwiseConv2D(3, activation="silu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3),
    )
    theirs = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3),
        nn.BatchNorm2d(8, eps=EPS),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    return ours, theirs, (3, 32, 32)


@pair
def enlarging() -> Pair:
    ours = stacked(
        (8, 8, 3),
        layers.Conv2D(8, 3, padding="same"),
        layers.UpSampling2D(),
        layers.Conv2DTranspose(6, 2, strides=2),
        layers.PReLU(shared_axes=[1, 2]),
        layers.GroupNormalization(2),
        layers.Conv2D(2, 1),
    )
    theirs = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Upsample(scale_factor=2),
        nn.ConvTranspose2d(8, 6, 2, 2),
        nn.PReLU(6),
        nn.GroupNorm(2, 6, eps=EPS),
        nn.Conv2d(6, 2, 1),
    )
    return ours, theirs, (3, 8, 8)


@pair
def along_one_axis() -> Pair:
    ours = stacked(
        (20, 4),
        layers.Conv1D(8, 3, activation="relu"),
        layers.MaxPooling1D(),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dense(3),
    )
    theirs = nn.Sequential(
        nn.Conv1d(4, 8, 3),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.BatchNorm1d(8, eps=EPS),
        nn.Flatten(),
        nn.Linear(72, 3),
    )
    return ours, theirs, (4, 20)


ACTIVATIONS: dict[str, nn.Module] = {
    "leaky_relu": nn.LeakyReLU(0.2),
    "selu": nn.SELU(),
    "softplus": nn.Softplus(),
    "softsign": nn.Softsign(),
    "sigmoid": nn.Sigmoid(),
    "log_sigmoid": nn.LogSigmoid(),
    "hard_sigmoid": nn.Hardsigmoid(),
    "hard_silu": nn.Hardswish(),
    "mish": nn.Mish(),
    "tanh_shrink": nn.Tanhshrink(),
    "celu": nn.CELU(),
    "tanh": nn.Tanh(),
}


@pair
def activations() -> Pair:
    ours = stacked((6,), *[layers.Dense(6, activation=name) for name in ACTIVATIONS])
    theirs = nn.Sequential(*[part for each in ACTIVATIONS.values() for part in (nn.Linear(6, 6), each)])
    return ours, theirs, (6,)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTM(5, 9, batch_first=True), nn.GRU(9, 7, batch_first=True)
        self.head = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.second(self.first(x)[0])[0][:, -1])


@pair
def recurrent() -> Pair:
    ours = stacked((6, 5), layers.LSTM(9, return_sequences=True), layers.GRU(7), layers.Dense(4))
    return ours, Recurrent(), (6, 5)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.one, self.two = nn.LayerNorm(width, eps=EPS), nn.LayerNorm(width, eps=EPS)
        self.up, self.down, self.heads = nn.Linear(width, 48), nn.Linear(48, width), heads

    def forward(self, x: Tensor) -> Any:
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.q, self.k, self.v))
        made = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.one(x + self.o(made))
        return self.two(x + self.down(functional.gelu(self.up(x))))


@pair
def attentive() -> Pair:
    given = keras.Input((7, 24))
    x = layers.LayerNormalization()(given + layers.MultiHeadAttention(4, 6)(given, given))
    inner = layers.Dense(24)(layers.Dense(48, activation="gelu")(x))
    return keras.Model(given, layers.LayerNormalization()(x + inner)), Block(24, 4), (7, 24)


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_architecture_is_the_same_graph_and_lends_exactly(name: str) -> None:
    ours, theirs, shape = PAIRS[name]()
    theirs.eval()
    randomise(ours)
    example = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    studied, first, second = study(ours), describe(KERAS, ours), describe(TORCH, theirs, example)
    assert first.fingerprint == second.fingerprint
    plan = make_plan(first, second, align(first, second))
    TORCH.load(theirs, dict(apply(plan, dict(KERAS.read(ours)))))
    given = np.transpose(example.numpy(), np.argsort(studied.input_orders[0]))
    with torch.no_grad():
        made, after = ours(given, training=False).permute(*studied.output_orders[0]), theirs(example)
    assert torch.allclose(made, after, atol=1e-5 * float(made.abs().max()))


def test_a_keras_model_on_pytorch_is_a_keras_model() -> None:
    model = MODELS["built_later"]()
    assert isinstance(model, nn.Module)
    assert frontend_for(model) is KERAS


@pytest.mark.parametrize("name", MODELS)
def test_every_free_space_can_be_wider(name: str) -> None:
    model = randomise(MODELS[name]())
    studied = study(model)
    weights = {key: array.copy() for key, array in KERAS.read(model)}
    inputs = feed(studied)
    found = widened(
        studied, account_for(studied.trace), weights, keras.tree.flatten(inputs), run(model, inputs)
    )
    assert found["widened"] < 1e-12
    if name not in ("masked", "mixed_precision"):  # a mask is ignored, and bfloat16 is coarse
        assert found["replay"] < 1e-5
