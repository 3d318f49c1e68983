"""Can several parents lie side by side in one child, so that it computes the mean of what they compute?

    plan = side_by_side([(first, alignment), (second, alignment)], child)      None: there is no room
    for name, array in lay(plan, [first_tensors, second_tensors]): ...

A child that is wider than its parents has room for more than one. Each parent fills a narrower child of its
own (`Blocks.narrower`), by an ordinary plan: there it is widened, deepened, whatever it takes. Then these
narrower children are laid side by side:

    a weight        block by block on the diagonal; what would carry one parent's units to another's is zero
    a bias, a norm  end to end
    the head        reads all of them, each with 1 / (number of parents) of its weight: the mean. Where its
                    weight is tied to an embedding, the gain of the norm before it carries that share

That is exact where every plan is, where units of one parent and another never meet but in a head, and where
nothing bends what the heads make before it is the output. A statistic over units (layer norm) meets all of
them: parents side by side under one are never exact, as each would have to be normalised by its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from modelkeeper.graph import Axis, Graph, Layer, Tensor, consumers
from modelkeeper.graph.vocabulary import (
    ADD,
    CONCAT,
    COUNT,
    OUTPUT,
    PROJECTIONS,
    THROUGH,
    WEIGHT_NORM,
    read_step,
)
from modelkeeper.matching import Alignment
from modelkeeper.transform.apply import apply
from modelkeeper.transform.blocks import Blocks, find_blocks
from modelkeeper.transform.pairing import Pairs
from modelkeeper.transform.plan import Decisions, Entry, Plan
from modelkeeper.transform.planner import make_plan, shortened
from modelkeeper.weights import Array, dtype_of

# What may be done to weights on their way into a layer: zeros between two parents stay zeros, and nothing of
# the one depends on the other.
KEEPS_ZEROS = (re.escape(WEIGHT_NORM), r"weight mul\(_,_\d+\)")
JOINED, MEAN_OF, FIRST = "joined", "the mean of the parents'", "the first parent's"


class SideBySide(Decisions, frozen=True, kw_only=True):
    """For each tensor of the child what it takes from each parent. Exact: it computes the mean of theirs."""

    parts: tuple[Plan, ...]  # one for each parent, into a narrower child
    blocks: Blocks
    heads: frozenset[str]  # tensors that are the mean
    carriers: frozenset[str]  # tensors of norms that carry each parent's share, for a head that cannot

    def _lent(self) -> int:
        """How many of the child's numbers are lent: what all have in common counts once."""
        tensors = self.child.tensors
        apart = {
            name
            for name, tensor in tensors.items()
            if any(self.blocks.shares_out(axis.of) for axis in tensor.axes)
        }
        return sum(
            entry.parameters
            for number, part in enumerate(self.parts)
            for entry in part.entries
            if entry.source and (number == 0 or entry.tensor in apart)
        )


def side_by_side(
    parents: Sequence[tuple[Graph, Alignment | Pairs]],
    child: Graph,
    *,
    same_task: bool = True,
    seed: int = 0,
    frozen: Iterable[str] = (),
    parts: bool = False,
) -> SideBySide | None:
    """Plan how several parents fill one child; None if there is no room for all of them.

    Args:
        parents: Their graphs, and how each is aligned with the child, as for `make_plan`. The first may be
            the only one for what they cannot have apart.
        child: The model that receives.
        same_task: Do all predict the same things? If not, the head starts as it was initialised.
        seed: Of which units are copied, and by which shares they are read.
        frozen: Tensors of the child, by name, that keep their values.
        parts: Where later parents do not fit whole, take the most important of their units. Never exact.
    """
    frozen = tuple(frozen)
    whole = [make_plan(graph, child, aligned, same_task=same_task, seed=seed) for graph, aligned in parents]
    needs = [[plan.maps.needs(inherited=inherited) for plan in whole] for inherited in (True, False)]
    blocks = find_blocks(child, *needs, parts=parts)
    if blocks is None:
        return None
    plans = tuple(
        make_plan(
            graph, blocks.narrower(number), aligned, same_task=same_task, seed=seed + number, frozen=frozen
        )
        for number, (graph, aligned) in enumerate(parents)
    )
    laying = _Laying(child, plans, blocks)
    if laying.crowded():
        return None
    doubts = shortened(laying.doubts())
    return SideBySide(
        child=child,
        entries=laying.entries(),
        doubts=doubts,
        parts=plans,
        blocks=blocks,
        heads=frozenset(laying.heads),
        carriers=frozenset(laying.carriers),
    )


