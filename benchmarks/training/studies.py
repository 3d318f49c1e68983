"""Smaller questions, on some jobs of the sequences that have been run. `make evaluate`

    parents     several models as the parent: which choice is best, and what predicts it?
    ablations   without width operators, without depth operators, without accuracy in the choice; a zoo that
                is one fifth or one half poor, and the same without the poor ones; one, two, four models
    undertrained  parents that were trained for few steps
    schedules   shorter schedules and a lower peak, with a rate that decays
    others      parents from other data sets only, with a fresh head and with the head copied
    memorised   a parent that knows 320 pictures by heart
    landscape   distance to where a training ends, and variance of its gradients, along the way

Each writes study-NAME.jsonl next to the records, and goes on where it was when it was killed. A training here
stops at 99 % of its run from scratch, except where the score after the whole budget is asked for.
"""

import argparse
import copy
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.training.arms import (
    Start,
    graph_of,
    lend,
    modelkeeper_operators,
    only,
    paper_operators,
    similarity,
    warm_start,
)
from benchmarks.training.bench import Bench, benches
from benchmarks.training.loop import train
from benchmarks.training.measures import Record, steps_to
from benchmarks.training.run import CACHE, RESULTS, append, records
from benchmarks.training.tasks import Task, task
from benchmarks.training.workloads import Job
from benchmarks.training.zoo import Trained, save
from modelkeeper import transfer
from modelkeeper.matching import align
from modelkeeper.policy.quality import metric, standing
from modelkeeper.policy.selection import Candidate, expected_benefit
from modelkeeper.transform import make_plan

JOBS = {
    "ensemble": [3, 5, 7, 9],
    "images": [5, 9, 13, 17],
    "bayesian": [5, 11],
    "grid": [5, 11],
    "language": [5, 9],
}
LENDERS = 5  # parents that a job is tried with
POOR, MEDIOCRE = 60, (120, 240, 480)  # steps that a poor model was trained for, and better ones
BY_HEART, HEART_STEPS = 320, 600
BUDGET = 800  # of the memorised case


Variant = tuple[str, Callable[[nn.Module], Start], dict[str, Any]]


def parents(bench: Bench) -> Iterator[Variant]:
    """Some of the models trained from scratch before it: their worth does not depend on the keeper."""
    for each in lenders(bench):
        start = partial(lend, each, job=bench.job, operators=modelkeeper_operators)
        yield str(each.number), start, {"rate": bench.cold_rate}


def lenders(bench: Bench) -> list[Trained]:
    """The parents that are tried."""
    chance = random.Random(bench.seed)
    chosen = chance.sample(bench.cold_zoo, min(LENDERS, len(bench.cold_zoo)))
    return sorted(chosen, key=lambda each: each.number)


def predicted(bench: Bench) -> Record:
    """What the keeper knew of each parent before any training, and what each policy would choose."""
    child = graph_of(bench.job)
    known = {}
    zoo = lenders(bench)
    for each in zoo:
        peers = [other.score for other in zoo if other.job.data == each.job.data]
        measured = metric("accuracy", each.score)
        theirs = graph_of(each.job)
        plan = make_plan(theirs, child, align(theirs, child), same_task=each.job.data == bench.job.data)
        candidate = Candidate(
            id=str(each.number),
            name=str(each.number),
            similarity=min(1.0, similarity(each, child)),
            metric=measured,
            standing=standing(measured, peers),
            data=each.job.data,
            exact=plan.exact,
            rewired=plan.rewired,
            normed=any(layer.kind == "batch_norm" for layer in child.layers),
        )
        known[str(each.number)] = {
            "similarity": candidate.similarity,
            "score": each.score,
            "benefit": expected_benefit(candidate, bench.job.data),
        }
    chosen = {
        policy: warm_start(zoo, bench.fresh(), bench.job, policy=policy).parent
        for policy in ("buckets", "benefit")
    }
    return {"known": known, "chosen": chosen}


def ablations(bench: Bench) -> Iterator[Variant]:
    """One thing left out at a time; the zoo made worse or smaller."""
    job, zoo = bench.job, bench.zoo
    chosen = bench.keeper["parent"] if bench.keeper else None
    if chosen is None:
        return
    parent = bench.parent(chosen)
    widths = only("copied", "inserted")
    depths = only("copied", "widened", "narrowed", "resized")
    yield "all", lambda model: lend(parent, model, job, modelkeeper_operators), {}
    yield "no width operators", lambda model: lend(parent, model, job, widths), {}
    yield "no depth operators", lambda model: lend(parent, model, job, depths), {}
    nearest = max(zoo, key=lambda each: similarity(each, graph_of(job)))
    yield "no accuracy", lambda model: lend(nearest, model, job, modelkeeper_operators), {}
    yield "the paper's buckets", lambda model: warm_start(zoo, model, job, policy="buckets"), {}
    for share in (0.2, 0.5):
        yield f"{share:.0%} poor", partial(warm_start, spoiled(bench, share), job=job), {}
        left = [each for each in zoo if each.number not in victims(bench, share)]
        yield f"{share:.0%} removed", partial(warm_start, left, job=job), {}
    for size in (1, 2, 4):
        if size < len(zoo):
            few = sorted(random.Random(bench.seed).sample(list(zoo), size), key=lambda each: each.number)
            yield f"zoo of {size}", partial(warm_start, few, job=job), {}


