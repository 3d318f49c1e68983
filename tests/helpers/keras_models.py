"""Small Keras models of all kinds: Sequential, Functional, subclassed, recurrent, with attention, custom
layers.

`MODELS` holds what builds them by name. Layers are given names, so that two of a kind have the same ones.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from modelkeeper.frontends.keras.numbers import to_numpy

MODELS: dict[str, Callable[[], Any]] = {}


def model(build: Callable[[], Any]) -> Callable[[], Any]:
    """Keep a function that builds a model."""
    MODELS[build.__name__] = build
    return build


def randomise(built: Any, seed: int = 0) -> Any:
    """Numbers that make every unit matter: no statistic, gain or bias is like another."""
    rng = np.random.default_rng(seed)
    for variable in built.weights:
        if "float" in variable.dtype:
            kind = variable.path.rpartition("/")[2]
            noise = rng.random(tuple(variable.shape))
            positive = "variance" in kind or "gamma" in kind or kind == "scale"
            changed = 0.5 + noise if positive else to_numpy(variable).astype("float64") + 0.4 * (noise - 0.5)
            variable.assign(changed.astype(to_numpy(variable).dtype))
    return built


@model
def sequential() -> Any:
    return keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(20, activation="gelu"),
            layers.Dropout(0.3),
            layers.Dense(5),
        ]
    )


@model
def built_later() -> Any:
    made = keras.Sequential([layers.Dense(12, activation="relu"), layers.Dense(4)])
    made.build((None, 7))
    return made


class Residual(keras.Model):  # type: ignore[misc]
    """Its layers are in lists of lists."""

    def __init__(self, width: int = 12) -> None:
        super().__init__(name="residual")
        self.stem = layers.Conv2D(width, 3, padding="same")
        self.blocks = [
            [layers.BatchNormalization(), layers.Conv2D(width, 3, padding="same")] for _ in range(2)
        ]
        self.head = layers.Dense(4)

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.stem(x)
        for norm, conv in self.blocks:
            x = x + conv(ops.relu(norm(x, training=training)))
        return self.head(ops.mean(x, axis=(1, 2)))


@model
def subclassed() -> Any:
    made = Residual()
    made(np.zeros((1, 8, 8, 3), "float32"))
    return made


class Gate(layers.Layer):  # type: ignore[misc]
    """A custom layer, in keras.ops."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units = units

    def build(self, shape: Any) -> None:
        self.a = self.add_weight(shape=(shape[-1], self.units), name="a")
        self.b = self.add_weight(shape=(shape[-1], self.units), name="b")
        self.scale = self.add_weight(shape=(self.units,), initializer="ones", name="scale")

    def call(self, x: Any) -> Any:
        return ops.matmul(x, self.a) * ops.sigmoid(ops.matmul(x, self.b)) * self.scale


@model
def custom() -> Any:
    given = keras.Input((10,))
    return keras.Model(given, layers.Dense(3)(Gate(12)(Gate(16)(given))))


@model
def lstm() -> Any:
    return keras.Sequential(
        [
            keras.Input((6, 5)),
            layers.LSTM(9, return_sequences=True),
            layers.LSTM(7),
            layers.Dense(4),
        ]
    )


@model
def gru() -> Any:
    return keras.Sequential(
        [keras.Input((6, 5)), layers.GRU(9, return_sequences=True), layers.GRU(7), layers.Dense(4)]
    )


@model
def simple_rnn() -> Any:
    return keras.Sequential(
        [
            keras.Input((6, 5)),
            layers.SimpleRNN(9, return_sequences=True),
            layers.SimpleRNN(6, activation="relu", use_bias=False),
            layers.Dense(4),
        ]
    )


@model
def encoder_decoder() -> Any:
    source, target = keras.Input((6, 5)), keras.Input((4, 3))
    _, hidden, cell = layers.LSTM(8, return_state=True)(source)
    decoded = layers.LSTM(8, return_sequences=True)(target, initial_state=[hidden, cell])
    _, state = layers.GRU(6, return_state=True)(source)
    again = layers.GRU(6, return_sequences=True)(target, initial_state=state)
    return keras.Model([source, target], layers.Dense(4)(layers.Concatenate()([decoded, again])))


@model
def bidirectional() -> Any:
    return keras.Sequential(
        [
            keras.Input((6, 5)),
            layers.Bidirectional(layers.LSTM(7, return_sequences=True)),
            layers.Bidirectional(layers.GRU(5)),
            layers.Dense(4),
        ]
    )


@model
def time_distributed() -> Any:
    return keras.Sequential(
        [
            keras.Input((4, 7, 7, 3)),
            layers.TimeDistributed(layers.Conv2D(6, 3, activation="relu")),
            layers.TimeDistributed(layers.Flatten()),
            layers.LSTM(8),
            layers.Dense(4),
        ]
    )


