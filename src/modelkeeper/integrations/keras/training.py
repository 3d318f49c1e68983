"""What became of a training: how did it start, which epoch was its best, was it registered?

    begin -> ask, once, while the model is untrained -> see each epoch -> end -> registered

The weights of the best epoch are kept in memory, as EarlyStopping(restore_best_weights=True) does: what is
registered is then what was measured, whatever checkpoints and other callbacks do to the model afterwards.
A training that was interrupted has no end; it is registered with its best epoch when the next one begins, or
when the trial or the block around it ends.
"""

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modelkeeper.client import KeeperWarning, ModelKeeperClient
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.meta import read_training
from modelkeeper.policy.curves import Drawing
from modelkeeper.policy.objective import Objective, by_rule, numbers
from modelkeeper.policy.quality import Metric
from modelkeeper.text import first_line, one_line
from modelkeeper.warmstart.answer import Answer
from modelkeeper.weights import Array
from modelkeeper.zoo.records import Record

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(eq=False)
class Training:
    """One call of `fit`."""

    model: Any  # None when nothing more is to be done with it
    owner: Any  # the callback that looks after it
    begun: bool = False  # has its first epoch begun?
    answer: Answer | None = None  # None: the keeper was not asked
    why_not_asked: str = ""
    metric: Metric | None = None  # of the best epoch so far
    epoch: int | None = None  # which that is, from 0
    record: Record | None = None
    why_not_registered: str = ""
    logs: dict[str, float] = field(default_factory=dict)  # of the best epoch
    weights: list[Any] | None = None  # of the best epoch, until they are registered
    since: float = field(default_factory=time.perf_counter)
    drawing: Drawing = field(default_factory=Drawing)

    def see(self, epoch: int, logs: Mapping[str, Any], objective: Objective | None) -> None:
        """Keep the weights of this epoch if it is the best so far."""
        measured = objective.measure(logs) if objective else None
        if measured is not None:
            self.drawing.add(measured, time.perf_counter() - self.since, epoch + 1)
        if measured is not None and self.worse_than(measured):
            self.metric, self.epoch, self.logs = measured, epoch, numbers(logs)
            self.weights = copies_of_weights(self.model)

    def worse_than(self, metric: Metric) -> bool:
        """Would this number be an improvement?"""
        return self.metric is None or metric.goodness > self.metric.goodness

    def let_go(self, reason: str = "") -> None:
        """Nothing more is to be done: free the model and its weights."""
        self.model = self.owner = self.weights = None
        self.why_not_registered = reason


@dataclass
class Trial:
    """Trainings that count as one: the best of them is registered."""

    objective: Objective | None = None
    name: str = ""
    best: Training | None = None

    def take(self, training: Training, measured: Metric) -> None:
        """Keep the better one of this training and the best so far."""
        best, worse = training, self.best
        if self.best is not None and not self.best.worse_than(measured):
            best, worse = self.best, training
        self.best = best
        if worse is not None:
            worse.let_go("another execution of its trial was better")


