"""What does each tensor of the child become, given which layers of the parent lend to which?

    lending = Lending(parent, child, pairs, ...)
    lending.pairs           tensors of the child, each with the parent's tensor that it takes from
    lending.entries()       for each tensor of the child: what it becomes, from where, and is that exact?

Aligned layers lend tensor by tensor; some lend together (`compose`), some also for a neighbour that goes
(`merge`). A head that predicts something else takes nothing. What is left has no partner: see `depth`.
"""

from collections.abc import Callable, Iterator

from modelkeeper.graph import Axis, Graph, Layer, Tensor
from modelkeeper.graph.vocabulary import BATCH_NORM, COUNT, NORMS, OUTPUT, SCALE
from modelkeeper.patience import go_on
from modelkeeper.transform.compose import Composite, Composites, find_composites
from modelkeeper.transform.depth import Depth, Inserted
from modelkeeper.transform.epsilon import find_epsilons
from modelkeeper.transform.fill import Fills
from modelkeeper.transform.maps import Maps, Verdict
from modelkeeper.transform.merge import Merge, find_merges
from modelkeeper.transform.pairing import Pairs, Partners, TensorPair, pair_tensors, spaces_of
from modelkeeper.transform.plan import Entry
from modelkeeper.transform.spread import Spread, find_spreads
from modelkeeper.transform.windows import grows_with_padding

FROZEN = "frozen"  # why a tensor is kept that its user does not want trained
MakeEntry = Callable[..., Entry]  # of the tensor at hand: action, exact, why, and the rest by name


