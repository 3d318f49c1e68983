"""Run the workloads: every job, every arm, written down job by job. `make evaluate`, `make evaluate-quick`

    python -m benchmarks.training.run --out FOLDER [--workloads images grid] [--seeds 0 1] [--jobs 8]
        [--workers 2]

Each line of FOLDER/WORKLOAD-SEED.jsonl is one training; a run that was killed goes on after the last line.
Jobs arrive in order. Each queries the zoo as it is then, trains, and registers; besides, it is trained from
scratch, and on some jobs (BASELINES) with the two other arms, from the same zoo.

One grid of learning rates for all arms: on the first SCREENED jobs of the first seed each arm takes every
rate, then the one that was best for it in this workload, on all other jobs and seeds. The zoo takes the
better one.
"""

import argparse
import json
import os
import time
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.training import measures
from benchmarks.training.arms import ARMS, begin
from benchmarks.training.loop import train
from benchmarks.training.tasks import task
from benchmarks.training.workloads import WORKLOADS, Job, Workload
from benchmarks.training.zoo import Trained, before, save

SCREENED = 3
BASELINES = 3  # every third job
CACHE = Path.home() / ".cache" / "modelkeeper" / "training"
RESULTS = Path(__file__).parent.parent / "results" / "training"
Record = dict[str, Any]


def records(path: Path) -> list[Record]:
    """What has been written; a last line that a kill cut short is as if it had not been."""
    if not path.exists():
        return []
    whole, _, rest = path.read_text().rpartition("\n")
    if rest:
        path.write_text(whole + "\n" if whole else "")
    return [json.loads(line) for line in whole.splitlines()]


