"""What does a catalog cost that holds many models? Totals, choosing who goes, following. `make keeping`

For each size and each kind of database a catalog of made-up records is asked what services ask: its totals
(`stats` of an administrator, as at each scrape of /metrics; quotas), the columns that retention needs, who
goes if one model is too many, or 2 % of the bytes. Times are CPU time of this process and of the database's
own processes, the least of several calls, so that what else runs on the machine counts little. Columns are
those that every process keeps in memory, made from all rows. Writes benchmarks/results/keeping.json.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modelkeeper.policy.retention import retain
from modelkeeper.zoo.catalog import totals
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import changes_since
from modelkeeper.zoo.catalog.outcomes import Outcomes
from modelkeeper.zoo.database.rows import record_row
from modelkeeper.zoo.database.schema import CHANGES, clock, models
from modelkeeper.zoo.index.columns import Columns
from modelkeeper.zoo.records import Filter, Record, Viewer
from modelkeeper.zoo.valuation import items
from tests.helpers.parts import Postgres

RESULTS = Path(__file__).parent / "results"
SIZES = 10_000, 100_000, 1_000_000
RECORDS = 100_000  # up to so many, records are read whole too, as before retention worked on columns
NOW = 1.8e9


def fill(catalog: Catalog, size: int) -> float:
    """Made-up records, of 1 owner for each 500 and 20 tasks. Seconds of CPU of counting them."""
    draw = random.Random(0)
    with catalog.database.writing() as connection:
        rows: list[dict[str, Any]] = []
        for number in range(size):
            architecture = f"{draw.randrange(max(1, size // 10)):064x}"
            record = Record(
                id=f"{draw.getrandbits(64):016x}",
                name=f"net {number}",
                owner=(owner := f"{draw.randrange(max(2, size // 500)):016x}"),
                owner_id=owner,
                task=f"task {draw.randrange(20)}",
                data=f"data {draw.randrange(max(1, size // 5_000))}",
                metrics={"accuracy": (value := draw.random())},
                metric="accuracy",
                value=value,
                framework="torch",
                parameters=10**6,
                bytes=int(draw.lognormvariate(17, 1.2)),
                fingerprint=architecture,
                graph=architecture,
                checksum="c" * 64,
                hits=draw.randrange(4),
                created=NOW - draw.random() * 1e7,
                last_used=NOW - draw.random() * 1e6,
            )
            rows.append(record_row(record) | {"changed": number + 1})
            if len(rows) == 5_000 or number + 1 == size:
                connection.execute(models.insert(), rows)
                rows.clear()
        connection.execute(clock.update().where(clock.c.name == CHANGES).values(value=size))
        began = time.process_time()
        totals.count_anew(connection)
        return time.process_time() - began


def cpu_of(parent: int | None) -> float:
    """Seconds of CPU of all processes that a database server has started, and are there."""
    spent, tick = 0.0, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat") if parent else ():
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == parent:
            spent += (int(fields[11]) + int(fields[12])) / tick
    return spent


def measured(function: Callable[[], Any], server: int | None, repeats: int = 3) -> dict[str, float]:
    """Milliseconds of CPU, here and in the database."""
    best = here = float("inf")
    for _ in range(repeats):
        theirs, mine = cpu_of(server), time.process_time()
        function()
        mine = time.process_time() - mine
        if mine + cpu_of(server) - theirs < best:
            best, here = mine + cpu_of(server) - theirs, mine
    return {"cpu ms": round(1000 * best, 2), "of that here": round(1000 * here, 2)}


def followed(catalog: Catalog, size: int) -> Columns:
    """The columns of a catalog, made from all its rows."""
    columns, since, more = Columns(), 0, True
    while more:
        with catalog.database.reading() as connection:
            changes = changes_since(connection, since, size)
        columns.apply(changes)
        since, more = changes.now, changes.more
    return columns


def measure(url: str, size: int, server: int | None) -> dict[str, Any]:
    """What a catalog of one size costs."""
    catalog = Catalog(url)
    counting = fill(catalog, size)
    stock, found = catalog.stock(), Outcomes(catalog).found()
    valued = items(stock, NOW, found)
    whole = int(valued.bytes.sum())
    made: list[Columns] = []
    row: dict[str, Any] = {
        "models": size,
        "stats, as at each scrape": measured(catalog.stats, server),
        "stats of a user": measured(lambda: catalog.stats(Viewer("0" * 16)), server),
        "bytes stored": measured(catalog.bytes_stored, server),
        "kept by a user": measured(lambda: catalog.kept_by("0" * 16), server),
        "columns that retention needs": measured(catalog.stock, server),
        "what they are worth": measured(lambda: items(stock, NOW, found), server),
        "who goes, one too many": measured(lambda: retain(valued, whole - 1), server),
        "who goes, 2 % too many": measured(lambda: retain(valued, whole - whole // 50), server),
        "columns in memory, made anew": measured(lambda: made.append(followed(catalog, size)), server, 1),
        "columns in memory, bytes a model": round(made[0].nbytes / size),
        "a mask of what passes a filter": measured(lambda: made[0].mask(Filter(task="task 1")), server),
        "totals counted anew, s": round(counting, 2),
    }
    if size <= RECORDS:
        row["all records, with seals"] = measured(lambda: catalog.find(Filter()), server, 1)
    read = row["columns that retention needs"]["cpu ms"]
    row["rows a second"] = round(1000 * size / read)
    catalog.close()
    return row


@contextmanager
def databases(wanted: list[str]) -> Iterator[dict[str, tuple[str, int | None]]]:
    """By the name of each kind of database the URL of one without its own name, and its server."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, tuple[str, int | None]] = {"SQLite": (f"sqlite:///{folder}/{{}}.db", None)}
        if "PostgreSQL" not in wanted:
            yield found
            return
        with Postgres() as server:
            pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
            url = f"postgresql+psycopg://postgres@/{{}}?host={server.folder}"
            yield {name: found[name] for name in found if name in wanted} | {"PostgreSQL": (url, pid)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--databases", nargs="+", default=["SQLite", "PostgreSQL"])
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0]}}
    with databases(options.databases) as found:
        for name, (place, server) in found.items():
            for size in options.sizes:
                url = place.format(f"zoo_{size}")
                if server is not None:
                    _create(place, f"zoo_{size}")
                row = measure(url, size, server)
                result.setdefault(name, []).append(row)
                print(name, json.dumps(row), flush=True)
    (RESULTS / "keeping.json").write_text(json.dumps(result, indent=1) + "\n")


def _create(place: str, name: str) -> None:
    """Make a database of a PostgreSQL."""
    import sqlalchemy as sa

    engine = sa.create_engine(place.format("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()


if __name__ == "__main__":
    main()
