"""Which jobs arrive, in which order? The rows of the paper's table, at the scale of one machine.

    for job in workload: query the zoo, train, register

The searches (evolution, Bayesian) decide on the next job by how good the earlier ones were when trained from
scratch, so that all arms train the same networks in the same order.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from benchmarks.training import language, networks
from benchmarks.training.networks import EDGES, OPERATIONS, Spec, connected
from benchmarks.training.tasks import task

FASHION = "fashion-mnist"


@dataclass(frozen=True)
class Job:
    """One network to be trained on one data set."""

    spec: Spec
    data: str = FASHION

    def build(self, seed: int) -> nn.Module:
        """Newly initialised."""
        maker = language.build if self.spec["kind"] in language.KINDS else networks.build
        return maker(self.spec, task(self.data).classes, seed)


History = Sequence[tuple[Job, float]]  # earlier jobs, and how good they were when trained from scratch


@dataclass(frozen=True)
class Workload:
    """Jobs in order of arrival."""

    name: str
    title: str
    count: int
    rates: tuple[float, ...]
    following: Callable[[int, History], Job]  # from the seed and what came before
    budget: int = 600  # steps of a training from scratch

    def next(self, seed: int, history: History) -> Job | None:
        """The job that arrives now; none if all have arrived."""
        return self.following(seed, history) if len(history) < self.count else None


def _in_order(jobs: list[Job]) -> Callable[[int, History], Job]:
    return lambda seed, history: jobs[len(history)]


def _shuffled(jobs: list[Job]) -> Callable[[int, History], Job]:
    def following(seed: int, history: History) -> Job:
        return random.Random(seed).sample(jobs, len(jobs))[len(history)]

    return following


# -- image classification ---------------------------------------------------------------------------

ZOO = [
    ("resnet", 8, 1, FASHION),
    ("resnet", 8, 2, FASHION),
    ("resnet", 12, 1, FASHION),
    ("resnet", 16, 1, "mnist"),
    ("preresnet", 8, 1, FASHION),
    ("preresnet", 12, 1, FASHION),
    ("seresnet", 16, 1, FASHION),
    ("seresnet", 16, 1, "fashion-half"),
    ("wrn", 12, 1, FASHION),
    ("wrn", 8, 1, "fashion-half"),
    ("resnext", 8, 1, FASHION),
    ("resnext", 8, 2, FASHION),
    ("densenet", 8, 2, FASHION),
    ("densenet", 12, 1, "mnist"),
    ("vgg", 8, 1, FASHION),
    ("vgg", 12, 2, FASHION),
    ("mobilenet", 16, 2, FASHION),
    ("mobilenet", 16, 1, "mnist"),
    ("shufflenet", 8, 1, FASHION),
    ("shufflenet", 12, 1, FASHION),
]
_images = [Job({"kind": k, "width": w, "depth": d}, data) for k, w, d, data in ZOO]

# -- neural architecture search ----------------------------------------------------------------------

# Of the cells of NAS-Bench-201, those that differ on two edges: a grid of four by four.
_grid = [
    Job({"kind": "cell", "cell": ["conv3", "skip", first, "conv1", "pool", second]})
    for first, second in itertools.product(OPERATIONS, OPERATIONS)
]


def _evolution(seed: int, history: History, population: int = 4, sample: int = 3) -> Job:
    """Regularised evolution: of some of the youngest, the best is mutated on one edge."""
    chance = random.Random(1000 * seed + len(history))
    seen = [job.spec["cell"] for job, _ in history]
    if len(history) < population:
        return _job(_fresh(lambda: [chance.choice(["none", *OPERATIONS]) for _ in EDGES], seen, connected))
    rivals = chance.sample(history[-population:], sample)
    parent = max(rivals, key=lambda rival: rival[1])[0].spec["cell"]

    def mutate() -> list[str]:
        cell = list(parent)
        cell[chance.randrange(len(EDGES))] = chance.choice(["none", *OPERATIONS])
        return cell

    return _job(_fresh(mutate, seen, connected))


def _fresh(
    make: Callable[[], list[Any]], seen: list[list[Any]], valid: Callable[[list[Any]], bool] = bool
) -> list[Any]:
    """Genes that are valid and have not been tried; after many attempts, some that have."""
    for attempt in itertools.count():
        genes = make()
        if valid(genes) and (genes not in seen or attempt > 100):
            return genes
    raise AssertionError


def _job(cell: list[str]) -> Job:
    return Job({"kind": "cell", "cell": cell})


def _bayesian(seed: int, history: History) -> Job:
    """The tree-structured Parzen estimator of Optuna, over kinds, widths and depths."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=4)
    )

    def ask() -> tuple[Any, Job]:
        trial = study.ask()
        kind = trial.suggest_categorical("kind", ["resnet", "preresnet", "vgg", "wrn"])
        width, depth = trial.suggest_int("width", 6, 16, step=2), trial.suggest_int("depth", 1, 2)
        return trial, Job({"kind": kind, "width": width, "depth": depth})

    for _, score in history:
        study.tell(ask()[0], score)
    return ask()[1]


# -- ensemble and language -----------------------------------------------------------------------------

MEMBERS = [(8, 1), (12, 1), (8, 2), (16, 1), (12, 2), (10, 1), (10, 2), (6, 2), (14, 1), (8, 3)]
_members = [Job({"kind": "vgg", "width": width, "depth": depth}) for width, depth in MEMBERS]

MODELS = [
    ("gpt2", 32, 1),
    ("gpt2", 32, 2),
    ("gpt2", 48, 1),
    ("gpt2", 48, 2),
    ("llama", 32, 1),
    ("llama", 32, 2),
    ("llama", 48, 1),
    ("bert", 32, 1),
    ("bert", 32, 2),
    ("bert", 48, 1),
]
_models = [Job({"kind": k, "width": w, "depth": d}, "speeches") for k, w, d in MODELS]

# -- a long sequence -----------------------------------------------------------------------------------

# Widths of the three stages, then how many convolutions each has: 512 networks.
GENES = ((4, 6, 8, 10), (8, 12, 16, 20), (16, 24, 32, 40), (1, 2), (1, 2), (1, 2))


def _long(seed: int, history: History, sample: int = 5) -> Job:
    """Plain networks: of five earlier ones the best, changed in one respect; every fifth is drawn anew."""
    chance = random.Random(1000 * seed + len(history))
    seen = [job.spec["genes"] for job, _ in history]

    def draw() -> list[int]:
        return [chance.choice(choices) for choices in GENES]

    def mutate() -> list[int]:
        rivals = chance.sample(history, min(sample, len(history)))
        genes = list(max(rivals, key=lambda rival: rival[1])[0].spec["genes"])
        place = chance.randrange(len(GENES))
        genes[place] = chance.choice(GENES[place])
        return genes

    return Job({"kind": "plain", "genes": _fresh(mutate if len(history) % 5 else draw, seen)})


SGD, ADAM = (0.1, 0.03), (6e-3, 2e-3)
WORKLOADS = {
    each.name: each
    for each in (
        Workload("images", "Image classification", 14, SGD, _shuffled(_images)),
        Workload("grid", "Grid-search NAS", 10, SGD, _in_order(_grid)),
        Workload("ensemble", "Ensemble", len(_members), SGD, _shuffled(_members)),
        Workload("language", "Language modelling", 8, ADAM, _shuffled(_models)),
        Workload("evolution", "Evolution NAS", 12, SGD, _evolution),
        Workload("bayesian", "Bayesian NAS", 10, SGD, _bayesian),
    )
}
LONG = Workload("long", "Long sequence", 100, SGD, _long, 300)