def append(path: Path, record: Record) -> None:
    """One line, on disk before the next training begins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class Progress:
    """How far a run is that several processes work on: they all write to the same folder."""

    paths: tuple[Path, ...]
    total: int
    begun: float
    already: int  # trainings that were there before it

    @staticmethod
    def of(out: Path, units: Collection[tuple[str, int]], most: int, arms: Collection[str]) -> "Progress":
        """At the beginning of a run."""
        paths = tuple(out / f"{name}-{seed}.jsonl" for name, seed in units)
        total = sum(planned(WORKLOADS[name], seed, most, arms) for name, seed in units)
        return Progress(paths, total, time.time(), sum(len(records(path)) for path in paths))

    def __str__(self) -> str:
        done = sum(path.read_text().count("\n") for path in self.paths if path.exists())
        pace = (time.time() - self.begun) / max(1, done - self.already)
        return f"{done} of {self.total}, about {pace * max(0, self.total - done) / 60:.0f} minutes left"


def takes(arm: str, seed: int, number: int) -> bool:
    """Is a job trained with an arm?"""
    return arm in ("scratch", "keeper") or _screened(seed, number) or number % BASELINES == 1


def _screened(seed: int, number: int) -> bool:
    return seed == 0 and number < SCREENED


def planned(workload: Workload, seed: int, most: int, arms: Collection[str]) -> int:
    """How many trainings a sequence takes."""
    return sum(
        len(workload.rates) if _screened(seed, number) else 1
        for number in range(min(most, workload.count))
        for arm in arms
        if takes(arm, seed, number)
    )


class Sequence:
    """One workload with one seed: its jobs in order of arrival."""

    def __init__(
        self, workload: Workload, seed: int, out: Path, weights: Path, progress: Progress | None = None
    ) -> None:
        self.workload, self.seed, self.out, self.progress = workload, seed, out, progress
        self.path = out / f"{workload.name}-{seed}.jsonl"
        self.weights = weights / f"{workload.name}-{seed}"
        self.done = records(self.path)

    def find(self, number: int, arm: str, rate: float | None = None) -> list[Record]:
        """The trainings of a job that are written down."""
        return [
            each
            for each in self.done
            if each["job"] == number and each["arm"] == arm and rate in (None, each["rate"])
        ]

    def jobs(self, most: int) -> Any:
        """Each job when its turn has come: the scratch runs before it decide what it is."""
        history: list[tuple[Job, float]] = []
        while len(history) < most and (job := self.workload.next(self.seed, history)) is not None:
            yield len(history), job
            history.append((job, max(max(each["scores"]) for each in self.find(len(history), "scratch"))))

    def zoo(self, jobs: dict[int, Job], arm: str = "keeper") -> list[Trained]:
        """The models that an arm has trained; by default those that the keeper has registered."""
        found = []
        for number, job in jobs.items():
            best = max(self.find(number, arm), key=lambda each: float(each["scores"][-1]), default=None)
            if best is not None:
                found.append(Trained(number, job, best["scores"][-1], self.file(number, arm, best["rate"])))
        return found

    def file(self, number: int, arm: str, rate: float) -> Path:
        """Where the weights of a training are."""
        return self.weights / f"{number}-{'scratch-' if arm == 'scratch' else ''}{rate}.pt"

    def run(self, most: int, arms: Collection[str], screening: bool) -> None:
        """All trainings that are not written down yet; with `screening`, only those that choose the rates."""
        seen: dict[int, Job] = {}
        for number, job in self.jobs(min(most, SCREENED) if screening else most):
            screened = _screened(self.seed, number)
            for arm in arms:
                if takes(arm, self.seed, number):
                    for rate in self.workload.rates if screened else [self.rate(arm)]:
                        if not self.find(number, arm, rate if screened else None):
                            self.one(number, job, arm, rate, seen)
            seen[number] = job

    def rate(self, arm: str) -> float:
        """The learning rate that was best for an arm on the jobs that every rate was tried on."""
        first = records(self.out / f"{self.workload.name}-0.jsonl")
        return measures.best_rate(
            [each for each in first if each["job"] < SCREENED], arm, self.workload.rates
        )

    def one(self, number: int, job: Job, arm: str, rate: float, seen: dict[int, Job]) -> None:
        """One training."""
        wall = time.perf_counter()
        keeper = self.find(number, "keeper")
        zoo = before(self.zoo(seen), number)
        model = job.build(1000 * self.seed + number)
        start = begin(arm, zoo, model, job, keeper[0]["parent"] if keeper else None)
        scratch = self.find(number, "scratch")
        twins = scratch if start.parent is None else keeper if arm == "calibrated" and start.exact else []
        if arm != "scratch" and twins:  # as from scratch, or nothing to calibrate: it need not be done twice
            twin = next((each for each in twins if each["rate"] == rate), twins[0])
            rate = twin["rate"]
            record = {**twin, **_rounded(asdict(start)), "arm": arm}
            model.load_state_dict(torch.load(self.file(number, twin["arm"], rate), weights_only=True))
        else:
            budget = None if arm == "scratch" else max(int(each["steps"][-1]) for each in scratch)
            # Nobody starts from these: they need not go on once they are as good as the run from scratch.
            enough = None if arm in ("scratch", "keeper") else max(max(each["scores"]) for each in scratch)
            model, curve = train(model, task(job.data), rate, 1000 * self.seed + number, budget, enough)
            record = {
                "workload": self.workload.name,
                "seed": self.seed,
                "job": number,
                "spec": job.spec,
                "data": job.data,
                "arm": arm,
                "rate": rate,
                **_rounded(asdict(start)),
                "steps": curve.steps,
                "scores": [round(score, 4) for score in curve.scores],
                "training": round(curve.seconds, 3),
            }
        if arm in ("scratch", "keeper"):
            save(model, self.file(number, arm, rate))
        append(self.path, record)
        self.done.append(record)
        if self.progress is not None:
            self.tell(record, time.perf_counter() - wall)

    def tell(self, record: Record, wall: float) -> None:
        """One line for each training."""
        print(
            f"{time.strftime('%H:%M:%S')} {self.path.stem} job {record['job']}/{self.workload.count} "
            f"{record['arm']:8}{record['rate']:<6} parent {record['parent']} {record['similarity']:.2f} "
            f"start {record['scores'][0]:.3f} best {max(record['scores']):.3f} "
            f"({record['steps'][-1]} steps, {wall:.0f} s); {self.progress}",
            flush=True,
        )


def _rounded(values: Record) -> Record:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}


def work(
    name: str,
    seed: int,
    out: Path,
    weights: Path,
    most: int,
    arms: Collection[str],
    screening: bool,
    progress: Progress,
) -> None:
    """In a process of its own, on one core."""
    torch.set_num_threads(1)
    Sequence(WORKLOADS[name], seed, out, weights, progress).run(most, arms, screening)


def main() -> None:
    """First what chooses the rates, then the rest."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS, help="where the records go")
    options.add_argument("--weights", type=Path, default=CACHE, help="where trained weights go")
    options.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options.add_argument("--jobs", type=int, default=99, help="only the first so many jobs of each workload")
    options.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    all_units = [(name, seed) for seed in chosen.seeds for name in chosen.workloads]
    progress = Progress.of(chosen.out, all_units, chosen.jobs, chosen.arms)
    with ProcessPoolExecutor(chosen.workers) as pool:
        for screening in (True, False):
            seeds = [0] if screening else chosen.seeds
            units = [
                pool.submit(
                    work,
                    name,
                    seed,
                    chosen.out,
                    chosen.weights,
                    chosen.jobs,
                    chosen.arms,
                    screening,
                    progress,
                )
                for seed in seeds
                for name in chosen.workloads
            ]
            for unit in units:
                unit.result()


if __name__ == "__main__":
    main()
