"""How does a training begin from a zoo? With the copy that people make by hand, with the paper's operators,
or with the keeper.

    copy       from the best model so far on the same data: every tensor with the same name and shape
    paper      from the keeper's parent, aligned as the keeper aligns it, but with the operators as the
               paper describes them: replicate and add noise (wider), largest weights (narrower), identity
               with noise (deeper); statistics of batch norms stay behind, a head that fits is taken
    keeper     whatever ModelKeeper does
    one        the same with `most_parents` 1, where by default two would lend side by side
    calibrated the same with `calibrate=`: EXAMPLES pictures of those it will be trained on, and their labels

Where there is no parent, an arm begins as from scratch.
"""

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.helpers.unit_rules import group_l1
from benchmarks.training.tasks import task
from benchmarks.training.workloads import Job
from benchmarks.training.zoo import Trained, Zoo
from modelkeeper import ModelKeeperClient, transfer
from modelkeeper.errors import ModelRefused
from modelkeeper.frontends.torch import describe, load, read
from modelkeeper.graph import Graph
from modelkeeper.matching import align
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.transform import Plan, apply, make_plan

Array = np.ndarray[Any, np.dtype[Any]]
EXAMPLES = 1_024  # that a start is calibrated with
REPLICA_NOISE, IDENTITY_NOISE = 0.05, 0.05  # relative to the weights' deviation; absolute


@dataclass(frozen=True)
class Start:
    """What a training begins with."""

    parents: tuple[int, ...] = ()  # numbers of the jobs that lend
    similarity: float = 0.0  # to the first of them
    score: float = 0.0  # of the first
    exact: bool = False
    benefit: float | None = None  # that was expected
    advised: float = 1.0  # share of the steps from scratch that is advised
    covered: float = 0.0  # share of the parameters that come from the parent
    seconds: float = 0.0


def begin(arm: str, zoo: Zoo, model: nn.Module, job: Job, chosen: Sequence[int] = ()) -> Start:
    """Prepare a model as an arm does, in place.

    Args:
        arm: One of those above.
        zoo: What the job may see.
        model: The job's network, newly initialised.
        job: What it is and what it is trained on.
        chosen: For the paper's operators: the parent.
    """
    if arm == "keeper":
        return warm_start(zoo, model, job)
    if arm == "one":
        return warm_start(zoo, model, job, most_parents=1)
    if arm == "calibrated":
        return warm_start(zoo, model, job, EXAMPLES)
    if arm == "copy":
        return copy_by_name(zoo, model, job)
    if chosen:
        return lend(next(each for each in zoo if each.number == chosen[0]), model, job, paper_operators)
    return Start()


# -- the keeper ---------------------------------------------------------------------------------------


class Keeper:
    """A client with the models of a zoo in it."""

    def __init__(self) -> None:
        self.client = ModelKeeperClient(":memory:", on_error="raise", threads=1)
        self.known: list[Trained] = []
        self.client.query_for_model(nn.Linear(1, 1))  # what is imported by the first query is not timed

    def holds(self, zoo: Zoo) -> bool:
        """Is everything it holds in that zoo?"""
        return list(zoo[: len(self.known)]) == self.known

    def learn(self, zoo: Zoo) -> None:
        """Register what it does not hold yet. It may refuse some: that is its business."""
        for each in zoo[len(self.known) :]:
            with contextlib.suppress(ModelRefused):
                meta = {**about(each.job), "accuracy": each.score, "name": str(each.number)}
                self.client.register_model(each.model(), meta=meta)
            self.known.append(each)


_keepers: list[Keeper] = []  # the last one


