"""How large can a zoo get, and what does that take? The tables of docs/scale.md, from what was measured.

    python -m benchmarks.scale_page         `make scale-page`: the page with the newest numbers

Each table stands between two marks, <!-- name --> and <!-- end -->; words around them are written by hand.
Numbers come from benchmarks/results alone; what nobody has measured yet is left out. A test compares the page
with what this makes of the files that are there, so that it cannot say what was not found.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.helpers.scale_tables import opening, queries, serving, shards, soaks, starting, table

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
SIZES = 10_000_000, 100_000_000

# Assumed, not measured: prices of large clouds in 2026, without discounts, and what people use a zoo for.
MACHINE_CORES, MACHINE_GB, MACHINE_DOLLARS = 16, 64, 580.0  # a month
STORE_DOLLARS, DATABASE_DOLLARS = 23.0, 0.35  # a month, for a TB of objects and a GB of a managed PostgreSQL
MODEL_MB, RECORD_KB = 50.0, 3.0  # weights of a model on average; its row, indexes, events and ledger
QUERIES, PATIENCE, USED = 10.0, 1.0, 0.7  # a second; seconds for one; of memory and cores that may be in use

Result = dict[str, Any]


def read(name: str) -> Result | None:
    """What a benchmark found, if it was run."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def short(number: float) -> str:
    """Three digits that mean something."""
    if number >= 1000:
        digits = max(0, int(math.log10(number)) - 2)
        return f"{round(number, -digits):,.0f}"
    return f"{number:.3g}"


