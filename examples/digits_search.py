"""How are the networks of the demo trained: cold, warm and cold cut as short? See demo.py, which shows it."""

import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from modelkeeper import ModelKeeperClient

TASK = {"data": "digits", "task": "classification"}
BATCH, RATE = 64, 0.05
NETWORKS = [
    (width, blocks) for blocks in (1, 2) for width in (12, 14, 16, 20)
]  # blocks of each of two stages
STEPS = 300
WAYS = ("cold", "warm", "cut")


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """The sum, rectified."""
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(inner)))


class ResNet(nn.Module):
    """A stem, two stages of residual blocks, and a head."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.first = nn.Sequential(*[Block(width) for _ in range(blocks)])
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.second = nn.Sequential(*[Block(2 * width) for _ in range(blocks)])
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.first(torch.relu(self.norm(self.stem(x))))
        x = self.second(torch.relu(self.down(x)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


@dataclass(frozen=True)
class Part:
    """Images and their classes."""

    images: Tensor
    classes: Tensor


@cache
def digits(seed: int) -> tuple[Part, Part, Part]:
    """To learn from (each image in nine positions), to measure by, and to judge by."""
    images, classes = load_digits(return_X_y=True)
    split: Callable[..., Any] = train_test_split
    first, rest, first_classes, rest_classes = split(
        images, classes, train_size=500, random_state=seed, stratify=classes
    )
    second, third, second_classes, third_classes = split(
        rest, rest_classes, test_size=1000, random_state=seed, stratify=rest_classes
    )

    def part(pixels: Any, labels: Any) -> Part:
        shaped = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)
        return Part((shaped - 4.88) / 6.02, torch.tensor(labels))

    learn = part(first, first_classes)
    larger = pad(learn.images, (1, 1, 1, 1), value=float(learn.images.min()))
    shifted = [larger[:, :, y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
    learn = Part(torch.cat(shifted), learn.classes.repeat(len(shifted)))
    return learn, part(second, second_classes), part(third, third_classes)


@dataclass(frozen=True)
class Job:
    """A training to be done by another process."""

    network: tuple[int, int]
    steps: int
    seed: int  # of the initial values and the batches
    split: int  # the seed of the three parts
    weights: dict[str, Any] | None = None  # to start from; None: its initial values


@dataclass(frozen=True)
class Trained:
    """What came of a training."""

    steps: int
    seconds: float  # of CPU
    accuracy: float  # on the images that nobody has seen
    measured: float  # on those that the keeper is told of
    weights: dict[str, Any] = field(repr=False)


def build(network: tuple[int, int], seed: int) -> ResNet:
    """The network with its initial values."""
    torch.manual_seed(seed)
    return ResNet(*network)


def accuracy(model: nn.Module, part: Part) -> float:
    """The share of images that are told right."""
    model.eval()
    with torch.inference_mode():
        return float((model(part.images).argmax(1) == part.classes).float().mean())


def train(job: Job) -> Trained:
    """Train: SGD, the learning rate falls to zero along a cosine."""
    learn, measure, test = digits(job.split)
    model = build(job.network, job.seed)
    if job.weights is not None:
        model.load_state_dict({name: torch.tensor(values) for name, values in job.weights.items()})
    batches = torch.Generator().manual_seed(job.seed)
    began = time.process_time()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, job.steps)
    model.train()
    for _ in range(job.steps):
        chosen = torch.randint(len(learn.classes), (BATCH,), generator=batches)
        loss = cross_entropy(model(learn.images[chosen]), learn.classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    seconds = time.process_time() - began
    return Trained(job.steps, seconds, accuracy(model, test), accuracy(model, measure), arrays(model))


def arrays(model: nn.Module) -> dict[str, Any]:
    """The weights as NumPy arrays, which travel between processes as plain bytes."""
    return {name: values.numpy() for name, values in model.state_dict().items()}


def prepare() -> None:
    """Make a process ready: what PyTorch does once is not to be counted for whichever comes first."""
    torch.set_num_threads(1)  # the networks are so small that threads would wait for each other
    train(Job((4, 1), 2, 0, 0))


def acquaint(client: ModelKeeperClient) -> float:
    """The same for the keeper: what its first query imports. How many CPU seconds that took."""
    began = time.process_time()
    client.query_for_model(nn.Linear(2, 2), {"data": "nothing", "task": "nothing"})
    return time.process_time() - began


@dataclass
class Row:
    """One network of the search, and what is known of it so far."""

    name: str
    network: tuple[int, int]
    seed: int
    parent: str = ""  # what it started from; "" as long as it has not asked; "none": a cold start
    keeper: float = 0.0  # CPU seconds of asking and registering
    trained: dict[str, Trained] = field(default_factory=dict)

    def seconds(self, way: str) -> float:
        """All that this way costs."""
        return self.trained[way].seconds + (self.keeper if way == "warm" else 0.0)


class Search:
    """The three ways through all networks, on several processes."""

    def __init__(self, client: ModelKeeperClient, steps: int, seed: int, networks: int) -> None:
        chosen = NETWORKS.copy()
        random.Random(seed).shuffle(chosen)
        self.client, self.steps, self.split = client, steps, seed
        self.rows = [
            Row(f"resnet-{width}x{blocks}", (width, blocks), 100 * seed + number)
            for number, (width, blocks) in enumerate(chosen[:networks])
        ]
        self._begun: set[tuple[int, str]] = set()
        self._wanted: dict[int, int] = {}  # number of a row: the steps that were advised

    def run(self, processes: int) -> Iterator[tuple[Row, str]]:
        """Train everything; every training that is done is given as it comes."""
        running: dict[Future[Trained], tuple[int, str]] = {}
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, spawn, initializer=prepare) as pool:
            while not all(len(row.trained) == len(WAYS) for row in self.rows):
                while len(running) < processes and (found := self._next()) is not None:
                    number, way, job = found
                    self._begun.add((number, way))
                    running[pool.submit(train, job)] = number, way
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    number, way = running.pop(done)
                    yield self._note(self.rows[number], way, done.result())
                yield from self._settle()

    def _next(self) -> tuple[int, str, Job] | None:
        """What to train next: the network that the next one waits for, then whatever is left."""
        asked = len(self._wanted)
        if asked < len(self.rows) and (asked == 0 or "warm" in self.rows[asked - 1].trained):
            job = self._ask(asked)
            way = "cold" if job.weights is None else "warm"
            if (asked, way) not in self._begun:
                return asked, way, job
        for way in ("cold", "cut"):
            for number, row in enumerate(self.rows):
                steps = self.steps if way == "cold" else self._wanted.get(number, self.steps)
                if (number, way) not in self._begun and (way == "cold" or steps < self.steps):
                    return number, way, Job(row.network, steps, row.seed, self.split)
        return None

    def _ask(self, number: int) -> Job:
        """What the keeper lends, and for how many steps it advises to train."""
        row, began = self.rows[number], time.process_time()
        model, answer = self.client.query_for_model(build(row.network, row.seed), TASK)
        row.keeper += time.process_time() - began
        row.parent = "none" if answer.cold else answer.parent_name
        self._wanted[number] = max(1, round(self.steps * answer.advice.schedule))
        weights = None if answer.cold else arrays(model)
        return Job(row.network, self._wanted[number], row.seed, self.split, weights)

    def _settle(self) -> Iterator[tuple[Row, str]]:
        """Where two ways are the same training, step by step, it is done once."""
        for number, wanted in self._wanted.items():
            row = self.rows[number]
            cold = row.trained.get("cold")
            if cold and row.parent == "none" and "warm" not in row.trained:
                yield self._note(row, "warm", cold)
            if cold and wanted == self.steps and "cut" not in row.trained:
                yield self._note(row, "cut", cold)

    def _note(self, row: Row, way: str, trained: Trained) -> tuple[Row, str]:
        row.trained[way] = trained
        if way == "warm":
            self._register(row, trained)
        return row, way

    def _register(self, row: Row, trained: Trained) -> None:
        model = ResNet(*row.network)
        model.load_state_dict({name: torch.tensor(values) for name, values in trained.weights.items()})
        began = time.process_time()
        self.client.register_model(model, {**TASK, "accuracy": trained.measured, "name": row.name})
        row.keeper += time.process_time() - began
