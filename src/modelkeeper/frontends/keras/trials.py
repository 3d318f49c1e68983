"""Train copies of a Keras model on labelled batches, and leave no trace on the model: what a race needs.

    batches = labelled(dataset, 50)
    trial = KerasTrial(model, weights, loss, optimizer)     as if it had a copy of its own
    trial.step(batches[0])                                  the loss, and then a training step

A copy trains by `train_on_batch`, on whichever backend is active, with the loss and optimizer that are given,
or else those that the model was compiled with. The model itself, its optimizer and random generators stay as
they were. Memory: one copy of the model, and for each trial its weights and its optimizer's state. Who races
whom and who wins: `modelkeeper.warmstart.race`.
"""

import inspect
import weakref
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import tree

from modelkeeper.errors import CannotProbe
from modelkeeper.frontends.keras.describe import study
from modelkeeper.frontends.keras.examples import ADVICE, batches_in, split
from modelkeeper.frontends.keras.inputs import open_inputs
from modelkeeper.frontends.keras.random_state import keep_names, keep_random_state
from modelkeeper.frontends.keras.read_load import load
from modelkeeper.frontends.keras.variables import layers_of
from modelkeeper.frontends.protocol import FEWEST_BATCHES, Batch
from modelkeeper.text import first_line

SMALL = 32  # examples of a batch, if a single one was given and is cut
_UNPROBED = "Start without a probe"


class Labelled(NamedTuple):
    """A labelled batch: the inputs of the model, and the labels."""

    inputs: Any
    labels: Any


def labelled(batches: Any, most: int) -> list[Labelled]:
    """The first labelled batches. A single one is cut into smaller ones.

    Raises:
        CannotProbe: They have no labels, are too few, or are no arrays.
    """
    with keep_random_state():
        try:
            read = [Labelled(*split(batch)) for batch in islice(batches_in(batches), most)]
        except TypeError:
            problem = f"{type(batches).__name__} is no collection of batches"
            raise CannotProbe(problem, ADVICE) from None
    for batch in read:
        if not all(isinstance(leaf, np.ndarray) and leaf.ndim for leaf in tree.flatten(batch.inputs)):
            raise CannotProbe("a batch holds no arrays", ADVICE)
        if batch.labels is None:
            raise CannotProbe("a batch has no labels", "Give pairs (x, y)")
    if len(read) == 1:
        read = _cut(read[0], most)
    if len(read) < FEWEST_BATCHES:
        raise CannotProbe(f"there are {len(read)} batches", f"Give at least {FEWEST_BATCHES}, better 50")
    return read


