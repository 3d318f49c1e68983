"""Which layers of Keras are not simply listened to?

Some arrive whole, because they loop inside the backend or because their parts say less than they do. Some
are called in another way that computes the same and says it more plainly. Some only change examples in
training.

Layers are known by the function that they run: a subclass with its own `call` is a layer like any other.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import layers, ops

Function = Callable[..., Any]

WHOLE: dict[Function, str] = {
    layers.LSTM.call: "LSTM",
    layers.GRU.call: "GRU",
    layers.SimpleRNN.call: "SimpleRNN",
    layers.PReLU.call: "PReLU",
    layers.GroupNormalization.call: "GroupNormalization",
    layers.Normalization.call: "Normalization",
    layers.UpSampling1D.call: "UpSampling1D",
    layers.UpSampling2D.call: "UpSampling2D",
    layers.UpSampling3D.call: "UpSampling3D",
}
# What a layer has for training alone, and would take another way for: the results are the same without.
AT_REST = {layers.MultiHeadAttention: {"_dropout": 0.0}, layers.GroupQueryAttention: {"dropout": 0.0}}
_RANDOM = ("CutMix", "MixUp", "Random")


def hands_through(layer: Any, args: Sequence[Any]) -> bool:
    """Is it one of Keras' layers that change examples in training alone?"""
    kind = type(layer)
    return kind.__module__.startswith("keras.") and kind.__name__.startswith(_RANDOM) and len(args) == 1


def _time_distributed(layer: Any) -> Function:
    """All places at once, as so many examples, instead of one after the other."""

    def call(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if mask is not None:
            return layer.call(inputs, training=training, mask=mask)
        batch, places = inputs.shape[:2]
        made = layer.layer(ops.reshape(inputs, (batch * places, *inputs.shape[2:])))
        return ops.reshape(made, (batch, places, *made.shape[1:]))

    return call


REWRITTEN: dict[Function, Callable[[Any], Function]] = {layers.TimeDistributed.call: _time_distributed}
