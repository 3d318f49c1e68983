"""What will each tensor of the child be, and why? A plan, before a number is moved.

    plan.entries    for each tensor of the child: copied, widened, narrowed, resized, inserted or kept
    plan.exact      will the child compute what the parent computes, before any training?
    plan.doubts     if not, why not
    plan.summary()  how many layers and parameters each action covers
    plan.to_json()  all of it, for logs and for the wire

A plan holds decisions, not numbers: `apply` carries it out.
"""

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from modelkeeper.graph import Graph
from modelkeeper.transform.maps import Maps
from modelkeeper.transform.spaces import TensorPair

ACTIONS = ("copied", "widened", "narrowed", "resized", "inserted", "kept")


class Entry(Struct, frozen=True, kw_only=True):
    """One tensor of the child."""

    tensor: str
    layer: str
    action: str
    parameters: int  # how many numbers it has
    exact: bool = True
    source: str = ""  # the parent's tensor it is gathered from
    like: str = ""  # inserted: the child's tensor whose source and maps it takes
    value: str = ""  # inserted: zero, one, identity
    why: str = ""


class Plan(Struct, frozen=True, dict=True):
    """For each tensor of the child where its values come from."""

    parent: Graph
    child: Graph
    entries: tuple[Entry, ...]
    doubts: tuple[str, ...]
    pairs: dict[str, TensorPair]  # by the child's tensor
    maps: Maps

    @property
    def exact(self) -> bool:
        """Will the child compute what the parent computes, in evaluation mode?"""
        return not self.doubts

    def summary(self) -> dict[str, dict[str, float]]:
        """For each action the tensors, layers and parameters it covers, and their share of all parameters."""
        tensors: Counter[str] = Counter()
        parameters: Counter[str] = Counter()
        layers: dict[str, set[str]] = {action: set() for action in ACTIONS}
        for entry in self.entries:
            tensors[entry.action] += 1
            parameters[entry.action] += entry.parameters
            layers[entry.action].add(entry.layer)
        total = max(1, sum(parameters.values()))
        return {
            action: {
                "tensors": tensors[action],
                "layers": len(layers[action]),
                "parameters": parameters[action],
                "percent": round(100 * parameters[action] / total, 2),
            }
            for action in ACTIONS
            if tensors[action]
        }

    def report(self) -> dict[str, Any]:
        """Everything a person may want to know, as plain data."""
        return {
            "exact": self.exact,
            "doubts": list(self.doubts),
            "summary": self.summary(),
            "entries": [msgspec.to_builtins(entry) for entry in self.entries],
        }

    def to_json(self) -> bytes:
        """The report as bytes."""
        return msgspec.json.encode(self.report())
