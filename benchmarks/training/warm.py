"""What begins from a zoo? ModelKeeper's trainings, and on some jobs those of the other arms.

screening: jobs SCREENED of seed 0 with every rate, from the models trained from scratch before them.
keeper: every job, from the models that it has registered before; with a constant rate, or with a cosine of
    the length that it advises.
others: every job with one parent, where two lend by default; every third job calibrated, and in seed 0
    with the paper's operators and with the copy by name and shape.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from torch import nn

from benchmarks.training.arms import Start, begin
from benchmarks.training.loop import tail, train
from benchmarks.training.records import Record, rounded
from benchmarks.training.sequence import CONSTANT, COSINE, Sequence
from benchmarks.training.tasks import task
from benchmarks.training.workloads import LONG, Job, Workload
from benchmarks.training.zoo import Trained, Zoo, before, save

SCREENED = (3, 5, 7)
EVERY_THIRD = 3
WHOLE = ("keeper", "one")  # are trained for the whole budget
OTHERS = ("one", "calibrated", "paper", "copy")
ARMS = ("keeper", *OTHERS)


@dataclass(frozen=True)
class Training:
    """One training that begins from a zoo."""

    number: int
    job: Job
    arm: str
    rate: float
    schedule: str = CONSTANT


def total(workload: Workload, seed: int, part: str, most: int) -> int:
    """How many trainings a part has, if all screened jobs start warm."""
    jobs = range(min(most, workload.count))
    if part == "screening":
        return len(workload.rates) * sum(number in SCREENED for number in jobs)
    return len(jobs) if part == "keeper" else sum(len(_others(workload, seed, number)) for number in jobs)


def _others(workload: Workload, seed: int, number: int) -> tuple[str, ...]:
    if number % EVERY_THIRD != 1 or workload is LONG:
        return ("one",)
    return OTHERS if seed == 0 else ("one", "calibrated")


def run(sequence: Sequence, part: str, schedule: str, most: int) -> Iterator[Record]:
    """All trainings of a part that are not written down yet, one by one."""
    jobs = sequence.known(most)
    if part == "screening":
        yield from screen(sequence, jobs)
        return
    for number, job in jobs.items():
        cold = sequence.scratch(number, schedule)
        if cold is None:
            return
        for arm in ("keeper",) if part == "keeper" else _others(sequence.workload, sequence.seed, number):
            if not sequence.find(number, arm=arm, schedule=schedule):
                zoo = before(registered(sequence, jobs, schedule), number)
                yield one(
                    sequence, zoo, Training(number, job, arm, _rate(sequence, schedule), schedule), cold
                )


def _rate(sequence: Sequence, schedule: str) -> float:
    """Of an arm that starts warm; with a cosine, the same peak as from scratch."""
    return sequence.rate("scratch" if schedule == COSINE else "keeper")


def screen(sequence: Sequence, jobs: dict[int, Job]) -> Iterator[Record]:
    """Try every rate after warm starts. What starts cold says nothing about that."""
    for number in SCREENED:
        cold = sequence.scratch(number) if number in jobs else None
        for rate in sequence.workload.rates if cold else ():
            if cold and not sequence.find(number, arm="screening", rate=rate):
                zoo = before(trained_from_scratch(sequence, jobs), number)
                training = Training(number, jobs[number], "screening", rate)
                model = training.job.build(_seed(sequence, number))
                start = begin("keeper", zoo, model, training.job)
                if start.parents:
                    yield written(sequence, training, start, model, 0.99 * tail(cold["scores"]))


def one(sequence: Sequence, zoo: Zoo, training: Training, cold: Record) -> Record:
    """One job with one arm; where nothing can differ, what was trained before is taken."""
    number, arm, schedule = training.number, training.arm, training.schedule
    model = training.job.build(_seed(sequence, number))
    keeper = next(iter(sequence.find(number, arm="keeper", schedule=schedule)), None)
    start = begin(arm, zoo, model, training.job, keeper["parents"][:1] if keeper else ())
    alike = keeper is not None and list(start.parents) == keeper["parents"]
    same = alike and (arm == "one" or (arm == "calibrated" and start.exact))
    twin = cold if not start.parents else keeper if same else None
    if twin is not None:  # as from scratch, nothing to calibrate, or one parent anyway
        record = {**twin, **rounded(asdict(start)), "arm": arm, "code": code()}
        sequence.add(record)
        return record
    goal = tail(cold["scores"])
    return written(sequence, training, start, model, None if arm in WHOLE else goal, goal)


def written(
    sequence: Sequence,
    training: Training,
    start: Start,
    model: nn.Module,
    enough: float | None,
    quiet: float | None = None,
) -> Record:
    """Train, and write it down."""
    cosine = training.schedule == COSINE
    length = start.advised if cosine else 1.0
    budget = round(sequence.workload.budget * length)
    trained, curve = train(
        model,
        task(training.job.data),
        training.rate,
        _seed(sequence, training.number),
        budget,
        enough,
        [0, budget] if cosine else None,
        quiet,
        decay=cosine,
    )
    record = {
        "job": training.number,
        "spec": training.job.spec,
        "data": training.job.data,
        "arm": training.arm,
        "rate": training.rate,
        "schedule": training.schedule,
        "length": length,
        "repeat": 0,
        **rounded(asdict(start)),
        "steps": curve.steps,
        "scores": [round(score, 4) for score in curve.scores],
        "training": round(curve.seconds, 3),
        "code": code(),
    }
    if training.arm == "keeper":
        save(trained, sequence.file("keeper", training.schedule, training.number, training.rate))
    sequence.add(record)
    return record


def _seed(sequence: Sequence, number: int) -> int:
    """Of the initial weights and the order of examples: the same as from scratch."""
    return 1000 * sequence.seed + number


def registered(sequence: Sequence, jobs: dict[int, Job], schedule: str = CONSTANT) -> list[Trained]:
    """The zoo: what ModelKeeper has trained, cold starts included."""
    found = []
    for each in sequence.find(arm="keeper", schedule=schedule):
        if each["job"] not in jobs:
            continue
        arm = "keeper" if each["parents"] else "scratch"
        path = sequence.file(arm, schedule, each["job"], each["rate"])
        found.append(Trained(each["job"], jobs[each["job"]], each["scores"][-1], path))
    return found


def trained_from_scratch(sequence: Sequence, jobs: dict[int, Job]) -> list[Trained]:
    """The zoo that screening begins from."""
    found = []
    for number, job in jobs.items():
        each = sequence.scratch(number)
        if each is not None:
            path = sequence.file("scratch", CONSTANT, number, each["rate"])
            found.append(Trained(number, job, each["scores"][-1], path))
    return found


@cache
def code() -> str:
    """Which state of ModelKeeper a training began with: the name of its sources in git."""
    here = Path(__file__).parent
    git = ["git", "-C", str(here)]
    named = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD:src"], capture_output=True, text=True, check=False
    )
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", ":/src"], capture_output=True, text=True, check=False
    )
    return named.stdout.strip() + ("+" if changed.stdout.strip() else "")
