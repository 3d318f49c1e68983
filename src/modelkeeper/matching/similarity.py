"""What is a layer worth, and what is it worth when one layer lends to another?

Every constant of the matcher is here. A worth is a whole number of 1/1024ths, so that sums are exact
and equal on every machine.

    weight   what a layer is worth when it is matched with its like: the fourth root of its number of
             parameters, tenths of it; so 10,000 parameters weigh 1, 100 million weigh 10
    reward   what a match of two layers earns: the smaller weight, times the fourth root of the ratio
             of their shapes, times 15/16 if attributes differ (`src/native/tokens.hpp`)
    score    the rewards of an alignment, plus the worth of every edge whose image is an edge
    similarity   the score, as a share of what the parent (one quarter) and the child (three quarters)
             would score against themselves: layers skipped on either side lower it

The child counts for more because what it lacks must be trained; what the parent has too much of is
only left behind. Why fourth roots: benchmarks/results/matching-weights.md. Held against what
training took from several parents each, no other values were better by more than chance.

Every further layer inserted and every further axis changed lowers the similarity where regions describe
both graphs (chains, residual, dense and inception blocks, transformers). Elsewhere (NAS cells, towers,
wiring at random) alignments are improved upon pair by pair, and it does in every case that was counted, up
to the sizes of `src/native/improve.hpp`: benchmarks/results/matching-laws.md.

Layers of networks that halve what they look at, again and again, belong to a stage: how often it is still
halved behind them. A layer of another stage has learned to look at other things, whatever its width: each
stage apart costs as much as an eighth of the width. Stages are counted from the end, because networks for
small and for large pictures differ in how they begin.

A token is what matching knows of a layer: 16 numbers, laid out as `Token` in tokens.hpp.
"""

import hashlib
import math
from functools import lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from modelkeeper.graph import Layer, Tensor
from modelkeeper.graph.vocabulary import COUNT, PROJECTIONS, THROUGH

UNIT = 1024

# Weights. A merge (add, concat, attention), an input or an output holds no parameters.
WEIGHT_ROOTS = 2  # how often a number of parameters is put under a square root
WEIGHT_SCALE = 0.1
MERGE = UNIT // 4
LARGEST = 2**16  # no layer weighs more (2e11 parameters do): sums then fit 32 bits

# Rewards.
SHAPE_ROOTS = 2  # how often the ratio of two shapes is put under a square root
DETAIL = UNIT * 15 // 16  # what is left when attributes (stride, padding, bias ...) differ
EDGE = UNIT // 10  # an edge whose image is an edge
EDGE_OTHERWISE = UNIT // 20  # the same, but other operations lie on it

# Similarity.
PARENT_SHARE = 0.25
BELOW_ONE = 1.0 - 2.0**-20  # the most that two different architectures reach
BUCKETS = 10  # of similarity: what the mapper chooses among

AXES = 8
STAGE = 4  # the axis that is none: it tells stages apart ...
ANOTHER_STAGE = 8  # ... which costs as much as an eighth of the width: more than like widths can make up for
MOST_STAGES = 8
FIELDS = 8 + AXES
VERSION = 5  # raise it when anything above or in the kernel's forms changes: prepared graphs are made anew

KNOBS: NDArray[np.int64] = np.array([SHAPE_ROOTS, DETAIL, EDGE, EDGE_OTHERWISE], np.int64)

_AXIS_ORDER = {"out": 0, "row": 0, "in": 1, "kernel": 2, "other": 3}


Totals = NDArray[np.int64] | NDArray[np.float64]  # what models score against themselves


@overload
def full_score(parent_total: int, child_total: int) -> float: ...
@overload
def full_score(parent_total: Totals, child_total: int) -> NDArray[np.float64]: ...
@overload
def full_score(parent_total: int, child_total: Totals) -> NDArray[np.float64]: ...
def full_score(parent_total: int | Totals, child_total: int | Totals) -> float | NDArray[np.float64]:
    """What a score is divided by: the weighted mean of what parent and child score against themselves."""
    mean: float | NDArray[Any] = PARENT_SHARE * parent_total + (1 - PARENT_SHARE) * child_total
    return mean


def similarity(score: int, parent_total: int, child_total: int, same: bool) -> float:
    """The similarity of two models, from 0 to 1; 1 exactly if the architectures are the same."""
    if same:
        return 1.0
    full = full_score(parent_total, child_total)
    return min(score / full, BELOW_ONE) if full else 0.0


def similarities(scores: NDArray[np.int64], parent_totals: Totals, child_total: int) -> NDArray[np.float64]:
    """The similarities of a child with many parents at once, all of other architectures than its own."""
    full = np.maximum(full_score(parent_totals, child_total), 1e-9)
    shares: NDArray[np.float64] = np.minimum(scores / full, BELOW_ONE)
    return shares


