"""What happens to each layer when one model lends to another? Rows for the page that shows two side by side.

    compare(parent, child, same_task=True, seconds=20)

A row is a layer of each, or of one alone, and what happens there: copied, widened, narrowed, resized,
inserted or kept, as the plan says of most of its numbers; `same` where a layer has no weights; skipped, where
only the parent has it. Rows that repeat are found here, so that the page can fold them.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from modelkeeper.display.comparison import rows as aligned_rows
from modelkeeper.graph import Graph
from modelkeeper.graph.repeats import runs
from modelkeeper.matching import align
from modelkeeper.patience import OutOfPatience, waiting
from modelkeeper.server.ui.layers import cell, written
from modelkeeper.transform import Plan, make_plan
from modelkeeper.transform.plan import Entry

LONGEST_PERIOD = 80  # rows that may repeat together
LEAST_FOLDED = 8  # rows that are worth a fold


def compare(parent: Graph, child: Graph, *, same_task: bool, seconds: float) -> dict[str, Any]:
    """Both models, row by row, and what is lent; without a plan, if that takes too long."""
    alignment = align(parent, child)
    until = time.monotonic() + seconds
    plan: Plan | None = None
    try:
        with waiting(lambda: time.monotonic() > until):
            plan = make_plan(parent, child, alignment, same_task=same_task)
    except OutOfPatience:
        plan = None
    entries: dict[str, list[Entry]] = {}
    for entry in plan.entries if plan is not None else ():
        entries.setdefault(entry.layer, []).append(entry)
    rows = []
    for row in aligned_rows(parent, child, alignment):
        left = None if row.parent is None else cell(parent.layers[row.parent]) | {"number": row.parent}
        right = None if row.child is None else cell(child.layers[row.child]) | {"number": row.child}
        own = entries.get(child.layers[row.child].name, []) if row.child is not None else []
        rows.append(
            {
                "parent": left,
                "child": right,
                "action": _action(row.mark, own),
                "differs": list(row.differs),
                "tensors": _tensors(child, row.child, own),
            }
        )
    return {
        "similarity": alignment.similarity,
        "rows": rows,
        "folds": runs([_look(row) for row in rows], LONGEST_PERIOD, LEAST_FOLDED),
        "plan": None if plan is None else _summary(plan),
        "counts": Counter(row["action"] for row in rows),
    }


def _summary(plan: Plan) -> dict[str, Any]:
    return {
        "exact": plan.exact,
        "doubts": list(plan.doubts),
        "coverage": plan.coverage,
        "actions": plan.summary(),
    }


def _action(mark: str, entries: Sequence[Entry]) -> str:
    """What happens to most of the numbers of a layer; of one without any, how it is matched."""
    counted: Counter[str] = Counter()
    for entry in entries:
        counted[entry.action] += entry.parameters
    if counted:
        return counted.most_common(1)[0][0]
    return {"=": "same", "~": "changed", "-": "skipped", "+": "added"}[mark]


def _tensors(child: Graph, number: int | None, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """What becomes of each tensor of a layer."""
    if number is None:
        return []
    by_name = {entry.tensor: entry for entry in entries}
    told = []
    for tensor in child.layers[number].tensors:
        said: dict[str, Any] = {"name": tensor.name, "role": tensor.role, "shape": written(tensor.shape)}
        if (entry := by_name.get(tensor.name)) is not None:
            said |= {"action": entry.action, "from": entry.source or entry.like, "why": entry.why}
            said |= {"exact": entry.exact}
        told.append(said)
    return told


def _look(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row looks like, whatever its layers are called."""
    sides = (row["parent"], row["child"])
    return (
        row["action"],
        tuple(row["differs"]),
        *((side["kind"], side["shapes"]) if side is not None else None for side in sides),
    )
