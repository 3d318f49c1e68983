"""What is trained on what? A task gives batches, a loss, and a score from 0 to 1, higher is better.

task("fashion-mnist")     pictures; the score is the accuracy on pictures that are not trained on
task("mnist")             handwritten digits
task("fashion-half")      five classes of Fashion-MNIST, few examples, none of them in fashion-mnist's
task("speeches")          characters of speeches; the score is 1 / perplexity of the next character
"""

import math
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

from benchmarks.training import data

BATCH = 32
TRAINED, HELD_OUT = 4_000, 10_000  # pictures
HALF_CLASSES, HALF_TRAINED = (1, 3, 4, 6, 9), 1_280
CONTEXT, SEQUENCES = 64, 512  # characters, and how many such pieces are held out
SYMBOLS = " abcdefghijklmnopqrstuvwxyz0123456789.,;:'\"()-$\n"


@dataclass(frozen=True)
class Task:
    """Examples to train on, and others to judge by."""

    name: str
    inputs: Tensor
    targets: Tensor
    held_out: Tensor
    held_targets: Tensor
    classes: int
    language: bool = False

    @property
    def batch(self) -> int:
        """Examples to a step."""
        return BATCH // 2 if self.language else BATCH

    def loss(self, model: nn.Module, chosen: Tensor) -> Tensor:
        """Of a batch of training examples, given by their numbers."""
        return self._loss(model, self.inputs[chosen], self.targets[chosen])

    def _loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.logits(model, inputs).flatten(0, -2), targets.flatten())

    def logits(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """What the model says of each class."""
        found: Any = model(inputs)
        return found.logits if self.language else found  # type: ignore[no-any-return]

    def score(self, model: nn.Module) -> float:
        """On the examples that are held out."""
        model.eval()
        with torch.inference_mode():
            if self.language:
                pieces = zip(self.held_out.split(128), self.held_targets.split(128), strict=True)
                losses = [float(self._loss(model, *piece)) for piece in pieces]
                return math.exp(-mean(losses))
            guesses = torch.cat([self.logits(model, piece).argmax(1) for piece in self.held_out.split(500)])
        return (guesses == self.held_targets).double().mean().item()


@cache
def task(name: str) -> Task:
    """By its name; read once."""
    if name == "speeches":
        return _speeches()
    if name == "fashion-half":
        return _pictures(name, "fashion-mnist", TRAINED, HALF_TRAINED, HALF_CLASSES)
    return _pictures(name, name, 0, TRAINED, tuple(range(10)))


def _pictures(name: str, source: str, skip: int, count: int, classes: tuple[int, ...]) -> Task:
    images, labels, tests, test_labels = data.images(source)

    def chosen(pictures: data.Array, numbers: data.Array, first: int, most: int) -> tuple[Tensor, Tensor]:
        these = np.flatnonzero(np.isin(numbers, classes))
        these = these[these >= first][:most]
        found = torch.tensor(pictures[these])[:, None].float() / 255
        found = avg_pool2d((found - 0.286) / 0.353, 2).contiguous(memory_format=torch.channels_last)
        return found, torch.tensor(np.searchsorted(classes, numbers[these]))

    return Task(
        name, *chosen(images, labels, skip, count), *chosen(tests, test_labels, 0, HELD_OUT), len(classes)
    )


def _speeches() -> Task:
    text = data.text("speeches").lower()
    lookup = np.zeros(256, np.int64)
    for number, symbol in enumerate(SYMBOLS):
        lookup[ord(symbol)] = number
    codes = lookup[np.frombuffer(text.encode("latin-1", "replace"), np.uint8)]
    pieces = torch.tensor(codes[: len(codes) // (CONTEXT + 1) * (CONTEXT + 1)]).reshape(-1, CONTEXT + 1)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(0))
    held, kept = pieces[order[:SEQUENCES]], pieces[order[SEQUENCES:]]
    return Task("speeches", kept[:, :-1], kept[:, 1:], held[:, :-1], held[:, 1:], len(SYMBOLS), language=True)
