"""Train one model, and write down how good it is along the way.

The rate is constant after a short warm-up, and what is judged (and registered) is a running average of the
weights over the last fifty steps. So the curve means something at every step: with a rate that decays, a
target is reached when the schedule ends, however the training began.

A training from scratch goes on until its plateau: until the best score of the last PATIENCE steps is no
more than MARGIN, relatively, better than the best before them. All others get just as many steps.
Seconds are of one core's own time, so that what else the machine does is not counted.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training.tasks import Task

MOMENTUM, DECAY = 0.9, 5e-4
WARM_UP = 20
AVERAGE = 0.98  # of the weights: fifty steps
EVERY = (
    20  # steps between two points of the curve at its beginning; twice that after 200, four times after 600
)
PATIENCE, MARGIN = 320, 0.003
LEAST, MOST = 500, 2_000


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


def train(
    model: nn.Module,
    task: Task,
    rate: float,
    seed: int,
    budget: int | None = None,
    enough: float | None = None,
    watch: Callable[[int, nn.Module], None] | None = None,
    decay: bool = False,
) -> tuple[nn.Module, Curve]:
    """The model with averaged weights, and its curve.

    Args:
        model: Is trained in place.
        task: What it is trained on.
        rate: Of learning, after the warm-up.
        seed: Of the order of examples.
        budget: How many steps. Default: until the plateau.
        enough: Stop when the score is so good.
        watch: Called at each point of the curve with the steps and the model that is being trained.
        decay: Lower the rate along a cosine, to zero at the end of the budget.
    """
    average = copy.deepcopy(model)
    pairs = _float_tensors(average), _float_tensors(model)
    optimizer = _optimizer(model, task, rate)
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.long)
    curve = Curve([0], [task.score(average)], 0.0)
    if watch is not None:
        watch(0, model)
    if curve.best >= (enough or 2):
        return average, curve
    for step in range(1, (budget or MOST) + 1):
        if len(order) < task.batch:
            order = torch.randperm(len(task.inputs), generator=generator)
        chosen, order = order[: task.batch], order[task.batch :]
        begun = time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = (
                rate * min(1.0, step / WARM_UP) * (_cosine(step / budget) if decay and budget else 1)
            )
        model.train()
        optimizer.zero_grad()
        torch.autograd.backward(task.loss(model, chosen))
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(pairs[0], pairs[1], 1 - min(AVERAGE, step / (step + 9)))
        curve.seconds += time.process_time() - begun
        if step % (EVERY << (step > 10 * EVERY) << (step > 30 * EVERY)) == 0 or step == budget:
            curve.steps.append(step)
            curve.scores.append(task.score(average))
            if watch is not None:
                watch(step, model)
            if (budget is None and settled(curve)) or curve.scores[-1] >= (enough or 2):
                break
    return average, curve


def _cosine(share: float) -> float:
    return (1 + math.cos(math.pi * share)) / 2


def settled(curve: Curve) -> bool:
    """Has the curve reached its plateau?"""
    last = curve.steps[-1]
    if last < LEAST:
        return False
    before = [score for step, score in zip(curve.steps, curve.scores, strict=True) if step <= last - PATIENCE]
    return curve.best <= max(before) * (1 + MARGIN)


def _float_tensors(model: nn.Module) -> list[Tensor]:
    """Parameters and statistics, each once."""
    found: list[Tensor] = [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]
    return found


def _optimizer(model: nn.Module, task: Task, rate: float) -> Any:
    if task.language:
        return torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    return torch.optim.SGD(model.parameters(), rate, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True)
