"""How does each operation relate the axes of its inputs to those of its outputs? A rule for each.

    arithmetic   pointwise and reducing operations
    shape        reshape, permute, concatenate, split, index, pad
    windows      pooling and resizing
    layers       what has weights: linear, convolution, norms, embeddings, attention, recurrence

Importing this package registers them all in `RULES`, under the names that the vocabulary gives them.
"""

from modelkeeper.tracing.infer_spaces import RULES
from modelkeeper.tracing.rules import arithmetic, layers, shape, windows

__all__ = ["RULES", "arithmetic", "layers", "shape", "windows"]
