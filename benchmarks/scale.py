"""How does a query grow with the zoo? To a million models, on SQLite and PostgreSQL: `make scale`

One run prints, and writes to benchmarks/results/scale.json and scale.md, for each number of models and each
database:
    how long a process takes until its first answer, with and without a saved index
    queries of one client: p50 and p99 in milliseconds, and each stage of it; for relatives of what is in the
    zoo, for strangers, and for strangers with a budget of alignments (how many answers are then proven)
    bytes of columns and index for each model, and microseconds for each model of a filter, and for each
    architecture of bound and alignment

Rows are made in bulk: several thousand architectures, of which each has many models. Children are asked for
twice: the first time nothing is planned yet, the second time plans are remembered; both are written down.
Where PostgreSQL's programs are not installed, it is left out, and the page says so.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.helpers.synthetic_zoo import fill, make_architectures, resized
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.graph import Graph
from modelkeeper.matching import prepare
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.records import ACTIVE, Filter

RESULTS = Path(__file__).parent / "results"
ARCHITECTURES = 4_000
CHILDREN = 16
BUDGET = 256  # alignments


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description="How does a query grow with the zoo?")
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--architectures", type=int, default=ARCHITECTURES)
    parser.add_argument("--rounds", type=int, default=3, help="times that each child is asked for")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    made = make_architectures(options.architectures)
    rng = random.Random(1)
    relatives = [resized(made.relative, rng.uniform(0.7, 1.4), rng) for _ in range(CHILDREN)]
    strangers = list(made.strangers[:CHILDREN])
    report: dict[str, Any] = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
        },
        "architectures": options.architectures,
        "zoos": measured_before(options.out, options.architectures),
    }
    for database in options.databases:
        for records in options.records:
            with (
                tempfile.TemporaryDirectory(prefix="modelkeeper-scale-") as folder,
                catalog_at(database, Path(folder)) as url,
            ):
                if url is None:
                    continue
                settings = Settings(home=folder, catalog=url)
                begun = time.perf_counter()
                fill(settings.catalog_place, made, records)
                found = {"database": database, "models": records, "filled": time.perf_counter() - begun}
                found |= measure(settings, relatives, strangers, options.rounds)
                kept = [
                    zoo for zoo in report["zoos"] if (zoo["database"], zoo["models"]) != (database, records)
                ]
                report["zoos"] = [*kept, found]
                print(json.dumps(found), flush=True)
                options.out.mkdir(exist_ok=True)
                (options.out / "scale.json").write_text(json.dumps(report, indent=1) + "\n")
                (options.out / "scale.md").write_text(summary(report))
    print(summary(report))


def measured_before(folder: Path, architectures: int) -> list[dict[str, Any]]:
    """What earlier runs with as many architectures measured: a run replaces just what it measures again."""
    path = folder / "scale.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    zoos: list[dict[str, Any]] = before.get("zoos", [])
    return zoos if before.get("architectures") == architectures else []


@contextlib.contextmanager
def catalog_at(database: str, folder: Path) -> Iterator[str | None]:
    """The URL of an empty catalog; None if there is no such database here."""
    if database == "sqlite":
        yield f"sqlite:///{folder / 'catalog.db'}"
        return
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not versions:
        yield None
        return
    place = Path(tempfile.mkdtemp(prefix="mk-pg-", dir="/tmp"))  # sockets have short paths
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    if user:
        shutil.chown(place, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(versions[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=place, user=user)

    data = str(place / "data")
    run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-k {place} -c listen_addresses='' -c max_connections=40 -c shared_buffers=512MB"
    run("pg_ctl", "-D", data, "-o", options, "-l", str(place / "log"), "-w", "start")
    try:
        yield f"postgresql+psycopg://postgres@/postgres?host={place}"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(place, ignore_errors=True)


def measure(
    settings: Settings, relatives: Sequence[Graph], strangers: Sequence[Graph], rounds: int
) -> dict[str, Any]:
    """Everything of one zoo."""
    found: dict[str, Any] = {}
    wanted = Query(data="CIFAR-10", most_parents=2)  # as clients ask
    for way in ("ready", "ready, saved"):  # the first one saves what it has made
        begun = time.perf_counter()
        coordinator = LocalCoordinator(settings)
        coordinator.query(relatives[0], wanted, dry_run=True)
        found[way] = round(time.perf_counter() - begun, 2)
        if way == "ready":
            coordinator.close()
    followed = coordinator.zoo.follower.followed()
    models = coordinator.count()
    index = sum(part.segment.nbytes for part in followed.index.snapshot.parts)
    found["bytes a model"] = {
        "columns": round(followed.columns.nbytes / models, 1),
        "index": round(index / models, 1),
    }
    found["microseconds"] = microseconds(coordinator, relatives)
    asked = {
        "relatives": (relatives, wanted),
        "strangers": (strangers, wanted),
        f"strangers, budget {BUDGET}": (strangers, msgspec.structs.replace(wanted, budget=BUDGET)),
    }
    found["queries"] = {
        name: queries(coordinator, children, query, rounds) for name, (children, query) in asked.items()
    }
    coordinator.close()
    return found


def queries(
    coordinator: LocalCoordinator, children: Sequence[Graph], query: Query, rounds: int
) -> dict[str, Any]:
    """Queries of one client, in milliseconds: the first round apart, when nothing is planned yet."""
    spent: list[list[float]] = [[], []]
    stages: dict[str, list[float]] = {}
    proven = aligned = total = 0
    for turn in range(rounds):
        for child in children:
            begun = time.perf_counter()
            answer = coordinator.query(child, query, dry_run=True).answer
            spent[min(turn, 1)].append(1000 * (time.perf_counter() - begun))
            if turn:
                for stage, seconds in answer.seconds.items():
                    stages.setdefault(stage, []).append(1000 * seconds)
            proven += not answer.warnings
            aligned, total = aligned + answer.aligned, total + 1
    later = spent[1] or spent[0]
    return {
        "first p50": round(statistics.median(spent[0]), 1),
        "p50": round(statistics.median(later), 1),
        "p99": round(float(np.percentile(later, 99)), 1),
        "stages": {stage: round(statistics.median(each), 2) for stage, each in stages.items()},
        "aligned": round(aligned / total, 1),
        "proven": f"{proven} of {total}",
    }


def microseconds(coordinator: LocalCoordinator, children: Sequence[Graph]) -> dict[str, float]:
    """What each model, and each architecture, costs in the steps of a search."""
    followed = coordinator.zoo.follower.followed()
    columns, snapshot = followed.columns, followed.index.snapshot
    wanted = Filter(states=(ACTIVE,), task="classification")
    mask = columns.mask(wanted)
    filtering = best_of(lambda: columns.mask(wanted))
    children_prepared = [prepare(child) for child in children]
    part = snapshot.parts[0]
    kinds = np.arange(part.architectures, dtype=np.int32)
    scan = part.scan(children_prepared[0], 1)
    some = kinds[:: max(1, len(kinds) // 64)]
    return {
        "filter, a model": round(1e6 * filtering / len(mask), 4),
        "coarse bound, an architecture": round(
            1e6 * best_of(lambda: scan.bounds(kinds, False)) / len(kinds), 3
        ),
        "fine bound, an architecture": round(1e6 * best_of(lambda: scan.bounds(kinds, True)) / len(kinds), 3),
        "alignment": round(1e6 * best_of(lambda: scan.scores(some)) / len(some), 1),
    }


def best_of(work: Any, times: int = 5) -> float:
    """Seconds of the fastest of several runs."""
    spent = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begun)
    return min(spent)


def summary(report: dict[str, Any]) -> str:
    """A page of it."""
    machine = report["machine"]
    lines = [
        "# How a query grows with the zoo",
        "",
        f"{machine['cores']} cores, load {machine['load'][0]:.1f} when the newest run began; "
        f"{report['architectures']:,} architectures; milliseconds of one client, p50 and p99 (the first time "
        "in brackets). Rows may be of several runs.",
        "",
        "| models | database | first answer, saved | relatives | strangers | a budget, proven | bytes each |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for zoo in report["zoos"]:
        asked = list(zoo["queries"].values())
        cells = [f"{each['p50']} / {each['p99']} ({each['first p50']})" for each in asked]
        cells[2] += f", {asked[2]['proven']}"
        room = zoo["bytes a model"]
        lines.append(
            f"| {zoo['models']:,} | {zoo['database']} | {zoo['ready']} s, {zoo['ready, saved']} s | "
            f"{' | '.join(cells)} | {room['columns']:g} columns, {room['index']:g} index |"
        )
    lines += [
        "",
        "| models | database | stages of relatives, ms | microseconds |",
        "| --- | --- | --- | --- |",
    ]
    for zoo in report["zoos"]:
        stages = ", ".join(f"{name} {spent}" for name, spent in zoo["queries"]["relatives"]["stages"].items())
        costs = ", ".join(f"{name} {spent}" for name, spent in zoo["microseconds"].items())
        lines.append(f"| {zoo['models']:,} | {zoo['database']} | {stages} | {costs} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
