"""One training, from its start to its end: how did it start, how good did it become, what is kept of it?

    run = client.start(model, meta)             asks the keeper, once
    run.report(accuracy=0.91, step=3, model=model)      as often as you like
    run.finish()                                registers, once

A report with the model keeps a copy of its weights if it is the best so far, and has it registered in the
background, as a version of one model: each takes the place of the one before. Until `finish` it is marked as
unfinished, and lent with a lower standing; a training that is killed or stopped early leaves it. What a
report costs is bounded: copies take no more than a share of the time since the start, and versions are
written no more often than every few seconds.

Where several processes train a model together, one speaks for all: what the others report with the model is
not kept twice. Of a model that is divided among them all report, or none.
"""

import atexit
import hashlib
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from modelkeeper.errors import InvalidMetric, InvalidSetting, ModelRefused, NotFinite, RanksApart
from modelkeeper.faults import WRONG_REGISTRATION, Faults, warn
from modelkeeper.frontends import Frontend, frontend_for
from modelkeeper.lineage import descended, name_of
from modelkeeper.logs import logger
from modelkeeper.meta import read_registration
from modelkeeper.policy.curves import Drawing
from modelkeeper.policy.objective import Objective, by_rule
from modelkeeper.policy.quality import Metric, number
from modelkeeper.warmstart.answer import Answer

if TYPE_CHECKING:
    from modelkeeper.graph import Graph
    from modelkeeper.weights import Array
    from modelkeeper.zoo.records import Record, Registration

M = TypeVar("M")
T = TypeVar("T")
_log = logger()
EVERY = 10.0  # seconds between two versions that are written
SHARE = 0.02  # of the time since the start is what copies may take, and so is what writing them may take
FREE = 0.25  # seconds that they may take in any case
ENDING = 60.0  # seconds that a process waits at its end for what is being written
KEEPS = ("best", "last")


class Described(Struct, frozen=True):
    """What a model is, apart from its weights: it is the same for all versions."""

    graph: "Graph"
    program: bytes


class Version(Struct, frozen=True):
    """A state of a model that can be registered: copies of its weights, and how good it was with them."""

    tensors: "dict[str, Array]"
    metric: Metric | None
    metrics: dict[str, float]


class Keeper(Protocol):
    """What a run needs of a client."""

    @property
    def faults(self) -> Faults:
        """What becomes of its faults."""

    def describe(self, model: Any, example_inputs: Any) -> Described:
        """What a model is."""

    def once(self, model: Any, act: "Callable[[Frontend], T]") -> T:
        """Act in one of the processes that train a model together; what came of it comes to all of them."""

    def aside(self, model: Any, act: "Callable[[Frontend], None]", speaks: bool) -> None:
        """Act in the process that speaks for those that train a model together, without holding them up."""

    def keep(
        self, described: Described, tensors: "dict[str, Array]", registration: "Registration"
    ) -> "Record":
        """Register a model."""


