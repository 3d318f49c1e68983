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

def decompose(
    content: NDArray[np.uint64],
    rank: NDArray[np.int32],
    token: NDArray[np.int32],
    offsets: NDArray[np.int32],
    sources: NDArray[np.int32],
    labels: NDArray[np.uint16],
) -> tuple[NDArray[np.uint16], NDArray[np.int32], NDArray[np.int32]]:
    """A graph's form (see form.hpp), the node of each element (-1: none), and the tokens it uses.

    Node v has a content hash, a rank (its place among kinds and shapes) and a token, and takes
    `sources[offsets[v]:offsets[v + 1]]`, all of them earlier nodes, over edges so labelled.
    """

def valid_form(words: NDArray[np.uint16]) -> bool:
    """Is this a form? Ask it of bytes that come from outside."""

def links(form: NDArray[np.uint16], tokens: NDArray[np.int64]) -> NDArray[np.uint16]:
    """How many edges of each of 16 kinds a form has: what a bound knows of edges."""

def rewards(
    parents: NDArray[np.int64], child: NDArray[np.int64], knobs: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The reward of each token of `parents` against each of `child`: a table."""

def medoids(distances: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """So many of the things that stand best for all: no exchange of one lowers the sum of distances.

    `distances[i, j]` is how far thing i is from j, were j its medoid.
    """

class Scan:
    """One child against a store of models.

    The form of model m begins at `words[forms[m]]`; its local token t is `parents[tokens[e]]`, carried
    by `counts[e]` elements, where e = `offsets[m] + t`. `links[m]` is what `links` says of it.
    """

    def __init__(
        self,
        words: NDArray[np.uint16],
        forms: NDArray[np.int64],
        offsets: NDArray[np.int64],
        tokens: NDArray[np.int32],
        counts: NDArray[np.uint16],
        links: NDArray[np.uint16],
        parents: NDArray[np.int64],
        child: NDArray[np.uint16],
        child_tokens: NDArray[np.int64],
        child_counts: NDArray[np.int32],
        knobs: NDArray[np.int64],
        threads: int,
    ) -> None: ...
    def bounds(self, which: NDArray[np.int32], fine: bool) -> NDArray[np.int64]:
        """What no alignment of these models with the child can earn more than, layers and edges.

        `fine` looks at both sides: closer, and some ten times slower.
        """

    def scores(self, which: NDArray[np.int32]) -> NDArray[np.int64]:
        """What the alignment of each of these models with the child earns, layers and edges."""

def align_pair(
    parent: NDArray[np.uint16],
    child: NDArray[np.uint16],
    rewards: NDArray[np.int32],
    knobs: NDArray[np.int64],
) -> tuple[int, int, NDArray[np.int32]]:
    """The score of layers, the score of edges, and the matched elements as a flat list of pairs."""

def gather(
    source: NDArray[np.uint8],
    out: NDArray[np.uint8],
    kind: Literal["float16", "bfloat16", "float32", "float64", "bits"],
    itemsize: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    shape: Sequence[int],
    indices: Sequence[NDArray[np.int64] | None],
    factors: Sequence[NDArray[np.float64] | None],
    threads: int = 0,
) -> None:
    """Fill `out` (of `shape`, C-contiguous) from `source` (of `sizes`, neighbours `strides` elements apart).

    Element [i, j, ..] becomes source[x[i], y[j], ..] * f[i] * g[j] * .., with an index (None: identity; -1:
    the element is 0) and factors (None: 1) for each axis. Numbers of kind `bits` are moved, never scaled.
    All is checked before the first byte is written. `threads` 0 means as many as the machine runs at once.
    """

def holds_nan(data: NDArray[np.uint8], kind: Literal["float16", "bfloat16", "float32", "float64"]) -> bool:
    """Is any of the numbers in these bytes NaN?"""

def pack_core(
    worth: NDArray[np.float64],
    size: NDArray[np.int64],
    ahead: NDArray[np.float64],
    room: int,
    price: float,
    enough: float,
    least: float,
    most: int,
    fewest: int,
) -> tuple[NDArray[np.uint8], float]:
    """The choice of things worth most within the room, and a bound on every choice, `least` or more.

    Things are decided in the order given; `ahead[n]` is what those from n on add to a choice at most, beyond
    the price of their room. Choices that cannot reach `enough` are left out; if none can, nothing is
    taken. In all about `most` choices are looked at, but `fewest` for each thing.
    """

def copy(sources: Sequence[NDArray[np.uint8]], outs: Sequence[NDArray[np.uint8]], threads: int = 0) -> None:
    """Copy the bytes of each source to its place. None may overlap another; all lengths are checked first."""

def confine() -> list[str]:
    """Give up for good what the kernel lets a process give up (files, network, others); what that was.

    For a process of its own: afterwards it can compute, and speak through what it has open, and no more.
    """
