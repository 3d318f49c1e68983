"""Prefer whole insertions: move a pair out of a block that is otherwise new.

An alignment knows no difference between layers that serve equally well. When blocks are inserted, the norm
or projection behind them may thus be paired with a layer of the first new block, and the block is then
neither new nor old. Going backwards from what is paired: where a paired layer takes its input from a layer
without a partner, and the parent's layer in that place is lent to one of the same make elsewhere, with no
more connections, the pair moves here.

Merges stay where they are. The alignment stays as good (layers of the same make, no fewer edges) and still
respects data flow.
"""

from modelkeeper.graph import Graph, consumers
from modelkeeper.transform.depth import NORMS, ancestors, signature
from modelkeeper.transform.spaces import Pairs


def settle(parent: Graph, child: Graph, pairs: Pairs) -> list[tuple[int, int]]:
    """The same pairs, or others just as good that leave inserted blocks whole."""
    return _Settling(parent, child, pairs).run()


class _Settling:
    def __init__(self, parent: Graph, child: Graph, pairs: Pairs) -> None:
        self._parent, self._child = parent, child
        self._partner = {ours: theirs for theirs, ours in pairs}
        self._lent = dict(pairs)
        self._before = ancestors(parent), ancestors(child)
        self._behind = consumers(parent), consumers(child)

    def run(self) -> list[tuple[int, int]]:
        for ours in reversed(range(len(self._child.layers))):
            if ours in self._partner:
                for edge in self._child.layers[ours].inputs:
                    if edge.source not in self._partner and self._child.layers[edge.source].tensors:
                        self._claim(edge.source, ours)
        return sorted(self._lent.items(), key=lambda pair: pair[1])

    def _claim(self, new: int, reader: int) -> None:
        for edge in self._parent.layers[self._partner[reader]].inputs:
            old = self._lent.get(edge.source)
            if old is None or not self._alike(old, new):
                continue
            if self._edges(edge.source, new) >= self._edges(edge.source, old) and self._in_order(edge.source, new):
                del self._partner[old]
                self._partner[new], self._lent[edge.source] = edge.source, new
                return

    def _alike(self, old: int, new: int) -> bool:
        """Of the same make; a norm is as wide as what runs into it, whatever that is."""
        first, second = self._child.layers[old], self._child.layers[new]
        if first.kind == second.kind and first.kind in NORMS:
            return [t.role for t in first.tensors] == [t.role for t in second.tensors]
        return signature(self._child, old) == signature(self._child, new)

    def _edges(self, theirs: int, ours: int) -> int:
        """How many connections of a parent's layer a child's layer would keep."""
        inputs = {edge.source for edge in self._child.layers[ours].inputs}
        kept = sum(self._lent.get(edge.source) in inputs for edge in self._parent.layers[theirs].inputs)
        return kept + sum(self._lent.get(reader) in self._behind[1][ours] for reader in self._behind[0][theirs])

    def _in_order(self, theirs: int, ours: int) -> bool:
        """Would nothing be paired against ancestry?"""
        before_theirs, before_ours = self._before
        for other, number in self._lent.items():
            if other == theirs:
                continue
            if before_theirs[theirs] >> other & 1 and before_ours[number] >> ours & 1:
                return False
            if before_theirs[other] >> theirs & 1 and before_ours[ours] >> number & 1:
                return False
        return True
