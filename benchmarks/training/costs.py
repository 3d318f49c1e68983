"""Do the constants of the matcher rank parents as training ranks them? `make costs`

The study of parents has trained jobs from several parents each. Here the similarity of those pairs is
computed once more, with one constant of `modelkeeper.matching.similarity` changed at a time, and compared
with the steps that training took:

    in order     of two parents of one job, neither of them exact, how often is the more similar one the one
                 that was sooner at 99 %? Half of the time is chance
    steps        for the parent that is most similar, relative to the best of them, mean over jobs

Constants may be chosen by the first seed and have to prove themselves on the second. Writes
benchmarks/results/matching-costs.md and matching-costs.json.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.training.arms import graph_of
from benchmarks.training.bench import Bench, benches
from benchmarks.training.findings import charged
from benchmarks.training.measures import Record
from benchmarks.training.run import CACHE, RESULTS, records
from benchmarks.training.studies import JOBS
from modelkeeper.matching import align, similarity

UNIT = similarity.UNIT
KNOBS = ("SHAPE_ROOTS", "DETAIL", "EDGE", "EDGE_OTHERWISE")  # those that the kernel is given
VALUES: dict[str, tuple[float, ...]] = {
    "WEIGHT_ROOTS": (0, 1, 3),
    "SHAPE_ROOTS": (0, 1, 3),
    "DETAIL": (UNIT // 2, UNIT * 3 // 4, UNIT),
    "EDGE": (0, UNIT // 20, UNIT // 4, UNIT // 2),
    "EDGE_OTHERWISE": (0, UNIT // 10),
    "MERGE": (UNIT // 16, UNIT),
    "PARENT_SHARE": (0.0, 0.5, 0.75),
    "ANOTHER_STAGE": (1, 2, 64),
}
DEFAULTS = {name: float(getattr(similarity, name)) for name in VALUES}
Pair = tuple[Record, float]  # a training, and the similarity of its parent


@contextmanager
def changed(name: str, value: float) -> Iterator[None]:
    """One constant has another value."""
    before = getattr(similarity, name)
    setattr(similarity, name, value)
    if name in KNOBS:
        similarity.KNOBS[KNOBS.index(name)] = value
    try:
        yield
    finally:
        setattr(similarity, name, before)
        if name in KNOBS:
            similarity.KNOBS[KNOBS.index(name)] = before


def judged(bench: Bench, trained: list[Record]) -> list[Pair]:
    """The parents of a job with their similarity, as the constants are now."""
    child = graph_of(bench.job)
    zoo = {str(each.number): each for each in bench.cold_zoo}
    return [(each, align(graph_of(zoo[each["variant"]].job), child).similarity) for each in trained]


def in_order(pairs: list[Pair]) -> tuple[float, int]:
    """Of how many pairs of parents the more similar one was sooner; and how many were compared."""
    right, count = 0.0, 0
    for (one, alike), (other, as_well) in itertools.combinations(pairs, 2):
        first, second = charged(one), charged(other)
        if first != second and not one["exact"] and not other["exact"]:
            count += 1
            right += 0.5 if alike == as_well else (alike > as_well) == (first < second)
    return right, count


def relative_steps(pairs: list[Pair]) -> float:
    """Of the most similar parent, over those of the best one."""
    chosen = max(pairs, key=lambda pair: pair[1])[0]
    return charged(chosen) / min(charged(each) for each, _ in pairs)


def measure(jobs: list[tuple[Bench, list[Record]]]) -> dict[str, Any]:
    """Over all jobs, as the constants are now."""
    found = [judged(bench, trained) for bench, trained in jobs]
    counts = [in_order(pairs) for pairs in found]
    total = sum(count for _, count in counts)
    return {
        "in_order": sum(right for right, _ in counts) / max(1, total),
        "compared": total,
        "steps": mean(map(relative_steps, found)),
    }


def jobs_of(out: Path, weights: Path, seed: int) -> list[tuple[Bench, list[Record]]]:
    """The jobs that were tried with at least two parents of their own data."""
    rows = [each for each in records(out / "study-parents.jsonl") if each["variant"] != "scratch"]
    found = []
    for name, numbers in JOBS.items():
        for bench in benches(out, weights, name, seed, numbers):
            own = {str(each.number) for each in bench.cold_zoo if each.job.data == bench.job.data}
            key = (name, seed, bench.number)
            these = [
                each
                for each in rows
                if (each["workload"], each["seed"], each["job"]) == key and each["variant"] in own
            ]
            if len(these) > 1:
                found.append((bench, these))
    return found


def page(rows: list[dict[str, Any]], seeds: list[int]) -> str:
    """For people."""
    compared = ", ".join(f"{rows[0][str(seed)]['compared']} (seed {seed})" for seed in seeds)
    head = [f"seed {seed}: {what}" for seed in seeds for what in ("in order", "steps")]
    lines = [
        "# Do the matcher's constants rank parents as training ranks them?",
        "",
        "Made by `make costs` from the study of parents. *In order*: of two parents of one job, neither of",
        "them exact, how often the more similar one was sooner at 99 % of the plateau. *Steps*: of the most",
        "similar parent, relative to the best of those tried. One constant changed at a time. Compared: "
        f"{compared}.",
        "",
        f"| constant | value | {' | '.join(head)} |",
        f"| --- | ---: |{' ---: |' * len(head)}",
    ]
    for row in rows:
        cells = [f"{row[str(s)]['in_order']:.0%} | {row[str(s)]['steps']:.2f}" for s in seeds]
        lines.append(f"| {row['constant']} | {row['value']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """As they are, then one constant changed at a time."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--weights", type=Path, default=CACHE)
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    chosen = options.parse_args()
    jobs = {seed: jobs_of(chosen.out, chosen.weights, seed) for seed in chosen.seeds}
    seeds = [seed for seed, these in jobs.items() if these]
    if not seeds:
        raise SystemExit("the study of parents has not been run: make evaluate")

    def row(constant: str, value: str) -> dict[str, Any]:
        return {"constant": constant, "value": value} | {str(seed): measure(jobs[seed]) for seed in seeds}

    rows = [row("as they are", "")]
    for name, values in VALUES.items():
        for value in values:
            with changed(name, value):
                rows.append(row(name, f"{value:g} instead of {DEFAULTS[name]:g}"))
    text = page(rows, seeds)
    print(text)
    (RESULTS.parent / "matching-costs.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS.parent / "matching-costs.md").write_text(text)


if __name__ == "__main__":
    main()
