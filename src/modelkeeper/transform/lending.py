"""What does each tensor of the child become, given which layers of the parent lend to which?

    lending = Lending(parent, child, pairs, ...)
    lending.pairs           tensors of the child, each with the parent's tensor that it takes from
    lending.entries()       for each tensor of the child: what it becomes, from where, and is that exact?

Aligned layers lend tensor by tensor; some lend together (`compose`), some also for a neighbour that goes
(`merge`). A head that predicts something else takes nothing. What is left has no partner: see `depth`.
"""

from collections.abc import Callable

from modelkeeper.graph import Axis, Graph, Layer, Tensor
from modelkeeper.graph.vocabulary import CONV, COUNT, NORMS, OUTPUT, SCALE
from modelkeeper.transform.compose import Composite, Composites, find_composites
from modelkeeper.transform.depth import Depth, Inserted
from modelkeeper.transform.fill import Fills
from modelkeeper.transform.maps import Maps, Verdict
from modelkeeper.transform.merge import Merge, find_merges
from modelkeeper.transform.pairing import Pairs, Partners, TensorPair, pair_tensors, spaces_of
from modelkeeper.transform.plan import Entry

Make = Callable[..., Entry]


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
            spaces = {axis.role: spaces_of(axis.of) for axis in weight.axes}
            for ours, before in zip(spaces.get("out", ()), spaces.get("in", ()), strict=False):
                partner = self.partners.of(before)
                if self.partners.of(ours) is None and partner is not None:
                    self.partners.inherit(ours, partner)

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
        if ours.role == "kernel" and ours.size != theirs.size and self.grows_with_padding(number):
            return Verdict("widened", True, "the kernel grew together with its padding")
        return self.maps.judge(ours, theirs)

    def grows_with_padding(self, number: int) -> bool:
        """Is the child's window the parent's with a border of zeros, laid over as many more zeros?"""
        other = self.partner.get(number)
        if other is None:
            return False
        layer, lender = self.child.layers[number], self.parent.layers[other]
        weights = [next((t for t in each.tensors if t.role == "weight"), None) for each in (layer, lender)]
        if layer.kind != CONV or lender.kind != CONV or None in weights:
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
        if tensor.role == COUNT:
            return entry("kept", True, "only counts")
        return entry("kept", False, f"the parent's layer has no {tensor.role} of this form")

    def _inserted(self, layer: Layer, tensor: Tensor, inserted: Inserted, entry: Make) -> Entry:
        match inserted.value:
            case "zero" if tensor.role in ("weight", "gain", "bias"):
                silent = "gain" if layer.kind in NORMS or layer.kind == SCALE else "weight"
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


def _margins(layer: Layer, rank: int) -> tuple[int, ...] | None:
    padding = layer.attributes.get("padding", (0,) * rank)
    return padding if isinstance(padding, tuple) else None


def _heads(graph: Graph) -> set[int]:
    """The layers that make the outputs: the last ones with a weight on each way."""
    found: set[int] = set()
    todo = [edge.source for layer in graph.layers if layer.kind == OUTPUT for edge in layer.inputs]
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
        s for t in layer.tensors for axis in t.axes if axis.role in ("out", "row") for s in spaces_of(axis.of)
    }
    return any(graph.spaces[space].pinned_by("output") for space in spaces)


def _head_problem(pair: TensorPair, same_task: bool) -> str:
    """Why a tensor of the head must start fresh; empty if it need not."""
    if not same_task:
        return "the head: another task"
    for ours, theirs in pair.expressions():
        if ours.role == "out" and ours.size != theirs.size:
            return f"the head: {theirs.size} outputs became {ours.size}"
    return ""