class Run(Generic[M]):
    """A training under way: the model, how it started, and how good it has become.

    Made by `client.start` and `client.training`.
    """

    def __init__(
        self,
        keeper: Keeper,
        model: M,
        answer: Answer,
        meta: Mapping[str, Any],
        *,
        identity: str,
        objective: Objective | None = None,
        keep: str = "best",
        every: float = EVERY,
        example_inputs: Any = None,
        speaks: bool = True,
    ) -> None:
        if keep not in KEEPS:
            raise InvalidSetting("keep", repr(keep), 'choose "best" or "last"')
        if not every >= 0:
            raise InvalidSetting("every", repr(every), "give a number of seconds, 0 or more")
        self.model, self.answer = model, answer
        self.metrics: dict[str, float] = {}  # the newest value of each
        self.best: Metric | None = None  # of what has been reported with the model
        self.record: Record | None = None  # what is in the zoo of it: after `finish`, its end
        self.identity = identity
        self.finished = False
        self._keeper, self._meta, self._example_inputs = keeper, dict(meta), example_inputs
        self._objective, self._keep = objective, keep
        self._described: Described | None = None
        self._version: Version | None = None  # what would be registered now
        self._owed: dict[str, float] | None = None  # the last report, if there was no time to copy the model
        self._speaks = speaks  # for all processes that train the model together
        self._apart = False  # some of those did not report what others did
        self._began, self._copying = time.perf_counter(), 0.0
        self._since, self._drawing = self._began, Drawing()
        self._writer = _Writer(self._write, every)

    def report(
        self,
        metrics: Mapping[str, Any] | None = None,
        /,
        *,
        step: int | None = None,
        model: Any = None,
        **more: Any,
    ) -> None:
        """How good the model is now, e.g. `accuracy=0.93` or `val_loss=0.31`.

        Args:
            metrics: The same by names that are no names in Python: {"val/acc": 0.93}.
            step: When it was measured: an epoch, or a step. It stands among the metrics of what is kept.
            model: The model as it was measured: what is kept of a training that does not reach its end, and
                the best of them all at its end. Without it, what is registered is the model as `finish`
                finds it, with the last report of each metric.
            more: See `metrics`.

        Raises:
            InvalidMetric: A number cannot be so. NaN can: the training has diverged, and the report does not
                count.
        """
        given = {**(metrics or {}), **more}
        measured = {}
        for name, value in given.items():
            try:
                measured[name] = number(name, value)
            except NotFinite:
                self.metrics.pop(name, None)  # what it was before says nothing of now
        self.metrics |= measured | ({} if step is None else {"step": float(step)})
        self._draw(measured, step)
        if model is not None and not self.finished and not self._apart:
            lost = set(given) - set(measured)
            with self._keeper.faults.guard("This state of the model is not kept"):
                try:
                    self._keeper.aside(
                        model,
                        lambda frontend: self._take(frontend, model, measured, lost),
                        self._speaks,
                    )
                except RanksApart:
                    self._apart = True  # waiting for them once is enough
                    raise

    def _draw(self, measured: Mapping[str, float], step: int | None) -> None:
        """Note for the curve how good the model is by now; by which metric it is compared is left open."""
        objective = self._objective or by_rule(measured)
        metric = objective.measure(measured) if objective is not None else None
        if metric is not None and not self.finished:
            self._drawing.add(metric, time.perf_counter() - self._since, step)

    def finish(self, metrics: Mapping[str, Any] | None = None, *, model: Any = None) -> "Record | None":
        """The training has ended: register it; what was reported before is replaced. Twice is once.

        Args:
            metrics: A last report.
            model: With this model.

        Returns:
            Its record; None if it was not taken (a warning says why).
        """
        if self.finished:
            return self.record
        if metrics or model is not None:
            self.report(metrics, model=model)
        self.finished = True
        self._writer.stop()
        with self._keeper.faults.guard("The model was not registered", WRONG_REGISTRATION):
            try:
                self.record = self._keeper.once(self.model, self._end)
            except RanksApart:
                if self._version is None:
                    raise
                self.record = self._register(self._version, finished=True)
        self._version = None
        return self.record

    def stop(self) -> "Record | None":
        """The training was stopped before its end: what was reported is kept, as unfinished."""
        if not self.finished:
            self.finished = True
            self._writer.flush()
            self._writer.stop()
            self._version = None
        return self.record

    def flush(self) -> None:
        """Wait until what has been reported is written."""
        self._writer.flush()

    def registration(
        self, metric: Metric | None, metrics: Mapping[str, float], *, finished: bool
    ) -> "Registration":
        """What would be said of a state of the model.

        Args:
            metric: What it is compared by; None: that is found among `metrics`.
            metrics: All that was measured of it.
            finished: Has the training ended with it?
        """
        name = name_of(frontend_for(self.model), self.model)
        measured = {**self._meta, "metrics": {**(self._meta.get("metrics") or {}), **metrics}}
        if metric is not None:
            measured["metric"] = metric
        said = read_registration(measured, name)
        curve = self._drawing.curve(said.metric.name) if said.metric is not None else None
        said = msgspec.structs.replace(said, run=self.identity, finished=finished, curve=curve)
        return descended(said, self.answer)

    def _end(self, frontend: "Frontend") -> "Record | None":
        """Register what the training has come to."""
        with self._keeper.faults.guard("The model was not registered", WRONG_REGISTRATION):
            if self._version is None and not self.metrics:
                warn("The model was not registered: run.report(accuracy=...) was never called.")
                return None
            version = self._version
            if version is None or self._owed is not None:
                measured = self._owed or self.metrics
                version = Version(_copy(frontend, self.model), self.measure(measured), measured)
            return self._register(version, finished=True)
        return None

    def _take(self, frontend: "Frontend", model: Any, measured: Mapping[str, float], lost: set[str]) -> None:
        """Copy the weights if they are worth it, and there is time for it."""
        metric = self.measure(measured)
        if metric is None:
            if not lost:  # NaN is an outcome; a report without anything to compare by is a mistake
                names = ", ".join(sorted(measured)) or "nothing"
                advice = "report what was measured on other data, or name it: monitor=..."
                raise InvalidMetric(names, "it does not say how good the model is", advice)
            return
        better = self.best is None or metric.goodness > self.best.goodness
        spent = time.perf_counter() - self._began
        self._owed = None
        if self._keep == "best" and not better:
            return
        if self._copying > max(FREE, SHARE * spent):
            self._owed = dict(self.metrics)
            return
        began = time.perf_counter()
        if self._described is None:
            self._described = self._keeper.describe(model, self._example_inputs)
            self._began += time.perf_counter() - began  # once, and not for the copy
            began = time.perf_counter()
        self._version = Version(_copy(frontend, model), metric, dict(self.metrics))
        self.best = metric if better else self.best
        self._copying += time.perf_counter() - began
        self._writer.offer(self._version)

    def measure(self, measured: Mapping[str, float]) -> Metric | None:
        """What states of the model are compared by, as these numbers say it; None if they do not."""
        if self._objective is None:  # once it is found, all reports go by it
            self._objective = by_rule(measured)
        return self._objective.measure(measured) if self._objective is not None else None

    def _write(self, version: Version) -> None:
        """Register a version while the training goes on."""
        with self._keeper.faults.guard("This state of the model is not kept", ()):
            try:
                self.record = self._register(version, finished=False)
            except ModelRefused as refused:  # so early it may well be far below its peers
                _log.info("%s", refused)

    def _register(self, version: Version, finished: bool) -> "Record | None":
        if self._described is None:
            self._described = self._keeper.describe(self.model, self._example_inputs)
        registration = self.registration(version.metric, version.metrics, finished=finished)
        return self._keeper.keep(self._described, version.tensors, registration)


