"""Decide what each tensor of the child becomes, given which layers of the parent lend to which.

Exactness is judged here, and strictly: every layer of the parent is used, every space grows in a way that
changes nothing, data flows along the same ways through the same operations, whatever was inserted hands on
what it is given. One doubt, and the plan says that it is approximate, and why.
"""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import msgspec

from modelkeeper.errors import InvalidPairs, InvalidSetting
from modelkeeper.graph import Atom, Axis, Expression, Graph, Layer, Tensor, leaves
from modelkeeper.graph.structure import COMMUTATIVE
from modelkeeper.matching import Alignment
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.transform.compose import Composite, Composites, find_composites
from modelkeeper.transform.depth import NORMS, Depth, Inserted
from modelkeeper.transform.fill import Fills
from modelkeeper.transform.maps import Maps, Verdict
from modelkeeper.transform.merge import Merge, find_merges
from modelkeeper.transform.plan import Entry, Plan
from modelkeeper.transform.settle import settle
from modelkeeper.transform.spaces import Pairs, Partners, TensorPair, pair_tensors

ENDS = frozenset({"input", "output", "unused"})
MOST_DOUBTS = 8
Make = Callable[..., Entry]


def make_plan(
    parent: Graph,
    child: Graph,
    alignment: Alignment | Pairs,
    *,
    same_task: bool = True,
    seed: int = 0,
    noise: float = 0.0,
    compose: bool = True,
) -> Plan:
    """For each tensor of `child`, where its values come from.

    Args:
        parent: The model that lends.
        child: The model that receives.
        alignment: Of the two: models that differ in nothing but their widths are then paired layer by
            layer, whatever it says. Or just these pairs, as (number in the parent, number in the child).
        same_task: Do both predict the same things? If not, the head starts as it was initialised.
        seed: Of which units are copied, and by which shares they are read.
        noise: The deviation of what is added to the identity in inserted layers, times the root of how many
            weights make a unit. More than 0 is never exact, and `make deepening` finds nothing gained by it.
        compose: Let a layer stand for several in a row that the parent has (see `compose`).

    Raises:
        InvalidSetting: `noise` is negative or no number.
        InvalidPairs: A pair names a layer that is not there, or one that is in another pair.
    """
    if isinstance(alignment, Alignment):
        pairs: Pairs = twin_pairs(parent, child) or alignment.pairs
    else:
        pairs = _checked(parent, child, alignment)
    if not 0 <= noise < math.inf:
        raise InvalidSetting("noise", str(noise), "give 0 for exact identities, or a small positive number")

    def planned(pairs: Pairs) -> Plan:
        planner = _Planner(parent, child, pairs, same_task, seed, noise, compose)
        entries = planner.entries()
        doubts = tuple(dict.fromkeys(planner.doubts(entries)))
        return Plan(
            parent,
            child,
            entries,
            doubts,
            planner.pairs,
            planner.maps,
            seed,
            noise,
            planner.taken_over,
            planner.rewired(),
        )

    settled = settle(parent, child, pairs)
    plan = planned(settled)
    if plan.doubts and set(settled) != set(pairs):  # settling is a guess: here is who can judge it
        plan = min(plan, planned(pairs), key=lambda each: len(each.doubts))
    if len(plan.doubts) > MOST_DOUBTS:
        doubts = (*plan.doubts[:MOST_DOUBTS], f"and {len(plan.doubts) - MOST_DOUBTS} more")
        plan = msgspec.structs.replace(plan, doubts=doubts)
    return plan


