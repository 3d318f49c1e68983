"""Run the workloads, written down training by training. `make evaluate`, `make evaluate-quick`

    python -m benchmarks.training.run --out FOLDER [--workloads images grid] [--seeds 0 1] [--jobs 8]
        [--parts scratch ...] [--workers 2]

A run that was killed goes on after the last training that is written down. Seed by seed: what is trained from
scratch, then what begins from a zoo, so that whatever has been run is a whole as far as it goes.
"""

import argparse
import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.training import scratch, warm
from benchmarks.training.records import CACHE, RESULTS, Record
from benchmarks.training.sequence import CONSTANT, COSINE, Sequence
from benchmarks.training.workloads import LONG, WORKLOADS, Workload

PARTS = ("scratch", "constant", "cosine", "others", "long")
ALL = {**WORKLOADS, LONG.name: LONG}


@dataclass(frozen=True)
class Unit:
    """What one process does at a time: one part of one sequence."""

    part: str
    workload: str
    seed: int
    schedule: str = CONSTANT

    def trainings(self, sequence: Sequence, most: int) -> Iterator[Record]:
        """Those that are not written down yet, as they are done."""
        if self.part == "scratch":
            return scratch.run(sequence, self.schedule, most)
        return warm.run(sequence, self.part, self.schedule, most)

    def done(self, out: Path) -> int:
        """How many trainings are written down."""
        arms = warm.OTHERS if self.part == "others" else (self.part,)
        found = Sequence(ALL[self.workload], self.seed, out, out)
        return sum(len(found.find(arm=arm, schedule=self.schedule)) for arm in arms)

    def total(self, most: int) -> int:
        """How many trainings it is."""
        workload: Workload = ALL[self.workload]
        if self.part == "scratch":
            return scratch.total(workload, self.seed, self.schedule, most)
        return warm.total(workload, self.seed, self.part, most)


def stages(workloads: Collection[str], seeds: Collection[int], parts: Collection[str]) -> list[list[Unit]]:
    """What is done one after the other; the units of a stage do not depend on each other."""
    found: list[list[Unit]] = []
    for seed in seeds:
        each = [(name, seed) for name in workloads]
        also = [(LONG.name, 0)] if "long" in parts and seed == min(seeds) else []
        if "scratch" in parts:
            found.append([Unit("scratch", *which) for which in each])
            found.append([Unit("scratch", *which, COSINE) for which in each])
            found.append([Unit("scratch", *which) for which in also])
        if "constant" in parts:
            if seed == min(seeds):
                found.append([Unit("screening", name, 0) for name, _ in [*each, *also]])
            found.append([Unit("keeper", *which) for which in [*each, *also]])
        if "cosine" in parts:
            found.append([Unit("keeper", *which, COSINE) for which in each])
        if "others" in parts:
            found.append([Unit("others", *which) for which in [*each, *also]])
    return [stage for stage in found if stage]


@dataclass(frozen=True)
class Progress:
    """How far a run is that several processes work on: they all write to the same folder."""

    out: Path
    left: int  # trainings at the beginning of the run
    begun: float
    already: int  # lines that were there before it

    @staticmethod
    def of(out: Path, units: Collection[Unit], most: int) -> "Progress":
        """At the beginning of a run."""
        left = sum(max(0, unit.total(most) - unit.done(out)) for unit in units)
        return Progress(out, left, time.time(), _lines(out))

    def __str__(self) -> str:
        done = _lines(self.out) - self.already
        left = max(0, self.left - done)
        minutes = (time.time() - self.begun) / max(1, done) * left / 60
        return f"{done} done, {left} and about {minutes:.0f} minutes left"


def _lines(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.glob("*-*-*.jsonl"))


def work(unit: Unit, out: Path, weights: Path, most: int, progress: Progress) -> None:
    """In a process of its own, on one core."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    for record in unit.trainings(Sequence(ALL[unit.workload], unit.seed, out, weights), most):
        wall, begun = time.perf_counter() - begun, time.perf_counter()
        print(
            f"{time.strftime('%H:%M:%S')} {unit.workload}-{unit.seed} job {record['job']} {record['arm']} "
            f"{record['schedule']} {record['length']:g} at {record['rate']:g}, from {record.get('parents')}: "
            f"{record['scores'][0]:.3f} to {record['scores'][-1]:.3f} in {record['steps'][-1]} steps, "
            f"{wall:.0f} s; {progress}",
            flush=True,
        )


def main() -> None:
    """Stage by stage."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS, help="where the records go")
    options.add_argument("--weights", type=Path, default=CACHE, help="where trained weights go")
    options.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--jobs", type=int, default=999, help="only the first so many of each sequence")
    options.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    plan = stages(chosen.workloads, chosen.seeds, chosen.parts)
    progress = Progress.of(chosen.out, [unit for stage in plan for unit in stage], chosen.jobs)
    with ProcessPoolExecutor(chosen.workers) as pool:
        for stage in plan:
            for unit in [
                pool.submit(work, u, chosen.out, chosen.weights, chosen.jobs, progress) for u in stage
            ]:
                unit.result()


if __name__ == "__main__":
    main()