def mutual_distances(scores: NDArray[np.int64], totals: Totals, total: int) -> NDArray[np.float64]:
    """One minus the similarity of a model with many others, the mean of both ways round."""
    lent, received = full_score(totals, total), full_score(total, totals)
    mean = (scores / np.maximum(lent, 1) + scores / np.maximum(received, 1)) / 2
    distances: NDArray[np.float64] = 1.0 - np.minimum(mean, 1.0)
    return distances


def bucket(value: float) -> int:
    """Which tenth a similarity falls in: 0 to 9."""
    return min(int(value * BUCKETS), BUCKETS - 1)


def buckets_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which tenth each of many similarities falls in: 0 to 9."""
    tenths: NDArray[np.int64] = np.minimum((values * BUCKETS).astype(np.int64), BUCKETS - 1)
    return tenths


def weight(layer: Layer) -> int:
    """What a layer is worth when it is matched with its like."""
    root = float(sum(tensor.size for tensor in layer.tensors if not tensor.buffer))
    for _ in range(WEIGHT_ROOTS):
        root = math.sqrt(root)
    return min(max(int(root * WEIGHT_SCALE * UNIT), MERGE), LARGEST // 2)


def main_tensor(layer: Layer) -> Tensor | None:
    """The tensor whose shape stands for the layer's: its weight, or else its largest."""
    if len(layer.tensors) < 2:
        return layer.tensors[0] if layer.tensors else None
    return max(layer.tensors, key=lambda tensor: (tensor.role == "weight", tensor.size))


def shape(layer: Layer) -> tuple[int, ...]:
    """Sizes of the main tensor, outputs first, then inputs, then the kernel: alike in every framework."""
    tensor = main_tensor(layer)
    if tensor is None:
        return ()
    return tuple(axis.size for axis in sorted(tensor.axes, key=lambda axis: _AXIS_ORDER[axis.role]))


def kernel_rank(layer: Layer) -> int:
    """Over how many dimensions a layer slides."""
    tensor = main_tensor(layer)
    return sum(axis.role == "kernel" for axis in tensor.axes) if tensor else 0


def token(layer: Layer, norm: Layer | None, stage: int = 0) -> tuple[int, ...]:
    """What matching knows of a layer, the norm folded into it, and the stage of the network it is in."""
    sizes, rank = shape(layer), kernel_rank(layer)
    owned = [tensor for tensor in layer.tensors if tensor.role != COUNT]
    said = layer.attributes.get("groups", 1)
    groups = said if isinstance(said, int) else 1  # a stranger's graph may say anything
    mixing = "dense" if groups <= 1 else "depthwise" if len(sizes) > 1 and sizes[1] == 1 else "grouped"
    if layer.kind in PROJECTIONS:  # a 1x1 convolution is a linear layer
        group: tuple[object, ...] = ("affine", mixing)
    else:
        without_bias = sum(tensor.role != "bias" for tensor in owned)  # a bias that lacks is zero
        group = (layer.kind, rank, len(sizes), without_bias if len(sizes) > 1 else 0, mixing)
        rank = 0
    if mixing == "depthwise":
        groups = 1  # follows from the width
    axes = [max(1, size) for size in sizes[: AXES - 2]]
    axes += [1] * (AXES - 2 - len(axes)) + [max(1, math.prod(sizes[AXES - 2 :]))]
    axes.insert(STAGE, ANOTHER_STAGE ** min(stage, MOST_STAGES))
    detail = (attributes(layer), [(t.role, t.buffer, t.live) for t in owned], layer.kind)
    return (
        number(repr(group)),
        number(repr((detail, attributes(norm) if norm else None))),
        number(norm.kind) if norm else 0,
        rank,
        max(1, groups),
        weight(layer),
        weight(norm) if norm else 0,
        max(1, shape(norm)[0]) if norm else 1,
        *axes,
    )


def attributes(layer: Layer) -> tuple[tuple[str, object], ...]:
    """The attributes of a layer that make it differ from others, in order.

    Groups are held by a token itself. An epsilon differs from framework to framework: what it changes is next
    to nothing, and what a batch norm's changes is made up for (see `modelkeeper.transform.epsilon`). What is
    done to tensors on their way may follow from the widths: a plan looks at it.
    """
    return tuple(
        (key, value)
        for key, value in sorted(layer.attributes.items())
        if key not in ("groups", "eps", THROUGH)
    )


@lru_cache(maxsize=65536)
def number(text: str) -> int:
    """A hash of a text that is the same everywhere and never 0."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 1) | 1
