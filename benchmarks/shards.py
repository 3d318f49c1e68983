"""What does a search in shards cost, is it exact, and how fast does a shard come back? `make shards`

One run prints, and writes to benchmarks/results/shards.json and shards.md, over a synthetic zoo (real
architectures at other widths and depths; a fifth as many architectures as models):
    alignments of a search in one index, and in 1, 2, 4 and 8 shards: each for itself, and with the best bound
    shared; the rounds that this takes; and how many answers differ from those of one index (it must be none)
    bytes per model of a shard's index
    how long a shard takes to open from the catalog, from what it saved, and on another machine from what is
    in the store: wall clock and CPU time
    with --ray: the same for an actor that is killed, until its process is there and until it has the index;
    and what a round trip takes

Queries are relatives of models of the zoo, and strangers: families that it does not have. Counts do not
depend on the machine; times do.
"""

import argparse
import bisect
import contextlib
import json
import os
import platform
import random
import secrets
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.helpers.corpus import IMAGENET, cifar, graphs
from benchmarks.helpers.synthetic_zoo import HELD_OUT, make_zoo, varied
from modelkeeper.matching import Prepared, Snapshot, prepare
from modelkeeper.matching.index import Index
from modelkeeper.matching.sharded import Asked, Here, Told, Turn, ends_of, gather
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.index.index_snapshots import Snapshots
from modelkeeper.zoo.index.index_sync import Follower
from modelkeeper.zoo.index.shards import Shard, Spread
from modelkeeper.zoo.replicas.store_identity import FACT, MARKER

