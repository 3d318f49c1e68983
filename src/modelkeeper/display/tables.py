"""A graph for people: tables in a terminal.

    report(graph)                one row for each layer, the totals, the notes
    plan_table(plan, similarity) what a transfer does, summed up
    as_text(renderable)          any of them as a string

All but the last return something that rich can print; nothing here prints or reads anything.
"""

from collections.abc import Collection

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelkeeper.display.consoles import clean_console, plain
from modelkeeper.graph import Edge, Graph, Layer, to_json
from modelkeeper.graph.vocabulary import CONSTANTS
from modelkeeper.transform import Plan, SideBySide


def report(graph: Graph) -> RenderableType:
    """All that a graph holds: its layers, its totals, its notes."""
    table = Table(header_style="bold", row_styles=("", "dim"))
    for heading in ("#", "layer", "kind", "tensors", "made of", "inputs", "attributes", "parameters"):
        numeric = heading in ("#", "parameters")
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    seen: set[str] = set()
    for number, layer in enumerate(graph.layers):
        lines = _tensors(layer, seen)
        fresh = {
            tensor.name: tensor.size
            for tensor in layer.tensors
            if tensor.name not in seen and not tensor.buffer
        }
        seen.update(tensor.name for tensor in layer.tensors)
        table.add_row(
            str(number),
            plain(layer.name),
            plain(layer.kind),
            plain("\n".join(f"{roles} {shape}" for roles, shape, _ in lines)),
            plain("\n".join(spaces for _, _, spaces in lines)),
            plain("\n".join(_edge(edge) for edge in layer.inputs)),
            plain("\n".join(f"{key}={_value(value)}" for key, value in sorted(layer.attributes.items()))),
            f"{sum(fresh.values()):,}" if fresh else "",
        )
    notes = [
        Text("note: ", style="yellow").append_text(plain(str(note)))
        for note in graph.notes
        if note.topic != CONSTANTS
    ]
    return Group(table, totals(graph), *notes)


def totals(graph: Graph) -> Text:
    """The numbers that sum a graph up."""
    free = sum(space.free for space in graph.spaces)
    lines = {
        "layers": f"{len(graph.layers):,}",
        "parameters": f"{graph.parameters:,}",
        "spaces": f"{len(graph.spaces):,} ({free:,} free, {len(graph.spaces) - free:,} pinned)",
        "fingerprint": graph.fingerprint,
        "as JSON": f"{len(to_json(graph)):,} bytes",
    }
    return Text("\n").join(Text.assemble((f"{name:<12}", "bold"), value) for name, value in lines.items())


def plan_table(plan: Plan | SideBySide, similarity: float, difference: float | None = None) -> RenderableType:
    """How much of the child each action covers, whether the whole is exact, and if not, why."""
    table = Table(header_style="bold")
    table.add_column("action")
    for heading in ("layers", "%", "tensors", "parameters", "%"):
        table.add_column(heading, justify="right")
    columns = ("layers", "percent_of_layers", "tensors", "parameters", "percent")
    for action, row in plan.summary().items():
        table.add_row(action, *(f"{row[key]:,}" for key in columns))
    several = isinstance(plan, SideBySide)
    computed = "the mean of what the parents compute" if several else "what the parent computes"
    verdict = f"exact: the child computes {computed}" if plan.exact else "approximate, since"
    whose = "the parents" if several else "the parent"
    lines = [Text(f"similarity {similarity:.3f}, {plan.coverage:.1%} from {whose}; {verdict}")]
    lines += [Text("  ").append_text(plain(doubt)) for doubt in plan.doubts]
    if difference is not None:
        lines.append(Text(f"measured on random inputs: a relative difference of {difference:.1e}"))
    return Group(table, *lines)


def as_text(renderable: RenderableType, width: int = 100) -> str:
    """What would be printed, without colours."""
    console = clean_console(width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def _tensors(layer: Layer, seen: Collection[str] = ()) -> list[tuple[str, str, str]]:
    """Roles, shape and spaces: tensors of one layer that differ in their role alone share a line."""
    lines: dict[tuple[str, str], list[str]] = {}
    for tensor in layer.tensors:
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        spaces = ", ".join(str(axis.of) for axis in tensor.axes)
        remark = " (tied)" if tensor.name in seen else "" if tensor.live else " (unused)"
        lines.setdefault((shape, spaces), []).append(tensor.role + remark)
    return [(", ".join(roles), shape, spaces) for (shape, spaces), roles in lines.items()]


def _edge(edge: Edge) -> str:
    return " > ".join((str(edge.source), *edge.via))


def _value(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
