"""The native module: hot loops in C++, from src/native."""

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
