"""What does every integration do, whatever its tool calls the hooks?

    warm = WarmTraining(client, meta, monitor="val_loss")     what cannot be so is said here
    warm.begin(model)                    before the optimizer and the DDP wrap: asks once, never on resume
    warm.report(metrics, model, step)    after each validation: the best state is kept, in the background
    warm.finish()                        registers once
    warm.stop()                          the tool ended it early: what was reported stays, as unfinished
    warm.facts()                         parent, similarity, advice: for a tool that logs

Once it is made nothing of it raises, unless the client was made with on_error="raise": a keeper never stops a
training. It can be pickled, for tools that send callbacks to other processes; the copy has not begun.
"""

import contextlib
import os
import secrets
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from modelkeeper.client import ModelKeeperClient
from modelkeeper.integrations.tracking import facts_of, log_facts, trackers
from modelkeeper.lineage import parents_said
from modelkeeper.meta import read_training
from modelkeeper.policy.objective import by_name, numbers
from modelkeeper.run import EVERY, Run

if TYPE_CHECKING:
    from modelkeeper.warmstart.answer import Answer
    from modelkeeper.zoo.records import Record

_NOT_BEGUN: dict[str, Any] = {"run": None, "key": "", "parent": "", "_trackers": []}
Where = ModelKeeperClient | str | os.PathLike[str] | None  # a client, or where the zoo is