class _Laying:
    """What becomes of the child's tensors when narrower children are laid side by side in it."""

    def __init__(self, child: Graph, plans: tuple[Plan, ...], blocks: Blocks) -> None:
        self._child, self._plans, self._blocks = child, plans, blocks
        self._readers = consumers(child)
        self._of = [{entry.tensor: entry for entry in plan.entries} for plan in plans]
        self._common = {  # tensors in which no parent has units of its own
            name
            for name, tensor in child.tensors.items()
            if tensor.live and tensor.role != COUNT and not self._apart(tensor)
        }
        self._headed: dict[int, str] = {}  # layers that add the parents up, and what is wrong with that
        for number, layer in enumerate(child.layers):
            if self._adds_up(layer):
                self._headed[number] = self._bends(number)
        self._users: dict[str, set[int]] = {}  # by tensor: the layers that it is in
        for number, layer in enumerate(child.layers):
            for tensor in layer.tensors:
                self._users.setdefault(tensor.name, set()).add(number)
        self.heads = {name for name, users in self._users.items() if users <= self._headed.keys()}
        self._summed: set[str] = set()  # tied weights that add the parents up: nothing carries their shares
        self.carriers: set[str] = set()
        for name in self._users.keys() - self.heads:
            for number in self._users[name] & self._headed.keys():
                carriers = self._carriers(number)
                self.carriers |= carriers
                self._summed |= set() if carriers else {name}

    def _carriers(self, head: int) -> set[str]:
        """The tensors of the norm that feeds a head, and nothing else; empty if there is no such norm."""
        edges = self._child.layers[head].inputs
        if len(edges) != 1:
            return set()
        edge, norm = edges[0], self._child.layers[edges[0].source]
        found = {tensor.name for tensor in norm.tensors if tensor.role in ("gain", "bias")}
        serves = (
            any(tensor.role == "gain" for tensor in norm.tensors)
            and not norm.attributes.get(THROUGH)
            and self._readers[edge.source] == (head,)
            and all(read_step(step).has("linear") for step in edge.via)
            and all(self._users[name] == {edge.source} for name in found)
            and not found & self._common
        )
        return found if serves else set()

    def _apart(self, tensor: Tensor) -> bool:
        return any(self._blocks.shares_out(axis.of) for axis in tensor.axes)

    def _half_shared(self, axis: Axis) -> bool:
        """Are some of the units that are made here one parent's, and others nobody's?"""
        return axis.role != "in" and self._blocks.shares_out(axis.of) and not self._blocks.parts(axis.of)

    def _adds_up(self, layer: Layer) -> bool:
        """Does a layer read units of several parents, and make units that they have in common?"""
        shared = {
            role: any(
                self._blocks.shares_out(axis.of)
                for tensor in layer.tensors
                for axis in tensor.axes
                if (axis.role == "in") == (role == "in")
            )
            for role in ("in", "made")
        }
        return shared["in"] and not shared["made"]

    def _bends(self, number: int) -> str:
        """Why the mean that a layer makes is not the mean of the outputs; empty if it is."""
        for reader in self._readers[number]:
            layer = self._child.layers[reader]
            for edge in layer.inputs:
                bent = [step for step in edge.via if not read_step(step).has("linear")]
                if edge.source == number and bent:
                    return f"{bent[0]} follows the mean in {self._child.layers[number].name}"
            if layer.kind in (ADD, CONCAT):
                problem = self._bends(reader)
                if problem:
                    return problem
            elif layer.kind != OUTPUT:
                where = self._child.layers[number].name
                return f"parents meet in {where}, and {layer.kind} {layer.name} follows"
        return ""

    def crowded(self) -> bool:
        """Is there a weight between two parents' units that can only be one parent's?"""
        return any(
            tensor.name in self._common and number not in self._headed
            for number, layer in enumerate(self._child.layers)
            if layer.kind in PROJECTIONS
            for tensor in layer.tensors
            if tensor.role == "weight"
        )

    def doubts(self) -> tuple[str, ...]:
        """Every reason why the child may compute something else than the mean of its parents."""
        found: list[str] = []
        for number, plan in enumerate(self._plans, 1):
            found += [f"parent {number}: {doubt}" for doubt in plan.doubts]
        found += [problem for problem in self._headed.values() if problem]
        found += [f"{name} is tied, so that the parents' sum is taken" for name in sorted(self._summed)]
        alone = {
            tensor.name
            for number, layer in enumerate(self._child.layers)
            for tensor in layer.tensors
            if tensor.name in self._common and number not in self._headed and tensor.stored
        }
        found += [f"{name} can only be {FIRST}" for name in sorted(alone)]
        found += [
            f"parents share some of the units of {tensor.name}, and not all of them"
            for tensor in self._child.tensors.values()
            if tensor.live and any(self._half_shared(axis) for axis in tensor.axes)
        ]
        for space in self._blocks.sizes:
            if self._child.spaces[space].averaged:
                found.append("a statistic is taken over units of all parents")
        for layer in self._child.layers:
            through = str(layer.attributes.get(THROUGH, ""))
            if through and not any(re.fullmatch(harmless, through) for harmless in KEEPS_ZEROS):
                found.append(f"{layer.kind} {layer.name} takes its weights through {through}")
        found += [f"opaque in {note.where}" for note in self._child.notes if note.topic == "opaque"]
        return tuple(dict.fromkeys(found))

    def entries(self) -> tuple[Entry, ...]:
        """One entry for each stored tensor of the child."""
        return tuple(
            self._entry(self._child.tensors[entry.tensor], [of[entry.tensor] for of in self._of])
            for entry in self._plans[0].entries
        )

    def _entry(self, tensor: Tensor, parts: list[Entry]) -> Entry:
        first = msgspec.structs.replace(parts[0], parameters=tensor.size)
        if all(part.action == "kept" for part in parts):
            return first
        exact = all(part.exact for part in parts)
        if tensor.name in self.heads:
            return msgspec.structs.replace(first, action=JOINED, exact=exact, why=MEAN_OF)
        if tensor.name in self._common or not tensor.live:
            return msgspec.structs.replace(first, why=FIRST)
        return msgspec.structs.replace(
            first, action=JOINED, exact=exact, why="the parents' units side by side"
        )


