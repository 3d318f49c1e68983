"""Train copies of a model on labelled batches, and leave no trace on the model: what a race needs of PyTorch.

    batches = labelled(loader, 50)
    trial = TorchTrial(model, weights, loss, optimizer)     a copy, with a copy of the optimizer
    trial.step(batches[0])                                  the loss, and then a training step

A copy trains with the user's own optimizer and loss. The model itself, its optimizer, its mode and the state
of every random generator stay as they were, whatever happens. Memory: for each trial a copy of the model, its
gradients and its optimizer's state. Who races whom and who wins: `modelkeeper.warmstart.race`.
"""

import copy
import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotProbe
from modelkeeper.frontends.protocol import FEWEST_BATCHES, Batch
from modelkeeper.frontends.torch.examples import batches_in, split
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.random_state import keep_random_state
from modelkeeper.frontends.torch.read_load import load
from modelkeeper.frontends.torch.recorder import CPU, map_tensors, tensors_in
from modelkeeper.frontends.torch.side_effects import unwrap
from modelkeeper.text import first_line

SMALL = 32  # examples of a batch, if a single one was given and is cut
Loss = Callable[[Any, Any], Tensor]


class Labelled(NamedTuple):
    """A labelled batch: the inputs of the model, and the labels."""

    inputs: Inputs
    labels: Any


def _mapped(batch: Batch, change: Callable[[Tensor], Tensor]) -> Labelled:
    """A batch with every tensor changed."""
    given = batch.inputs.args, dict(batch.inputs.kwargs), batch.labels
    args, kwargs, labels = map_tensors(given, change)
    return Labelled(Inputs(args, tuple(kwargs.items())), labels)


def labelled(batches: Any, most: int) -> list[Labelled]:
    """The first labelled batches. A single one is cut into smaller ones.

    Raises:
        CannotProbe: They have no labels, are too few, or are no tensors.
    """
    with keep_random_state():
        try:
            read = [Labelled(*split(batch)) for batch in islice(batches_in(batches), most)]
        except TypeError:
            problem = f"{type(batches).__name__} is no collection of batches"
            raise CannotProbe(problem, "Give a DataLoader, or a list of pairs (x, y) or dicts") from None
    for batch in read:
        if not any(tensor.ndim for tensor in tensors_in((batch.inputs.args, dict(batch.inputs.kwargs)))):
            raise CannotProbe("a batch holds no tensors", "Give pairs (x, y), or dicts of tensors")
        if batch.labels is None:
            raise CannotProbe("a batch has no labels", 'Give pairs (x, y), or dicts with "labels"')
    if len(read) == 1:
        read = _cut(read[0], most)
    if len(read) < FEWEST_BATCHES:
        raise CannotProbe(f"there are {len(read)} batches", f"Give at least {FEWEST_BATCHES}, better 50")
    return read


def _cut(batch: Labelled, most: int) -> list[Labelled]:
    """A single batch as several."""
    everything = [*tensors_in((batch.inputs.args, dict(batch.inputs.kwargs), batch.labels))]
    rows = {tensor.shape[0] if tensor.ndim else 0 for tensor in everything}
    count = rows.pop() if len(rows) == 1 else 0
    if count < FEWEST_BATCHES * 2:
        problem = f"there is one batch, of {count} examples" if count else "there is one batch"
        raise CannotProbe(problem, f"Give at least {FEWEST_BATCHES} batches, better 50")
    size = min(SMALL, count // FEWEST_BATCHES)

    def piece(first: int) -> Labelled:
        return _mapped(batch, lambda tensor: tensor[first : first + size])

    return [piece(first) for first in range(0, count - size + 1, size)][:most]


def duplicate(model: nn.Module) -> nn.Module:
    """A copy of a model, without what wraps it.

    Raises:
        CannotProbe: It cannot be copied.
    """
    copied: nn.Module = _copied(unwrap(model))
    return copied


def _copied(thing: Any) -> Any:
    try:
        return copy.deepcopy(thing)
    except Exception as problem:
        raise CannotProbe(
            f"the model cannot be copied: {first_line(problem)}", "Start without a probe"
        ) from problem


class TorchTrial:
    """A copy of a model, in training: see `modelkeeper.frontends.protocol.Trials.trial`."""

    def __init__(
        self, model: nn.Module, weights: Mapping[str, Any], loss: Loss | None, optimizer: Any
    ) -> None:
        given = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        with keep_random_state(seed=0):
            # Together: the one's parameters are the other's.
            self._model, copied = _copied((unwrap(model), given))
            load(self._model, weights)
            if copied is not None:
                copied.state.clear()
            self._optimizer = copied if copied is not None else self._made(optimizer)
        self._loss, self._steps = loss, 0
        self._device = next((parameter.device for parameter in self._model.parameters()), CPU)
        self._model.train()

    def step(self, batch: Batch) -> float:
        """The loss of a batch, and then a training step on it."""
        number, self._steps = self._steps, self._steps + 1
        with keep_random_state(seed=number):
            moved = _mapped(batch, lambda tensor: tensor.to(self._device))
            try:
                with torch.enable_grad():
                    self._optimizer.zero_grad()
                    loss = self._loss_of(moved)
                    value = float(loss.detach())
                    if math.isfinite(value):
                        torch.autograd.backward(loss)
                        self._optimizer.step()
            except CannotProbe:
                raise
            except Exception as problem:
                raise CannotProbe(
                    f"a training step failed: {first_line(problem)}",
                    "Look at the loss, the batches and the optimizer",
                ) from problem
        return value

    def _made(self, optimizer: Any) -> torch.optim.Optimizer:
        learning = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        try:
            made: torch.optim.Optimizer = (optimizer or torch.optim.AdamW)(learning)
        except Exception as problem:
            raise CannotProbe(
                f"optimizer= made none: {first_line(problem)}",
                "Give one, or a function that makes one of parameters",
            ) from problem
        return made

    def _loss_of(self, batch: Labelled) -> Tensor:
        args, kwargs = batch.inputs.args, dict(batch.inputs.kwargs)
        if self._loss is not None:
            return self._loss(self._model(*args, **kwargs), batch.labels)
        if not kwargs:
            raise CannotProbe("it is not said what is to be made small", "Give loss=, e.g. cross_entropy")
        loss = getattr(self._model(*args, **kwargs, labels=batch.labels), "loss", None)
        if not isinstance(loss, Tensor):
            raise CannotProbe("the model's outputs have no loss", "Give loss=, e.g. cross_entropy")
        return loss
