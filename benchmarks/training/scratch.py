"""What is trained from scratch? Targets, noise, and what shorter schedules cost: all without ModelKeeper.

constant   every job; the first SCREENED of seed 0 with every rate, the others with the one that suits;
           every fourth of seed 0 once more with another seed, which tells how much is chance
cosine     every job, with the same peak; every other of seed 0 with a half and with a quarter of the steps
"""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.training.loop import looks, train
from benchmarks.training.records import Record
from benchmarks.training.sequence import CONSTANT, COSINE, SCREENED, Sequence
from benchmarks.training.tasks import task
from benchmarks.training.workloads import Job, Workload
from benchmarks.training.zoo import save

REPEATED, SHORTENED = 4, 2  # every fourth job, every other
LENGTHS = (0.5, 0.25)
UNSEEN = 0.4  # of the budget: before it, a training from scratch is not judged


@dataclass(frozen=True)
class Plan:
    """One training from scratch."""

    rate: float
    schedule: str = CONSTANT
    length: float = 1.0
    repeat: int = 0


def planned(workload: Workload, seed: int, schedule: str, number: int, rate: float) -> Iterator[Plan]:
    """The trainings of a job, given the rate that suits trainings from scratch."""
    if seed == 0 and number < SCREENED and schedule == CONSTANT:
        yield from (Plan(each) for each in workload.rates)
    else:
        yield Plan(rate, schedule)
    if seed == 0 and schedule == CONSTANT and number % REPEATED == REPEATED - 1:
        yield Plan(rate, repeat=1)
    if seed == 0 and schedule == COSINE and number % SHORTENED == 1:
        yield from (Plan(rate, COSINE, length) for length in LENGTHS)


def total(workload: Workload, seed: int, schedule: str, most: int) -> int:
    """How many trainings there are."""
    jobs = range(min(most, workload.count))
    return sum(len(list(planned(workload, seed, schedule, number, 0.0))) for number in jobs)


def run(sequence: Sequence, schedule: str, most: int) -> Iterator[Record]:
    """All of them that are not written down yet, one by one."""
    jobs = sequence.jobs(most) if schedule == CONSTANT else iter(sequence.known(most).items())
    for number, job in jobs:
        screening = sequence.seed == 0 and schedule == CONSTANT and number < SCREENED
        rate = 0.0 if screening else sequence.rate()
        for plan in planned(sequence.workload, sequence.seed, schedule, number, rate):
            if not sequence.find(number, arm="scratch", **vars(plan)):
                yield one(sequence, number, job, plan)


def one(sequence: Sequence, number: int, job: Job, plan: Plan) -> Record:
    """Train, and write it down."""
    budget = round(sequence.workload.budget * plan.length)
    at = (
        [step for step in looks(budget) if step >= UNSEEN * budget] if plan.schedule == CONSTANT else [budget]
    )
    seed = 1000 * sequence.seed + number + 500 * plan.repeat
    decay = plan.schedule == COSINE
    model, curve = train(job.build(seed), task(job.data), plan.rate, seed, budget, at=at, decay=decay)
    record = {
        "job": number,
        "spec": job.spec,
        "data": job.data,
        "arm": "scratch",
        **vars(plan),
        "steps": curve.steps,
        "scores": [round(score, 4) for score in curve.scores],
        "training": round(curve.seconds, 3),
    }
    if plan.length == 1 and not plan.repeat:
        save(model, sequence.file("scratch", plan.schedule, number, plan.rate))
    sequence.add(record)
    return record
