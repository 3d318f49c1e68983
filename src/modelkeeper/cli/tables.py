"""The zoo for people: records, lineage, counts and events as tables in a terminal.

Nothing here prints or reads anything. Every text that came from a user is made printable first.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from modelkeeper.cli.fitting import FittingTable, add_column
from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.importing.outcomes import FAILED, STATUSES, Outcome
from modelkeeper.policy.credit import Credit
from modelkeeper.policy.curves import Curve
from modelkeeper.text import ago, count, counted, enumeration, one_line, size
from modelkeeper.zoo.care.audit import Audited
from modelkeeper.zoo.care.gc import Swept
from modelkeeper.zoo.records import ACTIVE, Event, Record
from modelkeeper.zoo.zoo import Registered

if TYPE_CHECKING:
    from modelkeeper.zoo.care.backup import BackedUp, Restored
    from modelkeeper.zoo.care.verify import Report
    from modelkeeper.zoo.catalog.starts import Start
    from modelkeeper.zoo.history.savings import Saved, Savings

MOST_SHOWN = 200  # lines of an import
MOST_NOTES = 10  # below a table of models
_RIGHT = {"parameters", "size", "lent", "models", "similarity"}


def records(shown: Sequence[Record], total: int) -> RenderableType:
    """Models, one a line."""
    now = time.time()
    columns = "id owner name framework data task quality parameters size lent registered state"
    least = "framework size parameters lent owner registered state task data"
    table = FittingTable(columns.split(), least.split(), _RIGHT)
    for model in shown:
        _row(
            table,
            model.id,
            model.owner,
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
    notes = [Text(one_line(f"Note: {model.id} {note}.")) for model in shown for note in model.notes]
    return Group(table, *notes[:MOST_NOTES], Text(f"{counted(total, 'model')}{part}"))


def record(model: Record, files: str, credit: Credit) -> RenderableType:
    """All that the zoo knows of one model."""
    now = time.time()
    near = f" (similarity {model.similarity:.3f})" if model.similarity is not None else ""
    started = enumeration([parent + (near if parent == model.parent else "") for parent in model.parents])
    lines = {
        "id": model.id,
        "name": model.full_name,
        "note": "; ".join(model.notes),
        "state": _state(model) + (f": {model.reason}" if model.reason else ""),
        "data": model.data,
        "task": model.task,
        "tags": ", ".join(model.tags),
        "quality": quality(model) + (", lower is better" if model.lower_is_better else ""),
        "believed": f"{credit.factor:.0%}: {credit}",
        "metrics": ", ".join(f"{name} {value:.6g}" for name, value in sorted(model.metrics.items())),
        "framework": model.framework,
        "parameters": f"{model.parameters:,}",
        "size": f"{size(model.bytes)} ({model.bytes:,} bytes)",
        "started from": started or "its own initial values",
        "lent": counted(model.hits, "time") + (f", last {ago(now - model.last_used)}" if model.hits else ""),
        "registered": f"{_date(model.created)} ({ago(now - model.created)}) by {model.owner}"
        + (f" (user {model.owner_id})" if model.owner_id else ""),
        "seen by": model.visibility + (f", project {model.project}" if model.project else ""),
        "licence": model.licence,
        "signed by": f"key {model.signer}" if model.signer else "",
        "better twin": f"{model.twin}, similarity {model.twin_similarity:.3f}" if model.twin else "",
        "fingerprint": model.fingerprint,
        "checksum": model.checksum,
        "files": files,
    }
    return _list({name: value for name, value in lines.items() if value})


def curve(drawn: Curve | None) -> RenderableType:
    """How a training went, one point a line."""
    if drawn is None:
        return Text("How its training went was not reported.")
    table, best = _table("step", "time", drawn.metric), drawn.best
    for point in drawn.points:
        mark = " (best)" if point is best else ""
        _row(table, f"{point.step:,}", f"{point.seconds:,.1f} s", f"{point.score:.6g}{mark}")
    return table


def lineage(family: Lineage) -> RenderableType:
    """A model below all that it descends from, above all that descends from it.

    Whoever has several parents stands below each of them; [again] says that what follows stands elsewhere.
    """
    known = {member.id: member for member in (family.record, *family.ancestors)}
    children: dict[str, list[Record]] = {}
    for member in known.values():
        for parent in member.parents:
            children.setdefault(parent, []).append(member)
    first = [member for member in known.values() if not known.keys() & set(member.parents)]
    trees: list[RenderableType] = []
    waiting: list[tuple[Tree | None, str, Record]]
    waiting = [(None, "", member) for member in reversed(first or [*known.values()][-1:])]
    seen: set[str] = set()
    while waiting:
        at, parent, member = waiting.pop()
        again, here = member.id in seen, member.id == family.record.id
        branch = _branch(at, member, parent, "bold" if here else "", again=again)
        if at is None:
            trees.append(branch)
        seen.add(member.id)
        if here and not again:
            _descendants(branch, family)
        elif not here and not again:
            waiting += [(branch, member.id, child) for child in reversed(children[member.id])]
    more = {"ancestors": family.more_ancestors, "descendants": family.more_descendants}
    left = [f"At least {number:,} more {whom} are left out." for whom, number in more.items() if number]
    return Group(*trees, *map(Text, left))


def _descendants(at: Tree, family: Lineage) -> None:
    """Put what descends from a model below it."""
    waiting = [(at, family)]
    while waiting:
        above, member = waiting.pop()
        for child in member.children:
            branch = _branch(above, child.record, member.record.id, again=child.again)
            waiting.append((branch, child))


def registered(outcome: Registered, notes: Iterable[str] = ()) -> RenderableType:
    """What became of a registration, and what else to know of it."""
    model = outcome.record
    known = quality(model) or "how good it is, is not known"
    said = "Not kept:" if model.id in outcome.evicted else "Registered"
    lines = [f"{said} {model.name} as {model.id}: {known}, {size(model.bytes)}."]
    lines += [f"Note: {note}." for note in notes]
    if outcome.admission.verdict == "not_a_parent":
        lines.append(f"It lends to nobody: {outcome.admission.reason}.")
    if model.id in outcome.evicted:
        lines.append("The zoo had no room for it: it was evicted at once. Raise the setting `capacity`.")
    if others := [evicted for evicted in outcome.evicted if evicted != model.id]:
        lines.append(f"To make room, these were evicted: {', '.join(others)}.")
    return Text("\n".join(map(one_line, lines)))


def imported(outcomes: Sequence[Outcome]) -> RenderableType:
    """What became of an import: what came, at the end what failed, and why."""
    counted = Counter(outcome.status for outcome in outcomes)
    came = [outcome for outcome in outcomes if outcome.status != FAILED]
    parts: list[RenderableType] = []
    if came:
        table = _table("id", "name", "kind", "quality", "parameters", "what")
        for outcome in came[:MOST_SHOWN]:
            known = f"{outcome.metric} {outcome.value:.4g}" if outcome.value is not None else ""
            parameters = count(outcome.parameters) if outcome.parameters else ""
            said = "; ".join((outcome.reason, *outcome.notes)) if outcome.reason else "; ".join(outcome.notes)
            what = f"{outcome.status}: {said}" if said else outcome.status
            _row(table, outcome.id, outcome.name, outcome.kind, known, parameters, what)
        parts.append(table)
    if failed := [outcome for outcome in outcomes if outcome.status == FAILED]:
        table = _table("failed", "kind", "why")
        for outcome in failed[:MOST_SHOWN]:
            _row(table, outcome.path, outcome.kind, outcome.reason)
        parts.append(table)
    if max(len(came), len(failed)) > MOST_SHOWN:
        parts.append(Text(f"Of each {MOST_SHOWN} are shown: --json shows all."))
    said = ", ".join(f"{counted[status]:,} {status}" for status in STATUSES if counted[status])
    return Group(*parts, Text(said or "there is no model of a known kind"))


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
            "models that cannot be read here": ", ".join(result.unreadable) or "0",
            "failed": "; ".join(result.failed) or "nothing",
        }
    )


def backed_up(result: "BackedUp") -> RenderableType:
    """What a backup did."""
    left_out = [f"{model}: {problem}" for model, problem in result.left_out.items()]
    return _list(
        {
            "snapshot": result.snapshot,
            "models": f"{result.models:,} ({size(result.bytes)})",
            "files copied": f"{result.copied:,} ({size(result.copied_bytes)})",
            "older files deleted": f"{result.pruned:,}",
            "left out": one_line("; ".join(left_out)) or "nothing",
        }
    )


def restored(result: "Restored") -> RenderableType:
    """What restoring did."""
    return _list(
        {
            "snapshot": result.snapshot,
            "models": f"{result.models:,} ({size(result.bytes)})",
            "models whose files are missing": ", ".join(result.missing) or "0",
        }
    )


def report(found: "Report") -> RenderableType:
    """What was looked at in a zoo, and what is wrong."""
    looked = {
        "records": f"{found.records:,}",
        "graphs": f"{found.graphs:,}",
        "weights": f"{found.weights:,} ({size(found.bytes)})",
        "programs": f"{found.programs:,}",
    }
    if found.whole:
        return _list(looked | {"result": "all is what was registered"})
    shown = [Text(one_line(problem)) for problem in found.problems[:MOST_SHOWN]]
    return Group(_list(looked | {"result": f"{len(found.problems):,} problems"}), *shown)


def stats(counts: Mapping[str, Any]) -> RenderableType:
    """Counts over the zoo."""
    capacity = counts["capacity"]
    room = f" of {size(capacity)} ({100 * counts['bytes'] / capacity:.0f} %)" if capacity else ""
    totals = {
        "models": f"{counts['models']:,}",
        "architectures": f"{counts['architectures']:,}",
        "parameters": count(counts["parameters"]),
        "size": size(counts["bytes"]) + room,
        "lent": counted(counts["hits"], "time"),
        "states": ", ".join(f"{name} {number:,}" for name, number in sorted(counts["states"].items())),
    }
    if counts.get("leader"):
        totals["leader"] = one_line(counts["leader"])
    table = _table("task", "data", "models", "lent")
    for group in counts["groups"]:
        _row(table, group["task"], group["data"], f"{group['models']:,}", f"{group['hits']:,}")
    return Group(_list(totals), table) if counts["groups"] else _list(totals)


def starts(found: "Sequence[Start]") -> RenderableType:
    """How trainings started, one a line."""
    now = time.time()
    columns = ["id", "when", "user", "data", "task", "from", "similarity", "exact", "steps advised", "became"]
    table = FittingTable(
        columns, ["user", "task", "id", "data", "steps advised", "exact", "similarity"], _RIGHT
    )
    for start in found:
        raced = start.race is not None and f", race: {start.race.winner} won"
        _row(
            table,
            start.id,
            ago(now - start.at),
            start.user,
            start.data,
            start.task,
            (", ".join(start.parents) or "cold") + (raced or ""),
            "" if start.similarity is None else f"{start.similarity:.3f}",
            "" if start.cold else "yes" if start.exact else "no",
            f"{100 * start.schedule:g} %",
            start.model or "-",
        )
    return table


def savings(found: "Savings") -> RenderableType:
    """What warm starts saved, by kind of evidence, and what that cost."""
    kinds = ("measured", "matched", "estimated")
    table = _table(found.by, "starts", "cold", *kinds)
    for group in found.groups:
        cells = (_saved(getattr(group, kind)) for kind in kinds)
        _row(table, group.name or "-", f"{group.starts:,}", f"{group.cold:,}", *cells)
    cost = f"The zoo keeps {size(found.bytes)}; queries took {found.query_seconds:,.1f} s"
    if found.race_steps:
        cost += f", races {found.race_steps:,} steps and {found.race_seconds:,.1f} s"
    left_out = "" if found.complete else " Older starts of this time are left out: there are too many."
    what = (
        "measured: at least, in races; matched: against cold runs of the same model; "
        "estimated: if trainings were cut to the steps advised, which nobody checks."
    )
    return Group(table, Text(f"{what} They are not to be added up."), Text(f"{cost}.{left_out}"))


def _saved(part: "Saved") -> str:
    """Steps and time that were saved; what is not known, in words."""
    starts = "start" if part.starts == 1 else "starts"
    known = (
        f"{part.steps:,.0f} steps, {part.seconds:,.1f} s in {part.starts:,} {starts}" if part.starts else ""
    )
    unknown = f"of {part.unknown:,} not known" if part.unknown else ""
    return "; ".join(filter(None, (known, unknown))) or "nothing is known"


def keys(rows: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Public keys, one a line."""
    table = _table("id", "name", "trusted", "public")
    for row in rows:
        revoked = row.get("revoked")
        trusted = "yes" if revoked is None else f"until {_date(revoked)}"
        _row(table, row["id"][:16], row["name"], trusted, f"ed25519:{row['public']}")
    return table