def _copy(frontend: "Frontend", model: Any) -> "dict[str, Array]":
    """The weights of a model, in memory of their own."""
    return {name: array.copy() for name, array in frontend.read(model)}


def identity_of(key: str) -> str:
    """What the zoo calls a training: for the same key the same, without one a new name."""
    return hashlib.sha256(key.encode()).hexdigest()[:16] if key else secrets.token_hex(8)


class _Writer:
    """Writes the newest of what it is offered, in the background, not more often than every few seconds."""

    def __init__(self, write: Callable[[Version], None], every: float) -> None:
        self._write, self._every = write, every
        self._waiting: Version | None = None
        self._changed = threading.Condition()
        self._busy = self._hurry = self._ended = False
        self._thread: threading.Thread | None = None

    def offer(self, version: Version) -> None:
        """Write this instead of what still waits."""
        with self._changed:
            if self._ended:
                return
            self._waiting = version
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="modelkeeper-run", daemon=True)
                self._thread.start()
                _WRITERS.add(self)
            self._changed.notify_all()

    def flush(self, seconds: float = ENDING) -> None:
        """Write what waits, at once."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or (self._waiting is None and not self._busy), seconds)
            self._hurry = False

    def stop(self) -> None:
        """Drop what waits, and wait for what is being written."""
        with self._changed:
            self._ended, self._waiting = True, None
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, ENDING)
        _WRITERS.discard(self)

    def _work(self) -> None:
        due = 0.0
        while True:
            with self._changed:
                while not self._ended and (
                    self._waiting is None or (not self._hurry and time.monotonic() < due)
                ):
                    self._changed.wait(None if self._waiting is None else max(0.0, due - time.monotonic()))
                version, self._waiting = self._waiting, None
                if version is None:
                    return
                self._busy = True
            written, began = False, time.thread_time()
            try:
                self._write(version)
                written = True
            finally:
                due = time.monotonic() + max(self._every, (time.thread_time() - began) / SHARE)
                with self._changed:
                    self._busy, self._ended = False, self._ended or not written
                    self._changed.notify_all()


_WRITERS: "weakref.WeakSet[_Writer]" = weakref.WeakSet()  # that have something to write, or may have


def _flush_all() -> None:
    for writer in list(_WRITERS):
        writer.flush()


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WRITERS.clear)  # their threads are not in the child
