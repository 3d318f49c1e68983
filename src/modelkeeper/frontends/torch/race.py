"""Let starts of a model race on a few labelled batches, and leave no trace on the model.

    found = race(model, {"warm": weights, "cold": {}}, labelled(batches, 50), loss, optimizer)

Each start trains a copy of the model with the user's own optimizer and loss. The model itself, its optimizer,
its mode and the state of every random generator stay as they were, whatever happens. Memory: for each start
that is still in the race a copy of the model, its gradients and its optimizer's state.
"""

import copy
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from modelkeeper.errors import CannotProbe
from modelkeeper.frontends.races import FEWEST, STEPS, Race, Runner, heats, ranked, score, worthwhile
from modelkeeper.frontends.torch.examples import batches_in, split
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.read_load import load
from modelkeeper.frontends.torch.recorder import CPU, map_tensors, tensors_in
from modelkeeper.frontends.torch.side_effects import unwrap

COLD = "cold"  # the start that every race needs
SMALL = 32  # examples of a batch, if a single one was given and is cut
Loss = Callable[[Any, Any], Tensor]


class Labelled(NamedTuple):
    """A batch: what the model takes, and what should come of it."""

    inputs: Inputs
    labels: Any

    def to(self, device: torch.device) -> "Labelled":
        """The same on another device."""
        args, kwargs, labels = map_tensors(
            (self.inputs.args, dict(self.inputs.kwargs), self.labels), lambda tensor: tensor.to(device)
        )
        return Labelled(Inputs(args, tuple(kwargs.items())), labels)


def labelled(batches: Any, most: int) -> list[Labelled]:
    """The first batches, with their labels. A single one is cut into smaller ones.

    Raises:
        CannotProbe: They have no labels, are too few, or are no tensors.
    """
    with traceless():
        try:
            found = [Labelled(*split(each)) for each in islice(batches_in(batches), most)]
        except TypeError:
            problem = f"{type(batches).__name__} is no collection of batches"
            raise CannotProbe(problem, "Give a DataLoader, or a list of pairs (x, y) or dicts") from None
    for each in found:
        if not any(tensor.ndim for tensor in tensors_in((each.inputs.args, dict(each.inputs.kwargs)))):
            raise CannotProbe("a batch holds no tensors", "Give pairs (x, y), or dicts of tensors")
        if each.labels is None:
            raise CannotProbe("a batch has no labels", 'Give pairs (x, y), or dicts with "labels"')
    if len(found) == 1:
        found = _cut(found[0], most)
    if len(found) < FEWEST:
        raise CannotProbe(f"there are {len(found)} batches", f"Give at least {FEWEST}, better 50")
    return found