class Measured:
    """The constants that everything else follows from."""

    def __init__(self) -> None:
        self.matching = read("matching") or {}
        self.keeping = read("keeping") or {}
        self.service = read("service") or {}
        self.zoo: Result = max(self.matching.get("zoos", [{}]), key=lambda zoo: zoo.get("models", 0))
        self.index_bytes = float(self.zoo.get("bytes a model", 0))
        self.columns_bytes = float(self._kept("SQLite").get("columns in memory, bytes a model", 0))
        self.base_bytes = float(self.service.get("memory", {}).get("before", 0))

    def _kept(self, database: str) -> Result:
        return max(self.keeping.get(database, [{}]), key=lambda row: row.get("models", 0))

    def query_ms(self, kind: str) -> float:
        """CPU of a query by itself, in the largest zoo, of one with or without relatives."""
        queries = self.zoo.get("queries", {}).get(f"{kind}, 1 core", {})
        return float(queries.get("cpu ms", {}).get("median", 0))

    def constants(self) -> str:
        """One row for each constant: what, how much, and what measured it."""
        rows: list[list[str]] = []
        models = self.zoo.get("models", 0)
        pairs = self.matching.get("pairs", {})
        if models:
            at = f"{models:,} models"
            rows += [
                [f"index, at {at}", f"{self.index_bytes:,.0f} bytes a model", "`make matching`"],
                ["one alignment, median pair", f"{pairs['score, us']['median']} µs", "`make matching`"],
                ["adding to the index", f"{self.zoo['add, cpu us']['median']} µs a model", "`make matching`"],
                [
                    "saving, opening a saved index",
                    f"{self.zoo['save, s']} s, {self.zoo['open, s']} s",
                    "`make matching`",
                ],
            ]
            for kind in ("with relatives", "without relatives"):
                found = self.zoo["queries"][f"{kind}, 1 core"]
                rows.append(
                    [
                        f"search {kind}, at {at}",
                        f"{short(1000 * self.query_ms(kind) / models)} µs of CPU a model, "
                        f"{found['alignments']['median']:,.0f} alignments",
                        "`make matching`",
                    ]
                )
        for database in ("SQLite", "PostgreSQL"):
            row = self._kept(database)
            if row:
                rows += self._catalog(database, row)
        if self.columns_bytes:
            rows.append(
                ["columns beside the index", f"{self.columns_bytes:,.0f} bytes a model", "`make keeping`"]
            )
        for name, speed in self.service.get("transfer", {}).get("MB/s", {}).items():
            rows.append([f"transfer: {name}", f"{speed:,} MB/s", "`make service`"])
        if self.base_bytes:
            rows.append(["a service without models", f"{self.base_bytes / 1e6:.0f} MB", "`make service`"])
        return table(["what", "measured", "by"], rows)

    def _catalog(self, database: str, row: Result) -> list[list[str]]:
        at = f"{database}, {row['models']:,} models"

        def cpu(name: str) -> str:
            return f"{short(row[name]['cpu ms'])} ms of CPU"

        choosing = ("columns that retention needs", "what they are worth", "who goes, 2 % too many")
        whole = sum(row[name]["cpu ms"] for name in choosing)
        rows = [
            [f"catalog, columns of all models: {at}", f"{row['rows a second']:,} rows a second"],
            [
                f"who goes from a full zoo: {at}",
                f"{short(whole)} ms of CPU, {short(1000 * whole / row['models'])} µs a model",
            ],
            [f"`stats` and a scrape of `/metrics`: {at}", cpu("stats, as at each scrape")],
            [f"a quota: {at}", cpu("kept by a user")],
            [f"columns in memory, made anew from rows: {at}", cpu("columns in memory, made anew")],
        ]
        if "all records, with seals" in row:
            rows.append([f"before: all records with seals: {at}", cpu("all records, with seals")])
        return [[*each, "`make keeping`"] for each in rows]

    def growth(self) -> str:
        """How a search grows with the zoo."""
        rows = []
        for zoo in self.matching.get("zoos", []):
            row = [f"{zoo['models']:,}", f"{zoo['bytes a model']:,}"]
            for kind in ("with relatives", "without relatives"):
                found = zoo["queries"][f"{kind}, 1 core"]
                row += [f"{found['cpu ms']['median']:,}", f"{found['alignments']['median']:,.0f}"]
            rows.append(row)
        head = [
            "models",
            "index, bytes a model",
            "relative: CPU ms",
            "alignments",
            "stranger: CPU ms",
            "alignments",
        ]
        return table(head, rows)

    def needs(self) -> str:
        """What larger zoos need, by what one of a million needed. All of it is extrapolated."""
        each, models = self.index_bytes + self.columns_bytes, self.zoo.get("models", 0)
        if not models or not each:
            return "Not measured yet: `make matching`, `make keeping`."
        columns: list[list[str]] = []
        for size in SIZES:
            memory = size * each / 1e9
            cpu = self.query_ms("with relatives") / 1000 * size / models
            stranger = self.query_ms("without relatives") / 1000 * size / models
            by_memory = memory / (MACHINE_GB * USED)
            by_patience = cpu / PATIENCE / MACHINE_CORES
            by_queries = cpu * QUERIES / (MACHINE_CORES * USED)
            machines = math.ceil(max(by_memory, by_patience, by_queries, 2.0))
            store = size * MODEL_MB / 1e6 * STORE_DOLLARS
            rows = size * RECORD_KB / 1e6
            columns.append(
                [
                    f"{memory:,.0f} GB",
                    f"{cpu:,.1f} s; {stranger:,.0f} s",
                    f"{math.ceil(cpu / PATIENCE):,}",
                    f"{math.ceil(cpu * QUERIES / USED):,}",
                    f"{machines:,}",
                    f"{rows:,.0f} GB",
                    f"{size * MODEL_MB / 1e6:,.0f} TB",
                    f"{machines * MACHINE_DOLLARS:,.0f} $",
                    f"{rows * DATABASE_DOLLARS:,.0f} $",
                    f"{store:,.0f} $",
                ]
            )
        names = [
            "index and columns, one copy",
            "CPU of one search: of a relative; of a stranger",
            f"shards of one core each, so that a relative's takes {PATIENCE:g} s",
            f"cores for {QUERIES:g} of these a second, at {USED:.0%} use",
            f"machines of {MACHINE_CORES} cores and {MACHINE_GB} GB, one copy of each shard",
            f"catalog, at {RECORD_KB:g} kB a model",
            f"weights, at {MODEL_MB:g} MB a model",
            "machines, a month",
            "database's disk, a month",
            "object store, a month",
        ]
        rows_of = [[name, *values] for name, *values in zip(names, *columns, strict=True)]
        return table(["extrapolated", *(f"{size // 10**6} M models" for size in SIZES)], rows_of)

    def wall(self) -> str:
        """Where one machine ends."""
        each, models = self.index_bytes + self.columns_bytes, self.zoo.get("models", 0)
        if not models or not each:
            return "Not measured yet: `make matching`, `make keeping`."
        rows = [
            [
                f"memory of {MACHINE_GB} GB, {USED:.0%} of it",
                f"{MACHINE_GB * USED * 1e9 / each / 1e6:,.0f} M models",
            ]
        ]
        for kind in ("with relatives", "without relatives"):
            alone = PATIENCE * models / (self.query_ms(kind) / 1000) / 1e6
            rows.append([f"a search {kind} takes {PATIENCE:g} s on one core", f"{short(alone)} M models"])
            rows.append([f"... on {MACHINE_CORES} cores", f"{short(alone * MACHINE_CORES)} M models"])
        return table(["one machine ends where", "extrapolated from one million"], rows)


