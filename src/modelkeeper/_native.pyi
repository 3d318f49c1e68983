"""The native module: hot loops in C++, from src/native."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

def colours(
    nodes: NDArray[np.uint64],
    offsets: NDArray[np.int32],
    sources: NDArray[np.int32],
    edges: NDArray[np.uint64],
    budget: int,
) -> NDArray[np.uint64]:
    """A colour for each node of a labelled DAG: equal for nodes that play the same part in it.

    Node v takes input from `sources[offsets[v]:offsets[v + 1]]`, all of them earlier nodes, over
    edges labelled `edges[...]`. Ties are examined as long as that takes at most `budget` visits.
    """

def gather(
    source: NDArray[np.uint8],
    out: NDArray[np.uint8],
    kind: Literal["float16", "bfloat16", "float32", "float64", "bits"],
    itemsize: int,
    sizes: Sequence[int],
    shape: Sequence[int],
    indices: Sequence[NDArray[np.int64] | None],
    factors: Sequence[NDArray[np.float64] | None],
    threads: int = 0,
) -> None:
    """Fill `out` (of `shape`) from `source` (of `sizes`), both the bytes of a C-contiguous array.

    Element [i, j, ..] becomes source[x[i], y[j], ..] * f[i] * g[j] * .., with an index (None: identity; -1:
    the element is 0) and factors (None: 1) for each axis. Numbers of kind `bits` are moved, never scaled.
    All is checked before the first byte is written. `threads` 0 means as many as the machine runs at once.
    """