class Session:
    """All trainings of one WarmStart and its copies.

    Raises:
        InvalidMeta: A key of `meta` is unknown, or a value cannot be so: said before the training.
    """

    def __init__(
        self,
        client: ModelKeeperClient,
        meta: Mapping[str, Any] | None,
        objective: Objective | None,
        *,
        register: bool = True,
        verbose: bool = False,
        example_inputs: Any = None,
        **query: Any,
    ) -> None:
        self._asked, self._registered = read_training(meta)
        self.client, self._keep, self._verbose = client, register, verbose
        self._objective, self._example_inputs, self._query = objective, example_inputs, query
        self.trainings: list[Training] = []
        self._open: Training | None = None  # what has begun and not ended
        self._trial: Trial | None = None

    @contextlib.contextmanager
    def guard(self, consequence: str) -> Iterator[None]:
        """Let nothing of the keeper stop a training, unless the client is to raise: warn instead."""
        try:
            yield
        except Exception as problem:
            if self.client.on_error == "raise":
                raise
            warnings.warn(one_line(f"{consequence}. {first_line(problem)}"), KeeperWarning, stacklevel=4)

    def begin(self, model: Any, owner: Any) -> Training | None:
        """A training begins; None if another copy of the callback in the same list looks after it."""
        other = self._open
        if other is not None and other.model is model and not other.begun and other.owner is not owner:
            return None
        self.finish()
        self._open = Training(model, owner)
        self.trainings.append(self._open)
        return self._open

    def ask(self, training: Training) -> None:
        """Load the most fitting known weights into the model."""
        # Whether it begins is known here: a model that is built by its first batch has been trained on that.
        arguments = {"trained": "replace"} | self._query
        _, training.answer = self.client.query_for_model(
            training.model, self._asked, example_inputs=self._example_inputs, **arguments
        )
        if self._verbose:
            print(one_line(f"ModelKeeper: {how_it_started(training)}"))

    def see(self, training: Training, epoch: int, logs: Mapping[str, Any]) -> None:
        """An epoch has ended."""
        if self._keep:
            training.see(epoch, logs, self._compared_by(logs))

    def end(self, training: Training) -> None:
        """A training has ended: register it, or leave it to its trial."""
        if self._open is training:
            self._open = None
        if not self._keep:
            training.let_go("it was not asked for")
        elif training.metric is None:
            self._leave_out(training)
        elif self._trial is not None:
            self._trial.take(training, training.metric)
        else:
            self._register(training, training.metric)

    def finish(self) -> None:
        """Register what was interrupted, with the best epoch that it reached."""
        if self._open is not None:
            self.end(self._open)

    @contextlib.contextmanager
    def trial(self, objective: Objective | None, name: str) -> Iterator[None]:
        """Trainings inside count as one, which is registered at the end, also of a block that raises."""
        if self._trial is not None:  # one inside of another is a part of it
            yield
            return
        self.finish()
        self._trial = Trial(self._objective or objective, name)
        try:
            yield
        finally:
            self.finish()
            trial, self._trial = self._trial, None
            if trial.best is not None and trial.best.metric is not None:
                self._register(trial.best, trial.best.metric, trial.name)

    def _compared_by(self, logs: Mapping[str, Any]) -> Objective | None:
        if self._trial is not None and self._trial.objective is not None:
            return self._trial.objective
        if self._objective is None:  # once it is found, all trainings of the session go by it
            self._objective = by_rule(logs, bare=False)
        return self._objective

    def _register(self, training: Training, measured: Metric, name: str = "") -> None:
        """Register the model with the weights of its best epoch; it then has its own again."""
        metrics = {**(self._registered.get("metrics") or {}), **training.logs}
        meta = ({"name": name} if name else {}) | self._registered | {"metric": measured, "metrics": metrics}
        model, last = training.model, copies_of_weights(training.model)
        with self.guard("The model was not registered"):
            model.set_weights(training.weights)
            try:
                training.record = self.client.register_model(
                    model,
                    meta,
                    example_inputs=self._example_inputs,
                    curve=training.drawing.curve(measured.name),
                )
            finally:
                model.set_weights(last)
        training.let_go("" if training.record is not None else "the zoo did not take it")
        if self._verbose:
            print(one_line(f"ModelKeeper: {what_became_of_it(training)}, {how_good_it_was(training)}"))

    def _leave_out(self, training: Training) -> None:
        """Nothing to compare it by: say so, unless it follows trainings that were measured (a final fit)."""
        objective = (self._trial and self._trial.objective) or self._objective
        wanted = f"{objective.name} is" if objective else "val_ metrics are"
        reason = f"{wanted} not in its logs, or no number that can be compared"
        training.let_go(reason)
        if not any(other.metric for other in self.trainings):
            advice = 'give validation_data or validation_split to fit, or monitor="..." to WarmStart'
            text = one_line(f"The model was not registered: {reason}; {advice}.")
            warnings.warn(text, KeeperWarning, stacklevel=4)


def copies_of_weights(model: Any) -> list[Array]:
    """What `model.get_weights` gives, in memory of its own, and with no warning of NumPy's on any backend."""
    return [to_numpy(variable).copy() for variable in model.weights]


def how_it_started(training: Training) -> str:
    """One line on the start."""
    answer = training.answer
    if answer is None:
        return f"not asked: {training.why_not_asked}" if training.why_not_asked else "not asked"
    if answer.cold:
        return f"cold: {answer.reason}"
    exact = ", exact" if answer.exact else ""
    return f"warm from {answer.parents_named} (similarity {answer.similarity:.2f}{exact})"


def what_became_of_it(training: Training) -> str:
    """One line on the end."""
    if training.record is not None:
        return f"registered as {training.record.name}"
    return f"not registered: {training.why_not_registered}" if training.why_not_registered else "under way"


def how_good_it_was(training: Training) -> str:
    """Its best epoch, counted from 1 as Keras prints them."""
    return "" if training.epoch is None else f"{training.metric} in epoch {training.epoch + 1}"


def as_table(trainings: list[Training]) -> "Table":
    """Trainings, for people."""
    from rich.table import Table

    table = Table("#", "start", "best epoch", "outcome", title="Trainings", title_justify="left")
    for number, training in enumerate(trainings, 1):
        start, outcome = how_it_started(training), what_became_of_it(training)
        table.add_row(str(number), start, how_good_it_was(training), outcome)
    return table