@model
def masked() -> Any:
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(30, 12, mask_zero=True),
            layers.LSTM(10),
            layers.Dense(4),
        ]
    )


def _transformer(dropout: float) -> Any:
    given = keras.Input((7,), dtype="int32")
    x = layers.Embedding(30, 24)(given)
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 6, dropout=dropout)(x, x)
        x = layers.LayerNormalization()(x + attended)
        inner = layers.Dense(48, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(24)(inner))
    return keras.Model(given, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


@model
def transformer() -> Any:
    return _transformer(0.0)


@model
def transformer_with_dropout() -> Any:
    return _transformer(0.1)


class Positions(layers.Layer):  # type: ignore[misc]
    """Calls a layer on numbers, not on what it is given."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.embedding, self.count = layers.Embedding(count, width), count

    def build(self, shape: Any) -> None:
        self.embedding.build((None,))

    def call(self, x: Any) -> Any:
        return x + self.embedding(ops.arange(self.count))


@model
def vision_transformer() -> Any:
    given = keras.Input((8, 8, 3))
    x = layers.Reshape((4, 24))(layers.Conv2D(24, 4, strides=4)(given))
    x = Positions(4, 24)(x)
    for _ in range(2):
        hidden = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(3, 8)(hidden, hidden)
        hidden = layers.LayerNormalization()(x)
        x = x + layers.Dense(24)(layers.Dense(48, activation="gelu")(hidden))
    return keras.Model(given, layers.Dense(5)(layers.LayerNormalization()(x)[:, 0]))


@model
def causal() -> Any:
    given = keras.Input((7, 12))
    x = layers.GroupQueryAttention(4, 4, 2)(given, given, use_causal_mask=True)
    x = layers.MultiHeadAttention(2, 5)(x, x, use_causal_mask=True)
    return keras.Model(given, layers.Dense(3)(x))


@model
def dot_attention() -> Any:
    given = keras.Input((7, 12))
    query, key = layers.Dense(8)(given), layers.Dense(8)(given)
    x = layers.Attention(use_scale=True)([query, key])
    x = layers.AdditiveAttention()([x, key])
    return keras.Model(given, layers.Dense(3)(x))


@model
def unet() -> Any:
    given = keras.Input((8, 8, 3))
    a = layers.Conv2D(8, 3, padding="same", activation="relu")(given)
    b = layers.Conv2D(12, 3, padding="same", activation="relu")(layers.MaxPooling2D()(a))
    c = layers.Concatenate()([a, layers.Conv2DTranspose(8, 2, strides=2)(b)])
    c = layers.Conv2D(8, 3, padding="same", activation="relu")(c)
    c = layers.Concatenate()([c, layers.UpSampling2D()(b), layers.UpSampling2D(interpolation="bilinear")(b)])
    return keras.Model(given, layers.Conv2D(2, 1)(c))


@model
def norms() -> Any:
    given = keras.Input((6, 6, 3))
    x = layers.GroupNormalization(4)(layers.Conv2D(12, 3)(given))
    x = layers.Conv2D(12, 1)(x)
    x = layers.Flatten()(layers.UnitNormalization()(x))
    x = layers.BatchNormalization()(x)
    x = layers.RMSNormalization()(layers.Dense(10)(x))
    x = layers.LayerNormalization(center=False)(layers.Dense(8)(layers.PReLU()(x)))
    return keras.Model(given, layers.Dense(3)(x))


@model
def prelus() -> Any:
    given = keras.Input((6, 6, 3))
    x = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(8, 3)(given))
    x = layers.PReLU()(layers.Conv2D(6, 3)(x))
    return keras.Model(given, layers.Dense(3)(layers.Flatten()(x)))


@model
def preprocessed() -> Any:
    adapted = layers.Normalization()
    adapted.adapt(np.random.default_rng(0).random((20, 8, 8, 3)).astype("float32"))
    given = keras.Input((8, 8, 3))
    x = adapted(layers.Rescaling(1 / 255.0)(given))
    x = layers.Resizing(10, 10)(layers.RandomFlip()(x))
    x = layers.SeparableConv2D(8, 3)(x)
    return keras.Model(given, layers.Dense(3)(layers.GlobalMaxPooling2D()(x)))


@model
def several() -> Any:
    a, b = keras.Input((6,)), keras.Input((5,))
    x = layers.Concatenate()([layers.Dense(8)(a), layers.Dense(4)(b)])
    x = layers.Dense(6, activation="relu")(x)
    return keras.Model(
        [a, b], [layers.Dense(2)(x), layers.Dense(1)(layers.Multiply()([x, layers.Dense(6)(a)]))]
    )


@model
def named_inputs() -> Any:
    a, b = keras.Input((6,), name="a"), keras.Input((5,), name="b")
    x = layers.Dense(6, activation="silu")(layers.Concatenate()([a, b]))
    return keras.Model({"b": b, "a": a}, {"one": layers.Dense(2)(x), "two": layers.Dense(3)(x)})


@model
def shared() -> Any:
    twice = layers.Dense(8, activation="relu")
    a, b = keras.Input((6,)), keras.Input((6,))
    return keras.Model([a, b], layers.Dense(2)(layers.Subtract()([twice(a), twice(b)])))


@model
def tied() -> Any:
    given = keras.Input((5,), dtype="int32")
    table = layers.Embedding(30, 8)
    x = layers.Dense(8, activation="tanh")(table(given))
    return keras.Model(given, TurnedOver(table)(x))


class TurnedOver(layers.Layer):  # type: ignore[misc]
    """Multiplies by the table of an embedding, turned over."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def call(self, x: Any) -> Any:
        return ops.matmul(x, ops.transpose(self.table.embeddings))


@model
def nested() -> Any:
    inner = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(6, 3), layers.Flatten(), layers.Dense(7)], name="inner"
    )
    given = keras.Input((8, 8, 3))
    return keras.Model(given, layers.Dense(3)(layers.ReLU()(inner(given))))


