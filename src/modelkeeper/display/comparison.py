"""What do two models share, and where do they differ? An alignment for people and for programs.

    side_by_side(parent, child, alignment)   a table: layer against layer, with what differs
    to_dict(parent, child, alignment)        the same as plain values, for JSON

A row is a match (= if nothing differs, ~ if something does), a layer that only the parent has (-), or
one that only the child has (+). Rows are in the child's order; a layer of the parent alone stands behind
the match that comes before it in the parent.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelkeeper.display.consoles import plain
from modelkeeper.graph import Graph, Layer
from modelkeeper.matching import Alignment

_STYLES = {"=": "", "~": "yellow", "-": "red", "+": "green"}


class Row(NamedTuple):
    """A line of the comparison: numbers of layers, and what differs between them."""

    mark: str
    parent: int | None
    child: int | None
    differs: tuple[str, ...] = ()


def rows(parent: Graph, child: Graph, alignment: Alignment) -> Iterator[Row]:
    """Every layer of both models, matched ones together."""
    behind: dict[int, list[int]] = {}
    matched = sorted(p for p, _ in alignment.pairs)
    at = 0
    for p in alignment.skipped_parent:
        while at < len(matched) and matched[at] < p:
            at += 1
        behind.setdefault(matched[at - 1] if at else -1, []).append(p)
    image = {c: p for p, c in alignment.pairs}
    yield from (Row("-", p, None) for p in behind.get(-1, ()))
    for c, layer in enumerate(child.layers):
        if c not in image:
            yield Row("+", None, c)
            continue
        differs = tuple(differences(parent.layers[image[c]], layer))
        yield Row("~" if differs else "=", image[c], c, differs)
        yield from (Row("-", p, None) for p in behind.get(image[c], ()))


def differences(parent: Layer, child: Layer) -> Iterator[str]:
    """What differs between two matched layers, in words."""
    if parent.kind != child.kind:
        yield f"{parent.kind} → {child.kind}"
    lent = {tensor.role: tensor for tensor in parent.tensors}
    for tensor in child.tensors:
        other = lent.pop(tensor.role, None)
        if other is None:
            yield f"no {tensor.role} before"
        elif other.shape != tensor.shape:
            yield f"{tensor.role} {_shape(other.shape)} → {_shape(tensor.shape)}"
    yield from (f"no {role} any more" for role in lent)
    for key in sorted(parent.attributes.keys() | child.attributes.keys()):
        before, after = parent.attributes.get(key, "default"), child.attributes.get(key, "default")
        if before != after:
            yield f"{key} {_value(before)} → {_value(after)}"
    way, other_way = (sorted(" > ".join(edge.via) for edge in layer.inputs) for layer in (parent, child))
    if way != other_way:
        yield f"fed through {_ways(way)} → {_ways(other_way)}"


def side_by_side(parent: tuple[str, Graph], child: tuple[str, Graph], alignment: Alignment) -> RenderableType:
    """Two named graphs, layer against layer."""
    table = Table(header_style="bold")
    for name, _ in (parent, child):
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column(plain(name), overflow="fold")
        table.add_column("weights", overflow="fold")
        if name is parent[0] and len(table.columns) == 3:
            table.add_column("", justify="center", no_wrap=True)
    table.add_column("what differs", overflow="fold")
    for row in rows(parent[1], child[1], alignment):
        left, right = _cells(parent[1], row.parent), _cells(child[1], row.child)
        differs = plain("\n".join(row.differs))
        table.add_row(*map(plain, left), row.mark, *map(plain, right), differs, style=_STYLES[row.mark])
    return Group(table, summary(alignment, child[1]))


def summary(alignment: Alignment, child: Graph) -> Text:
    """The numbers that sum an alignment up."""
    received = {c for _, c in alignment.pairs}
    filled = sum(_parameters(layer) for c, layer in enumerate(child.layers) if c in received)
    lines = {
        "similarity": f"{alignment.similarity:.4f}",
        "matched": f"{len(alignment.pairs):,} layers",
        "filled": f"{filled:,} of the child's {child.parameters:,} parameters lie in matched layers",
        "only in the parent": f"{len(alignment.skipped_parent):,} layers",
        "only in the child": f"{len(alignment.skipped_child):,} layers",
    }
    return Text("\n").join(Text.assemble((f"{name:<20}", "bold"), value) for name, value in lines.items())


def to_dict(parent: Graph, child: Graph, alignment: Alignment) -> dict[str, object]:
    """An alignment as plain values. Layers are numbers in `graph.layers`."""
    return {
        "format": "modelkeeper.alignment",
        "version": 1,
        "similarity": alignment.similarity,
        "layer_score": alignment.layer_score,
        "edge_score": alignment.edge_score,
        "parent": {
            "fingerprint": parent.fingerprint,
            "layers": len(parent.layers),
            "total": alignment.parent_total,
        },
        "child": {
            "fingerprint": child.fingerprint,
            "layers": len(child.layers),
            "total": alignment.child_total,
        },
        "pairs": [
            {
                "parent": p,
                "child": c,
                "names": [parent.layers[p].name, child.layers[c].name],
                "differs": list(differences(parent.layers[p], child.layers[c])),
            }
            for p, c in alignment.pairs
        ],
        "skipped_parent": list(alignment.skipped_parent),
        "skipped_child": list(alignment.skipped_child),
    }


def _cells(graph: Graph, number: int | None) -> tuple[str, str, str]:
    if number is None:
        return "", "", ""
    layer = graph.layers[number]
    title = layer.name if layer.name.startswith(layer.kind) else f"{layer.kind} {layer.name}"
    shapes = dict.fromkeys(_shape(tensor.shape) for tensor in layer.tensors if not tensor.buffer)
    return str(number), title, ", ".join(shapes)


def _parameters(layer: Layer) -> int:
    return sum(tensor.size for tensor in layer.tensors if not tensor.buffer)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _value(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _ways(ways: list[str]) -> str:
    return ", ".join(way or "nothing" for way in ways) or "nothing"
