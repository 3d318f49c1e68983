"""One workload with one seed: which jobs arrive, and what has been trained of them?

The trainings from scratch decide on the jobs, the rates and the targets, so they come first (`scratch.py`);
those that begin from a zoo follow (`warm.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.training.loop import tail
from benchmarks.training.measures import best_rate
from benchmarks.training.records import Record, append, records
from benchmarks.training.workloads import Job, Workload

SCREENED = 3  # jobs of seed 0 that are trained from scratch with every rate
CONSTANT, COSINE = "constant", "cosine"


class Sequence:
    """Jobs in order of arrival, with the records of their trainings."""

    def __init__(self, workload: Workload, seed: int, out: Path, weights: Path) -> None:
        self.workload, self.seed, self.out = workload, seed, out
        self.weights = weights / f"{workload.name}-{seed}"
        self._paths = {where: out / f"{workload.name}-{seed}-{where}.jsonl" for where in ("scratch", "warm")}
        self._done = {where: records(path) for where, path in self._paths.items()}

    def find(self, number: int | None = None, **fields: Any) -> list[Record]:
        """The trainings of a job, or of all, that have these fields."""
        return [
            each
            for these in self._done.values()
            for each in these
            if number in (None, each["job"]) and all(each.get(key) == value for key, value in fields.items())
        ]

    def add(self, record: Record) -> None:
        """Write a training down."""
        where = "scratch" if record["arm"] == "scratch" else "warm"
        record = {"workload": self.workload.name, "seed": self.seed, **record}
        append(self._paths[where], record)
        self._done[where].append(record)

    def jobs(self, most: int) -> Iterator[tuple[int, Job]]:
        """Each job when its turn has come: the trainings from scratch before it decide what it is."""
        history: list[tuple[Job, float]] = []
        while len(history) < most and (job := self.workload.next(self.seed, history)) is not None:
            yield len(history), job
            found = self.find(len(history), arm="scratch", schedule=CONSTANT, repeat=0)
            history.append((job, max(tail(each["scores"]) for each in found)))

    def known(self, most: int) -> dict[int, Job]:
        """The jobs that have been trained from scratch."""
        found: dict[int, Job] = {}
        for number, job in self.jobs(most):
            if not self.find(number, arm="scratch", schedule=CONSTANT, repeat=0):
                break
            found[number] = job
        return found

    def scratch(self, number: int, schedule: str = CONSTANT, length: float = 1.0) -> Record | None:
        """The training that others are judged by: at the rate of all trainings from scratch."""
        asked = {"schedule": schedule, "length": length, "repeat": 0, "rate": self.rate()}
        return next(iter(self.find(number, arm="scratch", **asked)), None)

    def rate(self, arm: str = "scratch") -> float:
        """The learning rate that was best on the jobs of seed 0 that chose it.

        From scratch, and for warm starts, which have been screened for by "screening".
        """
        name, rates = self.workload.name, self.workload.rates
        cold = [e for e in records(self.out / f"{name}-0-scratch.jsonl") if e["schedule"] == CONSTANT]
        mine = best_rate([e for e in cold if e["job"] < SCREENED and not e["repeat"]], rates)
        if arm == "scratch":
            return mine
        screened = [e for e in records(self.out / f"{name}-0-warm.jsonl") if e["arm"] == "screening"]
        return best_rate(screened, rates, [e for e in cold if e["rate"] == mine and not e["repeat"]])

    def file(self, arm: str, schedule: str, number: int, rate: float) -> Path:
        """Where the weights of a training are."""
        return self.weights / f"{number}-{arm}-{schedule}-{rate}.pt"
