"""The zoo for people: records, lineage, counts and events as tables in a terminal.

Nothing here prints or reads anything. Every text that came from a user is made printable first.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from modelkeeper.coordinator.base import Lineage
from modelkeeper.text import ago, count, printable, size
from modelkeeper.zoo.gc import Swept
from modelkeeper.zoo.records import ACTIVE, Event, Record
from modelkeeper.zoo.zoo import Registered

_RIGHT = {"parameters", "size", "lent", "models", "similarity"}


def records(shown: Sequence[Record], total: int) -> RenderableType:
    """Models, one a line."""
    now = time.time()
    columns = "id name framework data task quality parameters size lent registered state"
    table = _table(*columns.split())
    for model in shown:
        _row(
            table,
            model.id,
            model.name,
            model.framework,
            model.data,
            model.task,
            quality(model),
            count(model.parameters),
            size(model.bytes),
            f"{model.hits:,}",
            ago(now - model.created),
            _state(model),
        )
    part = "" if len(shown) == total else f", {len(shown):,} of them shown: --limit 0 shows all"
    return Group(table, Text(f"{total:,} models{part}"))


def record(model: Record, files: str) -> RenderableType:
    """All that the zoo knows of one model."""
    now = time.time()
    parent = model.parent
    if parent and model.similarity is not None:
        parent += f", similarity {model.similarity:.3f}"
    lines = {
        "id": model.id,
        "name": model.name,
        "state": _state(model) + (f": {model.reason}" if model.reason else ""),
        "data": model.data,
        "task": model.task,
        "tags": ", ".join(model.tags),
        "quality": quality(model) + (", lower is better" if model.lower_is_better else ""),
        "metrics": ", ".join(f"{name} {value:.6g}" for name, value in sorted(model.metrics.items())),
        "framework": model.framework,
        "parameters": f"{model.parameters:,}",
        "size": f"{size(model.bytes)} ({model.bytes:,} bytes)",
        "started from": parent or "its own initial values",
        "lent": f"{model.hits:,} times" + (f", last {ago(now - model.last_used)}" if model.hits else ""),
        "registered": f"{_date(model.created)} ({ago(now - model.created)}) by {model.owner}",
        "seen by": model.visibility + (f", project {model.project}" if model.project else ""),
        "better twin": f"{model.twin}, similarity {model.twin_similarity:.3f}" if model.twin else "",
        "fingerprint": model.fingerprint,
        "checksum": model.checksum,
        "files": files,
    }
    return _list({name: value for name, value in lines.items() if value})


def lineage(family: Lineage) -> RenderableType:
    """A model below all that it descends from, above all that descends from it."""
    root: Tree | None = None
    at: Tree | None = None
    for ancestor in reversed(family.ancestors):
        at = _branch(at, ancestor)
        root = root or at
    here = _branch(at, family.record, "bold")
    waiting = [(here, child) for child in reversed(family.descendants)]
    while waiting:
        above, child = waiting.pop()
        branch = _branch(above, child.record)
        waiting += [(branch, grandchild) for grandchild in reversed(child.descendants)]
    return root or here


def registered(outcome: Registered) -> RenderableType:
    """What became of a registration."""
    model = outcome.record
    lines = [f"Registered {model.name} as {model.id}: {quality(model)}, {size(model.bytes)}."]
    if outcome.admission.verdict == "not_a_parent":
        lines.append(f"It lends to nobody: {outcome.admission.reason}.")
    if outcome.evicted:
        lines.append(f"To make room, these were evicted: {', '.join(outcome.evicted)}.")
    return _text("\n".join(lines))


def swept(result: Swept) -> RenderableType:
    """What gc did."""
    return _list(
        {
            "unfinished writes deleted": f"{result.staging:,}",
            "folders without a record deleted": f"{len(result.folders):,}",
            "graphs without a model deleted": f"{result.graphs:,}",
            "damaged models taken out": ", ".join(result.damaged) or "0",
            "repaired models taken back": ", ".join(result.repaired) or "0",
            "models evicted": ", ".join(result.evicted) or "0",
        }
    )


def stats(counts: Mapping[str, Any]) -> RenderableType:
    """Counts over the zoo."""
    capacity = counts["capacity"]
    room = f" of {size(capacity)} ({100 * counts['bytes'] / capacity:.0f} %)" if capacity else ""
    totals = {
        "models": f"{counts['models']:,}",
        "architectures": f"{counts['architectures']:,}",
        "parameters": count(counts["parameters"]),
        "size": size(counts["bytes"]) + room,
        "warm starts": f"{counts['hits']:,}",
        "states": ", ".join(f"{name} {number:,}" for name, number in sorted(counts["states"].items())),
    }
    table = _table("task", "data", "models", "lent")
    for group in counts["groups"]:
        _row(table, group["task"], group["data"], f"{group['models']:,}", f"{group['hits']:,}")
    return Group(_list(totals), table) if counts["groups"] else _list(totals)


def events(happened: Iterable[Event]) -> RenderableType:
    """What happened, one event a line."""
    now = time.time()
    table = _table("when", "what", "model", "user", "detail")
    for event in happened:
        _row(table, ago(now - event.at), event.action, event.model, event.user, event.detail)
    return table


def quality(model: Record) -> str:
    """How good a model is."""
    return f"{model.metric} {model.value:.4g}" if model.value is not None else ""


def _branch(above: Tree | None, model: Record, style: str = "") -> Tree:
    near = f", similarity {model.similarity:.3f}" if model.similarity is not None else ""
    data = f" on {model.data}" if model.data else ""
    state = "" if model.state == ACTIVE else f" [{model.state}]"
    label = Text(printable(f"{model.name} ({model.id}): {quality(model)}{data}{near}{state}"), style)
    return Tree(label) if above is None else above.add(label)


def _state(model: Record) -> str:
    unfinished = "" if model.finished else ", unfinished"
    return model.state + unfinished + (", pinned" if model.pinned else "")


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"


def _table(*headings: str) -> Table:
    table = Table(header_style="bold")
    for heading in headings:
        right = heading in _RIGHT
        table.add_column(heading, justify="right" if right else "left", no_wrap=right or heading == "id")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*map(_text, cells))


def _list(lines: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in lines.items():
        table.add_row(Text(name, "bold"), _text(value))
    return table


def _text(text: str) -> Text:
    return Text(printable(text))
