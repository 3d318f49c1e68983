"""From nodes of ONNX to steps of the vocabulary: importing this package knows all operators.

walk          one node after the other: what is known is computed, the rest becomes steps
layers        convolutions, products, norms, embeddings
recurrent     LSTM, GRU, RNN
attention     attention, be it an operator or written out
elementwise   arithmetic and activations
patterns      what exporters take apart is put together again
reductions    sums, means, softmax, what runs along an axis
shapes        reshape, transpose, slice, concatenate, pad
windows       pooling and resizing
"""

from modelkeeper.frontends.onnx.lowering import (
    attention,
    elementwise,
    layers,
    products,
    recurrent,
    reductions,
    shapes,
    windows,
)
from modelkeeper.frontends.onnx.lowering.walk import OPERATORS, Lowered, lower

__all__ = [
    "OPERATORS",
    "Lowered",
    "attention",
    "elementwise",
    "layers",
    "lower",
    "products",
    "recurrent",
    "reductions",
    "shapes",
    "windows",
]
