"""What becomes of a layer, tensor by tensor and axis by axis? And which layers must change with an axis?

layer(comparison, row)               both shapes of each tensor, and what happens on each of its axes
space(comparison, "child", 3)        every layer that has this space, what pins it, how wide the lender's is
"""

from collections.abc import Iterator
from typing import Any

from modelkeeper.errors import InvalidMeta
from modelkeeper.graph import Axis, Graph, Layer, Tensor
from modelkeeper.server.comparisons import Comparison
from modelkeeper.server.ui.layers import written
from modelkeeper.transform.pairing import TensorPair, spaces_of
from modelkeeper.transform.plan import Entry, Plan
from modelkeeper.transform.windows import grows_with_padding

MOST_LISTED = 200  # layers of a space by name; rows are marked, however many there are
MOST_INPUTS = 40
GATHERED = ("copied", "widened", "narrowed", "resized")  # actions by which the axes are mapped


def layer(found: Comparison, row: int) -> dict[str, Any]:
    """What a row is on both sides, and what becomes of its tensors.

    Raises:
        InvalidMeta: There is no such row.
    """
    if not 0 <= row < len(found.rows):
        raise InvalidMeta("row", str(row), f"there are {len(found.rows):,}")
    aligned = found.rows[row]
    parent = None if aligned.parent is None else found.parent.layers[aligned.parent]
    child = None if aligned.child is None else found.child.layers[aligned.child]
    entries, padded = found.entries, bool(parent and child and grows_with_padding(parent, child))
    tensors = [
        _tensor(found, tensor, entries.get(tensor.name), padded)
        for tensor in (child.tensors if child else ())
    ]
    if parent is not None:
        tensors += _unused(found, parent)
    return {
        "row": row,
        "action": found.actions[row],
        "differs": list(aligned.differs),
        "parent": parent and _side(found.parent, parent),
        "child": child and _side(found.child, child),
        "tensors": tensors,
    }


def _side(graph: Graph, layer: Layer) -> dict[str, Any]:
    inputs = [
        {"name": graph.layers[edge.source].name, "via": " > ".join(edge.via)}
        for edge in layer.inputs[:MOST_INPUTS]
    ]
    return {
        "name": layer.name,
        "kind": layer.kind,
        "inputs": inputs,
        "more_inputs": len(layer.inputs) - len(inputs),
    }


def _tensor(found: Comparison, tensor: Tensor, entry: Entry | None, padded: bool) -> dict[str, Any]:
    """What a tensor of the child becomes; `padded`: its window may grow, since its padding did."""
    said: dict[str, Any] = {
        "name": tensor.name,
        "role": tensor.role,
        "shapes": [None, written(tensor.shape)],
        "action": entry.action if entry else "",
        "exact": entry.exact if entry else True,
        "why": entry.why if entry else "",
        "from": (entry.source or entry.like) if entry else "",
    }
    pair = found.plan.pairs.get(tensor.name) if found.plan is not None else None
    if found.plan is None or entry is None or pair is None or entry.action not in GATHERED:
        action = entry.action if entry else ""
        return said | {"axes": [_axis("child", None, axis, action) for axis in tensor.axes]}
    lent = found.parent.tensors.get(entry.source, pair.parent)
    said["shapes"][0] = written(lent.shape)
    return said | {"axes": list(_axes(found.plan, pair, entry, padded))}


def _axes(plan: Plan, pair: TensorPair, entry: Entry, padded: bool) -> Iterator[dict[str, Any]]:
    """What the maps do on each axis of a tensor that is gathered from one of the parent."""
    for axis, number in zip(pair.child.axes, pair.axes, strict=True):
        if number is None:
            yield _axis("child", None, axis, "copied", why="the lender has no such axis")
            continue
        lent = pair.parent.axes[number]
        verdict = plan.maps.judge(axis, lent)
        if padded and axis.role == "kernel" and axis.size != lent.size:
            yield _axis("child", lent.size, axis, verdict.action, why=entry.why)
        else:
            yield _axis("child", lent.size, axis, verdict.action, verdict.exact, verdict.why)


def _axis(
    side: str, lent: int | None, axis: Axis, action: str, exact: bool = True, why: str = ""
) -> dict[str, Any]:
    """An axis: how long it is in both, what happens there, and the spaces that it is made of."""
    sizes = [axis.size, None] if side == "parent" else [lent, axis.size]
    spaces = list(dict.fromkeys(spaces_of(axis.of)))
    made = {"side": side, "spaces": spaces, "of": str(axis.of)}
    return {"role": axis.role, "sizes": sizes, "action": action, "exact": exact, "why": why} | made


def _unused(found: Comparison, parent: Layer) -> Iterator[dict[str, Any]]:
    """The tensors of a layer of the parent that go nowhere."""
    if found.plan is None:
        return
    used = {entry.source for entry in found.plan.entries} | set(found.plan.merges)
    for tensor in parent.tensors:
        if tensor.name not in used:
            yield {
                "name": tensor.name,
                "role": tensor.role,
                "shapes": [written(tensor.shape), None],
                "action": "skipped",
                "exact": True,
                "why": "",
                "from": "",
                "axes": [_axis("parent", None, axis, "skipped") for axis in tensor.axes],
            }


def space(found: Comparison, side: str, number: int) -> dict[str, Any]:
    """Every layer with an axis of a space: they change their width together.

    Raises:
        InvalidMeta: There is no such space.
    """
    graph = found.parent if side == "parent" else found.child
    if not 0 <= number < len(graph.spaces):
        raise InvalidMeta("space", str(number), f"the model has {len(graph.spaces):,}")
    rows: list[int] = []
    listed: list[dict[str, Any]] = []
    for row, aligned in enumerate(found.rows):
        at = aligned.parent if side == "parent" else aligned.child
        axes = [] if at is None else list(_axes_of(graph.layers[at], number))
        if at is not None and axes:
            rows.append(row)
            if len(listed) < MOST_LISTED:
                one = graph.layers[at]
                listed.append({"row": row, "name": one.name, "kind": one.kind, "axes": axes})
    here, theirs = graph.spaces[number], _partner(found, side, number)
    lender = None if theirs is None else found.parent.spaces[theirs]
    pins = dict.fromkeys(str(pin) for one in (here, lender) if one is not None for pin in one.pins)
    return {
        "side": side,
        "space": number,
        "size": here.size,
        "lender": None if lender is None else lender.size,
        "pins": list(pins),
        "averaged": here.averaged or (lender is not None and lender.averaged),
        "rows": rows,
        "layers": listed,
    }


def _axes_of(layer: Layer, space: int) -> Iterator[str]:
    """The axes of a layer that have a space, in words."""
    for tensor in layer.tensors:
        roles = dict.fromkeys(axis.role for axis in tensor.axes if space in spaces_of(axis.of))
        yield from (f"{tensor.role} ({role})" for role in roles)


def _partner(found: Comparison, side: str, number: int) -> int | None:
    """The lender's space for one of the borrower's; None: it has none, or nobody has planned."""
    return found.plan.maps.partner(number) if side == "child" and found.plan is not None else None
