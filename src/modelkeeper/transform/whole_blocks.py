"""Prefer whole insertions: move a pair out of a block that is otherwise new.

An alignment knows no difference between layers that serve equally well. When blocks are inserted, the norm
or projection behind them may thus be paired with a layer of the first new block, and the block is then
neither new nor old. Going backwards from what is paired: where a paired layer takes its input from a layer
without a partner, and the parent's layer in that place is lent to one of the same make elsewhere, with no
more connections, the pair moves here; but a norm stays with its projection. A merge moves the other way: to
where all that it merges is paired, from where nothing is.

The alignment stays as good (layers of the same make, no fewer edges) and still respects data flow.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from modelkeeper.graph import Graph, consumers
from modelkeeper.graph.vocabulary import NORMS, PROJECTIONS
from modelkeeper.patience import go_on
from modelkeeper.transform.depth import ancestors, signature
from modelkeeper.transform.pairing import Pairs


def settle(parent: Graph, child: Graph, pairs: Pairs) -> list[tuple[int, int]]:
    """Move pairs out of inserted blocks, so that these stay whole; the alignment stays as good."""
    return _Settling(parent, child, pairs).run()


class _Kept(NamedTuple):
    """How many connections a pair keeps, and on how many of them nothing differs."""

    edges: int
    same: int


def _as_good(now: Iterable[_Kept], then: Iterable[_Kept]) -> bool:
    """Would pairs keep no fewer connections than they do now, also if equal ones count twice?"""
    (edges_now, same_now), (edges, same) = (map(sum, zip(*kept, strict=True)) for kept in (now, then))
    return edges >= edges_now and edges + same >= edges_now + same_now


class _Settling:
    """The pairs of two graphs while they are moved."""

    def __init__(self, parent: Graph, child: Graph, pairs: Pairs) -> None:
        self._parent, self._child = parent, child
        self._partner = {child_number: parent_number for parent_number, child_number in pairs}
        self._lent = dict(pairs)
        self._parent_ancestors, self._child_ancestors = ancestors(parent), ancestors(child)
        self._parent_readers, self._child_readers = consumers(parent), consumers(child)

    def run(self) -> list[tuple[int, int]]:
        """Move merges, then layers before paired ones, then tables; the pairs in the child's order."""
        for child_number, child_layer in enumerate(self._child.layers):
            if child_number not in self._partner and len(child_layer.inputs) > 1 and not child_layer.tensors:
                self._complete(child_number)
        for child_number in reversed(range(len(self._child.layers))):
            if child_number in self._partner:
                for edge in self._child.layers[child_number].inputs:
                    if edge.source not in self._partner and self._child.layers[edge.source].tensors:
                        self._claim(edge.source, child_number)
        for child_number, parent_number in sorted(self._partner.items()):
            child_layer, parent_layer = self._child.layers[child_number], self._parent.layers[parent_number]
            for child_edge, parent_edge in zip(child_layer.inputs, parent_layer.inputs, strict=False):
                self._swap(child_edge.source, parent_edge.source)
        return sorted(self._lent.items(), key=lambda pair: pair[1])

    def _swap(self, child_number: int, parent_number: int) -> None:
        """Swap the partners of two tables that nothing runs into, if their readers are paired across."""
        parent_before, child_holder = self._partner.get(child_number), self._lent.get(parent_number)
        if parent_before is None or child_holder is None or parent_before == parent_number:
            return
        child_layer, parent_layer = self._child.layers[child_number], self._parent.layers[parent_number]
        table = child_layer.tensors and not child_layer.inputs and not parent_layer.inputs
        if (
            table
            and self._alike(child_holder, child_number)
            and _as_good(
                now=(self._edges(parent_number, child_holder), self._edges(parent_before, child_number)),
                then=(self._edges(parent_number, child_number), self._edges(parent_before, child_holder)),
            )
        ):
            self._partner[child_number], self._lent[parent_number] = parent_number, child_number
            self._partner[child_holder], self._lent[parent_before] = parent_before, child_holder

    def _complete(self, child_new: int) -> None:
        """Pair a merge with the parent's merge of the same operands."""
        operands = {self._partner.get(edge.source, -1) for edge in self._child.layers[child_new].inputs}
        for parent_number in self._parent_readers[min(operands)] if min(operands) >= 0 else ():
            child_old, parent_layer = self._lent.get(parent_number), self._parent.layers[parent_number]
            if child_old is None or parent_layer.kind != self._child.layers[child_new].kind:
                continue
            kept = {self._partner.get(edge.source, -1) for edge in self._child.layers[child_old].inputs}
            if (
                {edge.source for edge in parent_layer.inputs} == operands
                and not kept & operands
                and self._may_move(parent_number, child_old, child_new)
            ):
                del self._partner[child_old]
                self._partner[child_new], self._lent[parent_number] = parent_number, child_new
                return

    def _claim(self, child_new: int, child_reader: int) -> None:
        """Move a pair to a child's layer without a partner, if what it feeds is fed so in the parent."""
        for edge in self._parent.layers[self._partner[child_reader]].inputs:
            parent_number = edge.source
            child_old = self._lent.get(parent_number)
            if child_old is None or not self._alike(child_old, child_new):
                continue
            if self._bound(parent_number, child_old):
                continue
            if self._may_move(parent_number, child_old, child_new):
                del self._partner[child_old]
                self._partner[child_new], self._lent[parent_number] = parent_number, child_new
                return

    def _bound(self, parent_number: int, child_number: int) -> bool:
        """Is it a pair of norms right behind projections that are a pair as well, so that it should stay?"""
        child_layer, parent_layer = self._child.layers[child_number], self._parent.layers[parent_number]
        child_inputs, parent_inputs = child_layer.inputs, parent_layer.inputs
        if child_layer.kind not in NORMS or not len(child_inputs) == len(parent_inputs) == 1:
            return False
        if child_inputs[0].via:
            return False
        child_source = child_inputs[0].source
        return (
            self._child.layers[child_source].kind in PROJECTIONS
            and self._partner.get(child_source) == parent_inputs[0].source
        )

    def _alike(self, child_old: int, child_new: int) -> bool:
        """Are two layers of the child of the same make? Norms may differ in width, which is their input's."""
        first, second = self._child.layers[child_old], self._child.layers[child_new]
        if first.kind == second.kind and first.kind in NORMS:
            return [t.role for t in first.tensors] == [t.role for t in second.tensors]
        return signature(self._child, child_old) == signature(self._child, child_new)

    def _may_move(self, parent_number: int, child_old: int, child_new: int) -> bool:
        """Is a pair as good with another of the child's layers, which has no partner?"""
        go_on()
        now, then = (self._edges(parent_number, child_number) for child_number in (child_old, child_new))
        return _as_good(now=(now,), then=(then,)) and self._in_order(parent_number, child_new)

    def _edges(self, parent_number: int, child_number: int) -> _Kept:
        """Count the connections that a pair would keep."""
        kept = self._common(parent_number, child_number, lambda parent_source: self._lent.get(parent_source))
        for parent_reader in self._parent_readers[parent_number]:
            child_reader = self._lent.get(parent_reader)
            if child_reader is not None and child_reader in self._child_readers[child_number]:
                read = self._common(
                    parent_reader,
                    child_reader,
                    lambda parent_source: child_number if parent_source == parent_number else None,
                )
                kept = _Kept(kept.edges + read.edges, kept.same + read.same)
        return kept

    def _common(self, parent_number: int, child_number: int, partner: Callable[[int], int | None]) -> _Kept:
        """Count the inputs that two layers share, given the child's layer for each of the parent's."""
        child_inputs = {edge.source: edge.via for edge in self._child.layers[child_number].inputs}
        shared: set[int] = set()
        same = 0
        for edge in self._parent.layers[parent_number].inputs:
            child_source = partner(edge.source)
            if child_source is not None and child_source in child_inputs:
                shared.add(child_source)
                same += child_inputs[child_source] == edge.via
        return _Kept(len(shared), same)

    def _in_order(self, parent_number: int, child_number: int) -> bool:
        """Would a pair keep the order of data flow, with no ancestor paired with a descendant?"""
        parent_ancestors, child_ancestors = self._parent_ancestors, self._child_ancestors
        for lent_parent, lent_child in self._lent.items():
            if lent_parent == parent_number:
                continue
            if (
                parent_ancestors[parent_number] >> lent_parent & 1
                and child_ancestors[lent_child] >> child_number & 1
            ):
                return False
            if (
                parent_ancestors[lent_parent] >> parent_number & 1
                and child_ancestors[child_number] >> lent_child & 1
            ):
                return False
        return True