def _cut(batch: Labelled, most: int) -> list[Labelled]:
    """A single batch as several."""
    rows = {len(leaf) if leaf.ndim else 0 for leaf in tree.flatten((batch.inputs, batch.labels))}
    count = rows.pop() if len(rows) == 1 else 0
    if count < FEWEST_BATCHES * 2:
        problem = f"there is one batch, of {count} examples" if count else "there is one batch"
        raise CannotProbe(problem, f"Give at least {FEWEST_BATCHES} batches, better 50")
    size = min(SMALL, count // FEWEST_BATCHES)

    def piece(first: int) -> Labelled:
        return Labelled(*tree.map_structure(lambda leaf: leaf[first : first + size], tuple(batch)))

    return [piece(first) for first in range(0, count - size + 1, size)][:most]


def duplicate(model: Any) -> Any:
    """A copy of a model, with the same weights under the same names.

    Raises:
        CannotProbe: It cannot be made anew from its configuration.
    """
    with keep_random_state(), keep_names():
        try:
            made = _made_anew(model)
        except Exception as problem:
            why = f"the model cannot be made anew from its configuration: {first_line(problem)}"
            raise CannotProbe(why, f"Give it get_config(), or {_UNPROBED.lower()}") from problem
    _equip(made, model)
    return made


def _made_anew(model: Any) -> Any:
    if isinstance(model, keras.Sequential) or type(model) is keras.Model or hasattr(model, "_operations"):
        made = keras.models.clone_model(model)
    else:
        made = _from_config(model)
    if not made.built or len(made.weights) < len(model.weights):
        inputs = open_inputs(model) or study(model).trace.ran_on
        args, kwargs = tree.map_structure(_any_number, (inputs.args, dict(inputs.kwargs)))
        made(*args, **kwargs)
    return made


def _from_config(model: Any) -> Any:
    """A model that is written as a class: Keras adds to its configuration what it may not take."""
    kind, config = type(model), model.get_config()
    try:
        return kind.from_config(config)
    except TypeError:
        taken = inspect.signature(kind).parameters
        return kind.from_config({key: value for key, value in config.items() if key in taken})


def _any_number(leaf: Any) -> Any:
    """A symbolic tensor for any number of examples."""
    if not isinstance(leaf, keras.KerasTensor) or not leaf.shape:
        return leaf
    return keras.KerasTensor((None, *leaf.shape[1:]), dtype=leaf.dtype)


def _equip(made: Any, model: Any) -> None:
    """Give a copy the variables' names and numbers of its model."""
    pairs = list(zip(made.weights, model.weights, strict=False))
    alike = all(tuple(new.shape) == tuple(old.shape) for new, old in pairs)
    if len(made.weights) != len(model.weights) or not alike:
        raise CannotProbe("a copy of the model has other weights than the model", _UNPROBED)
    _assign(made.weights, [variable.value for variable in model.weights])
    for new, old in pairs:
        new.trainable = old.trainable
        new._path = old.path  # layers that a model's own code makes are numbered anew


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Write values into variables: copies, for a training step may use up the memory that it is given."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(keras.ops.copy(value))


class _Worker:
    """One copy of a model, in which all trials take turns: compiling one for each would take too long."""

    def __init__(self, model: Any, loss: Any, optimizer: Any) -> None:
        self.made_for = (loss, optimizer)
        self.copy = duplicate(model)
        self._compile(model, loss, optimizer)
        self.copy.optimizer.build(self.copy.trainable_variables)
        self._seeds = [seed for layer in layers_of(self.copy) for seed in layer._seed_generators]
        self._fresh = self._state()
        self._turn: KerasTrial | None = None

    def begin(self, trial: "KerasTrial", model: Any, weights: Mapping[str, Any]) -> None:
        """Let a trial begin with these weights, and with an optimizer without a past."""
        self._leave()
        _assign(self._variables(), self._fresh)
        _assign(self.copy.weights, [variable.value for variable in model.weights])
        load(self.copy, weights)
        self._turn = trial

    def train(self, trial: "KerasTrial", batch: Batch, seed: int) -> float:
        """A training step of a trial; its loss."""
        if self._turn is not trial:
            self._leave()
            _assign(self._variables(), trial.state)
            self._turn = trial
        for place, generator in enumerate(self._seeds):
            generator.state.assign(np.array([1_000 * seed + place, 0]))
        self.copy.reset_metrics()
        return float(self.copy.train_on_batch(batch.inputs, batch.labels, return_dict=True)["loss"])

    def _leave(self) -> None:
        if self._turn is not None:
            self._turn.state = self._state()
            self._turn = None

    def _variables(self) -> list[Any]:
        return [*self.copy.weights, *self.copy.optimizer.variables]

    def _state(self) -> list[Any]:
        return [keras.ops.copy(variable.value) for variable in self._variables()]

    def _compile(self, model: Any, loss: Any, optimizer: Any) -> None:
        compiled = getattr(model, "_compile_config", None)
        config = dict(compiled.config) if compiled is not None else {}
        given = getattr(model, "loss", None) if loss is None else loss
        if given is None:
            raise CannotProbe("it is not said what is to be made small", "Give loss=, or compile the model")
        weights = config.get("loss_weights") if loss is None else None
        made = _optimizer(model, optimizer)
        try:
            self.copy.compile(optimizer=made, loss=given, loss_weights=weights)
        except Exception as problem:
            raise CannotProbe(
                f"the copy cannot be compiled: {first_line(problem)}", "Look at loss= and optimizer="
            ) from problem


_workers: "weakref.WeakKeyDictionary[Any, weakref.ref[_Worker]]" = weakref.WeakKeyDictionary()


def _worker(model: Any, loss: Any, optimizer: Any) -> _Worker:
    """What trials of a model take turns in; it goes when the last of them goes."""
    known = _workers.get(model)
    worker = None if known is None else known()
    if worker is None or worker.made_for[0] is not loss or worker.made_for[1] is not optimizer:
        worker = _Worker(model, loss, optimizer)
        _workers[model] = weakref.ref(worker)
    return worker


class KerasTrial:
    """A model in training: see `modelkeeper.frontends.protocol.Trials.trial`."""

    def __init__(self, model: Any, weights: Mapping[str, Any], loss: Any, optimizer: Any) -> None:
        self.state: list[Any] = []  # what it has trained so far, while another trial has its turn
        self._steps = 0
        with keep_random_state(seed=0), keep_names():
            self._worker = _worker(model, loss, optimizer)
            self._worker.begin(self, model, weights)

    def step(self, batch: Batch) -> float:
        """The loss of a batch, and then a training step on it."""
        number, self._steps = self._steps, self._steps + 1
        with keep_random_state(seed=number), keep_names():
            try:
                return self._worker.train(self, batch, number)
            except Exception as problem:
                raise CannotProbe(
                    f"a training step failed: {first_line(problem)}",
                    "Look at the loss, the batches and the optimizer",
                ) from problem


def _optimizer(model: Any, given: Any) -> Any:
    """An optimizer without a past: like the one that was given, or the model's own."""
    chosen = getattr(model, "optimizer", None) if given is None else given
    if chosen is None:
        return keras.optimizers.AdamW()
    try:
        if isinstance(chosen, keras.optimizers.Optimizer):
            return type(chosen).from_config(chosen.get_config())
        return keras.optimizers.get(chosen if isinstance(chosen, (str, dict)) else chosen())
    except Exception as problem:
        raise CannotProbe(
            f"optimizer= made none: {first_line(problem)}", "Give one, its name, or a function that makes one"
        ) from problem


class KerasTrials:
    """Trains copies of Keras models: see `protocol.Trials`."""

    def labelled(self, batches: Any, most: int) -> Sequence[Labelled]:
        """The first batches, with their labels."""
        return labelled(batches, most)

    def duplicate(self, model: Any) -> Any:
        """A copy of a model."""
        return duplicate(model)

    def trial(self, model: Any, weights: Mapping[str, Any], loss: Any, optimizer: Any) -> KerasTrial:
        """A copy of the model with these weights, ready to train."""
        return KerasTrial(model, weights, loss, optimizer)
