"""What does recording how a training starts cost a query? `python -m benchmarks.recording`

The same queries to two coordinators over one zoo in one process, one that records and one that does not
(`history`), in turns; what is counted is the CPU time of the thread that asks, which a busy machine blurs
less than time. `record`: what writing one row took by itself, of rows as these queries made them;
`difference`: the medians of the queries, less one another, which holds more noise. A catalog on SQLite and
one on PostgreSQL, a server of this machine. `record_wall`: how long whoever asks waited for such a row, and
with PostgreSQL `server`: what its processes spent on one, in CPU time, over all rows.
Writes benchmarks/results/recording.json.
"""

import argparse
import json
import os
import time
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

from benchmarks.helpers.databases import zoo_on
from benchmarks.keeping import cpu_of
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.starts import Start
from modelkeeper.zoo.records import new_id
from tests.helpers.service import network, tensors, told

RESULTS = Path(__file__).parent / "results"
QUERIES = {
    "warm": Query(data="digits", task="classification", minimum_similarity=0.1),
    "cold": Query(data="digits", task="another"),
}


def asked(coordinator: LocalCoordinator, query: Query) -> float:
    """Milliseconds of CPU of one query."""
    begun = time.thread_time()
    coordinator.query(network(12), query)
    return 1000 * (time.thread_time() - begun)


def written(coordinator: LocalCoordinator, start: Start, times: int, server: int | None) -> dict[str, float]:
    """Milliseconds that each of some rows took: of CPU here, by the clock, and of CPU of the database."""
    spent, waited = [], []
    elsewhere = cpu_of(server)
    for _ in range(times):
        again = msgspec.structs.replace(start, id=new_id())
        clock, begun = time.perf_counter(), time.thread_time()
        assert coordinator.zoo.started(again)
        spent.append(1000 * (time.thread_time() - begun))
        waited.append(1000 * (time.perf_counter() - clock))
    elsewhere = cpu_of(server) - elsewhere
    return {
        "record_ms": round(median(spent), 3),
        "record_ms_90_percent": round(quantiles(spent, n=10)[-1], 3),
        "record_wall_ms": round(median(waited), 3),
        **({} if server is None else {"server_ms": round(1000 * elsewhere / times, 3)}),
    }


def measure(settings: Settings, rounds: int, server: int | None) -> dict[str, Any]:
    """What warm and cold queries cost with and without recording."""
    silent = msgspec.structs.replace(settings, history=False)
    with closing(LocalCoordinator(settings)) as records, closing(LocalCoordinator(silent)) as keeps_quiet:
        for width in (6, 8, 10):
            records.register(network(width), told(f"net{width}"), tensors(network(width)).items())
        found: dict[str, Any] = {}
        for kind, query in QUERIES.items():
            spent: dict[bool, list[float]] = {True: [], False: []}
            for number in range(rounds + 5):
                for recording in (True, False) if number % 2 else (False, True):
                    took = asked(records if recording else keeps_quiet, query)
                    if number >= 5:  # the first ones import and compile
                        spent[recording].append(took)
            [start] = records.starts(limit=1)
            assert start.cold == (kind == "cold")
            alone = written(records, start, rounds, server)
            found[kind] = {
                "query_ms": round(median(spent[False]), 3),
                "difference_ms": round(median(spent[True]) - median(spent[False]), 3),
                **alone,
                "bytes_of_a_row": len(msgspec.json.encode(start)),
            }
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--databases", nargs="+", default=["SQLite", "PostgreSQL"])
    given = parser.parse_args()
    machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    result: dict[str, Any] = {"machine": machine, "rounds": given.rounds, "databases": {}}
    for database in given.databases:
        with zoo_on(database) as (settings, server):
            result["databases"][database] = measure(settings, given.rounds, server)
    print(json.dumps(result, indent=2))
    (RESULTS / "recording.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