def audited(found: Audited, since: str) -> RenderableType:
    """What an audit found: problems first, then the head, which is to be kept."""
    problems = [
        *(f"The log is broken. {problem}." for problem in found.broken),
        *([f"The log was rewritten since {since}: {found.rewritten}."] if found.rewritten else []),
        *(f"The log and the catalog differ: {problem}." for problem in (*found.unknown, *found.different)),
    ]
    whole = f"{found.entries:,} entries, {counted(found.models, 'model')}: all fits."
    if since and found.whole:
        whole += f" Nothing before {since.partition(':')[0]} was rewritten."
    return Text("\n".join(map(one_line, [*(problems or [whole]), f"head {found.head}"])))


def events(happened: Iterable[Event]) -> RenderableType:
    """What happened, one event a line."""
    now = time.time()
    table = FittingTable("when what model user detail child".split(), ["child"])
    for event in happened:
        child = str(event.data.get("child", ""))[:12]
        _row(table, ago(now - event.at), event.action, event.model, event.user, event.detail, child)
    return table


def quality(model: Record) -> str:
    """How good a model is."""
    return f"{model.metric} {model.value:.4g}" if model.value is not None else ""


def _branch(above: Tree | None, model: Record, parent: str, style: str = "", *, again: bool = False) -> Tree:
    """A model below one of its parents; how similar it is to it is known of the first alone."""
    said = model.similarity is not None and parent in ("", model.parent)
    near = f", similarity {model.similarity:.3f}" if said else ""
    data = f" on {model.data}" if model.data else ""
    state = "" if model.state == ACTIVE else f" [{model.state}]"
    more = " [again]" if again else ""
    label = Text(one_line(f"{model.name} ({model.id}): {quality(model)}{data}{near}{state}{more}"), style)
    return Tree(label) if above is None else above.add(label)


def _state(model: Record) -> str:
    unfinished = "" if model.finished else ", unfinished"
    return model.state + unfinished + (", pinned" if model.pinned else "")


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"


def _table(*headings: str) -> Table:
    table = Table(header_style="bold")
    for heading in headings:
        add_column(table, heading, right=heading in _RIGHT)
    return table


def _row(table: Table | FittingTable, *cells: str) -> None:
    table.add_row(*map(_cell, cells))


def _list(lines: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, value in lines.items():
        table.add_row(Text(name, "bold"), _cell(value))
    return table


def _cell(text: str) -> Text:
    return Text(one_line(text))
