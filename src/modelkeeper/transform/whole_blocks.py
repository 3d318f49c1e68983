"""Prefer whole insertions: move a pair out of a block that is otherwise new.

An alignment knows no difference between layers that serve equally well. When blocks are inserted, the norm
or projection behind them may thus be paired with a layer of the first new block, and the block is then
neither new nor old. Going backwards from what is paired: where a paired layer takes its input from a layer
without a partner, and the parent's layer in that place is lent to one of the same make elsewhere, with no
more connections, the pair moves here; but a norm stays with its projection. A merge moves the other way: to
where all that it merges is paired, from where nothing is.

The alignment stays as good (layers of the same make, no fewer edges) and still respects data flow.
"""

from collections.abc import Callable

from modelkeeper.graph import Graph, consumers
from modelkeeper.graph.vocabulary import NORMS, PROJECTIONS
from modelkeeper.transform.depth import ancestors, signature
from modelkeeper.transform.pairing import Pairs


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
        for ours, layer in enumerate(self._child.layers):
            if ours not in self._partner and len(layer.inputs) > 1 and not layer.tensors:
                self._complete(ours)
        for ours in reversed(range(len(self._child.layers))):
            if ours in self._partner:
                for edge in self._child.layers[ours].inputs:
                    if edge.source not in self._partner and self._child.layers[edge.source].tensors:
                        self._claim(edge.source, ours)
        for ours, theirs in sorted(self._partner.items()):
            for edge, other in zip(
                self._child.layers[ours].inputs, self._parent.layers[theirs].inputs, strict=False
            ):
                self._swap(edge.source, other.source)
        return sorted(self._lent.items(), key=lambda pair: pair[1])

    def _swap(self, ours: int, theirs: int) -> None:
        """Tables that nothing runs into are told apart by who reads them: undo a pairing across."""
        old, holder = self._partner.get(ours), self._lent.get(theirs)
        if old is None or holder is None or old == theirs:
            return
        bare = not self._child.layers[ours].inputs and not self._parent.layers[theirs].inputs
        if bare and self._child.layers[ours].tensors and self._alike(holder, ours):
            self._partner[ours], self._lent[theirs] = theirs, ours
            self._partner[holder], self._lent[old] = old, holder

    def _complete(self, new: int) -> None:
        """Pair a merge with the parent's merge of the same operands."""
        operands = {self._partner.get(edge.source, -1) for edge in self._child.layers[new].inputs}
        for theirs in self._behind[0][min(operands)] if min(operands) >= 0 else ():
            old, layer = self._lent.get(theirs), self._parent.layers[theirs]
            if old is None or layer.kind != self._child.layers[new].kind:
                continue
            kept = {self._partner.get(edge.source, -1) for edge in self._child.layers[old].inputs}
            if (
                {edge.source for edge in layer.inputs} == operands
                and not kept & operands
                and self._in_order(theirs, new)
            ):
                del self._partner[old]
                self._partner[new], self._lent[theirs] = theirs, new
                return

    def _claim(self, new: int, reader: int) -> None:
        for edge in self._parent.layers[self._partner[reader]].inputs:
            old = self._lent.get(edge.source)
            if old is None or not self._alike(old, new) or self._bound(edge.source, old):
                continue
            if self._edges(edge.source, new) >= self._edges(edge.source, old) and self._in_order(
                edge.source, new
            ):
                del self._partner[old]
                self._partner[new], self._lent[edge.source] = edge.source, new
                return

    def _bound(self, theirs: int, ours: int) -> bool:
        """Does a norm stand right behind the projection that it was trained with?"""
        layer, inputs = self._child.layers[ours], self._parent.layers[theirs].inputs
        if layer.kind not in NORMS or len(layer.inputs) != 1 or len(inputs) != 1 or layer.inputs[0].via:
            return False
        source = layer.inputs[0].source
        return (
            self._child.layers[source].kind in PROJECTIONS and self._partner.get(source) == inputs[0].source
        )

    def _alike(self, old: int, new: int) -> bool:
        """Of the same make; a norm is as wide as what runs into it, whatever that is."""
        first, second = self._child.layers[old], self._child.layers[new]
        if first.kind == second.kind and first.kind in NORMS:
            return [t.role for t in first.tensors] == [t.role for t in second.tensors]
        return signature(self._child, old) == signature(self._child, new)

    def _edges(self, theirs: int, ours: int) -> int:
        """How many connections of a parent's layer would be kept; twice if nothing on them differs."""
        kept = self._common(theirs, ours, lambda source: self._lent.get(source))
        for reader in self._behind[0][theirs]:
            there = self._lent.get(reader)
            if there is not None and there in self._behind[1][ours]:
                kept += self._common(reader, there, lambda source: ours if source == theirs else None)
        return kept

    def _common(self, theirs: int, ours: int, partner: Callable[[int], int | None]) -> int:
        here = {edge.source: edge.via for edge in self._child.layers[ours].inputs}
        kept = 0
        for edge in self._parent.layers[theirs].inputs:
            there = partner(edge.source)
            if there is not None and there in here:
                kept += 2 if here[there] == edge.via else 1
        return kept

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
