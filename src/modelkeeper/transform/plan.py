"""What will each tensor of the child be, and why? A plan, before a number is moved.

    plan.entries    for each tensor of the child: copied, widened, narrowed, resized, inserted or kept
                    (and joined, where several parents lie side by side)
    plan.exact      will the child compute what the parent computes, before any training?
    plan.doubts     if not, why not
    plan.coverage   which fraction of the child's numbers comes from the parent
    plan.summary()  how many layers and parameters each action covers, and how much of all that is
    plan.report()   all of it as plain data; plan.to_json() as bytes, for logs and for the wire
    plan.plot()     a picture: who lends to whom

A plan holds decisions, not numbers: `apply` carries it out.
"""

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.drawings import COLOURS, Box, Picture, Wire, links, table
from modelkeeper.graph import Graph, Layer
from modelkeeper.transform.compose import Composite
from modelkeeper.transform.epsilon import OtherEpsilon
from modelkeeper.transform.maps import Maps
from modelkeeper.transform.merge import Merge
from modelkeeper.transform.pairing import TensorPair
from modelkeeper.transform.spread import Spread

ACTIONS = ("copied", "widened", "narrowed", "resized", "joined", "inserted", "kept")


class Entry(Struct, frozen=True, kw_only=True):
    """What one tensor of the child becomes: by which action, from which tensor of the parent, and why."""

    tensor: str
    layer: str
    action: str
    parameters: int  # how many numbers it has
    exact: bool = True
    source: str = ""  # the parent's tensor it is gathered from
    like: str = ""  # inserted: the child's tensor whose source and maps it takes
    value: str = ""  # inserted: zero, one, identity
    why: str = ""


class Decisions(Struct, frozen=True, kw_only=True):
    """What becomes of each tensor of a child, and how far that is exact: a plan, whoever lends."""

    child: Graph
    entries: tuple[Entry, ...]
    doubts: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Will the child compute what is promised, in evaluation mode?"""
        return not self.doubts

    @property
    def coverage(self) -> float:
        """Which fraction of the child's numbers is lent, from 0 to 1.

        Zeros and identities that make inserted layers change nothing are not; copies of a parent's are.
        """
        total = sum(entry.parameters for entry in self.entries)
        return self._lent() / max(1, total)

    def _lent(self) -> int:
        """How many of the child's numbers are lent."""
        return sum(entry.parameters for entry in self.entries if entry.source)

    def summary(self) -> dict[str, dict[str, float]]:
        """What each action covers: tensors, layers, parameters, and percentages of all parameters and layers.

        A layer counts once, for the action that most of its numbers are under; of equals (a layer may have
        no numbers at all) for the first in the order of ACTIONS. Actions that nothing is under are left out.
        """
        tensors: Counter[str] = Counter()
        parameters: Counter[str] = Counter()
        parameters_of_layer: dict[str, Counter[str]] = {}  # by layer: how many numbers each action covers
        for entry in self.entries:
            tensors[entry.action] += 1
            parameters[entry.action] += entry.parameters
            parameters_of_layer.setdefault(entry.layer, Counter())[entry.action] += entry.parameters
        layers = Counter(map(_main_action, parameters_of_layer.values()))
        return {
            action: {
                "tensors": tensors[action],
                "layers": layers[action],
                "parameters": parameters[action],
                "percent": _percent(parameters[action], parameters.total()),
                "percent_of_layers": _percent(layers[action], layers.total()),
            }
            for action in ACTIONS
            if tensors[action]
        }

    def report(self) -> dict[str, Any]:
        """The whole plan as plain data: exactness, doubts, coverage, summary, and each entry."""
        return {
            "exact": self.exact,
            "doubts": list(self.doubts),
            "coverage": round(self.coverage, 4),
            "summary": self.summary(),
            "entries": [msgspec.to_builtins(entry) for entry in self.entries],
        }

    def to_json(self) -> bytes:
        """The report as JSON, in bytes."""
        return msgspec.json.encode(self.report())

    def verdict(self) -> str:
        """Whether it is exact, and how much is lent, in a sentence."""
        how = "exact" if self.exact else f"approximate ({self.doubts[0]})"
        return f"{100 * self.coverage:.1f} % of the numbers are lent; {how}"

    def _repr_html_(self) -> str:
        """In a notebook: what each action covers."""
        names = ("layers", "tensors", "parameters", "percent")
        cells = [(action, *(row[name] for name in names)) for action, row in self.summary().items()]
        return table(("action", *names), cells, self.verdict())


class Plan(Decisions, frozen=True, kw_only=True):
    """For each tensor of the child where its values come from; exact: it computes what its parent does."""

    parent: Graph
    pairs: dict[str, TensorPair]  # by the child's tensor
    maps: Maps
    seed: int = 0
    noise: float = 0.0  # on inserted identities, in units of 1 / √(weights that make a unit)
    merges: dict[str, Merge | Composite | Spread] = {}  # by the parent's tensor: a neighbour's part goes in
    epsilons: dict[str, OtherEpsilon] = {}  # by the child's tensor: what makes up for another epsilon
    frozen: frozenset[str] = frozenset()  # tensors of the child that keep their values, as its user wants it
    doubled: frozenset[str] = frozenset()  # tensors of the child that make up for a gate that is half open
    rewired: float = 0.0  # which fraction of the child's layers is fed with something else than in the parent

    def plot(self) -> Picture:
        """Both models as a picture: which layer lends to which, and how. An SVG; see `Picture`."""
        lenders = [layer for layer in self.parent.layers if layer.tensors]
        takers = [layer for layer in self.child.layers if layer.tensors]
        owner = {tensor.name: number for number, layer in enumerate(lenders) for tensor in layer.tensors}
        at = {layer.name: number for number, layer in enumerate(takers)}
        parameters: dict[str, Counter[str]] = {}
        from_whom: dict[tuple[int, int], None] = {}
        for entry in self.entries:
            parameters.setdefault(entry.layer, Counter())[entry.action] += entry.parameters
            source = entry.source or (self._source(entry.like) if entry.like else "")
            if source in owner and entry.layer in at:
                from_whom[owner[source], at[entry.layer]] = None
        actions = [_main_action(parameters.get(layer.name, Counter(kept=0))) for layer in takers]
        wires = [Wire(left, right, COLOURS[actions[right]]) for left, right in from_whom]
        lent = {left for left, _ in from_whom}
        left = [
            Box(layer.name, _widths(layer) if number in lent else "not lent", COLOURS["kept"])
            for number, layer in enumerate(lenders)
        ]
        right = [
            Box(layer.name, f"{action} {_widths(layer)}", COLOURS[action])
            for layer, action in zip(takers, actions, strict=True)
        ]
        return links(("lends", "borrows"), left, right, wires, self.verdict())

    def _source(self, tensor: str) -> str:
        """The parent's tensor that a tensor of the child is gathered from; "": none."""
        return next((entry.source for entry in self.entries if entry.tensor == tensor), "")


def _widths(layer: Layer) -> str:
    """The shape of the largest tensor of a layer."""
    largest = max(layer.tensors, key=lambda tensor: tensor.size)
    return "×".join(map(str, largest.shape))


def _main_action(parameters: Counter[str]) -> str:
    """The action that most numbers of a layer are under, out of the actions that its tensors have."""
    return max((action for action in ACTIONS if action in parameters), key=parameters.__getitem__)


def _percent(part: int, whole: int) -> float:
    return round(100 * part / max(1, whole), 2)
