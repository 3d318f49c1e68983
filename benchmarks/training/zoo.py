"""What has been trained so far, and what a new job may see of it.

A zoo here is a list: the registered models of one arrival sequence, in order, with their weights in files.
A job sees the models before it (`before`), never itself or a later one. Studies take a zoo apart and put
together others: half of it poor, only some of it, only other data sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.training.workloads import Job


@dataclass(frozen=True)
class Trained:
    """A model that has been registered."""

    number: int  # of its job, in order of arrival
    job: Job
    score: float
    weights: Path

    def model(self) -> nn.Module:
        """The model with its weights."""
        model = self.job.build(0)
        model.load_state_dict(torch.load(self.weights, weights_only=True))
        return model.eval()


Zoo = Sequence[Trained]


def before(zoo: Zoo, number: int) -> list[Trained]:
    """What a job may see: the models of the jobs that came before it."""
    return [each for each in zoo if each.number < number]


def save(model: nn.Module, path: Path) -> None:
    """Write the weights; a crash on the way leaves no half file under this name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    torch.save(model.state_dict(), scratch)
    scratch.replace(path)