class WarmTraining:
    """One training at a time: how it started, how good it became, what was registered.

    Args:
        client: Of the zoo that lends, and that keeps what was trained; or where that zoo is: a folder, an
            address. Default: as for `ModelKeeperClient`.
        meta: data, task, tags, fold; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        monitor: The metric that states of the model are compared by, as the tool calls it. Default: accuracy;
            else the only metric; else the loss; never one that was measured on the data trained on.
        mode: "min" or "max", where the name of the metric does not tell.
        keep: Of the reported states, register the "best" or the "last".
        every: Seconds between two versions that are written while the training goes on.
        register: Whether to register what was trained; False: only ask.
        example_inputs: What the model runs on, if that cannot be found from the model itself.
        track: A SummaryWriter of TensorBoard, a run of MLflow or W&B, or several of these: they are told how
            the training starts, as active runs of MLflow and W&B are in any case, and all that is reported.
        query: Further arguments of `ModelKeeperClient.query_for_model`: calibrate, labels, probe ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so.
    """

    def __init__(
        self,
        client: Where = None,
        meta: Mapping[str, Any] | None = None,
        *,
        monitor: str = "",
        mode: str = "auto",
        keep: str = "best",
        every: float = EVERY,
        register: bool = True,
        example_inputs: Any = None,
        track: Any = (),
        **query: Any,
    ) -> None:
        self.client = client if isinstance(client, ModelKeeperClient) else ModelKeeperClient(client)
        self.meta = dict(meta or {})
        read_training(self.meta)
        if monitor:
            by_name(monitor, mode)
        self._arguments: dict[str, Any] = {"monitor": monitor, "mode": mode, "keep": keep, "every": every}
        self._query, self._example_inputs, self._register = query, example_inputs, register
        self._trackers = trackers(track)
        self.run: Run[Any] | None = None
        self.key = ""  # what the training is called
        self.parent: str | list[str] = ""  # what it started from, as `meta` says it: see `begin`
        # The trainings of models that have begun, and their parents: see `knows`.
        self._known: weakref.WeakKeyDictionary[Any, tuple[str, str | list[str]]] = weakref.WeakKeyDictionary()

    @property
    def answer(self) -> "Answer | None":
        """What the keeper did; None before `begin`."""
        return None if self.run is None else self.run.answer

    @property
    def record(self) -> "Record | None":
        """What is in the zoo of it."""
        return None if self.run is None else self.run.record

    def knows(self, model: Any) -> bool:
        """Has a training of this model begun before? Then a further one goes on: it is resumed."""
        try:
            return model in self._known
        except TypeError:  # it cannot be referred to weakly
            return False

    def begin(
        self,
        model: Any,
        *,
        key: str = "",
        parent: str | list[str] = "",
        resumed: bool = False,
        meta: Mapping[str, Any] | None = None,
        example_inputs: Any = None,
    ) -> "Answer | None":
        """A training begins: load the most fitting known weights into the model.

        Args:
            model: Before an optimizer is built on it, and before it is wrapped.
            key: What the tool calls the training, if it may go on later: see `ModelKeeperClient.start`.
            parent: What a training that goes on had started from: `parent` of the one before.
            resumed: It goes on, from a checkpoint, or with a model that this `knows` (which keeps its key and
                its parent): the model is left as it is.
            meta: What is known of this training besides, e.g. its name.
            example_inputs: What this model runs on, unless that was said when this was made.

        Returns:
            What was done; None if the keeper could not even be asked.
        """
        self.stop()  # one that has not ended: its tool failed without telling
        known = self._known[model] if resumed and self.knows(model) else ("", "")
        self.run = None
        self.key, self.parent = key or known[0] or secrets.token_hex(8), parent or known[1]
        inputs = example_inputs if self._example_inputs is None else self._example_inputs
        with self.client.faults.guard("The model starts cold", ()):
            self.run = self.client.start(
                model,
                {"parent": self.parent, **self.meta, **(meta or {})},
                key=self.key,
                resumed=resumed,
                example_inputs=inputs,
                **self._arguments,
                **self._query,
            )
            self.parent = self.parent or parents_said(self.run.answer)
            with contextlib.suppress(TypeError):  # it cannot be referred to weakly
                self._known[model] = self.key, self.parent
        with self.client.faults.guard("How the training starts was not logged", ()):
            if self.run is not None:
                log_facts(self.facts(), self._trackers)
        return self.answer

    def report(self, metrics: Mapping[str, Any], model: Any = None, step: int | None = None) -> None:
        """How good the model is now; what is no number is left out.

        Args:
            metrics: All that the tool has measured.
            model: The model as it was measured; see `Run.report`.
            step: When it was measured.
        """
        given = numbers(metrics)
        with self.client.faults.guard("This report was not logged", ()):
            for tracker in self._trackers:
                tracker.curve(given, step)
        if self.run is None or not self._register:
            return
        with self.client.faults.guard("This state of the model is not kept", ()):
            known = self.run.measure(given) is not None
            self.run.report(given, step=step, model=model if known else None)

    def finish(self, metrics: Mapping[str, Any] | None = None, model: Any = None) -> "Record | None":
        """The training has ended: register it. Twice is once."""
        if self.run is None or not self._register:
            return None
        if metrics:
            self.report(metrics, model)
        with self.client.faults.guard("The model was not registered", ()):
            return self.run.finish()
        return None

    def stop(self) -> "Record | None":
        """The training was ended early: what was reported stays, as unfinished."""
        if self.run is None:
            return None
        with self.client.faults.guard("What was reported last is not kept", ()):
            return self.run.stop()
        return None

    def facts(self) -> dict[str, str | float]:
        """How it started, as plain data under names that begin with `modelkeeper.`, for a tool that logs."""
        return {} if self.answer is None else facts_of(self.answer)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"} | _NOT_BEGUN

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"_known": weakref.WeakKeyDictionary()}


class TellsOfTraining:
    """A callback that says what became of its last training."""

    _warm: WarmTraining

    @property
    def answer(self) -> "Answer | None":
        """What the keeper did; None before a training, or if it could not be asked."""
        return self._warm.answer

    @property
    def record(self) -> "Record | None":
        """What is in the zoo of it."""
        return self._warm.record

    def facts(self) -> dict[str, str | float]:
        """How it started, as plain data, for who logs it."""
        return self._warm.facts()
