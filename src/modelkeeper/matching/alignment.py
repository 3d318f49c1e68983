"""Align two models, layer by layer.

The matcher asks one question: which layer of the parent could lend its weights to which layer of the
child? That is an alignment of two DAGs, solved by dynamic programming (`src/native/align.hpp`).

    align(parent, child).pairs  ->  ((0, 0), (1, 1), (3, 2))

Everything here is pure: no weights, no framework, no zoo, no randomness. Of layers that would serve
equally well the earlier one lends, so that the same two models always give the same alignment.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.drawings import table
from modelkeeper.graph import Graph
from modelkeeper.matching.prepare import Prepared, prepare
from modelkeeper.matching.similarity import KNOBS, similarity


@dataclass(frozen=True)
class Alignment:
    """Which parent layer lends to which child layer, and how similar the two models are.

    Layers are numbers in `graph.layers`. Pairs hold every matched node, merges, inputs and outputs
    too, in the child's order. The parts of the similarity are whole numbers: see `similarity`.
    """

    pairs: tuple[tuple[int, int], ...]
    similarity: float
    layer_score: int  # what matched layers earned
    edge_score: int  # what edges between matched layers earned
    parent_total: int  # what the parent scores against itself
    child_total: int
    skipped_parent: tuple[int, ...]  # layers that lend to none
    skipped_child: tuple[int, ...]  # layers that receive from none

    def _repr_html_(self) -> str:
        """In a notebook: how similar, and how much of both is matched."""
        said = f"similarity {self.similarity:.3f}: {len(self.pairs):,} pairs of layers"
        sides = (
            ("parent", self.parent_total, self.skipped_parent, [pair[0] for pair in self.pairs]),
            ("child", self.child_total, self.skipped_child, [pair[1] for pair in self.pairs]),
        )
        rows = [(name, len(matched), len(skipped), total) for name, total, skipped, matched in sides]
        return table(("", "layers matched", "layers skipped", "score against itself"), rows, said)


def align(parent: Graph | Prepared, child: Graph | Prepared) -> Alignment:
    """Align two models: which layer of `parent` could lend to which layer of `child`?

    Raises:
        TooLargeToMatch: one of them has more layers than an alignment takes.
    """
    lender = prepare(parent) if isinstance(parent, Graph) else parent
    taker = prepare(child) if isinstance(child, Graph) else child
    same = lender.fingerprint == taker.fingerprint
    if same and np.array_equal(lender.form, taker.form) and np.array_equal(lender.tokens, taker.tokens):
        real_elements = np.flatnonzero(lender.layers[:, 0] >= 0)
        elements: NDArray[np.integer] = np.repeat(real_elements[:, None], 2, axis=1)
        layer_score, edge_score = lender.total - _edge_total(lender), _edge_total(lender)
    else:
        rewards = _native.rewards(lender.tokens, taker.tokens, KNOBS)
        layer_score, edge_score, matched = _native.align_pair(lender.form, taker.form, rewards, KNOBS)
        elements = matched.reshape(-1, 2)
    pairs = _layers(lender, taker, elements)
    return Alignment(
        pairs=tuple(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True)),
        similarity=similarity(layer_score + edge_score, lender.total, taker.total, same),
        layer_score=layer_score,
        edge_score=edge_score,
        parent_total=lender.total,
        child_total=taker.total,
        skipped_parent=_without(lender.size, pairs[:, 0]),
        skipped_child=_without(taker.size, pairs[:, 1]),
    )


def _edge_total(prepared: Prepared) -> int:
    """What the edges of a model earn against itself."""
    return int(KNOBS[2]) * prepared.edges


def _without(size: int, used: NDArray[np.int64]) -> tuple[int, ...]:
    """The numbers below `size` that are not used."""
    free = np.ones(size, np.bool_)
    free[used[used >= 0]] = False  # medoids come from a store that does not know their layers
    return tuple(np.flatnonzero(free).tolist())


def _layers(parent: Prepared, child: Prepared, elements: NDArray[np.integer]) -> NDArray[np.int64]:
    """Turn matched elements into matched layers, in the child's order.

    A norm that was folded into its layer goes with it; layers outside the data flow are paired by content.
    """
    x, y = elements[:, 0], elements[:, 1]
    parent_layers, child_layers = parent.layers[x], child.layers[y]  # of each match: a layer, and its norm
    parent_norm, child_norm = parent.tokens[parent.form[8 + x], 2], child.tokens[child.form[8 + y], 2]
    norms = (parent_layers[:, 1] >= 0) & (child_layers[:, 1] >= 0) & (parent_norm == child_norm)
    spare: dict[int, list[int]] = {}
    for layer, content in reversed(parent.unused):
        spare.setdefault(content, []).append(layer)
    alike = [(spare[content].pop(), layer) for layer, content in child.unused if spare.get(content)]
    pairs = np.concatenate(
        [
            np.stack([parent_layers[:, 0], child_layers[:, 0]], axis=1),
            np.stack([parent_layers[norms, 1], child_layers[norms, 1]], axis=1),
            np.array(alike, np.int64).reshape(-1, 2),
        ]
    )
    ordered: NDArray[np.int64] = pairs[np.argsort(pairs[:, 1])]
    return ordered