def simulated() -> str:
    """What the simulated year says, at each size that was run."""
    runs = (read("simulate") or {}).get("runs", [])
    names = (
        ("hit rate", "{:.1%}"),
        ("mean benefit of a training", "{:.3f}"),
        ("age, days: median", "{:.0f}"),
        ("owners that lost models within their fair share", "{:,}"),
        ("CPU seconds of a choice", "{:.2f}"),
        ("CPU seconds of choosing a day", "{:.1f}"),
    )
    rows = [
        [
            f"{run['models']:,}; {run['trainings a day']:,} a day; {found.get('days', run['days'])}",
            found["way"],
            *(form.format(found[name]) for name, form in names),
            f"{run['CPU seconds']:,.0f} s, {run['peak memory, GB']:.2g} GB",
        ]
        for run in runs
        for found in run["ways"]
    ]
    head = ["models; trainings; days", "kept by", *(name for name, _ in names), "CPU and memory of the run"]
    return table(head, rows) if rows else "Not run yet: `make simulate`."


def said(made: str | None, command: str) -> str:
    """What was found, or that nobody has looked."""
    return f"Not run yet: `{command}`." if made is None else made


def tables() -> dict[str, Callable[[], str]]:
    """Each table of the page, by the name of its mark."""
    measured = Measured()
    return {
        "constants": measured.constants,
        "growth": measured.growth,
        "needs": measured.needs,
        "wall": measured.wall,
        "simulated": simulated,
        "queries": lambda: said(queries(read("scale"), read("matching")), "make scale"),
        "opening": lambda: said(opening(read("scale")), "make scale"),
        "shards": lambda: said(shards(read("shards")), "make shards"),
        "serving": lambda: said(serving(read("ray_serve")), "make ray-serve"),
        "starting": lambda: said(starting(read("starting")), "make starting"),
        "soak": lambda: said(soaks(read("soak"), read("soak-replicas")), "make soak"),
    }


def filled(page: str) -> str:
    """The page with its tables made anew."""
    for name, make in tables().items():
        mark = re.compile(rf"(<!-- {name} -->)[^<]*(<!-- end -->)")
        if len(mark.findall(page)) != 1:
            raise ValueError(f"docs/scale.md has not just one place for the table {name!r}")
        made = make()
        page = mark.sub(lambda found, made=made: f"{found[1]}\n\n{made}\n\n{found[2]}", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