def warm_start(
    zoo: Zoo, model: nn.Module, job: Job, examples: int = 0, most_parents: int | None = None
) -> Start:
    """Ask the keeper for a parent and take its weights. Only the query is timed: the zoo was there before."""
    told: dict[str, Any] = {}
    meta = about(job) if most_parents is None else {**about(job), "most_parents": most_parents}
    if examples:
        data = task(job.data)
        told["calibrate"] = data.inputs[: examples // (8 if data.language else 1)]  # 8,192 characters
        told["labels"] = None if data.language else data.targets[:examples]
    if not _keepers or not _keepers[0].holds(zoo):
        _keepers[:] = [Keeper()]
    keeper = _keepers[0]
    keeper.learn(zoo)
    begun = time.process_time()
    _, answer = keeper.client.query_for_model(model, meta=meta, **told)
    spent = time.process_time() - begun
    if answer.parent is None:
        return Start(seconds=spent)
    parents = tuple(int(each.name) for each in answer.parents)
    parent = next(each for each in zoo if each.number == parents[0])
    expected = re.search(r"expected benefit ([\d.]+)", answer.reason)
    return Start(
        parents=parents,
        similarity=answer.similarity or 0.0,
        score=parent.score,
        exact=answer.exact,
        benefit=float(expected[1]) if expected else None,
        advised=answer.advice.schedule,
        covered=answer.transferred / 100,
        seconds=spent,
    )


def about(job: Job) -> dict[str, Any]:
    """What a training script would say of a job."""
    return {"data": job.data, "task": "language" if task(job.data).language else "classification"}


_graphs: dict[str, Graph] = {}


def similarity(parent: Trained, child: Graph) -> float:
    """Of a registered model to a new one."""
    return align(graph_of(parent.job), child).similarity


def graph_of(job: Job) -> Graph:
    """A job's network without its weights; described once."""
    key = f"{job.spec} {job.data}"
    if key not in _graphs:
        _graphs[key] = describe(job.build(0))
    return _graphs[key]


# -- lending ------------------------------------------------------------------------------------------

Operators = Callable[[nn.Module, nn.Module, bool], tuple[float, bool, float]]


def lend(parent: Trained, model: nn.Module, job: Job, operators: Operators) -> Start:
    """Take the weights of a parent that has been chosen."""
    lender = parent.model()
    begun = time.process_time()
    alike, exact, covered = operators(lender, model, parent.job.data == job.data)
    spent = time.process_time() - begun
    return Start((parent.number,), alike, parent.score, exact, covered=covered, seconds=spent)


def modelkeeper_operators(parent: nn.Module, model: nn.Module, same: bool) -> tuple[float, bool, float]:
    """As `modelkeeper.transfer` does it."""
    report = transfer(parent, model, same_task=same)
    return report.similarity, report.exact, report.plan.coverage


def only(*actions: str) -> Operators:
    """Ours, but a tensor that needs another operator keeps its initial values."""

    def operators(parent: nn.Module, model: nn.Module, same: bool) -> tuple[float, bool, float]:
        plan, alike = planned(parent, model, same)
        taken = {entry.tensor for entry in plan.entries if entry.action in actions}
        made = {name: array for name, array in apply(plan, dict(read(parent))) if name in taken}
        load(model, made)
        return alike, False, coverage(plan, taken)

    return operators


def planned(parent: nn.Module, model: nn.Module, same: bool, compose: bool = True) -> tuple[Plan, float]:
    """What `transfer` would do, and how similar the two are."""
    ours, theirs = describe(model), describe(parent)
    alignment = align(theirs, ours)
    pairs = twin_pairs(theirs, ours) or alignment.pairs
    return make_plan(theirs, ours, pairs, same_task=same, compose=compose), alignment.similarity


def coverage(plan: Plan, taken: set[str] | None = None) -> float:
    """The share of the child's parameters that come from the parent."""
    total = sum(entry.parameters for entry in plan.entries)
    came = sum(
        entry.parameters
        for entry in plan.entries
        if entry.source and (taken is None or entry.tensor in taken)
    )
    return came / max(1, total)


def copy_by_name(zoo: Zoo, model: nn.Module, job: Job) -> Start:
    """What people do by hand."""
    parent = max(
        (each for each in zoo if each.job.data == job.data), key=lambda each: each.score, default=None
    )
    if parent is None:
        return Start()
    theirs, mine = parent.model().state_dict(), model.state_dict()
    fitting = [name for name in mine if name in theirs and mine[name].shape == theirs[name].shape]
    with torch.no_grad():
        for name in fitting:
            mine[name].copy_(theirs[name])
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    covered = sum(sizes.get(name, 0) for name in fitting) / sum(sizes.values())
    alike = similarity(parent, describe(model))
    return Start((parent.number,), alike, parent.score, covered == 1, covered=covered)


# -- the paper's operators ---------------------------------------------------------------------------


def paper_operators(parent: nn.Module, model: nn.Module, same: bool) -> tuple[float, bool, float]:
    """Net2Net with noise, largest weights, noisy identities, no running statistics."""
    plan, alike = planned(parent, model, same=True, compose=False)
    weights, own = dict(read(parent)), dict(read(model))
    chance = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for entry in plan.entries:
        tensor = plan.child.tensors[entry.tensor]
        if tensor.buffer:
            continue
        if entry.action == "inserted":
            roles = [axis.role for axis in tensor.axes]
            if "out" in roles and "in" in roles:
                made[entry.tensor] = _noisy_identity(tensor.shape, roles, chance)
        elif entry.source:
            made[entry.tensor] = _net2net(plan, entry.tensor, weights, own[entry.tensor], chance)
    load(model, {name: array.astype(own[name].dtype) for name, array in made.items()})
    return alike, False, coverage(plan, set(made))


def _net2net(
    plan: Plan, name: str, weights: dict[str, Array], own: Array, chance: np.random.Generator
) -> Array:
    """Along each axis: copies of a unit, each read by an equal share; or the units of the largest weights."""
    pair = plan.pairs[name]
    array = weights[pair.parent.name]
    order = [number for number in pair.axes if number is not None]
    array = array.transpose(order + [n for n in range(array.ndim) if n not in order])
    array = array.reshape([array.shape[n] for n in range(len(order))])
    absent = np.zeros(own.shape, bool)
    if array.ndim != own.ndim:
        return own
    wider = False
    for position, (ours, theirs) in enumerate(pair.axis_pairs()):
        index, factor = plan.maps.gather(ours, theirs, lambda space: group_l1(plan.parent, weights, space))
        array = np.take(array, np.maximum(index, 0), position)
        shape = [-1 if n == position else 1 for n in range(array.ndim)]
        counts = np.bincount(index[index >= 0], minlength=theirs.size)[np.maximum(index, 0)]
        if not (factor == 1).all():
            array = array / counts.reshape(shape)
        wider |= bool((counts > 1).any())
        absent |= (index < 0).reshape(shape)
    if wider and array.ndim > 1:
        array = array + chance.normal(scale=REPLICA_NOISE * array.std(), size=array.shape)
    return np.where(absent, own, array)


def _noisy_identity(shape: tuple[int, ...], roles: list[str], chance: np.random.Generator) -> Array:
    made = np.zeros(shape)
    view = np.moveaxis(made, (roles.index("out"), roles.index("in")), (0, 1))
    middle = tuple(size // 2 for size in view.shape[2:])
    for unit in range(view.shape[0]):
        view[(unit, unit % view.shape[1], *middle)] = 1
    return made + chance.normal(scale=IDENTITY_NOISE, size=shape)