def lay(plan: SideBySide, sources: Sequence[Mapping[str, Array]]) -> Iterator[tuple[str, Array]]:
    """Carry out a plan: the child's tensors by name, each made when it is asked for, as `apply` does.

    Args:
        plan: What becomes of each tensor.
        sources: The tensors of each parent by name, in the order of the plan's parts.

    Raises:
        InvalidWeights: As `apply`.
    """
    wanted = [entry.tensor for entry in plan.entries if entry.action != "kept"]
    streams = [_Stream(part, wanted, source) for part, source in zip(plan.parts, sources, strict=True)]
    for entry in plan.entries:
        if entry.action != "kept":
            tensor = plan.child.tensors[entry.tensor]
            made = [stream.take(entry.tensor) for stream in streams]
            yield entry.tensor, _laid(plan, entry, tensor, made)


class _Stream:
    """The tensors of one narrower child, in the order that is wanted, each made when it is asked for."""

    def __init__(self, part: Plan, wanted: Sequence[str], source: Mapping[str, Array]) -> None:
        self._given = {entry.tensor: entry for entry in part.entries if entry.action != "kept"}
        entries = tuple(self._given[name] for name in wanted if name in self._given)
        self._made = apply(msgspec.structs.replace(part, entries=entries), source)

    def take(self, name: str) -> Array | None:
        """The next tensor; None if this parent has none for it."""
        return next(self._made)[1] if name in self._given else None


def _laid(plan: SideBySide, entry: Entry, tensor: Tensor, made: Sequence[Array | None]) -> Array:
    """One tensor of the child from those of the narrower children."""
    dtype = dtype_of(tensor.dtype)
    if entry.action != JOINED:
        first = made[0]
        assert first is not None
        return first
    whole = np.zeros(tensor.shape, dtype)
    for parent, array in enumerate(made):
        places = [plan.blocks.places(axis.of, parent) for axis in tensor.axes]
        if array is None:
            array = _fresh(entry, tensor, plan.parts[parent].child.tensors[tensor.name], parent)
        if tensor.name in plan.heads | plan.carriers:
            array = (array.astype(np.float64) / len(made)).astype(dtype)
        if tensor.name in plan.heads:
            whole[np.ix_(*places)] += array
        else:
            whole[np.ix_(*places)] = array
    return whole


def _fresh(entry: Entry, tensor: Tensor, narrow: Tensor, parent: int) -> Array:
    """What a parent's units begin with that it has no weights for, inside a branch that adds nothing yet."""
    if tensor.role in ("gain", "variance"):
        return np.ones(narrow.shape)
    if tensor.role != "weight":
        return np.zeros(narrow.shape)
    chance = np.random.default_rng((parent, *entry.tensor.encode()))
    units = max([axis.size for axis in narrow.axes if axis.role == "out"], default=1)
    drawn: Array = chance.standard_normal(narrow.shape) * np.sqrt(2 * units / max(1, narrow.size))
    return drawn
