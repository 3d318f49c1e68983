"""In which order does the trace have the axes of an input? Channels first, if it is an image.

What reads an input says whether its channels are last: a convolution, a pooling, a norm. If nothing says,
four or five axes of floating-point numbers are an image in the order that Keras is set to.
"""

from collections.abc import Iterator
from typing import Any

import keras

from modelkeeper.frontends.keras.lower.seen import channels_first
from modelkeeper.frontends.keras.lower.windows import order_of
from modelkeeper.frontends.keras.patches import symbolic_tensors
from modelkeeper.frontends.keras.recorder import Recording

_SLIDE = ("Conv", "DepthwiseConv", "SeparableConv", "ConvTranspose", "MaxPool", "AveragePool", "Resize")
_THROUGH = 8  # operations on the way to the first that says


def input_order(tensor: Any, recording: Recording) -> list[int]:
    """Keras' axis for each axis of an input in the trace."""
    rank = len(tensor.shape)
    plain = list(range(rank))
    if rank not in (3, 4, 5) or tensor.dtype.startswith(("int", "bool", "string")):
        return plain
    said = next(_said(tensor, recording), None)
    if said is not None:
        return said
    last = keras.config.image_data_format() == "channels_last"
    return channels_first(rank - 2) if rank == 4 and last else plain


def _said(tensor: Any, recording: Recording) -> Iterator[list[int]]:
    """The orders in which operations that slide over the input take it."""
    rank, same = len(tensor.shape), {id(tensor)}
    steps = 0
    for call in recording.calls:
        if not any(id(leaf) in same for leaf in symbolic_tensors((call.args, call.kwargs))):
            continue
        if call.name in _SLIDE:
            yield order_of(call.operation, rank - 2)
        steps += 1
        if steps > _THROUGH:
            return
        same |= {id(made) for made in call.outputs if len(made.shape) == rank}
