"""The same networks as `written_in_torch`, as one writes them in Keras: each takes its width.

Epsilons are Keras' own where a norm is over batches. Strides come behind an explicit padding, as Keras' own
applications have it: what 'same' does there is another thing than what PyTorch does (`same_strides`).
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops

CLASSES, WORDS, LENGTH, SIZE = 5, 11, 7, 12


def strided(x: Any, layer: Any) -> Any:
    """A convolution with a stride, padded by one on each side."""
    return layer(layers.ZeroPadding2D(1)(x))


def residual(x: Any, width: int, stride: int) -> Any:
    around = x
    if stride != 1 or x.shape[-1] != width:
        around = layers.Conv2D(width, 1, stride, use_bias=False)(x)
        around = layers.BatchNormalization()(around)
    if stride == 1:
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
    else:
        x = strided(x, layers.Conv2D(width, 3, stride, use_bias=False))
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(x))
    return layers.Activation("relu")(layers.Add()([x, around]))


def resnet(width: int) -> Any:
    image = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(width, 3, padding="same", use_bias=False)(image)
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    x = residual(residual(residual(x, width, 1), 2 * width, 2), 2 * width, 1)
    return keras.Model(image, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))


def vgg(width: int) -> Any:
    return keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(2 * width, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(4 * width, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(CLASSES),
        ]
    )


def separable(x: Any, width: int, stride: int) -> Any:
    if stride == 1:
        x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    else:
        x = strided(x, layers.DepthwiseConv2D(3, stride, use_bias=False))
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.Conv2D(width, 1, use_bias=False)(x)
    return layers.ReLU(6.0)(layers.BatchNormalization()(x))


def mobilenet(width: int) -> Any:
    image = keras.Input((SIZE, SIZE, 3))
    x = strided(image, layers.Conv2D(width, 3, 2, use_bias=False))
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = separable(separable(x, 2 * width, 1), 2 * width, 2)
    return keras.Model(image, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))


def same_strides(width: int) -> Any:
    """As `mobilenet`, but with Keras' 'same' where there is a stride: padded behind, not around."""
    image = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(width, 3, 2, padding="same", use_bias=False)(image)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = separable(x, 2 * width, 1)
    x = layers.DepthwiseConv2D(3, 2, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.Conv2D(2 * width, 1, use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    return keras.Model(image, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))


class Bert(keras.Model):  # type: ignore[misc]
    """Words and their places, two blocks of an encoder, a head on the first word."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.places = layers.Embedding(WORDS, width), layers.Embedding(LENGTH, width)
        self.norm = layers.LayerNormalization(epsilon=1e-6)
        self.attention = [layers.MultiHeadAttention(2, width // 2) for _ in range(2)]
        self.norm1 = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.wide = [layers.Dense(4 * width, activation="gelu") for _ in range(2)]
        self.narrow = [layers.Dense(width) for _ in range(2)]
        self.norm2 = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
        self.head = layers.Dense(CLASSES)

    def call(self, words: Any) -> Any:
        x = self.norm(self.words(words) + self.places(ops.arange(LENGTH)))
        for n in range(2):
            x = self.norm1[n](x + self.attention[n](x, x))
            x = self.norm2[n](x + self.narrow[n](self.wide[n](x)))
        return self.head(x[:, 0])


def bert(width: int) -> Any:
    words = keras.Input((LENGTH,), dtype="int32")
    model = Bert(width)
    return keras.Model(words, model(words))


NETWORKS: dict[str, Callable[[int], Any]] = {
    "resnet": resnet,
    "vgg": vgg,
    "mobilenet": mobilenet,
    "bert": bert,
}