class _Planner:
    def __init__(
        self,
        parent: Graph,
        child: Graph,
        pairs: Pairs,
        same_task: bool,
        seed: int,
        noise: float,
        compose: bool,
    ) -> None:
        self.parent, self.child, self.noise = parent, child, noise
        self.composites = find_composites(parent, child, pairs) if compose else Composites(list(pairs))
        pairs = self.composites.pairs
        self.partner = {ours: theirs for theirs, ours in pairs}
        self.depth = Depth(child, self.partner)
        heads = _heads(child)
        self.pairs: dict[str, TensorPair] = {}
        self.fresh: dict[str, str] = {}  # tensors that have a partner but stay as they are
        for theirs, ours in sorted(pairs, key=lambda pair: pair[1]):
            for name, pair in pair_tensors(parent.layers[theirs], child.layers[ours]).items():
                problem = _head_problem(pair, same_task) if ours in heads else ""
                if problem:
                    self.fresh.setdefault(name, problem)
                else:
                    self.pairs.setdefault(name, self.composites.weights.get(name, pair))
        self.merges = find_merges(parent, child, self.partner)
        self.taken_over: dict[str, Merge | Composite] = {**self.merges.of, **self.composites.of}
        for name, pair in self.merges.pairs.items():
            if name not in self.fresh:
                self.pairs[name] = pair
        self.partners = Partners(self.pairs)
        self._inherit()
        fills = Fills(child, self.partner.keys(), self.depth.silent)
        self.maps = Maps(parent, child, self.partners, fills, seed)

    def _inherit(self) -> None:
        """Spaces that only inserted layers know continue the space that runs into the layer."""
        for number, layer in enumerate(self.child.layers):
            inserted = self.depth.layers.get(number)
            if inserted is None or inserted.value != "identity":
                continue
            weight = next((t for t in layer.tensors if t.role == "weight"), None)
            if weight is None:
                continue
            spaces = {axis.role: _spaces_of(axis.of) for axis in weight.axes}
            for ours, before in zip(spaces.get("out", ()), spaces.get("in", ()), strict=False):
                partner = self.partners.of(before)
                if self.partners.of(ours) is None and partner is not None:
                    self.partners.inherit(ours, partner)

    # -- entries --------------------------------------------------------------------------------

    def entries(self) -> tuple[Entry, ...]:
        """One for each tensor of the child that is stored, in order."""
        found: dict[str, Entry] = {}
        for number, layer in enumerate(self.child.layers):
            for tensor in layer.tensors:
                if tensor.stored and tensor.name not in found:
                    found[tensor.name] = self._entry(number, layer, tensor)
        return tuple(found.values())

    def _entry(self, number: int, layer: Layer, tensor: Tensor) -> Entry:
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

        if tensor.name in self.fresh:
            return entry("kept", False, self.fresh[tensor.name])
        pair = self.pairs.get(tensor.name)
        if pair is not None and pair.parent.shape != tensor.shape and "int" in tensor.dtype:
            return entry("kept", False, "a table of whole numbers, of another size in the parent")
        if pair is not None:
            composed = tensor.name in self.composites.weights
            verdicts = [
                self._judge(number, ours, theirs)
                for ours, theirs in pair.expressions()
                if not (composed and ours.role == "kernel")  # a product's is larger than it need be
            ]
            changed = {verdict.action for verdict in verdicts} - {"copied"}
            action = "copied" if not changed else changed.pop() if len(changed) == 1 else "resized"
            why = next((v.why for v in verdicts if not v.exact), "") or next(
                (v.why for v in verdicts if v.why), ""
            )
            merge = self.taken_over.get(pair.parent.name)
            if merge is not None:
                why = "; ".join(filter(None, (why, merge.why)))
            exact = all(v.exact for v in verdicts) and not composed
            return entry(action, exact, why, source=pair.parent.name)
        if not tensor.live:
            return entry("kept", True, "the model never uses it")
        if number in self.partner:
            return self._without_pair(layer, tensor, entry)
        inserted = self.depth.layers.get(number)
        if inserted is None:
            return entry("kept", False, "the parent has no such layer")
        return self._inserted(layer, tensor, inserted, entry)

    def _judge(self, number: int, ours: Axis, theirs: Axis) -> Verdict:
        if ours.role == "kernel" and ours.size != theirs.size and self._grows_with_padding(number):
            return Verdict("widened", True, "the kernel grew together with its padding")
        return self.maps.judge(ours, theirs)

    def _grows_with_padding(self, number: int) -> bool:
        """Is the child's window the parent's with a border of zeros, laid over as many more zeros?"""
        other = self.partner.get(number)
        if other is None:
            return False
        layer, lender = self.child.layers[number], self.parent.layers[other]
        weights = [next((t for t in each.tensors if t.role == "weight"), None) for each in (layer, lender)]
        if layer.kind != "conv" or lender.kind != "conv" or None in weights:
            return False
        sizes = [[a.size for a in t.axes if a.role == "kernel"] for t in weights if t is not None]
        margins = [_margins(each, len(sizes[0])) for each in (layer, lender)]
        if (
            None in margins
            or len(sizes[0]) != len(sizes[1])
            or "dilation" in {*layer.attributes, *lender.attributes}
        ):
            return False
        rows = zip(*sizes, *[m for m in margins if m is not None], strict=True)
        return all(
            size >= parents and size - parents == 2 * (pad - before) for size, parents, pad, before in rows
        )

    def _without_pair(self, layer: Layer, tensor: Tensor, entry: Make) -> Entry:
        """A tensor that the aligned layer of the parent does not have."""
        if tensor.role == "bias":
            return entry("inserted", True, "the parent has no bias here", value="zero")
        if tensor.role == "count":
            return entry("kept", True, "only counts")
        return entry("kept", False, f"the parent's layer has no {tensor.role} of this form")

    def _inserted(self, layer: Layer, tensor: Tensor, inserted: Inserted, entry: Make) -> Entry:
        match inserted.value:
            case "zero" if tensor.role in ("weight", "gain", "bias"):
                silent = "gain" if layer.kind in NORMS or layer.kind == "scale" else "weight"
                if tensor.role in (silent, "bias"):
                    return entry("inserted", True, inserted.why, value="zero")
            case "identity":
                if tensor.role == "weight":
                    why = f"{inserted.why}, but for noise of {self.noise:g}" if self.noise else inserted.why
                    return entry("inserted", not self.noise, why, value="identity")
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

    def _counterpart(self, number: int, layer: Layer, tensor: Tensor) -> str | None:
        place = next(n for n, each in enumerate(layer.tensors) if each is tensor)
        other = self.child.layers[number].tensors[place]
        return other.name if other.name in self.pairs and other.shape == tensor.shape else None

    # -- exactness ------------------------------------------------------------------------------

    def doubts(self, entries: Iterable[Entry]) -> Iterable[str]:
        """Every reason why the child may compute something else than the parent."""
        for entry in entries:
            if not entry.exact:
                yield f"{entry.tensor} is {entry.action}: {entry.why}"
        used = {*self.partner.values(), *self.merges.gone}
        lent = {*(pair.parent.name for pair in self.pairs.values()), *self.merges.taken}
        for number, layer in enumerate(self.parent.layers):
            if number in self.composites.within:
                continue
            if number not in used and layer.kind not in ENDS:
                yield f"the parent's {layer.kind} {layer.name} is not used"
            for tensor in layer.tensors:
                if (
                    tensor.live
                    and tensor.name not in lent
                    and tensor.role != "count"
                    and layer.kind not in ENDS
                    and tensor.stored
                ):
                    yield f"the parent's {tensor.name} is not used"
        for number, layer in enumerate(self.child.layers):
            if number in self.partner:
                yield from self._flow(number, layer)
            elif layer.kind not in ENDS and not self.depth.harmless(number):
                yield f"the child's {layer.kind} {layer.name} has no partner"
        yield from self._statistics()
        yield from self._shares(entries)

    def rewired(self) -> float:
        """Of the child's layers, how many have a partner that is fed with something else? As a fraction."""
        layers = [number for number, layer in enumerate(self.child.layers) if layer.kind not in ENDS]
        fed = [n for n in layers if n in self.partner and not self._fed_alike(n, self.child.layers[n])]
        return len(fed) / max(1, len(layers))

    def _flow(self, number: int, layer: Layer) -> Iterable[str]:
        """Is this layer the same, and fed with the same?"""
        other = self.parent.layers[self.partner[number]]
        where = f"{layer.kind} {layer.name}"
        if layer.kind != other.kind:
            yield f"{where} is a {other.kind} in the parent"
        if layer.attributes != other.attributes and not self._same_window(number, layer, other):
            yield f"{where} has other attributes than in the parent"
        if not self._fed_alike(number, layer):
            yield f"{where} is fed differently"

    def _fed_alike(self, number: int, layer: Layer) -> bool:
        other = self.parent.layers[self.partner[number]]
        ours = [(self.partner.get(source), via) for source, via in map(self.depth.stream, layer.inputs)]
        theirs = [(self.merges.gone.get(edge.source, edge.source), edge.via) for edge in other.inputs]
        if layer.kind in COMMUTATIVE:
            ours, theirs = sorted(ours, key=repr), sorted(theirs, key=repr)
            if layer.kind == "concat":
                ours = [each for each in ours if each in theirs] if len(ours) > len(theirs) else ours
        return ours == theirs

    def _same_window(self, number: int, layer: Layer, other: Layer) -> bool:
        """Only groups differ, which the spaces take care of, or padding does, together with the kernel."""
        drop = ("groups", "padding") if self._grows_with_padding(number) else ("groups",)
        mine = {key: value for key, value in layer.attributes.items() if key not in drop}
        theirs = {key: value for key, value in other.attributes.items() if key not in drop}
        return layer.kind in ("conv", "conv_transpose") and mine == theirs

    def _statistics(self) -> Iterable[str]:
        """Spaces over which one statistic is taken together must grow by the same multiple."""
        for name, pair in self.pairs.items():
            for ours, _ in pair.expressions():
                grown = set()
                for space in _spaces_of(ours.of):
                    partner = self.partners.of(space)
                    if self.child.spaces[space].averaged and partner is not None:
                        grown.add(Fraction(self.child.spaces[space].size, self.parent.spaces[partner].size))
                if len(grown) > 1:
                    yield f"{name} has parts that a statistic is taken over, and they grow differently"

    def _shares(self, entries: Iterable[Entry]) -> Iterable[str]:
        """Where no placement of shares is exact, nothing may be copied."""
        if any(entry.action in ("widened", "resized") for entry in entries):
            for graph in (self.parent, self.child):
                for note in graph.notes:
                    if note.topic in ("conflict", "opaque"):
                        yield f"{note.topic} in {note.where}"


