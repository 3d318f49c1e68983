"""How fast are alignment and search? `make matching`, or: python -m benchmarks.matching --sizes 1000 10000

One run prints, and writes to benchmarks/results/matching.json:
    microseconds a pair over pytorchcv's CIFAR models, score alone and with the mapping
    for zoos of each size: time and number of alignments of a query, with and without relatives in the
    zoo, on one core and on two; memory and cost of adding and removing a model; time to save and open
    what hostile graphs cost
    how near a search with a budget comes to the exact answer, by bounds alone and with clusters; and how
    many alignments of an exact search another order could save

A zoo is made of real graphs, varied in depth (blocks repeated) and in width. Queries with relatives are
further variations of the same networks; queries without are of families that the zoo does not hold.
"""

import argparse
import json
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.helpers.corpus import IMAGENET, cifar, graphs, repeats, scaled
from modelkeeper import _native
from modelkeeper.errors import ModelKeeperError
from modelkeeper.graph import Axis, Edge, Fixed, Graph, Layer, Tensor
from modelkeeper.matching import Index, Prepared, Snapshot, align, prepare
from modelkeeper.matching.search import Running
from modelkeeper.matching.segments import Segment
from modelkeeper.matching.similarity import BUCKETS, KNOBS

RESULTS = Path(__file__).parent / "results"
HELD_OUT = (
    "densenet",
    "xdensenet",
    "shakeshake",
    "fractalnet",
    "nasnet",
    "pnasnet",
    "darts",
    "inception",
    "dla",
    "hrnet",
)
PARTS = ("pairs", "hostile", "budget", "zoos")
DEPTHS = 12  # variations in depth of one real graph


def main() -> None:
    """Measure everything, print it and write it down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=20, help="queries of each kind for each size")
    parser.add_argument(
        "--pairs", type=int, default=3_000, help="pairs of CIFAR models, of all ordered pairs"
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="what to measure anew")
    parser.add_argument("--out", type=Path, default=RESULTS / "matching.json")
    arguments = parser.parse_args()
    start, report = time.perf_counter(), dict[str, Any]()
    if set(arguments.parts) != set(PARTS) and arguments.out.exists():  # the rest stays as it was
        report = json.loads(arguments.out.read_text())
    processor = platform.processor() or platform.machine()
    report["machine"] = {"cores": os.cpu_count(), "processor": processor, "load": os.getloadavg()[0]}
    if "pairs" in arguments.parts:
        report["pairs"] = measure_pairs(arguments.pairs)
    if "hostile" in arguments.parts:
        report["hostile"] = measure_hostile()
    if "budget" in arguments.parts:
        report["budget"] = measure_budget(arguments.queries)
    if "zoos" in arguments.parts:
        report["zoos"] = measure_zoos(sorted(arguments.sizes), arguments.queries)
    report["this run, s"] = round(time.perf_counter() - start)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {arguments.out}")


def clock(
    work: Callable[..., object],
    *arguments: object,
    times: int = 1,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds, the least of several times."""
    best = float("inf")
    for _ in range(times):
        start = now()
        work(*arguments)
        best = min(best, now() - start)
    return best


busy = partial(clock, now=time.thread_time)  # what this thread computed: others on the machine do not count


def spread(values: list[float], digits: int = 1) -> dict[str, float]:
    """Median, 90th percentile and maximum."""
    return {
        "median": round(float(np.median(values)), digits),
        "p90": round(float(np.percentile(values, 90)), digits),
        "max": round(max(values), digits),
    }


def measure_pairs(count: int) -> dict[str, Any]:
    """One core, CPU time: the score as a search asks for it, the mapping of elements, `align` as a whole."""
    found = graphs(cifar())
    prepared = {name: prepare(graph) for name, graph in found.items()}
    names = list(prepared)
    rng = random.Random(0)
    store = Segment()
    place = {name: store.columns["kinds"][store.add(key, prepared[name])] for key, name in enumerate(names)}
    scans = {name: store.scan(prepared[name], store.architectures, store.tokens, 1) for name in names}
    chosen = [(rng.choice(names), rng.choice(names)) for _ in range(count)]
    score, mapping, whole = [], [], []
    for a, b in chosen:
        one = np.array([place[a]], np.int32)
        score.append(1e6 * busy(scans[b].scores, one, times=3))
        mapping.append(1e6 * busy(_map, prepared[a], prepared[b], times=3))
        whole.append(1e6 * busy(align, prepared[a], prepared[b], times=2))
    preparing = [1e3 * busy(prepare, graph, times=2) for graph in found.values()]
    report = {
        "models": len(names),
        "pairs": count,
        "elements": spread([float(len(model.layers)) for model in prepared.values()]),
        "score, us": spread(score),
        "mapping, us": spread(mapping),
        "align() in Python, us": spread(whole),
        "prepare(), ms": spread(preparing),
    }
    print("\npairs of pytorchcv's CIFAR models, one core")
    for key, value in report.items():
        print(f"  {key:28s} {value}")
    return report


