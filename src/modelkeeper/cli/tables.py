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

from modelkeeper.coordinator.local import Lineage
from modelkeeper.text import ago, count, printable, size
from modelkeeper.zoo.gc import Swept
from modelkeeper.zoo.records import ACTIVE, Event, Record
from modelkeeper.zoo.zoo import Registered

_RIGHT = {"parameters", "size", "lent", "models", "similarity"}


def records(found: Sequence[Record], total: int) -> RenderableType:
    """Models, one a line."""
    now = time.time()
    table = _table(
        "id", "name", "data", "task", "quality", "parameters", "size", "lent", "registered", "state"
    )
    for each in found:
        _row(
            table,
            each.id,
            each.name,
            each.data,
            each.task,
            quality(each),
            count(each.parameters),
            size(each.bytes),
            f"{each.hits:,}",
            ago(now - each.created),
            _state(each),
        )
    shown = "" if len(found) == total else f", {len(found):,} of them shown: --limit 0 shows all"
    return Group(table, Text(f"{total:,} models{shown}"))


def record(found: Record, files: str) -> RenderableType:
    """All that the zoo knows of one model."""
    now = time.time()
    parent = found.parent
    if parent and found.similarity is not None:
        parent += f", similarity {found.similarity:.3f}"
    lines = {
        "id": found.id,
        "name": found.name,
        "state": _state(found) + (f": {found.reason}" if found.reason else ""),
        "data": found.data,
        "task": found.task,
        "tags": ", ".join(found.tags),
        "quality": quality(found) + (", lower is better" if found.lower_is_better else ""),
        "metrics": ", ".join(f"{name} {value:.6g}" for name, value in sorted(found.metrics.items())),
        "framework": found.framework,
        "parameters": f"{found.parameters:,}",
        "size": f"{size(found.bytes)} ({found.bytes:,} bytes)",
        "started from": parent or "its own initial values",
        "lent": f"{found.hits:,} times" + (f", last {ago(now - found.last_used)}" if found.hits else ""),
        "registered": f"{_date(found.created)} ({ago(now - found.created)}) by {found.owner}",
        "seen by": found.visibility + (f", project {found.project}" if found.project else ""),
        "better twin": f"{found.twin}, similarity {found.twin_similarity:.3f}" if found.twin else "",
        "fingerprint": found.fingerprint,
        "checksum": found.checksum,
        "files": files,
    }
    return _list({name: value for name, value in lines.items() if value})


def lineage(found: Lineage) -> RenderableType:
    """A model below all that it descends from, above all that descends from it."""
    root: Tree | None = None
    at: Tree | None = None
    for each in reversed(found.ancestors):
        at = _branch(at, each)
        root = root or at
    here = _branch(at, found.record, "bold")
    waiting = [(here, child) for child in reversed(found.descendants)]
    while waiting:
        above, child = waiting.pop()
        branch = _branch(above, child.record)
        waiting += [(branch, grandchild) for grandchild in reversed(child.descendants)]
    return root or here


def registered(found: Registered) -> RenderableType:
    """What became of a registration."""
    each = found.record
    lines = [f"Registered {each.name} as {each.id}: {quality(each)}, {size(each.bytes)}."]
    if found.admission.verdict == "not_a_parent":
        lines.append(f"It lends to nobody: {found.admission.reason}.")
    if found.evicted:
        lines.append(f"To make room, these were evicted: {', '.join(found.evicted)}.")
    return _text("\n".join(lines))


def swept(found: Swept) -> RenderableType:
    """What gc did."""
    return _list(
        {
            "unfinished writes deleted": f"{found.staging:,}",
            "folders without a record deleted": f"{len(found.folders):,}",
            "graphs without a model deleted": f"{found.graphs:,}",
            "damaged models taken out": ", ".join(found.damaged) or "0",
            "repaired models taken back": ", ".join(found.repaired) or "0",
            "models evicted": ", ".join(found.evicted) or "0",
        }
    )


def stats(found: Mapping[str, Any]) -> RenderableType:
    """Counts over the zoo."""
    capacity = found["capacity"]
    room = f" of {size(capacity)} ({100 * found['bytes'] / capacity:.0f} %)" if capacity else ""
    totals = {
        "models": f"{found['models']:,}",
        "architectures": f"{found['architectures']:,}",
        "parameters": count(found["parameters"]),
        "size": size(found["bytes"]) + room,
        "warm starts": f"{found['hits']:,}",
        "states": ", ".join(f"{name} {number:,}" for name, number in sorted(found["states"].items())),
    }
    table = _table("task", "data", "models", "lent")
    for group in found["groups"]:
        _row(table, group["task"], group["data"], f"{group['models']:,}", f"{group['hits']:,}")
    return Group(_list(totals), table) if found["groups"] else _list(totals)


def events(found: Iterable[Event]) -> RenderableType:
    """What happened, one event a line."""
    now = time.time()
    table = _table("when", "what", "model", "user", "detail")
    for each in found:
        _row(table, ago(now - each.at), each.action, each.model, each.user, each.detail)
    return table


def quality(found: Record) -> str:
    """How good a model is."""
    return f"{found.metric} {found.value:.4g}" if found.value is not None else ""


def _branch(above: Tree | None, found: Record, style: str = "") -> Tree:
    near = f", similarity {found.similarity:.3f}" if found.similarity is not None else ""
    data = f" on {found.data}" if found.data else ""
    state = "" if found.state == ACTIVE else f" [{found.state}]"
    label = Text(printable(f"{found.name} ({found.id}): {quality(found)}{data}{near}{state}"), style)
    return Tree(label) if above is None else above.add(label)


def _state(found: Record) -> str:
    return found.state + (", pinned" if found.pinned else "")


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
