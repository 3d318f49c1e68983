"""What was measured beyond one index: tables for docs/scale.md, one for each benchmark.

    queries(scale, matching)      p50 and p99 by database and size; the index alone, with more architectures
    shards(found), serving(found), starting(found), soaks(one, replicas)

Each gives Markdown from what the benchmark wrote, or None where it has not been run. What speaks against us
stands in the same table as the rest.
"""

from collections.abc import Mapping
from typing import Any

Result = Mapping[str, Any]
DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
KINDS = ("relatives", "strangers", "strangers, budget 256")


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def ms(number: float) -> str:
    """Milliseconds, as many digits as mean something."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def load(machine: Result) -> str:
    """How busy the machine was when a run began."""
    found = machine["load"]
    return f"{(found[0] if isinstance(found, list) else found):.1f}"


def queries(scale: Result | None, matching: Result | None) -> str | None:
    """Queries by database and size; and searches of the index where architectures are many."""
    rows = []
    for zoo in sorted((scale or {}).get("zoos", []), key=lambda each: (each["models"], each["database"])):
        for kind, found in zoo["queries"].items():
            rows.append(
                [
                    f"{zoo['models']:,}",
                    f"{scale['architectures']:,}" if scale else "",
                    DATABASES[zoo["database"]],
                    kind,
                    ms(found["first p50"]),
                    ms(found["p50"]),
                    ms(found["p99"]),
                    f"{found['aligned']:,.0f}",
                    found["proven"],
                ]
            )
    for zoo in (matching or {}).get("zoos", [])[-2:]:
        for kind, name in (("with relatives", "relatives"), ("without relatives", "strangers")):
            found = zoo["queries"][f"{kind}, 1 core"]
            rows.append(
                [
                    f"{zoo['models']:,}",
                    f"{zoo['architectures']:,}" if "architectures" in zoo else "many more, not counted",
                    "the index alone, 1 core",
                    name,
                    "",
                    ms(found["ms"]["median"]),
                    f"{ms(found['ms']['max'])} (the slowest of {found['queries']})",
                    f"{found['alignments']['median']:,.0f}",
                    "all",
                ]
            )
    head = ["models", "architectures", "database", "asked for", "first time, p50 ms", "again, p50 ms"]
    return table([*head, "p99 ms", "alignments", "proven"], rows) if rows else None


def opening(scale: Result | None) -> str | None:
    """How long a process takes until it answers, and what a model takes in memory."""
    rows = [
        [
            f"{zoo['models']:,}",
            DATABASES[zoo["database"]],
            f"{zoo['ready']:g} s",
            f"{zoo['ready, saved']:g} s",
            f"{zoo['bytes a model']['columns']:,.0f}",
            f"{zoo['bytes a model']['index']:,.0f}",
        ]
        for zoo in sorted((scale or {}).get("zoos", []), key=lambda each: (each["models"], each["database"]))
    ]
    head = ["models", "database", "first answer, from the catalog", "from what was saved"]
    return table([*head, "bytes a model: columns", "index"], rows) if rows else None


def shards(found: Result | None) -> str | None:
    """Alignments by the number of shards, and how a shard comes back."""
    if found is None:
        return None
    rows = [
        [
            f"{line['shards']}",
            f"{line['queries']}, {line['buckets']} tenth{'s' if line['buckets'] > 1 else ''}",
            *(
                f"{line[f'alignments, {way}']:,.0f}"
                for way in ("one index", "each shard for itself", "best bound shared")
            ),
            f"{line['rounds']:g}",
            f"{line['answers that differ']}",
            f"{line['bytes per model']:,}",
        ]
        for line in found["searches"]
    ]
    head = ["shards", "asked for", "alignments: one index", "each shard for itself", "best bound shared"]
    searched = table([*head, "rounds", "answers that differ", "bytes a model"], rows)
    back = [
        [f"one shard of four, {way}", f"{said['seconds']:g} s, {said['CPU seconds']:g} s of CPU"]
        for way, said in found["coming back"].items()
    ]
    back += [[f"Ray: {what}", f"{said:g}"] for what, said in found.get("ray", {}).items()]
    begins = (
        f"{found['records']:,} models, {found['queries of each kind']} queries of each kind; "
        f"load {load(found['machine'])} on {found['machine']['cores']} cores."
    )
    loaded = f"a shard comes back; load {found['load when they come back']:.1f}"
    return f"{begins}\n\n{searched}\n\n{table([loaded, 'takes'], back)}"


def serving(found: Result | None) -> str | None:
    """The service by itself and behind Serve's proxy."""
    if found is None:
        return None
    ways = ("uvicorn", "Ray Serve")
    rows = []
    for what, said in found.items():
        if not isinstance(said, dict) or ways[0] not in said:
            continue
        if not isinstance(said[ways[0]], dict):
            rows.append([what, *(f"{said[way]}" for way in ways)])
            continue
        parts = dict.fromkeys(name for way in ways for name in said[way])
        rows += [[f"{what}: {part}", *(f"{said[way].get(part, '')}" for way in ways)] for part in parts]
    begins = (
        f"Transfers of {found['GB']} GB, best of several; the proxy runs on {found['loop of the proxy']}; "
        f"load {load(found['machine'])} on {found['machine']['cores']} cores."
    )
    return f"{begins}\n\n" + table(["", "uvicorn alone", "Ray Serve"], rows)


def starting(found: Result | None) -> str | None:
    """How soon a new replica is ready."""
    if found is None:
        return None
    ways = ("without a snapshot", "with a snapshot", "again in its home", "of an empty zoo")
    rows = [[way, f"{found[way]['seconds']:g} s", f"{found[way]['cpu']:g} s"] for way in ways if way in found]
    store = "an S3 server" if found["s3"] else "a folder"
    begins = (
        f"{found['records']:,} models of {found['architectures']:,} architectures, the store is {store}, a "
        f"snapshot has {found['snapshot_bytes'] / 1e6:,.0f} MB; load {load(found['machine'])} on "
        f"{found['machine']['cores']} cores. Target: {found['target']:g} s with a snapshot."
    )
    return f"{begins}\n\n" + table(["a new replica", "ready after", "CPU"], rows)


def soaks(one: Result | None, replicas: Result | None) -> str | None:
    """What clients met while processes were killed: one service with hostile clients, and three replicas."""
    told = []
    for name, found in (("one service, hostile clients", one), ("replicas, faults", replicas)):
        if found is None:
            continue
        wrong = len(found["wrong"])
        rows = [["wrong answers, lost models", f"{wrong}"]]
        rows += [[what, f"{count:,}"] for what, count in found["counts"].items()]
        for what, said in found.get("seconds until a client's next success after a fault", {}).items():
            rows.append([f"{what}: seconds until a client's next success, half; all", _both(said)])
        for what, said in found["seconds of honest calls"].items():
            rows.append([f"{what}: seconds, half; 99 %", f"{said['half']:g}; {said['99 %']:g}"])
        begins = f"{name}: {found['clients']} clients, {found['seconds']:g} s."
        told.append(f"{begins[0].upper()}{begins[1:]}\n\n" + table(["what", "found"], rows))
    return "\n\n".join(told) or None


def _both(said: Result) -> str:
    return f"{said['half']:g}; {said['all']:g}"
