"""What does recording how a training starts cost a query? `python -m benchmarks.recording [--catalog URL]`

The same queries to two coordinators over one zoo in one process, one that records and one that does not
(`history`), in turns; what is counted is the CPU time of the thread that asks, which a busy machine blurs
less than time. `record`: what writing one row took by itself, of rows as these queries made them;
`difference`: the medians of the queries, less one another, which holds more noise. What PostgreSQL spends
itself is not in it.
Writes benchmarks/results/recording.json.
"""

import argparse
import json
import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.records import new_id
from modelkeeper.zoo.starts import Start
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


def written(coordinator: LocalCoordinator, start: Start, times: int) -> list[float]:
    """Milliseconds of CPU that each of some rows took."""
    spent = []
    for _ in range(times):
        again = msgspec.structs.replace(start, id=new_id())
        begun = time.thread_time()
        assert coordinator.zoo.started(again)
        spent.append(1000 * (time.thread_time() - begun))
    return spent


def measure(settings: Settings, rounds: int) -> dict[str, Any]:
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
            alone = written(records, start, rounds)
            found[kind] = {
                "query_ms": round(median(spent[False]), 3),
                "difference_ms": round(median(spent[True]) - median(spent[False]), 3),
                "record_ms": round(median(alone), 3),
                "record_ms_90_percent": round(quantiles(alone, n=10)[-1], 3),
                "bytes_of_a_row": len(msgspec.json.encode(start)),
            }
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--catalog", default="", help="a SQLAlchemy URL; default: SQLite in a new folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Settings(home=folder, catalog=given.catalog), given.rounds)
    catalog = given.catalog.partition(":")[0] or "sqlite"
    machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    result = {"machine": machine, "rounds": given.rounds, "catalog": catalog, **found}
    print(json.dumps(result, indent=2))
    (RESULTS / "recording.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