class Lending:
    """Whose weights each tensor of the child takes, and what it becomes by them."""

    def __init__(
        self,
        parent: Graph,
        child: Graph,
        pairs: Pairs,
        same_task: bool,
        seed: int,
        noise: float,
        compose: bool,
        frozen: frozenset[str] = frozenset(),
    ) -> None:
        self.parent, self.child, self.noise, self._frozen = parent, child, noise, frozen
        self.composites = find_composites(parent, child, pairs) if compose else Composites(list(pairs))
        pairs = self.composites.pairs
        self.partner = {child_number: parent_number for parent_number, child_number in pairs}
        self.depth = Depth(child, self.partner)
        heads = _heads(child)
        self.pairs: dict[str, TensorPair] = {}
        self.fresh: dict[str, str] = {}  # tensors that have a partner but stay as they are
        for parent_number, child_number in sorted(pairs, key=lambda pair: pair[1]):
            go_on()
            for name, pair in pair_tensors(parent.layers[parent_number], child.layers[child_number]).items():
                problem = _head_problem(pair, same_task) if child_number in heads else ""
                if problem:
                    self.fresh.setdefault(name, problem)
                else:
                    self.pairs.setdefault(name, self.composites.weights.get(name, pair))
        self.merges = find_merges(parent, child, self.partner)
        self.taken_over: dict[str, Merge | Composite | Spread] = {**self.merges.of, **self.composites.of}
        for name, pair in self.merges.pairs.items():
            if name not in self.fresh:
                self.pairs[name] = pair
        self.epsilons = find_epsilons(parent, child, self.partner, self.pairs)
        self.pairs |= self.epsilons.pairs
        spreads = find_spreads(
            parent,
            child,
            self.partner,
            {n: p for n, p in self.pairs.items() if p.parent.name not in self.taken_over},
        )
        self.taken_over |= spreads.of
        self.pairs |= spreads.pairs
        self.partners = Partners(self.pairs)
        self._inherit()
        fills = Fills(child, self.partner.keys(), self.depth.silent)
        self.maps = Maps(parent, child, self.partners, fills, seed, spreads.whole)

    def _inherit(self) -> None:
        """Give spaces that only inserted layers know the partner of the space that runs into the layer."""
        for number, layer in enumerate(self.child.layers):
            inserted = self.depth.layers.get(number)
            if inserted is None or inserted.value != "identity":
                continue
            for out_space, in_space in _handed_on(layer):
                parent_space = self.partners.of(in_space)
                if self.partners.of(out_space) is None and parent_space is not None:
                    self.partners.inherit(out_space, parent_space)

    def entries(self) -> tuple[Entry, ...]:
        """One entry of the plan for each stored tensor of the child, in order."""
        entries: dict[str, Entry] = {}
        for number, layer in enumerate(self.child.layers):
            for tensor in layer.tensors:
                go_on()
                if tensor.stored and tensor.name not in entries:
                    entries[tensor.name] = self._entry(number, layer, tensor)
        return tuple(entries.values())

    def _entry(self, number: int, layer: Layer, tensor: Tensor) -> Entry:
        """The entry of one tensor of a layer: taken from the parent, inserted, or kept."""

        def entry(action: str, exact: bool, why: str, **rest: str) -> Entry:
            return Entry(
                tensor=tensor.name,
                layer=layer.name,
                action=action,
                parameters=tensor.size,
                exact=exact,
                why=why,
                **rest,
            )

        if tensor.name in self._frozen:
            return entry("kept", not tensor.live or tensor.role == COUNT, FROZEN)
        if tensor.name in self.fresh:
            return entry("kept", False, self.fresh[tensor.name])
        pair = self.pairs.get(tensor.name)
        if pair is not None and "int" in tensor.dtype and pair.parent.shape != tensor.shape:
            return entry("kept", False, "a table of whole numbers, of another size in the parent")
        if pair is not None:
            return self._taken(number, pair, entry)
        if not tensor.live:
            return entry("kept", True, "the model never uses it")
        if number in self.partner:
            return self._without_pair(layer, tensor, entry)
        inserted = self.depth.layers.get(number)
        if inserted is None:
            return entry("kept", False, "the parent has no such layer")
        return self._inserted(number, layer, tensor, inserted, entry)

    def _taken(self, number: int, pair: TensorPair, entry: MakeEntry) -> Entry:
        """The entry of a tensor that takes its values from a tensor of the parent."""
        composed = pair.child.name in self.composites.weights
        verdicts = [
            self._judge(number, child_axis, parent_axis)
            for child_axis, parent_axis in pair.axis_pairs()
            if not (composed and child_axis.role == "kernel")  # a product's is larger than it need be
        ]
        changed = {verdict.action for verdict in verdicts} - {"copied"}
        action = "copied" if not changed else changed.pop() if len(changed) == 1 else "resized"
        doubts = [verdict.why for verdict in verdicts if not verdict.exact]
        reasons = [verdict.why for verdict in verdicts if verdict.why]
        why = next(iter(doubts), "") or next(iter(reasons), "")
        merge = self.taken_over.get(pair.parent.name)
        other = self.epsilons.of.get(pair.child.name)
        twice = (
            "twice as large, for a gate that is half open" if pair.child.name in self.depth.doubled else ""
        )
        why = "; ".join(filter(None, (why, merge.why if merge else "", other.why if other else "", twice)))
        return entry(action, not doubts and not composed, why, source=pair.parent.name)

    def _judge(self, number: int, child_axis: Axis, parent_axis: Axis) -> Verdict:
        """Judge one axis of a layer's tensor: as `Maps.judge`, but a kernel may grow with its padding."""
        if (
            child_axis.role == "kernel"
            and child_axis.size != parent_axis.size
            and self.grows_with_padding(number)
        ):
            return Verdict("widened", True, "the kernel grew together with its padding")
        return self.maps.judge(child_axis, parent_axis)

    def grows_with_padding(self, child_number: int) -> bool:
        """Is a layer's window its partner's with a border of zeros, over as much more padding?"""
        parent_number = self.partner.get(child_number)
        return parent_number is not None and grows_with_padding(
            self.parent.layers[parent_number], self.child.layers[child_number]
        )

    def _without_pair(self, layer: Layer, tensor: Tensor, entry: MakeEntry) -> Entry:
        """The entry of a tensor that the aligned layer of the parent does not have."""
        if tensor.role == "bias":
            return entry("inserted", True, "the parent has no bias here", value="zero")
        if tensor.role == "gain" and layer.kind in NORMS:
            return entry("inserted", True, "the parent has no gain here", value="one")
        if tensor.role == COUNT:
            return entry("kept", True, "only counts")
        return entry("kept", False, f"the parent's layer has no {tensor.role} of this form")

    def _inserted(
        self, number: int, layer: Layer, tensor: Tensor, inserted: Inserted, entry: MakeEntry
    ) -> Entry:
        """The entry of a tensor of a layer that the parent does not have."""
        match inserted.value:
            case "zero" if tensor.role in ("weight", "gain", "bias"):
                silent = "gain" if layer.kind in NORMS or layer.kind == SCALE else "weight"
                if tensor.role in (silent, "bias"):
                    return entry("inserted", True, inserted.why, value="zero")
            case "identity" if self._crosses(layer):
                return entry(
                    "kept", False, "what it reads and what it makes are of different layers of the parent"
                )
            case "identity":
                read = not self.depth.joined_unread(number)
                if tensor.role == "weight":
                    lost = self._lost(layer)
                    why = lost or inserted.why + (f", but for noise of {self.noise:g}" if self.noise else "")
                    exact = inserted.exact and not self.noise
                    return entry("inserted", exact and not (lost and read), why, value="identity")
                if tensor.role == "bias":
                    return entry("inserted", True, inserted.why, value="zero")
            case "neutral":
                value = {
                    "gain": "neutral",
                    "bias": "zero",
                    "mean": "zero",
                    "variance": "one",
                    "weight": "one",
                }.get(tensor.role)
                if value is not None:
                    return entry("inserted", inserted.exact, inserted.why, value=value)
        if inserted.like >= 0:
            like = self._counterpart(inserted.like, layer, tensor)
            if like is not None:
                return entry("inserted", True, inserted.why, like=like, source=self.pairs[like].parent.name)
        return entry("kept", inserted.exact, inserted.why or "the parent has no such layer")

    def _crosses(self, layer: Layer) -> bool:
        """Would a new layer hand on units of one space of the parent as another's? Nothing would pass."""
        return any(
            None not in (theirs := {self.partners.of(made), self.partners.of(read)}) and len(theirs) > 1
            for made, read in _handed_on(layer)
        )

    def _lost(self, layer: Layer) -> str:
        """Why a new layer cannot hand on all units that it is given, in words; empty if it can."""
        for made, read in _handed_on(layer):
            parent_space = self.partners.of(read)
            if parent_space is not None and self.partners.of(made) == parent_space:
                size, room = self.parent.spaces[parent_space].size, self.child.spaces[made].size
                if room < size:
                    return f"{size} units go through a layer of {room}"
        return ""

    def _counterpart(self, number: int, layer: Layer, tensor: Tensor) -> str | None:
        """The name of the tensor in the same place of another layer of the child, if that has a partner."""
        place = next(n for n, candidate in enumerate(layer.tensors) if candidate is tensor)
        like = self.child.layers[number].tensors[place]
        return like.name if like.name in self.pairs and like.shape == tensor.shape else None