def _cut(batch: Labelled, most: int) -> list[Labelled]:
    """A single batch as several."""
    everything = [*tensors_in((batch.inputs.args, dict(batch.inputs.kwargs), batch.labels))]
    rows = {tensor.shape[0] if tensor.ndim else 0 for tensor in everything}
    count = rows.pop() if len(rows) == 1 else 0
    if count < FEWEST * 2:
        problem = f"there is one batch, of {count} examples" if count else "there is one batch"
        raise CannotProbe(problem, f"Give at least {FEWEST} batches, better 50")
    size = min(SMALL, count // FEWEST)

    def piece(first: int) -> Labelled:
        args, kwargs, labels = map_tensors(
            (batch.inputs.args, dict(batch.inputs.kwargs), batch.labels),
            lambda tensor: tensor[first : first + size],
        )
        return Labelled(Inputs(args, tuple(kwargs.items())), labels)

    return [piece(first) for first in range(0, count - size + 1, size)][:most]


def race(
    model: nn.Module,
    starts: Mapping[str, Mapping[str, Any]],
    batches: list[Labelled],
    loss: Loss | None = None,
    optimizer: Any = None,
    *,
    parents: Mapping[str, str] | None = None,
    steps: int = STEPS,
    seconds: float | None = None,
) -> Race:
    """Which start learns fastest?

    Args:
        model: Stays as it is.
        starts: Weights by name, the favourite first, and "cold" among them. What weights do not name is as
            the model has it, so those of a cold start may be empty.
        batches: What `labelled` made of the user's.
        loss: Of the model's outputs and the labels, to be differentiated. None: the outputs' own `loss`, as
            Hugging Face models give it when they are handed labels.
        optimizer: One that was built on the model's parameters, of which a copy without state is taken; or
            what makes one of parameters. Default: AdamW with its own rate.
        parents: Whose weights a start is made of, to be reported.
        steps: Of all starts together, at most.
        seconds: After so long no step is begun, and the ranking so far decides.

    Raises:
        CannotProbe: The model cannot be copied, a step fails, or no start has a loss that is a number.
    """
    began = time.perf_counter()
    end = math.inf if seconds is None else began + seconds
    losses: dict[str, list[float]] = {name: [] for name in starts}
    verdicts = {COLD: "not taken"}
    trials: dict[str, _Trial] = {}
    rivals = [name for name in starts if name != COLD]
    for heat, (until, going_on) in enumerate(heats(len(rivals), len(batches), steps), 1):
        for number in range(len(losses[COLD]), until):  # batch by batch, so that time cuts all alike
            if number >= FEWEST and time.perf_counter() > end:
                break
            for name in (*rivals, COLD):
                with traceless(seed=number):
                    if name not in trials:
                        trials[name] = _Trial(unwrap(model), starts[name], optimizer)
                    losses[name].append(trials[name].step(batches[number], loss))
        order = ranked({name: losses[name] for name in rivals})
        for name in order[going_on:]:
            verdicts[name] = f"out in heat {heat}"
            del trials[name]
        rivals = [name for name in rivals if name in order[:going_on]]
    (best,) = rivals
    try:
        winner = best if worthwhile(losses[best], losses[COLD]) else COLD
    except ValueError:
        advice = "Look at the loss and at the data"
        raise CannotProbe("no start has a loss that is a number", advice) from None
    verdicts |= {best: "not ahead of a cold start by enough"} if winner == COLD else {}
    verdicts |= {winner: "taken"}
    verdicts |= {name: "its loss is no number" for name in starts if math.isinf(score(losses[name]))}
    runners = [
        Runner(name, (parents or {}).get(name, ""), len(each), each[0], score(each), verdicts[name])
        for name, each in losses.items()
    ]
    runners.sort(key=lambda each: (each.start != winner, -each.steps, each.loss))
    took = time.perf_counter() - began
    return Race(winner, tuple(runners), sum(map(len, losses.values())), took)


def duplicate(model: nn.Module) -> nn.Module:
    """A copy of a model, without what wraps it.

    Raises:
        CannotProbe: It cannot be copied.
    """
    found: nn.Module = _copied(unwrap(model))
    return found


def _copied(thing: Any) -> Any:
    try:
        return copy.deepcopy(thing)
    except Exception as problem:
        raise CannotProbe(
            f"the model cannot be copied: {_told(problem)}", "Start without a probe"
        ) from problem


class _Trial:
    """A copy of the model, in training."""

    def __init__(self, model: nn.Module, weights: Mapping[str, Any], optimizer: Any) -> None:
        given = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None
        self._model, copied = _copied((model, given))  # together: the one's parameters are the other's
        load(self._model, weights)
        if copied is not None:
            copied.state.clear()
            self._optimizer: torch.optim.Optimizer = copied
        else:
            learning = [each for each in self._model.parameters() if each.requires_grad]
            try:
                self._optimizer = (optimizer or torch.optim.AdamW)(learning)
            except Exception as problem:
                raise CannotProbe(
                    f"optimizer= made none: {_told(problem)}",
                    "Give one, or a function that makes one of parameters",
                ) from problem
        self._device = next((each.device for each in self._model.parameters()), CPU)
        self._model.train()

    def step(self, batch: Labelled, loss: Loss | None) -> float:
        """The loss of a batch, and then a training step on it."""
        batch = batch.to(self._device)
        try:
            with torch.enable_grad():
                self._optimizer.zero_grad()
                found = self._loss(batch, loss)
                value = float(found.detach())
                if math.isfinite(value):
                    torch.autograd.backward(found)
                    self._optimizer.step()
        except CannotProbe:
            raise
        except Exception as problem:
            raise CannotProbe(
                f"a training step failed: {_told(problem)}", "Look at the loss, the batches and the optimizer"
            ) from problem
        return value

    def _loss(self, batch: Labelled, loss: Loss | None) -> Tensor:
        args, kwargs = batch.inputs.args, dict(batch.inputs.kwargs)
        if loss is not None:
            return loss(self._model(*args, **kwargs), batch.labels)
        if not kwargs:
            raise CannotProbe("it is not said what is to be made small", "Give loss=, e.g. cross_entropy")
        found = getattr(self._model(*args, **kwargs, labels=batch.labels), "loss", None)
        if not isinstance(found, Tensor):
            raise CannotProbe("the model's outputs have no loss", "Give loss=, e.g. cross_entropy")
        return found


@contextmanager
def traceless(seed: int | None = None) -> Iterator[None]:
    """Whatever is drawn, the user's generators go on as if nothing had been. `seed`: draw the same."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng():
            if seed is not None:
                torch.manual_seed(seed)
                np.random.seed(seed)
                random.seed(seed)
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _told(problem: Exception) -> str:
    text = str(problem).strip().partition("\n")[0][:300]
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