def victims(bench: Bench, share: float) -> set[int]:
    """The models of the zoo that are spoiled."""
    count = round(share * len(bench.zoo))
    return set(random.Random(bench.seed).sample([each.number for each in bench.zoo], count))


def spoiled(bench: Bench, share: float) -> list[Trained]:
    """The zoo, with some of its models hardly trained."""
    bad = victims(bench, share)
    return [after(bench, each, POOR) if each.number in bad else each for each in bench.zoo]


def after(bench: Bench, model: Trained, steps: int) -> Trained:
    """A model of the zoo as if it had been trained, from scratch, for so many steps only."""
    path = model.weights.with_name(f"{model.number}-after-{steps}.pt")
    data, network = task(model.job.data), model.job.build(model.number)
    if path.exists():
        network.load_state_dict(torch.load(path, weights_only=True))
    else:
        network, _ = train(network, data, bench.cold_rate, model.number, steps)
        save(network, path)
    return replace(model, score=round(data.score(network), 4), weights=path)


def undertrained(bench: Bench) -> Iterator[Variant]:
    """What the keeper's parent would have been worth, had it been trained for fewer steps."""
    chosen = bench.keeper["parent"] if bench.keeper else None
    if chosen is None:
        return
    whole = bench.parent(chosen)
    for steps in (POOR, *MEDIOCRE):
        start = partial(lend, after(bench, whole, steps), job=bench.job, operators=modelkeeper_operators)
        yield f"{steps} steps", start, {}
    yield "whole", partial(lend, whole, job=bench.job, operators=modelkeeper_operators), {}


def schedules(bench: Bench) -> Iterator[Variant]:
    """A rate that decays to zero, as most people train: shorter, and from a lower peak."""
    lender = bench.parent_by_keeper()
    yield "scratch, all of it", lambda model: Start(), _schedule(bench, 1.0, 1.0)
    yield "scratch, a quarter", lambda model: Start(), _schedule(bench, 1.0, 0.25)
    if lender is None:
        return
    for peak, length in itertools.product((1.0, 0.3), (0.5, 0.25)):
        start = partial(lend, lender, job=bench.job, operators=modelkeeper_operators)
        yield f"peak {peak:g}, length {length:g}", start, _schedule(bench, peak, length)


def _schedule(bench: Bench, peak: float, length: float) -> dict[str, Any]:
    return {"rate": round(peak * bench.cold_rate, 6), "length": length, "full": True}


def others(bench: Bench) -> Iterator[Variant]:
    """Only models of other data sets, the most similar: a fresh head, the same with the head copied."""
    zoo = [each for each in bench.zoo if each.job.data != bench.job.data]
    if not zoo:
        return
    parent = max(zoo, key=lambda each: similarity(each, graph_of(bench.job)))
    yield "fresh head", lambda model: lend(parent, model, bench.job, modelkeeper_operators), {"full": True}
    if task(parent.job.data).classes == task(bench.job.data).classes:
        same = replace(parent, job=replace(parent.job, data=bench.job.data))
        yield "head copied", lambda model: lend(same, model, bench.job, modelkeeper_operators), {"full": True}
    yield "paper", lambda model: lend(parent, model, bench.job, paper_operators), {"full": True}


STUDIES: dict[str, Callable[[Bench], Iterator[Variant]]] = {
    "parents": parents,
    "ablations": ablations,
    "undertrained": undertrained,
    "schedules": schedules,
    "others": others,
}


# -- two that need no sequence -----------------------------------------------------------------------


def memorised(seed: int, path: Path) -> None:
    """A parent that learned few pictures by heart, and one of the same steps that did not."""
    whole = task("fashion-mnist")
    few = replace(whole, inputs=whole.inputs[:BY_HEART], targets=whole.targets[:BY_HEART])
    small, large = (
        Job({"kind": "resnet", "width": 8, "depth": 1}),
        Job({"kind": "resnet", "width": 12, "depth": 1}),
    )
    done = {each["variant"] for each in records(path) if each["seed"] == seed}
    lenders: dict[str, tuple[nn.Module, dict[str, float]]] = {}

    def lender(name: str, data: Task) -> tuple[nn.Module, dict[str, float]]:
        if name not in lenders:
            model, _ = train(small.build(seed), data, 0.03, seed, HEART_STEPS)
            trained_on = replace(data, held_out=data.inputs[:2_000], held_targets=data.targets[:2_000])
            lenders[name] = model, {"train": trained_on.score(model), "score": whole.score(model)}
        return lenders[name]

    for name, data in (("scratch", whole), ("memorised", few), ("healthy", whole)):
        for factors in (None,) if name == "scratch" else (None, (0.5, 0.2)):
            variant = name if factors is None else f"{name}, shrink and perturb"
            if variant in done:
                continue
            model = large.build(100 + seed)
            told: dict[str, float] = {}
            if name != "scratch":
                parent, told = lender(name, data)
                transfer(copy.deepcopy(parent), model, shrink_perturb=factors)
            _, curve = train(model, whole, 0.03, 100 + seed, BUDGET)
            scores = [round(score, 4) for score in curve.scores]
            append(
                path,
                {
                    "study": "memorised",
                    "variant": variant,
                    "seed": seed,
                    "steps": curve.steps,
                    "scores": scores,
                    **told,
                },
            )


