"""What a training script talks to.

    client = ModelKeeperClient("zoo/")
    warmed, meta = client.query_for_model(model, meta={"data": "Flowers102", "task": "classification"})
    accuracy = train(warmed)                       # warmed is model: its weights were written in place
    client.register_model(warmed, meta={"data": "Flowers102", "task": "classification", "accuracy": accuracy})
    client.stop()

A training is never stopped or spoiled by the keeper: if a zoo cannot be reached or read, the client says so
by a warning, and the model starts as it was. Wrong use (a typo in `meta`, no accuracy, weights that hold NaN)
is an error at once, since nobody else could notice it.
"""

import contextlib
import getpass
import logging
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from modelkeeper.coordinator import Coordinator, target
from modelkeeper.errors import (
    InvalidMeta,
    InvalidMetric,
    InvalidSetting,
    InvalidWeights,
    ModelRefused,
    UnknownFramework,
    UnknownModel,
)
from modelkeeper.frontends import Frontend, frontend_for
from modelkeeper.graph import Graph
from modelkeeper.meta import ONLY_QUERY, Query, read_query, read_registration
from modelkeeper.policy.quality import number
from modelkeeper.settings import MEMORY
from modelkeeper.tracing.describe import describe
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.zoo import MAX_PROGRAM

if TYPE_CHECKING:
    from modelkeeper.warmstart.loan import Loan

M = TypeVar("M")
_log = logging.getLogger("modelkeeper")
_OWN_CODE = (os.path.dirname(__file__) + os.sep, contextlib.__file__)  # files that a warning does not name

# What the caller did wrong, as opposed to what happened to the keeper.
_WRONG_USE: tuple[type[Exception], ...] = (
    InvalidMeta,
    InvalidMetric,
    InvalidSetting,
    UnknownFramework,
    UnknownModel,
)


class KeeperWarning(UserWarning):
    """The keeper could not help, or could not keep a model. Training goes on."""


class _Faults:
    """What becomes of a fault of the keeper: a warning, or the error itself."""

    def __init__(self, on_error: str) -> None:
        self._raise = on_error == "raise"

    @contextlib.contextmanager
    def guard(self, consequence: str, wrong_use: tuple[type[Exception], ...] = ()) -> Iterator[list[str]]:
        """Let no fault of the keeper reach the training: warn instead. Yields what went wrong."""
        trouble: list[str] = []
        try:
            yield trouble
        except _WRONG_USE + wrong_use:
            raise
        except Exception as problem:
            if self._raise:
                raise
            text = str(problem).strip().partition("\n")[0] or "no message"
            if not isinstance(problem, ModelRefused):
                text = f"{type(problem).__name__}: {text}"
            trouble.append(text)
            warnings.warn(f"{consequence}. {text}", KeeperWarning, stacklevel=_outside())


class _ZooSource:
    """A coordinator's zoo, as a source of parents for one query."""

    def __init__(self, coordinator: Coordinator, query: Query, dry_run: bool) -> None:
        self._coordinator, self._query, self._dry_run = coordinator, query, dry_run

    def loan(self, graph: Graph) -> "Loan":
        """What the parent that fits best lends; or a cold start."""
        return self._coordinator.query(graph, self._query, dry_run=self._dry_run)

    def another(self, graph: Graph, than: Answer) -> "Loan | None":
        """What the best of all others lends, if there is one."""
        others = (*self._query.exclude, than.parent or "")
        loan = self._coordinator.query(graph, msgspec.structs.replace(self._query, exclude=others))
        return None if loan.answer.cold else loan


