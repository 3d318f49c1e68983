"""How short may a schedule be after a warm start? Some lengths of it, besides the one that is advised.

    python -m benchmarks.training.ladder [--seeds 0] [--workloads grid]

Every job of a sequence that started warm with a cosine is trained once more for each of LENGTHS, from the
same zoo, and judged at the end. Writes study-ladder.jsonl next to the records, and goes on where it was
killed.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

import torch

from benchmarks.training import sequence as sequences
from benchmarks.training.arms import begin
from benchmarks.training.loop import train
from benchmarks.training.records import CACHE, RESULTS, Record, append, records
from benchmarks.training.schedules import spread
from benchmarks.training.sequence import COSINE
from benchmarks.training.tables import start_of
from benchmarks.training.tasks import task
from benchmarks.training.warm import code, registered
from benchmarks.training.workloads import WORKLOADS
from benchmarks.training.zoo import before

LENGTHS = (0.125, 0.25, 0.5)
PATH = "study-ladder.jsonl"


def climb(sequence: sequences.Sequence, path: Path) -> Iterator[Record]:
    """Every rung that is not written down yet."""
    jobs = sequence.known(sequence.workload.count)
    zoo = registered(sequence, jobs, COSINE)
    done = {(e["workload"], e["seed"], e["job"], e["length"]) for e in records(path)}
    for keeper in sequence.find(arm="keeper", schedule=COSINE):
        number, cold = keeper["job"], sequence.scratch(keeper["job"], COSINE)
        for length in LENGTHS if keeper["parents"] and cold else ():
            which = (sequence.workload.name, sequence.seed, number, length)
            if which in done or cold is None:
                continue
            score = keeper["scores"][-1] if length == keeper["length"] else None
            if score is None:
                seed, job = 1000 * sequence.seed + number, jobs[number]
                model, budget = job.build(seed), round(length * sequence.workload.budget)
                begin("keeper", before(zoo, number), model, job)
                data, rate = task(job.data), sequence.rate()
                _, curve = train(model, data, rate, seed, budget, at=[budget], decay=True)
                score = round(curve.scores[-1], 4)
            names = ("workload", "seed", "job", "length")
            record = {**dict(zip(names, which, strict=True)), "score": score, "scratch": cold["scores"][-1]}
            append(path, record | {"start": start_of(keeper), "advised": keeper["advised"], "code": code()})
            yield record


def table(these: Sequence[Record]) -> str:
    """Points at the end above all steps from scratch, by workload and start."""
    lines = [
        "| warm starts | jobs | an eighth of the steps | a quarter | a half "
        "| share of the steps that ends as from scratch |",
        "| --- |" + " ---: |" * 5,
    ]
    groups = [
        (WORKLOADS[name].title, "workload", name) for name in dict.fromkeys(e["workload"] for e in these)
    ]
    groups += [(kind, "start", kind) for kind in sorted({e["start"] for e in these})]
    for title, field, value in [*groups, ("all", "", None)]:
        mine = [e for e in these if not field or e[field] == value]
        points = [[100 * (e["score"] - e["scratch"]) for e in mine if e["length"] == n] for n in LENGTHS]
        if all(points):
            cells = " | ".join(spread(each) for each in points)
            enough = share([mean(each) for each in points])
            shown = f"{enough:.0%}" if enough > LENGTHS[0] else f"≤ {LENGTHS[0]:.1%}"
            lines.append(f"| {title} | {len(points[0])} | {cells} | {shown} |")
    return "\n".join(lines)


def share(points: Sequence[float]) -> float:
    """The least share of the steps that ends no lower than all from scratch, on lines between rungs."""
    rungs = list(zip(LENGTHS, points, strict=True))
    if rungs[0][1] >= 0:
        return LENGTHS[0]
    for (low, worse), (high, better) in pairwise(rungs):
        if better >= 0:
            return low + (high - low) * -worse / (better - worse)
    return 1.0


def main() -> None:
    """The workloads and seeds that are named."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--weights", type=Path, default=CACHE)
    options.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    chosen = options.parse_args()
    torch.set_num_threads(1)
    for seed in chosen.seeds:
        for name in chosen.workloads:
            sequence = sequences.Sequence(WORKLOADS[name], seed, chosen.out, chosen.weights)
            for record in climb(sequence, chosen.out / PATH):
                print(*record.values(), flush=True)


if __name__ == "__main__":
    main()
