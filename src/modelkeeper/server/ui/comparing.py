"""How are two models, layer against layer, told to a page? In columns, which a script lays out.

    told(comparison)

Thousands of rows travel as columns of numbers; what they have in common (kinds, shapes, differences) stands
in tables and is told once. What becomes of each tensor is told when somebody asks: see `details`. Rows that
repeat are found here, so that the page can fold them, and so are the lanes of the wires between layers.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from modelkeeper.graph import Graph
from modelkeeper.graph.repeats import runs
from modelkeeper.server.comparisons import Comparison
from modelkeeper.server.ui import lanes
from modelkeeper.server.ui.layers import written
from modelkeeper.transform import Plan

LONGEST_PERIOD = 80  # rows that may repeat together
LEAST_FOLDED = 8  # rows that are worth a fold
MOST_LANES = 8  # wires side by side


class _Table:
    """Values that many rows share, each once."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def number(self, value: str) -> int:
        return self.values.setdefault(value, len(self.values))


def told(found: Comparison) -> dict[str, Any]:
    """Both models in columns, and what is lent."""
    words = _Table()
    sides = {
        "parent": _side(found.parent, [row.parent for row in found.rows], words),
        "child": _side(found.child, [row.child for row in found.rows], words),
    }
    differs = {row: list(each.differs) for row, each in enumerate(found.rows) if each.differs}
    actions = _Table()
    numbers = [actions.number(action) for action in found.actions]
    looks = [
        (number, each.differs, *left, *right)
        for number, each, left, right in zip(
            numbers, found.rows, *(_looks(side) for side in sides.values()), strict=True
        )
    ]
    return {
        "similarity": found.alignment.similarity,
        "count": len(found.rows),
        "words": list(words.values),
        "actions": list(actions.values),
        "action": numbers,
        "differs": differs,
        **sides,
        "folds": runs(looks, LONGEST_PERIOD, LEAST_FOLDED),
        "plan": None if found.plan is None else summary(found.plan),
        "counts": Counter(found.actions),
    }


def summary(plan: Plan) -> dict[str, Any]:
    """What a plan says of all tensors together."""
    return {
        "exact": plan.exact,
        "doubts": list(plan.doubts),
        "coverage": plan.coverage,
        "actions": plan.summary(),
    }


def _side(graph: Graph, layers: Sequence[int | None], words: _Table) -> dict[str, Any]:
    """One model: of each row the number of its layer (-1: none), and of each layer what a row says."""
    shapes: dict[tuple[Any, ...], int] = {}
    kinds, names, of_layer = [], [], []
    for layer in graph.layers:
        key = tuple([tensor.shape for tensor in layer.tensors if not tensor.buffer])
        if key not in shapes:
            shapes[key] = words.number(", ".join(dict.fromkeys(written(shape) for shape in key)))
        names.append(layer.name)
        kinds.append(words.number(layer.kind))
        of_layer.append(shapes[key])
    return {
        "rows": [-1 if number is None else number for number in layers],
        "names": names,
        "kinds": kinds,
        "shapes": of_layer,
        "wires": wires(graph, layers),
    }


def _looks(side: dict[str, Any]) -> list[tuple[int, int]]:
    """What each row looks like on one side, whatever its layer is called."""
    kinds, shapes = side["kinds"], side["shapes"]
    return [(kinds[at], shapes[at]) if at >= 0 else (-1, -1) for at in side["rows"]]


def wires(graph: Graph, layers: Sequence[int | None]) -> dict[str, Any]:
    """The lanes of what flows between layers, row by row: as `lanes.draw`, in columns.

    A row without a layer (lane -1) is passed by. An alignment may put a layer above one that it reads: then
    the wire runs between the two all the same.
    """
    order = [number for number in layers if number is not None]
    place = {number: at for at, number in enumerate(order)}
    above: dict[int, list[int]] = {number: [] for number in order}
    for target in order:
        for edge in graph.layers[target].inputs:
            upper, lower = sorted((edge.source, target), key=place.__getitem__)
            above[lower].append(upper)
    drawn = iter(lanes.draw(order, above, MOST_LANES))
    columns: dict[str, list[int]] = {"lane": [], "into": [], "through": [], "out": []}
    width, left_out, passing = 1, 0, 0
    for number in layers:
        if number is None:
            told = (-1, 0, passing, 0)
        else:
            row = next(drawn)
            told = (row.lane, row.into, row.through, row.out)
            width, left_out, passing = max(width, row.width), left_out + row.left_out, row.through | row.out
        for column, value in zip(columns.values(), told, strict=True):
            column.append(value)
    return columns | {"width": width, "left_out": left_out}