class ModelKeeperClient:
    """Warm starts from one zoo, and registrations into it. Also a context manager.

    Args:
        uri: A folder; ":memory:" for a zoo that ends with the client; or the address of a coordinator:
            "10.0.0.7", "host:port" or "http(s)://...". Default: the variable MODELKEEPER_URI, or
            ~/.modelkeeper.
        on_error: What happens when the keeper fails: "cold" warns and lets training start as it would have
            without a keeper; "raise" raises.
        user: Who registers. Default: the name that you are logged in as. A coordinator with users knows
            it by the token.
        token: What a coordinator knows you by. Default: the variable MODELKEEPER_TOKEN.
        settings: Of a zoo in this process: capacity, policy, minimum_similarity ...; of a coordinator
            elsewhere: timeout (seconds), spool (see `Settings`).

    Raises:
        InvalidSetting: A setting has a value that cannot work.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | None = None,
        *,
        on_error: str = "cold",
        user: str = "",
        token: str = "",
        **settings: Any,
    ) -> None:
        if on_error not in ("cold", "raise"):
            raise InvalidSetting("on_error", repr(on_error), 'choose "cold" or "raise"')
        self._target = target(uri, token=token, **settings)
        self.uri, self.settings = self._target.uri, self._target.settings
        self.on_error = on_error
        self._faults, self.user = _Faults(on_error), user or login()
        self._given = {"on_error": on_error, "user": user, "token": token, **settings}
        self._opened: Coordinator | None = None
        self._opening = threading.Lock()
        # Which parent a model started from.
        self._started: weakref.WeakKeyDictionary[Any, Answer] = weakref.WeakKeyDictionary()

    @property
    def coordinator(self) -> Coordinator:
        """What the client talks to; opened when it is first needed."""
        with self._opening:
            if self._opened is None:
                self._opened = self._target.open()
            return self._opened

    # long: what a user may ask for, and the words that explain it.
    def query_for_model(
        self,
        model: M,
        meta: Mapping[str, Any] | None = None,
        *,
        example_inputs: Any = None,
        dry_run: bool = False,
        calibrate: Any = None,
        labels: Any = None,
        progress: bool = False,
        probe: Any = None,
        loss: Callable[[Any, Any], Any] | None = None,
        optimizer: Any = None,
        probe_steps: int | None = None,
        probe_seconds: float | None = None,
    ) -> tuple[M, Answer]:
        """Load the most fitting known weights into `model`, in place.

        A cold start is an answer, not an error: if nothing in the zoo is near enough, the model stays as it
        was and `parent` is None, so a training script needs no branch.

        Args:
            model: A model of a known framework. Its architecture, dtypes and devices are not changed.
            meta: What it will be trained for: data, task, tags; and which parents it would take: parents
                (names or ids to prefer), exclude, minimum_similarity, policy.
            example_inputs: What the model runs on, if that cannot be found from the model itself.
            dry_run: Find and plan, but change nothing.
            calibrate: Examples of the data it will be trained on (tensors, pairs (x, y), dicts, a
                DataLoader): where the transfer is not exact, its layers are fitted to what the parent
                computes on them. They stay on this machine; `modelkeeper.transfer` says more.
            labels: Of the examples, for a head that the parent cannot teach.
            progress: Show a bar while layers are fitted.
            probe: Labelled batches on which several starts race, to do no harm: warm, calibrated, shrunk,
                from a second parent that is about as similar, and cold. The model gets the weights that the
                winner started with; `modelkeeper.transfer` says more of this and of the next four.
            loss: Of the model's outputs and the labels. Default: the outputs' own loss (Hugging Face).
            optimizer: What it will be trained with, or a function that makes one of parameters.
            probe_steps: Training steps of all starts together. Default: 100.
            probe_seconds: The race ends after about so long. Default: no limit.

        Returns:
            The model, and what was done: parent, similarity, what was copied, widened, narrowed, inserted
            and kept, whether that is exact, the runners-up and why they lost.

        Raises:
            InvalidMeta: A key of `meta` is unknown, or a value cannot be so.
            InvalidSetting: `probe_steps` or `probe_seconds` cannot be so.
            UnknownFramework: `model` comes from a framework without a front end.
        """
        from modelkeeper.warmstart.pipeline import Request, start
        from modelkeeper.warmstart.race.rules import STEPS
        from modelkeeper.warmstart.race.starts import Probe

        query, steps = read_query(meta), STEPS if probe_steps is None else probe_steps
        request = Request(
            frontend_for(model),
            model,
            example_inputs,
            calibrate=calibrate,
            labels=labels,
            progress=progress,
            probe=None if probe is None else Probe(probe, loss, optimizer, steps, probe_seconds),
        )
        with self._faults.guard("The model starts cold") as trouble:
            outcome = start(request, _ZooSource(self.coordinator, query, dry_run), self._faults)
            model, answer = outcome.model, outcome.final
            if not dry_run and not answer.cold:
                self._remember(model, answer)
            return model, answer
        return model, Answer(reason=f"the keeper could not help: {trouble[0]}", warnings=tuple(trouble))

    def register_model(
        self, model: Any, meta: Mapping[str, Any], *, example_inputs: Any = None
    ) -> Record | None:
        """Take a trained model into the zoo, for others to start from.

        Args:
            model: A trained model. It is not changed.
            meta: data, task, tags; accuracy, or metrics={"val_loss": 0.3, ...}, or metric={"name", "value",
                "lower_is_better"}; name, project, visibility; parent, if it is not the one that
                `query_for_model` found for this model.
            example_inputs: What the model runs on, if that cannot be found from the model itself.

        Returns:
            Its record; None if the zoo did not take it (a warning says why).

        Raises:
            InvalidMeta, InvalidMetric: `meta` cannot be so, or does not say how good the model is.
            InvalidWeights: The weights hold NaN: the training has failed.
            UnknownFramework: `model` comes from a framework without a front end.
        """
        frontend = frontend_for(model)
        registration = read_registration(meta, type(model).__name__)
        started = self._recall(model)
        if started is not None and not registration.parent:
            parent, similarity = started.parent or "", started.similarity
            registration = msgspec.structs.replace(registration, parent=parent, similarity=similarity)
        with self._faults.guard("The model was not registered", (InvalidWeights,)):
            trace = frontend.trace(model, example_inputs)
            program = program_of(frontend, model, trace.ran_on if example_inputs is None else example_inputs)
            return self.coordinator.register(
                describe(trace), registration, frontend.read(model), owner=self.user, program=program
            ).record
        return None

    @contextlib.contextmanager
    def training(
        self, model: M, meta: Mapping[str, Any], *, example_inputs: Any = None
    ) -> Iterator["Run[M]"]:
        """Query on entry, register on a clean exit with what `run.report` was told.

            with client.training(model, {"data": "Flowers102", "task": "classification"}) as run:
                for epoch in range(90):
                    ...
                    run.report(accuracy=accuracy)

        If the block raises, nothing is registered. Keys of `meta` for queries and for registrations may both
        be given.
        """
        given = dict(meta)
        both: dict[str, Any] = {key: given[key] for key in ("data", "task", "tags") if key in given}
        asked = both | {key: given.pop(key) for key in ONLY_QUERY if key in given}
        read_query(asked)
        read_registration(given | {"accuracy": 0.5}, "check")  # a typo shall not show after the training
        _, answer = self.query_for_model(model, asked, example_inputs=example_inputs)
        run = Run(model, answer)
        yield run
        if run.metrics:
            measured = {**given.get("metrics", {}), **run.metrics}
            run.record = self.register_model(
                model, given | {"metrics": measured}, example_inputs=example_inputs
            )
        else:
            warnings.warn(
                "The model was not registered: run.report(accuracy=...) was never called.",
                KeeperWarning,
                stacklevel=3,
            )

    def stop(self) -> None:
        """Let go of the zoo. The client can be used again; it then opens it anew."""
        with self._opening:
            if self._opened is not None and self.uri != MEMORY:
                self._opened.close()
                self._opened = None

    close = stop

    def __reduce__(self) -> tuple[Any, ...]:
        if self.settings.in_memory and not self._target.url:
            advice = "give it a folder or the address of a coordinator instead of :memory:"
            raise TypeError(f"a zoo in the memory of this process cannot be shared with others: {advice}")
        place = self._target.url or str(self.settings.folder.absolute())
        return _again, (place, self._given | {"user": self.user})

    def __enter__(self) -> "ModelKeeperClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _remember(self, model: Any, answer: Answer) -> None:
        with contextlib.suppress(TypeError):  # models that cannot be referred to weakly have no lineage
            self._started[model] = answer

    def _recall(self, model: Any) -> Answer | None:
        try:
            return self._started.get(model)
        except TypeError:
            return None


class Run(Generic[M]):
    """A training under way: the model, how it started, and how good it has become."""

    def __init__(self, model: M, answer: Answer) -> None:
        self.model, self.answer = model, answer
        self.metrics: dict[str, float] = {}
        self.record: Record | None = None  # after the training, if it was registered

    def report(self, **metrics: float) -> None:
        """How good the model is now, e.g. `accuracy=0.93` or `val_loss=0.31`. The last report counts.

        Raises:
            InvalidMetric: A number cannot be so.
        """
        self.metrics |= {name: number(name, value) for name, value in metrics.items()}


def _again(uri: str, given: dict[str, Any]) -> ModelKeeperClient:
    """A client that was pickled."""
    return ModelKeeperClient(uri, **given)


def program_of(frontend: Frontend, model: Any, example_inputs: Any) -> bytes:
    """What a model computes, for those who start from it; nothing if that cannot be written down."""
    if frontend.runner is None:
        return b""
    try:
        program = frontend.runner.record_program(model, example_inputs).to_bytes()
    except Exception as problem:  # noqa: BLE001 (it runs the user's code once more; the weights are what counts)
        _log.info("registered without a program: %s", problem)
        return b""
    return program if len(program) <= MAX_PROGRAM else b""


def _outside() -> int:
    """How far up the stack, seen from the caller, is the user's code: what a warning points to."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_CODE):
        frame, level = frame.f_back, level + 1
    return level


def login() -> str:
    """Who uses this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return "unknown"