def _map(parent: Prepared, child: Prepared) -> object:
    return _native.align_pair(
        parent.form, child.form, _native.rewards(parent.tokens, child.tokens, KNOBS), KNOBS
    )


class Variations:
    """Networks without end, each a variation of a real one."""

    def __init__(self, sources: dict[str, Graph], seed: int) -> None:
        self.sources = list(sources.items())
        self.rng, self.widths = random.Random(seed), np.random.default_rng(seed)
        self.pool: dict[str, list[Prepared]] = {}

    def __iter__(self) -> Iterator[Prepared]:
        while True:
            name, graph = self.rng.choice(self.sources)
            pool = self.pool.setdefault(name, [])
            if len(pool) < DEPTHS and self.rng.random() < 0.5:
                pool.append(prepare(repeats(graph, self.rng)))
            yield scaled(self.rng.choice(pool) if pool else prepare(graph), self.widths)


def sources() -> tuple[dict[str, Graph], dict[str, Graph]]:
    """Real networks for zoos, and others of families that no zoo holds."""
    found = graphs([*cifar(), *IMAGENET])
    every = {name: graph for name, graph in found.items() if len(graph.layers) < 700}
    inside = {name: graph for name, graph in every.items() if not name.startswith(HELD_OUT)}
    return inside, {name: graph for name, graph in every.items() if name.startswith(HELD_OUT)}


def measure_budget(queries: int, size: int = 4_000) -> dict[str, Any]:
    """How near the best model found within a budget is to the best there is."""
    inside, outside = sources()
    source = iter(Variations(inside, 0))
    index = Index()
    for key in range(size):
        index.add(key, next(source))
    plain = index.snapshot
    seconds = clock(index.refresh_clusters)
    report: dict[str, Any] = {"models": size, "clusters made in, s": round(seconds, 1)}
    print(f"\n{size:,} models, clusters made in {seconds:.1f} s; the best found within a budget")
    for kind, networks in (("with relatives", inside), ("without relatives", outside)):
        made = iter(Variations(networks, 3))
        children = [next(made) for _ in range(queries)]
        exact = [plain.search(child, threads=2).matches[0].similarity for child in children]
        report[f"{kind}, exact"] = line = needed(plain, children)
        print(f"  {kind:18s} exact {line}", flush=True)
        for budget in (32, 64, 128, 256):
            for way, snapshot in (("bounds", plain), ("clusters", index.snapshot)):
                found = [snapshot.search(child, budget=budget, threads=2) for child in children]
                lost = [best - each.matches[0].similarity for best, each in zip(exact, found, strict=True)]
                line = {
                    "mean loss of similarity": round(float(np.mean(lost)), 4),
                    "exact best, %": round(100 * float(np.mean([loss == 0 for loss in lost]))),
                    "proven, %": round(100 * float(np.mean([each.proven for each in found]))),
                }
                report[f"{kind}, {budget} alignments, {way}"] = line
                print(f"  {kind:18s} {budget:4d} {way:9s} {line}", flush=True)
    return report


def needed(snapshot: Snapshot, children: list[Prepared]) -> dict[str, float]:
    """How many alignments exact searches made, and how many of them no order could have avoided.

    Whatever may reach the best bucket by its bound must be aligned, in any order; so clusters could save
    no more than the difference.
    """
    made = unavoidable = 0
    for child in children:
        run = Running(snapshot, child, 1, 0.0, 1)
        run.collect(None)
        run.align(None, None)
        made += run.aligned
        tenths = np.minimum((run.bound * BUCKETS).astype(np.int64), BUCKETS - 1)
        unavoidable += int(((run.similarity >= 0) & (tenths >= run.lowest)).sum())
    return {
        "alignments": round(made / len(children), 1),
        "in any order": round(unavoidable / len(children), 1),
    }


def measure_zoos(sizes: list[int], queries: int) -> list[dict[str, Any]]:
    """Zoos that grow from one size to the next, searched at each."""
    inside, outside = sources()
    source = iter(Variations(inside, 0))
    with_relatives, without = iter(Variations(inside, 1)), iter(Variations(outside, 2))
    asked = {
        "with relatives": [next(with_relatives) for _ in range(queries)],
        "without relatives": [next(without) for _ in range(queries)],
    }
    print(
        f"\nzoos of {len(inside)} real networks, varied; "
        f"queries without relatives are of {len(outside)} others"
    )
    index, reports = Index(), []
    for size in sizes:
        adding = []
        for key in range(len(index), size):
            model = next(source)
            adding.append(1e6 * busy(index.add, key, model))
        reports.append(measure_zoo(index, size, asked, adding))
    return reports