RESULTS = Path(__file__).parent / "results"
SHARDS = (1, 2, 4, 8)
BUCKETS = (1, 3)


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description="What does a search in shards cost?")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=20, help="of each kind")
    parser.add_argument("--ray", action="store_true", help="also kill actors of a real Ray")
    parser.add_argument("--out", type=Path, default=RESULTS / "shards.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mk-shards-") as folder:
        home = Path(folder)
        print(f"making a zoo of {arguments.records:,} models", flush=True)
        make_zoo(home, arguments.records, max(1, arguments.records // 5))
        settings = Settings(home=str(home / "zoo"))
        report: dict[str, Any] = {
            "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "load": os.getloadavg()[0]},
            "records": arguments.records,
            "queries of each kind": arguments.queries,
        }
        report |= searches(settings, children(arguments.queries))
        report["load when they come back"] = os.getloadavg()[0]
        report["coming back"] = coming_back(settings)
        if arguments.ray:
            report["ray"] = actors(settings)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(page(report))
    print(page(report))


def children(count: int) -> dict[str, list[Prepared]]:
    """Models to ask for: relatives of those in the zoo, and strangers."""
    real, rng = graphs([*cifar(), *IMAGENET]), random.Random(1)
    strange = [graph for name, graph in real.items() if name.startswith(HELD_OUT)]
    known = [graph for name, graph in real.items() if not name.startswith(HELD_OUT)]
    kinds = {"relatives": varied(known, rng), "strangers": varied(strange, rng)}
    return {kind: [prepare(graph) for graph in islice(made, count)] for kind, made in kinds.items()}


class Counted(Here):
    """Shards in this process, and how many rounds a search takes."""

    rounds = 0

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        """Count it."""
        self.rounds += 1
        return super().turn(turns, stop)


def searches(settings: Settings, asked: Mapping[str, Sequence[Prepared]]) -> dict[str, Any]:
    """Alignments, rounds, answers that differ, and bytes, by the number of shards."""
    catalog = Catalog(settings.catalog_place)
    with contextlib.closing(Follower(catalog, Snapshots(None), 1, columns=False)) as follower:
        whole = follower.index().snapshot
        lines: list[dict[str, Any]] = []
        for count in SHARDS:
            shards = split(whole, count)
            nbytes = sum(part.segment.nbytes for shard in shards for part in shard.parts)
            for kind, models in asked.items():
                for buckets in BUCKETS:
                    line = compare(whole, shards, models, buckets)
                    line = {"shards": count, "queries": kind, "buckets": buckets} | line
                    lines.append(line | {"bytes per model": round(nbytes / len(whole))})
                    print(json.dumps(lines[-1]), flush=True)
        differ = sum(line["answers that differ"] for line in lines)
    catalog.close()
    return {"answers that differ": differ, "searches": lines}


def split(whole: Snapshot, count: int) -> list[Snapshot]:
    """The same models in so many indexes, by the fingerprints of their architectures."""
    shards = [Index(threads=1, cluster_from=None) for _ in range(count)]
    ends = [end for _, end in (ends_of(number, count) for number in range(count - 1))]
    for part in whole.parts:
        for row in np.flatnonzero(part.alive[: part.rows]).tolist():
            model = part.segment.prepared(int(part.kinds[row]))
            shards[bisect.bisect_right(ends, model.fingerprint)].add(int(part.keys[row]), model)
    return [shard.snapshot for shard in shards]


def compare(
    whole: Snapshot, shards: Sequence[Snapshot], models: Iterable[Prepared], buckets: int
) -> dict[str, Any]:
    """Mean numbers over queries."""
    one, alone, shared, rounds, differ = [], [], [], [], 0
    for child in models:
        exact = whole.search(child, buckets=buckets)
        scatter = Counted(shards, Asked(child, buckets))
        found = gather(scatter, buckets=buckets)
        differ += found.matches != exact.matches or not found.proven
        one.append(exact.aligned)
        alone.append(sum(shard.search(child, buckets=buckets).aligned for shard in shards))
        shared.append(found.aligned)
        rounds.append(scatter.rounds)
    return {
        "alignments, one index": round(statistics.mean(one), 1),
        "alignments, each shard for itself": round(statistics.mean(alone), 1),
        "alignments, best bound shared": round(statistics.mean(shared), 1),
        "rounds": round(statistics.mean(rounds), 1),
        "answers that differ": differ,
    }


def coming_back(settings: Settings) -> dict[str, Any]:
    """How long a shard of four takes to open: from the catalog, from what it saved, from the store."""
    times = {}
    shutil.rmtree(settings.folder / "index", ignore_errors=True)
    settings = with_store(settings)
    for way in ("from the catalog", "from what it saved", "from the store"):
        if way == "from the store":
            shutil.rmtree(settings.folder / "index", ignore_errors=True)
        wall, cpu = time.perf_counter(), time.process_time()
        with contextlib.closing(Shard(settings, 0, 4)) as shard:
            models = shard.follow()
            seconds = round(time.perf_counter() - wall, 2), round(time.process_time() - cpu, 2)
            shard.share()
        times[way] = {"models": models, "seconds": seconds[0], "CPU seconds": seconds[1]}
    return times


def with_store(settings: Settings) -> Settings:
    """The same zoo with a store that other machines see, here a folder; its models have no files."""
    url = f"file://{settings.folder.parent}/store"
    with contextlib.closing(Catalog(settings.catalog_place)) as catalog:
        Blobs(url).create(MARKER, catalog.note_fact(FACT, secrets.token_hex(16)).encode())
    return msgspec.structs.replace(settings, blobs=url)


def actors(settings: Settings) -> dict[str, Any]:
    """How long an actor that is killed takes until it answers again, and what an empty call takes."""
    import ray

    from modelkeeper.integrations.ray.shards import open_shards

    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    shutil.rmtree(settings.folder / "index", ignore_errors=True)
    times: dict[str, Any] = {}
    with contextlib.closing(open_shards(Spread("ray", "local", 4), settings)) as shards:
        began = time.perf_counter()
        while shards.behind():
            time.sleep(0.05)
        times["first start, s"] = round(time.perf_counter() - began, 1)
        for way in ("from what it saved", "from the catalog"):
            pid = ray.get(shards.actor(0, 0).process.remote())
            if way == "from the catalog":
                shutil.rmtree(settings.folder / "index" / "shard-0-of-4")
            os.kill(pid, signal.SIGKILL)
            began, there = time.perf_counter(), 0.0
            while True:
                with contextlib.suppress(ray.exceptions.RayError):
                    if ray.get(shards.actor(0, 0).process.remote()) != pid:
                        there = there or time.perf_counter() - began
                        ray.get(shards.actor(0, 0).follow.remote())
                        break
                time.sleep(0.02)
            times[f"back {way}, s"] = round(time.perf_counter() - began, 2)
            times[f"back {way}: its process, s"] = round(there, 2)
        trips = []
        for _ in range(100):
            began = time.perf_counter()
            ray.get([shards.actor(number, 0).process.remote() for number in range(4)])
            trips.append(1000 * (time.perf_counter() - began))
        times["an empty call to 4 shards, ms, median"] = round(statistics.median(trips), 2)
    return times


def page(report: Mapping[str, Any]) -> str:
    """The report for people."""
    heads = list(report["searches"][0])
    rows = ["| " + " | ".join(str(line[head]) for head in heads) + " |" for line in report["searches"]]
    back = [f"- {way}: {json.dumps(value)}" for way, value in report["coming back"].items()]
    ray = [f"- {what}: {value}" for what, value in report.get("ray", {}).items()]
    return "\n".join(
        [
            "# Searches in shards",
            "",
            f"{report['records']:,} models, {report['queries of each kind']} queries of each kind; means. "
            f"Load {report['machine']['load']:.1f} on {report['machine']['cores']} cores. "
            f"Answers that differ from one index: {report['answers that differ']}.",
            "",
            "| " + " | ".join(heads) + " |",
            "| " + " | ".join("---" for _ in heads) + " |",
            *rows,
            "",
            f"One shard of four is opened; load {report['load when they come back']:.1f}:",
            "",
            *back,
            *(["", "Actors of a real Ray:", "", *ray] if ray else []),
            "",
        ]
    )


if __name__ == "__main__":
    main()