def _handed_on(layer: Layer) -> Iterator[tuple[int, int]]:
    """The spaces that a projection makes and reads, as far as they stand in the same place of its weight."""
    weight = next((tensor for tensor in layer.tensors if tensor.role == "weight"), None)
    spaces = {axis.role: spaces_of(axis.of) for axis in weight.axes} if weight else {}
    yield from zip(spaces.get("out", ()), spaces.get("in", ()), strict=False)


def with_statistics(child: Graph, frozen: frozenset[str]) -> frozenset[str]:
    """Frozen tensors, and the statistics of what they make: of batch norms that only frozen layers feed."""
    still = {
        number
        for number, layer in enumerate(child.layers)
        if layer.tensors and all(tensor.name in frozen for tensor in layer.tensors if tensor.stored)
    }
    return frozen | {
        tensor.name
        for layer in child.layers
        if layer.kind == BATCH_NORM and layer.inputs and all(edge.source in still for edge in layer.inputs)
        for tensor in layer.tensors
        if tensor.buffer
    }


def _heads(graph: Graph) -> set[int]:
    """The layers that make the outputs: the last ones with a weight on each way."""
    last_weighted: set[int] = set()
    todo = [edge.source for layer in graph.layers if layer.kind == OUTPUT for edge in layer.inputs]
    seen: set[int] = set()  # or sums of sums would be asked once for each way that leads to them
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        layer = graph.layers[number]
        if any(tensor.role == "weight" for tensor in layer.tensors):
            last_weighted.add(number)
        else:
            todo += [edge.source for edge in layer.inputs]
    return {number for number in last_weighted if _makes_outputs(graph, graph.layers[number])}


def _makes_outputs(graph: Graph, layer: Layer) -> bool:
    """Are the units that a layer makes outputs of the model?"""
    spaces = {
        s for t in layer.tensors for axis in t.axes if axis.role in ("out", "row") for s in spaces_of(axis.of)
    }
    return any(graph.spaces[space].pinned_by("output") for space in spaces)


def _head_problem(pair: TensorPair, same_task: bool) -> str:
    """Why a tensor of the head must start fresh; empty if it need not."""
    if not same_task:
        return "the head: another task"
    for child_axis, parent_axis in pair.axis_pairs():
        if child_axis.role == "out" and child_axis.size != parent_axis.size:
            return f"the head: {parent_axis.size} outputs became {child_axis.size}"
    return ""
