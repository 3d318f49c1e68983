"""How is a job that has been run trained once more, from another start?

    for bench in benches(out, weights, "grid", 0, [5, 11]):
        bench.record("ablations", "20% poor", start)

A bench knows the zoo as it was when the job arrived, and the scores of its run from scratch, which it is
judged by.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.training.arms import Start, warm_start
from benchmarks.training.loop import train
from benchmarks.training.measures import Record
from benchmarks.training.run import Sequence
from benchmarks.training.tasks import task
from benchmarks.training.workloads import WORKLOADS, Job
from benchmarks.training.zoo import Trained, before


class Bench:
    """One job that has been run, with all that it takes to train it once more."""

    def __init__(self, sequence: Sequence, number: int, jobs: dict[int, Job]) -> None:
        self.sequence, self.number, self.job = sequence, number, jobs[number]
        self.seed = 1000 * sequence.seed + number
        self.zoo = before(sequence.zoo(jobs), number)
        self.cold_zoo = before(sequence.zoo(jobs, "scratch"), number)
        cold = sequence.rate("scratch")
        self.scratch = sequence.find(number, "scratch", cold)[0]
        self.keeper = next(iter(sequence.find(number, "keeper", sequence.rate("keeper"))), None)
        self.rate, self.cold_rate = sequence.rate("keeper"), cold
        self.target, self.budget = max(self.scratch["scores"]), int(self.scratch["steps"][-1])

    def fresh(self) -> nn.Module:
        """The network as it was initialised in the run."""
        return self.job.build(self.seed)

    def parent(self, number: int) -> Trained:
        """A model of the zoo."""
        return next(each for each in self.zoo if each.number == number)

    def parent_by_keeper(self) -> Trained | None:
        """What the keeper chooses among the models trained from scratch before it."""
        number = warm_start(self.cold_zoo, self.fresh(), self.job).parent
        return next((each for each in self.cold_zoo if each.number == number), None)

    def record(self, study: str, variant: str, start: Callable[[nn.Module], Start], **options: Any) -> Record:
        """Train the job once more."""
        model = self.fresh()
        begun = start(model)
        # As in the sequences, a cold start takes the rate that suits a training from scratch.
        rate = options.get("rate", self.cold_rate if begun.parent is None else self.rate)
        enough = None if options.get("full") else 0.99 * self.target
        budget = round(self.budget * options.get("length", 1.0))
        decay = "length" in options
        _, curve = train(model, task(self.job.data), rate, self.seed, budget, enough, decay=decay)
        return {
            "study": study,
            "variant": variant,
            "workload": self.sequence.workload.name,
            "seed": self.sequence.seed,
            "job": self.number,
            "rate": rate,
            **{key: round(v, 4) if isinstance(v, float) else v for key, v in asdict(begun).items()},
            "steps": curve.steps,
            "scores": [round(score, 4) for score in curve.scores],
            "training": round(curve.seconds, 3),
            "target": self.target,
            "budget": self.budget,
        }


def benches(out: Path, weights: Path, name: str, seed: int, numbers: list[int]) -> Iterator[Bench]:
    """The jobs of a sequence that have been run and are asked for."""
    sequence = Sequence(WORKLOADS[name], seed, out, weights)
    jobs: dict[int, Job] = {}
    for number, job in sequence.jobs(99):
        if not sequence.find(number, "scratch"):
            break
        jobs[number] = job
    for number in numbers:
        if number in jobs:
            yield Bench(sequence, number, jobs)