def landscape(bench: Bench, path: Path) -> None:
    """How far from where it ends, and how noisy, a training is: cold and warm."""
    done = {(each["arm"], each["seed"]) for each in records(path)}
    data = task(bench.job.data)
    for arm, rate in (("scratch", bench.cold_rate), ("keeper", bench.rate)):
        if (arm, bench.sequence.seed) in done:
            continue
        model = bench.fresh()
        if arm == "keeper":
            warm_start(bench.zoo, model, bench.job)
        seen: list[tuple[int, torch.Tensor, float]] = []
        train(model, data, rate, bench.seed, bench.budget, watch=_watch(data, seen))
        last = _flat(model.parameters())
        append(
            path,
            {
                "arm": arm,
                "workload": bench.sequence.workload.name,
                "seed": bench.sequence.seed,
                "job": bench.number,
                "steps": [step for step, _, _ in seen],
                "distance": [round(float((vector - last).norm()), 4) for _, vector, _ in seen],
                "variance": [variance for _, _, variance in seen],
            },
        )


def _watch(data: Task, seen: list[tuple[int, torch.Tensor, float]]) -> Callable[[int, nn.Module], None]:
    def watch(step: int, model: nn.Module) -> None:
        if step % 100 == 0:
            where = _flat(model.parameters())
            seen.append((step, where, _variance(model, data)))

    return watch


def _flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """All numbers in a row, copied, whatever their layout in memory."""
    return torch.cat([each.detach().reshape(-1) for each in tensors])


def _variance(model: nn.Module, data: Task, batches: int = 8) -> float:
    """Of the gradient, summed over all parameters, from batch to batch; the model is left as it was."""
    twin = copy.deepcopy(model)
    found = []
    for number in range(batches):
        twin.zero_grad()
        chosen = torch.arange(number * data.batch, (number + 1) * data.batch)
        torch.autograd.backward(data.loss(twin, chosen))
        found.append(_flat(p.grad for p in twin.parameters() if p.grad is not None))
    return float(np.round(torch.stack(found).var(0).sum().item(), 6))


# -- running -----------------------------------------------------------------------------------------


def study(name: str, bench: Bench, path: Path, wanted: list[str] | None = None) -> None:
    """All variants of one study on one job, or those that are wanted, that are not written down yet."""
    key = (bench.sequence.workload.name, bench.sequence.seed, bench.number)
    done = {e["variant"] for e in records(path) if (e["workload"], e["seed"], e["job"]) == key}
    extra = predicted(bench) if name == "parents" and bench.cold_zoo else {}
    for variant, start, options in STUDIES[name](bench):
        if variant not in done and (wanted is None or variant in wanted):
            record = bench.record(name, variant, start, **options) | extra
            append(path, record)
            reached = steps_to(record, 0.99 * record["target"])
            print(
                f"{name} {key} {variant}: start {record['scores'][0]:.3f}, 99 % after {reached}", flush=True
            )
    if name in ("parents", "undertrained") and "scratch" not in done:
        append(
            path,
            {
                **bench.scratch,
                **extra,
                "study": name,
                "variant": "scratch",
                "target": bench.target,
                "budget": bench.budget,
            },
        )


def main() -> None:
    """All studies, or those that are named."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--weights", type=Path, default=CACHE)
    options.add_argument("--studies", nargs="+", default=[*STUDIES, "memorised", "landscape"])
    options.add_argument("--workloads", nargs="+", default=list(JOBS), choices=list(JOBS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--jobs", type=int, nargs="+", help="default: some of each workload")
    options.add_argument("--variants", nargs="+", help="default: all")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    with ProcessPoolExecutor(chosen.workers) as pool:
        for unit in [pool.submit(work, name, chosen) for name in chosen.studies]:
            unit.result()


def work(name: str, chosen: argparse.Namespace) -> None:
    """One study, in a process of its own, on one core."""
    torch.set_num_threads(1)
    path = chosen.out / f"study-{name}.jsonl"
    for seed in chosen.seeds:
        if name == "memorised":
            memorised(seed, path)
            continue
        for workload in chosen.workloads:
            for bench in benches(chosen.out, chosen.weights, workload, seed, chosen.jobs or JOBS[workload]):
                if name == "landscape":
                    landscape(bench, path)
                    break
                study(name, bench, path, chosen.variants)


if __name__ == "__main__":
    main()
