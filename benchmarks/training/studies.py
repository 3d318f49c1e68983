"""What if the zoo is worse, or operators are missing? On some jobs of the sequences that have been run.

    python -m benchmarks.training.studies [--seeds 0] [--workloads grid] [--jobs 5 9]

longer                  from scratch for twice the steps: is ModelKeeper as good as that, too?

20% poor, 50% poor      so many models of the zoo are replaced by the same networks, hardly trained
20% removed, ...        the same zoo without them: what is lost because good models are missing
no width operators      a tensor of another shape keeps its initial values
no depth operators      a layer that the parent does not have keeps its initial values

Each of these begins from the zoo that ModelKeeper had registered when the job arrived, at a constant rate,
and stops at 99 % of the run from scratch. Writes next to the records, and goes on where it was killed.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean, median

import torch
from torch import nn

from benchmarks.training import sequence as sequences
from benchmarks.training.arms import Start, lend, only, warm_start
from benchmarks.training.loop import looks, tail, train
from benchmarks.training.measures import outcome
from benchmarks.training.records import CACHE, RESULTS, Record, append, records, rounded
from benchmarks.training.tasks import task
from benchmarks.training.warm import code, registered
from benchmarks.training.workloads import WORKLOADS, Job
from benchmarks.training.zoo import Trained, Zoo, before, save

JOBS = {
    "images": [7, 11],
    "grid": [5, 8],
    "ensemble": [5, 8],
    "language": [5],
    "evolution": [7, 10],
    "bayesian": [5, 8],
}
POOR = 60  # steps that a poor model was trained for
SHARES = (0.2, 0.5)
PATH, LONGER = "study-zoo.jsonl", "study-longer.jsonl"
Begin = Callable[[nn.Module], Start]


class Bench:
    """A job that has been run, with all that it takes to train it once more."""

    def __init__(self, sequence: sequences.Sequence, number: int, job: Job) -> None:
        self.sequence, self.number, self.job = sequence, number, job
        self.seed = 1000 * sequence.seed + number
        self.zoo = before(registered(sequence, sequence.known(number + 1)), number)
        cold, keeper = sequence.scratch(number), sequence.find(number, arm="keeper", schedule="constant")
        self.ready = cold is not None and bool(keeper)
        self.cold, self.keeper = cold or {}, keeper[0] if keeper else {}

    def variants(self) -> Iterator[tuple[str, Begin]]:
        """Name and start of each."""
        for share in SHARES:
            bad = victims(self.zoo, share, self.seed)
            poor = [self.poor(each) if each.number in bad else each for each in self.zoo]
            left = [each for each in self.zoo if each.number not in bad]
            yield f"{share:.0%} poor", partial(warm_start, poor, job=self.job)
            yield f"{share:.0%} removed", partial(warm_start, left, job=self.job)
        parent = next(each for each in self.zoo if each.number == self.keeper["parents"][0])
        for name, actions in (
            ("no width operators", ("copied", "inserted")),
            ("no depth operators", ("copied", "widened", "narrowed", "resized")),
        ):
            yield name, partial(lend, parent, job=self.job, operators=only(*actions))

    def poor(self, model: Trained) -> Trained:
        """The same network, from scratch for few steps."""
        path = model.weights.with_name(f"{model.number}-after-{POOR}.pt")
        data, network = task(model.job.data), model.job.build(model.number)
        if path.exists():
            network.load_state_dict(torch.load(path, weights_only=True))
        else:
            network, _ = train(network, data, self.sequence.rate(), model.number, POOR, at=())
            save(network, path)
        return replace(model, score=round(data.score(network), 4), weights=path)

    def record(self, variant: str, begin: Begin) -> Record:
        """Train the job once more; what begins as in the sequence need not be trained."""
        model = self.job.build(self.seed)
        start = begin(model)
        which = {"variant": variant, "workload": self.sequence.workload.name, "seed": self.sequence.seed}
        told = {**which, "job": self.number, **rounded(asdict(start)), "code": code()}
        same = variant.endswith(("poor", "removed")) and list(start.parents) == self.keeper["parents"]
        if same and not any(each in victims(self.zoo, _share(variant), self.seed) for each in start.parents):
            return {**told, "steps": self.keeper["steps"], "scores": self.keeper["scores"]}
        rate = self.sequence.rate("keeper" if start.parents else "scratch")
        enough = 0.99 * tail(self.cold["scores"])
        budget = self.sequence.workload.budget
        _, curve = train(model, task(self.job.data), rate, self.seed, budget, enough)
        return {**told, "steps": curve.steps, "scores": [round(score, 4) for score in curve.scores]}


def _share(variant: str) -> float:
    return float(variant.partition("%")[0]) / 100


def victims(zoo: Zoo, share: float, seed: int) -> set[int]:
    """The models of the zoo that are spoiled."""
    return set(random.Random(seed).sample([each.number for each in zoo], round(share * len(zoo))))


def study(bench: Bench, path: Path) -> None:
    """All variants of one job that are not written down yet."""
    which = (bench.sequence.workload.name, bench.sequence.seed, bench.number)
    done = {e["variant"] for e in records(path) if (e["workload"], e["seed"], e["job"]) == which}
    for variant, begin in bench.variants():
        if variant not in done:
            record = bench.record(variant, begin)
            append(path, {**record, "cold": bench.cold, "keeper": bench.keeper})
            print(*which, variant, record["parents"], record["steps"][-1], "steps", flush=True)


def longer(bench: Bench, path: Path) -> None:
    """From scratch for twice the steps, if that is not written down yet."""
    which = (bench.sequence.workload.name, bench.sequence.seed, bench.number)
    if any((e["workload"], e["seed"], e["job"]) == which for e in records(path)):
        return
    budget = 2 * bench.sequence.workload.budget
    model, data = bench.job.build(bench.seed), task(bench.job.data)
    at = [step for step in looks(budget) if step >= 0.2 * budget]
    _, curve = train(model, data, bench.sequence.rate(), bench.seed, budget, at=at)
    cold: Record = {"steps": curve.steps, "scores": [round(score, 4) for score in curve.scores]}
    told = dict(zip(("workload", "seed", "job"), which, strict=True))
    append(
        path,
        {**told, **cold, "training": round(curve.seconds, 3), "keeper": bench.keeper, "cold": bench.cold},
    )
    print(
        *which, "twice the steps from scratch:", tail(bench.cold["scores"]), tail(cold["scores"]), flush=True
    )


def longer_table(these: Sequence[Record]) -> str:
    """ModelKeeper with the usual steps, against scratch with twice as many."""
    lines = [
        "| start | jobs | score from scratch, twice the steps | usual steps | ModelKeeper, usual steps "
        "| steps to 99 % of the first, from scratch | ModelKeeper | fewer | never |",
        "| --- |" + " ---: |" * 8,
    ]
    kinds = {"exact": True, "approximate": False}
    rows = [(name, [e for e in these if e["keeper"]["exact"] is kind]) for name, kind in kinds.items()]
    for name, mine in [*rows, ("all", list(these))]:
        if not mine:
            continue
        found = [outcome(each["keeper"], each) for each in mine]
        scores = [mean(tail(e["scores"]) for e in some) for some in (mine, [e["cold"] for e in mine])]
        ours = mean(tail(e["keeper"]["scores"]) for e in mine)
        steps = [sum(o.cold_steps[0.99] for o in found), sum(o.steps[0.99] for o in found)]
        never = sum(not o.reached[0.99] for o in found)
        lines.append(
            f"| {name} | {len(mine)} | {scores[0]:.3f} | {scores[1]:.3f} | {ours:.3f} | {steps[0]:,} "
            f"| {steps[1]:,} | {steps[0] / steps[1]:.2f} | {never} |"
        )
    return "\n".join(lines)


def table(these: Sequence[Record]) -> str:
    """Each variant against ModelKeeper as it is, on the same jobs."""
    lines = [
        "| variant | jobs | steps, relative to all of it | median | never | the same parents |",
        "| --- |" + " ---: |" * 5,
    ]
    for variant in dict.fromkeys(each["variant"] for each in these):
        mine = [each for each in these if each["variant"] == variant]
        found = [(outcome(e, e["cold"]), outcome(e["keeper"], e["cold"])) for e in mine]
        steps = [(one.steps[0.99], whole.steps[0.99]) for one, whole in found]
        never = sum(not one.reached[0.99] for one, _ in found)
        same = sum(each["parents"] == each["keeper"]["parents"] for each in mine)
        lines.append(
            f"| {variant} | {len(mine)} | {sum(a for a, _ in steps) / sum(b for _, b in steps):.2f} "
            f"| {median(a / b for a, b in steps):.2f} | {never} | {same} |"
        )
    return "\n".join(lines)


def main() -> None:
    """The jobs that are named."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--weights", type=Path, default=CACHE)
    options.add_argument("--workloads", nargs="+", default=list(JOBS), choices=list(JOBS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--jobs", type=int, nargs="+", help="default: some of each workload")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    for seed in chosen.seeds:
        for name in chosen.workloads:
            sequence = sequences.Sequence(WORKLOADS[name], seed, chosen.out, chosen.weights)
            for number in chosen.jobs or JOBS[name]:
                job = sequence.known(number + 1).get(number)
                bench = Bench(sequence, number, job) if job is not None else None
                if bench is not None and bench.ready and bench.keeper["parents"]:
                    longer(bench, chosen.out / LONGER)
                    study(bench, chosen.out / PATH)


if __name__ == "__main__":
    main()
