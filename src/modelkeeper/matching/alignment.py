"""Align two models, layer by layer.

The matcher asks one question: which layer of the parent could lend its weights to which layer of the
child? That is an alignment of two DAGs, solved by dynamic programming (`src/native/align.hpp`).

    align(parent, child).pairs  ->  ((0, 0), (1, 1), (3, 2))

Everything here is pure: no weights, no framework, no zoo, no randomness. Of layers that would serve
equally well the earlier one lends, so that the same two models always give the same alignment.
"""

from dataclasses import dataclass

import numpy as np

from modelkeeper import _native
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


def align(parent: Graph | Prepared, child: Graph | Prepared) -> Alignment:
    """Which layer of `parent` could lend to which layer of `child`?

    Raises:
        TooLargeToMatch: one of them has more layers than an alignment takes.
    """
    first = prepare(parent) if isinstance(parent, Graph) else parent
    second = prepare(child) if isinstance(child, Graph) else child
    same = first.fingerprint == second.fingerprint
    if same and np.array_equal(first.form, second.form) and np.array_equal(first.tokens, second.tokens):
        elements = [(x, x) for x in range(len(first.layers)) if first.layers[x, 0] >= 0]
        layer_score, edge_score = first.total - _edge_total(first), _edge_total(first)
    else:
        table = _native.rewards(first.tokens, second.tokens, KNOBS)
        layer_score, edge_score, found = _native.align_pair(first.form, second.form, table, KNOBS)
        elements = [(int(x), int(y)) for x, y in found.reshape(-1, 2)]
    pairs = _layers(first, second, elements)
    lent, received = {p for p, _ in pairs}, {c for _, c in pairs}
    return Alignment(
        pairs=tuple(sorted(pairs, key=lambda pair: pair[1])),
        similarity=similarity(layer_score + edge_score, first.total, second.total, same),
        layer_score=layer_score,
        edge_score=edge_score,
        parent_total=first.total,
        child_total=second.total,
        skipped_parent=tuple(v for v in range(first.size) if v not in lent),
        skipped_child=tuple(v for v in range(second.size) if v not in received),
    )


def _edge_total(prepared: Prepared) -> int:
    return int(KNOBS[2]) * prepared.edges


def _layers(parent: Prepared, child: Prepared, elements: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Matched elements as matched layers: a folded norm goes with its layer, unused ones by content."""
    parent_layers, child_layers = parent.layers.tolist(), child.layers.tolist()
    norm_kind = parent.tokens[:, 2], child.tokens[:, 2]
    pairs = []
    for x, y in elements:
        (layer, norm), (other, other_norm) = parent_layers[x], child_layers[y]
        pairs.append((layer, other))
        kinds = norm_kind[0][parent.form[8 + x]], norm_kind[1][child.form[8 + y]]
        if norm >= 0 and other_norm >= 0 and kinds[0] == kinds[1]:
            pairs.append((norm, other_norm))
    spare: dict[int, list[int]] = {}
    for layer, content in reversed(parent.unused):
        spare.setdefault(content, []).append(layer)
    for layer, content in child.unused:
        if spare.get(content):
            pairs.append((spare[content].pop(), layer))
    return pairs