def _checked(parent: Graph, child: Graph, pairs: Pairs) -> Pairs:
    """Pairs that name layers there are, each at most once."""
    for side, (who, graph) in enumerate((("parent", parent), ("child", child))):
        seen: set[int] = set()
        for pair in pairs:
            if not 0 <= pair[side] < len(graph.layers):
                raise InvalidPairs(f"{tuple(pair)}", f"the {who} has {len(graph.layers)} layers")
            if pair[side] in seen:
                raise InvalidPairs(f"{tuple(pair)}", f"the {who}'s layer {pair[side]} is in two pairs")
            seen.add(pair[side])
    return pairs


def _margins(layer: Layer, rank: int) -> tuple[int, ...] | None:
    padding = layer.attributes.get("padding", (0,) * rank)
    return padding if isinstance(padding, tuple) else None


def _spaces_of(expression: Expression) -> list[int]:
    return [leaf.space for leaf in leaves(expression) if isinstance(leaf, Atom)]


def _heads(graph: Graph) -> set[int]:
    """The layers that make the outputs: the last ones with a weight on each way."""
    found: set[int] = set()
    todo = [edge.source for layer in graph.layers if layer.kind == "output" for edge in layer.inputs]
    while todo:
        number = todo.pop()
        layer = graph.layers[number]
        if any(tensor.role == "weight" for tensor in layer.tensors):
            found.add(number)
        else:
            todo += [edge.source for edge in layer.inputs]
    return {number for number in found if _makes_outputs(graph, graph.layers[number])}


def _makes_outputs(graph: Graph, layer: Layer) -> bool:
    spaces = {
        s
        for t in layer.tensors
        for axis in t.axes
        if axis.role in ("out", "row")
        for s in _spaces_of(axis.of)
    }
    return any("output" in graph.spaces[space].pins for space in spaces)


def _head_problem(pair: TensorPair, same_task: bool) -> str:
    """Why a tensor of the head must start fresh; empty if it need not."""
    if not same_task:
        return "the head: another task"
    for ours, theirs in pair.expressions():
        if ours.role == "out" and ours.size != theirs.size:
            return f"the head: {theirs.size} outputs became {ours.size}"
    return ""