def measure_zoo(
    index: Index, size: int, asked: dict[str, list[Prepared]], adding: list[float]
) -> dict[str, Any]:
    """One zoo: its queries, its memory, adding and removing, saving and opening."""
    snapshot = index.snapshot
    architectures = sum(part.architectures for part in snapshot.parts)
    report: dict[str, Any] = {"models": size, "architectures": architectures, "queries": {}}
    print(f"\n{size:,} models, {architectures:,} architectures")
    for kind, children in asked.items():
        repeated, some = 3, children
        if kind == "without relatives":  # these take long
            repeated, some = 1, children[: max(2, min(len(children), 1_000_000 // size))]
        for threads in (1, 2):
            times, cpu, aligned, top, best = [], [], [], [], []
            for child in some:
                wall = own = float("inf")
                for _ in range(repeated):
                    start, started = time.perf_counter(), time.thread_time()
                    found = snapshot.search(child, threads=threads)
                    wall, own = min(wall, time.perf_counter() - start), min(own, time.thread_time() - started)
                times.append(1e3 * wall)
                cpu.append(1e3 * own)
                aligned.append(float(found.aligned))
                top.append(float(len(found.matches)))
                best.append(found.matches[0].similarity)
            line = {
                "queries": len(some),
                "ms": spread(times),
                **({"cpu ms": spread(cpu)} if threads == 1 else {}),
                "alignments": spread(aligned, 0),
                "in the top bucket": spread(top, 0),
                "best similarity": round(float(np.median(best)), 2),
            }
            report["queries"][f"{kind}, {threads} core{'s' * (threads > 1)}"] = line
            print(f"  {kind:18s} {threads} core(s)   {line}", flush=True)
    report["add, cpu us"] = spread(adding)
    removing = []
    for key in range(0, size, max(1, size // 200)):
        model = asked["with relatives"][0]
        removing.append(1e6 * busy(index.remove, key))
        index.add(key, model)
    report["remove, cpu us"] = spread(removing)
    used = sum(part.segment.nbytes for part in index.snapshot.parts)
    report["bytes a model"] = round(used / size)
    report["resident MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    with tempfile.TemporaryDirectory() as folder:
        report["save, s"] = round(clock(index.save, Path(folder)), 3)
        report["open, s"] = round(clock(Index.load, Path(folder), times=3), 4)
        opened = Index.load(Path(folder))
        report["first query after opening, ms"] = round(
            1e3 * clock(opened.search, asked["with relatives"][0]), 1
        )
    for title in list(report)[2:]:
        print(f"  {title:30s} {report[title]}")
    return report


def _chain(length: int, width: int = 8, kinds: int = 1) -> Graph:
    layers = [Layer("input", "input")]
    for i in range(length):
        axes = (Axis("out", Fixed(width + i % kinds, "test")), Axis("in", Fixed(width, "test")))
        layers.append(Layer(str(i), "linear", (Edge(i),), (Tensor(f"{i}.w", "weight", "float32", axes),)))
    return Graph("test", tuple(layers))


def _merges(sources: list[list[int]]) -> Graph:
    return Graph(
        "test",
        tuple(
            Layer(str(i), "add" if s else "input", tuple(Edge(q) for q in s)) for i, s in enumerate(sources)
        ),
    )


def measure_hostile() -> dict[str, Any]:
    """Graphs made to be slow: each is refused, or prepared and aligned with itself in the time given."""
    nested: list[list[int]] = [[]]
    for _ in range(1300):  # a region in a region in a region
        nested += [[len(nested) - 1], [len(nested) - 1]]
    tip = len(nested) - 1
    for depth in range(1300):
        nested.append([tip, 2 * (1299 - depth)])
        tip = len(nested) - 1
    rng = random.Random(0)
    tangled: list[list[int]] = [[]] + [sorted(rng.sample(range(i), min(i, 3))) for i in range(1, 4000)]
    shapes: dict[str, Callable[[], Graph]] = {
        "a chain of 100,000 layers": lambda: _chain(99_999),
        "a chain of 8,000 layers, all alike": lambda: _chain(8_000),
        "a chain of 8,000 layers, all different": lambda: _chain(8_000, kinds=8_000),
        "360 layers, each fed by all before": lambda: _merges([list(range(i)) for i in range(360)]),
        "1,300 regions, one inside the other": lambda: _merges(nested),
        "8,000 branches between two layers": lambda: _merges([[]] + [[0]] * 8_000 + [list(range(1, 8_001))]),
        "4,000 layers, wired at random": lambda: _merges(tangled),
    }
    report = {}
    print("\nhostile graphs (seconds)")
    for name, make in shapes.items():
        graph = make()
        start = time.perf_counter()
        try:
            model = prepare(graph)
            prepared = time.perf_counter() - start
            start = time.perf_counter()
            _map(model, model)
            line: Any = {
                "prepare": round(prepared, 2),
                "align with itself": round(time.perf_counter() - start, 2),
            }
        except ModelKeeperError as refused:
            line = {"refused after": round(time.perf_counter() - start, 2), "because": str(refused)}
        report[name] = line
        print(f"  {name:42s} {line}")
    return report


if __name__ == "__main__":
    main()