@model
def channels_last() -> Any:
    given = keras.Input((8, 7, 3))
    x = layers.BatchNormalization()(layers.Conv2D(6, 3, data_format="channels_last")(given))
    return keras.Model(given, layers.Dense(3)(layers.Flatten()(x)))


@model
def conv1d() -> Any:
    return keras.Sequential(
        [
            keras.Input((20, 4)),
            layers.Conv1D(8, 3, padding="causal", activation="relu"),
            layers.MaxPooling1D(),
            layers.Conv1D(12, 3, padding="same", groups=2),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3),
        ]
    )


@model
def conv3d() -> Any:
    return keras.Sequential(
        [
            keras.Input((6, 6, 6, 2)),
            layers.Conv3D(5, 3, activation="relu"),
            layers.AveragePooling3D(2),
            layers.Conv3DTranspose(4, 2),
            layers.GlobalAveragePooling3D(),
            layers.Dense(3),
        ]
    )


@model
def same_strided() -> Any:
    return keras.Sequential(
        [
            keras.Input((15, 16, 3)),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.MaxPooling2D(3, strides=2, padding="same"),
            layers.AveragePooling2D(3, strides=1, padding="same"),
            layers.ZeroPadding2D(1),
            layers.DepthwiseConv2D(3, depth_multiplier=2),
            layers.ReLU(6.0),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


@model
def cropped() -> Any:
    given = keras.Input((9, 9, 3))
    x = layers.Cropping2D(1)(layers.Conv2D(6, 3, padding="same")(given))
    x = layers.Permute((3, 1, 2))(layers.LeakyReLU()(x))
    x = layers.Permute((2, 3, 1))(x)
    x = layers.Conv2D(5, 3, dilation_rate=2)(layers.ELU()(x))
    return keras.Model(given, layers.Dense(3)(layers.Flatten()(x)))


@model
def einsum() -> Any:
    given = keras.Input((5, 6))
    x = layers.EinsumDense("abc,cd->abd", (5, 8), bias_axes="d", activation="relu")(given)
    x = layers.EinsumDense("abc,bd->adc", (7, 8), bias_axes="d")(x)
    x = layers.EinsumDense("...x,xy->...y", (4,))(x)
    return keras.Model(given, layers.Dense(3)(layers.Flatten()(x)))


class Sampling(layers.Layer):  # type: ignore[misc]
    """Draws random numbers and adds a loss, as a variational autoencoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, mean: Any, spread: Any) -> Any:
        self.add_loss(ops.mean(ops.square(mean)))
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        return mean + 0.0 * ops.exp(0.5 * spread) * noise


@model
def variational() -> Any:
    given = keras.Input((9,))
    hidden = layers.Dense(8, activation="relu")(given)
    drawn = Sampling()(layers.Dense(5)(hidden), layers.Dense(5)(hidden))
    return keras.Model(given, layers.Dense(9)(layers.Dense(8, activation="relu")(drawn)))


@model
def mixed_precision() -> Any:
    policy = "mixed_bfloat16"
    return keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Conv2D(8, 3, dtype=policy),
            layers.BatchNormalization(dtype=policy),
            layers.Flatten(dtype=policy),
            layers.Dense(7, activation="relu", dtype=policy),
            layers.Dense(3, dtype="float32"),
        ]
    )
