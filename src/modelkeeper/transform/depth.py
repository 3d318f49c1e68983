"""What becomes of the child's layers that have no partner in the parent?

They are to change nothing at first, and to be able to learn:

    a branch into a sum     its last layer is zero, so the sum is what its other operand is; the rest of the
                            branch is a copy of a neighbouring branch, or stays as it was initialised
    a layer on the way      the identity: a projection of each unit onto itself, a norm that undoes itself
    a concatenation         what is new is read with weight zero (that follows from the spaces)
    a gate                  half open, and what it gates is twice as large (see `gates`)

Zero goes only where another path into the sum is alive, or the layer could never learn.

`Depth.stream` follows data upstream through what was inserted: where a layer's input comes from in truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from modelkeeper.graph import Edge, Graph, Layer, consumers
from modelkeeper.graph.vocabulary import (
    ADD,
    BATCH_NORM,
    CONCAT,
    MULTIPLY,
    NEUTRAL,
    NORMS,
    PROJECTIONS,
    SCALE,
    read_step,
)
from modelkeeper.patience import go_on
from modelkeeper.transform.gates import Gate, find_gates
from modelkeeper.transform.windows import keeps_places


@dataclass(frozen=True)
class Inserted:
    """How one layer without a partner starts: zero, identity, neutral, like another layer, or as it was."""

    value: str  # zero, identity, neutral, like, kept
    like: int = -1  # the child's layer whose parent's weights are taken
    exact: bool = True
    why: str = ""


class Depth:
    """How every layer of the child starts that has no partner in the parent."""

    def __init__(self, child: Graph, matched: Mapping[int, int]) -> None:
        self._graph, self._matched = child, matched
        self._ancestors = ancestors(child)
        self._readers = consumers(child)
        self._unread = self._joined_unread()
        self._silencers: dict[int, int] = {}  # a new layer -> the one whose zero makes it zero
        self._find_silencers()
        self.layers: dict[int, Inserted] = {}
        self.silent: set[int] = set()  # nodes of branches that add nothing
        self.doubled: set[str] = set()  # tensors that make up for gates which are half open
        self._main: dict[int, int] = {}  # an inserted node -> which of its inputs carries the data
        for number, layer in enumerate(child.layers):
            if number not in matched and layer.kind == ADD and len(layer.inputs) == 2:
                self._add(number, layer)
        for gate in find_gates(child, matched, self._ancestors):
            if gate.product not in self.silent:
                self._open(gate)
        for number, layer in enumerate(child.layers):
            if number not in matched and layer.inputs:
                self._rest(number, layer)

    def stream(self, edge: Edge) -> tuple[int, tuple[str, ...]]:
        """Follow an edge upstream to the nearest matched layer: its number, and what happens on the way."""
        via = edge.via
        source = edge.source
        while source not in self._matched and source in self._main:
            inner = self._graph.layers[source].inputs[self._main[source]]
            source, via = inner.source, (*inner.via, *via)
        return source, _compress(via)

    def harmless(self, number: int) -> bool:
        """Does this inserted node hand on what it is given, or add nothing, or is it accounted for?"""
        return number in self._main or number in self.silent or number in self.layers

    def joined_unread(self, number: int) -> bool:
        """Does all that a new layer makes go into concatenations, the new parts of which are not read?"""
        return number in self._unread

    def _joined_unread(self) -> set[int]:
        """All layers of which that is so; from the last one on, as each asks those that read it."""
        unread: set[int] = set()
        for number in reversed(range(len(self._graph.layers))):
            readers = self._readers[number]
            if readers and all(
                self._graph.layers[reader].kind == CONCAT
                or (reader not in self._matched and reader in unread)
                for reader in readers
            ):
                unread.add(number)
        return unread

    # -- deciding -------------------------------------------------------------------------------

    def _add(self, number: int, layer: Layer) -> None:
        """Decide for a new sum: if one of its two branches is new, that branch starts as zero."""
        go_on()
        branches = self._branches(layer)
        unmatched = [all(node not in self._matched for node in branch) for branch in branches]
        weights = [sum(bool(self._graph.layers[node].tensors) for node in branch) for branch in branches]
        main = 0 if weights[0] <= weights[1] else 1
        added = 1 - main
        if not unmatched[added] or not weights[added]:
            return  # both operands were there before: nothing to silence
        last = self._silencer(layer.inputs[added])
        if last is None:
            return
        self._main[number] = main
        self.silent.update(branches[added])
        counterparts = self._neighbour(number, branches[added])
        for node in branches[added]:
            if self._graph.layers[node].tensors:
                template = counterparts.get(node)
                self.layers[node] = (
                    Inserted("like", template, why="copied from the neighbouring branch")
                    if template is not None
                    else Inserted("kept", why="inside a branch that adds nothing at first")
                )
        self.layers[last] = Inserted(
            "zero", counterparts.get(last, -1), why="the branch adds nothing at first"
        )

    def _open(self, gate: Gate) -> None:
        """Let a new gate begin half open: what decides about it is zero at its end."""
        self._main[gate.product] = gate.main
        self.silent |= gate.branch
        self.doubled |= gate.doubled
        for node in gate.branch:
            if self._graph.layers[node].tensors:
                self.layers[node] = Inserted("kept", why="decides about a gate that is half open at first")
        self.layers[gate.last] = Inserted("zero", why="the gate is half open at first")

    def _rest(self, number: int, layer: Layer) -> None:
        """Decide for a new layer that is in no new branch: identity, neutral, or kept as it was."""
        if number in self.layers or number in self._main or number in self.silent:
            return
        if layer.kind in PROJECTIONS:
            exact = keeps_places(layer)
            why = "each unit goes through as it is" if exact else "its window does not keep every place"
            self._pass(number, Inserted("identity", exact=exact, why=why))
        elif layer.kind in NORMS:
            exact = layer.kind == BATCH_NORM or self._normed_again(number, layer.kind)
            why = "undoes itself" if exact else "normalises what was not normalised"
            self._pass(number, Inserted("neutral", exact=exact, why=why))
        elif layer.kind in NEUTRAL:
            self._pass(number, Inserted("neutral", why="changes nothing at first"))
        elif layer.kind == CONCAT:
            old = [n for n, edge in enumerate(layer.inputs) if self._known(edge.source)]
            if old:
                self._main[number] = old[0]
        elif layer.tensors:
            self.layers[number] = Inserted(
                "kept", exact=False, why=f"a {layer.kind} that the parent does not have"
            )

    def _normed_again(self, number: int, kind: str) -> bool:
        """Is all that a norm makes normalised once more? Then to leave that norm out changes nothing."""
        todo, seen = [number], {number}
        while todo:
            for reader in self._readers[todo.pop()]:
                layer = self._graph.layers[reader]
                if reader in self.silent or reader in seen:
                    continue
                if layer.kind == kind and all(not edge.via for edge in layer.inputs):
                    continue
                if layer.kind != ADD or reader not in self._main:
                    return False
                seen.add(reader)
                todo.append(reader)
        return True

    def _pass(self, number: int, inserted: Inserted) -> None:
        """Note that a new layer hands on what it is given."""
        self.layers[number] = inserted
        self._main[number] = 0

    def _known(self, number: int) -> bool:
        """Is it a layer with a partner, or one that hands on data of such a layer?"""
        return number in self._matched or number in self._main

    # -- branches -------------------------------------------------------------------------------

    def _branches(self, layer: Layer) -> list[list[int]]:
        """The nodes on each operand's way, behind the node where the ways part."""
        return [_numbers(way) for way in self._ways(layer)]

    def _ways(self, layer: Layer) -> list[int]:
        """The same as bits, of which there are soon many: who only counts them need not list them."""
        up = [self._ancestors[edge.source] | 1 << edge.source for edge in layer.inputs]
        fork = (up[0] & up[1]).bit_length()
        return [way >> fork << fork for way in up]

    def _silencer(self, edge: Edge) -> int | None:
        """A layer whose zero makes all that arrives over this edge zero."""
        if not all(read_step(step).has("keeps_zero") for step in edge.via):
            return None
        return self._silencers.get(edge.source)

    def _find_silencers(self) -> None:
        """Find who silences each new layer; in order, as each asks those that feed it."""
        for number, layer in enumerate(self._graph.layers):
            if number in self._matched:
                continue
            if layer.kind in NORMS or layer.kind in PROJECTIONS or layer.kind == SCALE:
                self._silencers[number] = number
            elif layer.kind == MULTIPLY:  # a gate may be anything: what it gates is zero
                fed_by = (n for n in map(self._silencer, layer.inputs) if n is not None)
                if (silencer := next(fed_by, None)) is not None:
                    self._silencers[number] = silencer

    def _neighbour(self, number: int, branch: list[int]) -> dict[int, int]:
        """For each node of a branch, its counterpart in the nearest matched branch of the same make."""
        branch_make = [signature(self._graph, node) for node in branch]
        nearest_sums = sorted(
            (
                sum_number
                for sum_number in self._matched
                if self._graph.layers[sum_number].kind == ADD
                and len(self._graph.layers[sum_number].inputs) == 2
            ),
            key=lambda sum_number: (abs(sum_number - number), sum_number),
        )
        for add in nearest_sums:
            go_on()
            for way in self._ways(self._graph.layers[add]):
                if way.bit_count() != len(branch):
                    continue
                candidate = _numbers(way)
                whole = all(node in self._matched for node in candidate)
                if whole and [signature(self._graph, node) for node in candidate] == branch_make:
                    return dict(zip(branch, candidate, strict=True))
        return {}


def signature(graph: Graph, number: int) -> object:
    """The make of a layer, to compare with that of others: kind, attributes and shapes."""
    layer = graph.layers[number]
    return layer.kind, sorted(layer.attributes.items()), [(t.role, t.shape) for t in layer.tensors]


def _compress(via: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out steps of an edge that do nothing again: a relu after a relu, also with pooling between."""
    kept: list[str] = []
    held = ""  # the rectifier that what arrives has gone through
    for step in via:
        if step == held:
            continue
        if read_step(step).has("rectifies"):
            held = step
        elif not read_step(step).has("keeps_rectified"):
            held = ""
        kept.append(step)
    return tuple(kept)


def ancestors(graph: Graph) -> list[int]:
    """For each layer the set of layers before it, as bits."""
    sets: list[int] = []
    for layer in graph.layers:
        bits = 0
        for edge in layer.inputs:
            bits |= sets[edge.source] | 1 << edge.source
        sets.append(bits)
    return sets


def _numbers(bits: int) -> list[int]:
    """The numbers in a set of bits, in order."""
    return [number for number, bit in enumerate(reversed(f"{bits:b}")) if bit == "1"]
