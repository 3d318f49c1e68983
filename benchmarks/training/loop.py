"""Train one model, and write down how good it is along the way.

What is judged (and registered) is a running average of the weights over the last fifty steps. With a constant
rate, after a short warm-up, the curve means something at every step. With one that decays to zero along a
cosine, as most people train, only the end does.

A look at 10,000 pictures takes as long as fifty steps or more, so there are few: dense at the beginning,
where a warm start may be there at once, then every tenth of the budget, and five in the last fifth, the tail.
The score of a training is the mean over its tail. Seconds are of one core's own time, so that what else the
machine does is not counted.
"""

import copy
import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training.tasks import Task

MOMENTUM, DECAY = 0.9, 5e-4
WARM_UP = 20
AVERAGE = 0.98  # of the weights: fifty steps
FIRST = 20  # steps before the first look
EARLY = (FIRST, 40, 60, 80, 120, 160, 240, 320)
TAIL = 5  # looks


@dataclass
class Curve:
    """How good a model was after so many steps, and what that took."""

    steps: list[int]
    scores: list[float]
    seconds: float  # for all steps, without the judging

    @property
    def best(self) -> float:
        """The best score on the way."""
        return max(self.scores)


def tail(scores: list[float]) -> float:
    """The score of a training: the mean of its last looks."""
    return mean(scores[-TAIL:])


def looks(budget: int) -> list[int]:
    """After which steps a model is judged."""
    even = [round(budget * share / 100) for share in (40, 50, 60, 70)]
    last = [round(budget * share / 100) for share in (80, 85, 90, 95, 100)]
    return [step for step in EARLY if step < even[0]] + even + last


def train(
    model: nn.Module,
    task: Task,
    rate: float,
    seed: int,
    budget: int,
    enough: float | None = None,
    at: Collection[int] | None = None,
    quiet: float | None = None,
    decay: bool = False,
) -> tuple[nn.Module, Curve]:
    """The model with averaged weights, and its curve.

    Args:
        model: Is trained in place.
        task: What it is trained on.
        rate: Of learning, after the warm-up.
        seed: Of the order of examples.
        budget: How many steps.
        enough: Stop when the score is so good.
        at: After which steps it is judged. Default: `looks`, and before the first step.
        quiet: Once it is so good, it is judged in the tail only.
        decay: Lower the rate along a cosine, to zero at the end of the budget.
    """
    average = copy.deepcopy(model)
    pairs = _float_tensors(average), _float_tensors(model)
    optimizer = _optimizer(model, task, rate)
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    curve = Curve([], [], 0.0)
    at = {0, *looks(budget)} if at is None else set(at)
    always = set(looks(budget)[-TAIL:])
    for step in range(budget + 1):
        if step:
            if len(order) < task.batch:
                order = torch.randperm(len(task.inputs), generator=generator)
            chosen, order = order[: task.batch], order[task.batch :]
            begun = time.process_time()
            now = rate * min(1.0, step / WARM_UP) * (_cosine(step / budget) if decay else 1)
            for group in optimizer.param_groups:
                group["lr"] = now
            model.train()
            optimizer.zero_grad()
            torch.autograd.backward(task.loss(model, chosen))
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(pairs[0], pairs[1], 1 - min(AVERAGE, step / (step + 9)))
            curve.seconds += time.process_time() - begun
        silent = bool(curve.scores) and curve.best >= (quiet or 2) and step not in always
        if step in at and not silent:
            curve.steps.append(step)
            curve.scores.append(task.score(average))
            if curve.scores[-1] >= (enough or 2):
                break
    return average, curve


def _cosine(share: float) -> float:
    return (1 + math.cos(math.pi * share)) / 2


def _float_tensors(model: nn.Module) -> list[Tensor]:
    """Parameters and statistics, each once."""
    found: list[Tensor] = [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]
    return found


def _optimizer(model: nn.Module, task: Task, rate: float) -> Any:
    if task.language:
        return torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    return torch.optim.SGD(
        model.parameters(), rate, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True, fused=True
    )
