"""A zoo as a client holds it: opened when it is needed, used once by processes that train together.

connection.coordinator          opened when it is first asked for, and again after `stop` or a fork
connection.describe(model)      what a model is, for those who register it
connection.once(model, act)     in one of the processes that train the model
pickle.dumps(connection)        goes by its address; the copy opens the zoo anew
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from modelkeeper.coordinator import Coordinator, target
from modelkeeper.errors import ModelKeeperError, ZooUnusable
from modelkeeper.faults import Faults, warn
from modelkeeper.frontends import Frontend, frontend_for
from modelkeeper.frontends.abilities import refuse, team_of
from modelkeeper.lineage import Starts
from modelkeeper.logs import logger
from modelkeeper.policy.credit import RACED
from modelkeeper.run import Described
from modelkeeper.settings import MEMORY, login
from modelkeeper.tracing.describe import describe
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.licences import unknown_licences
from modelkeeper.zoo.records import Record, Registration
from modelkeeper.zoo.signatures import Sign, signer_of
from modelkeeper.zoo.zoo import MAX_PROGRAM

if TYPE_CHECKING:
    from modelkeeper.weights import Array

__all__ = ["Connection", "login", "program_of"]

T = TypeVar("T")
_SHARED = "give it a folder or the address of a coordinator instead of :memory:"
_log = logger()


class Connection:
    """One zoo, in this process or behind HTTP, and what becomes of faults on the way to it."""

    def __init__(
        self,
        uri: str | os.PathLike[str] | None = None,
        *,
        on_error: str = "cold",
        user: str = "",
        token: str = "",
        **settings: Any,
    ) -> None:
        self.faults = Faults(on_error)
        self._target = target(uri, token=token, **settings)
        self.uri, self.settings = self._target.uri, self._target.settings
        self.on_error = on_error
        self._given = {"on_error": on_error, "user": user, "token": token, **settings}
        self.user = user or login()
        self._opened: Coordinator | None = None
        self._opening = threading.Lock()
        self._process = os.getpid()
        self.sign: Sign | None = None  # what signs that which is registered
        with self.faults.guard("Models are registered without a signature"):
            self.sign = signer_of(self.settings, self.user)
        in_memory = self.settings.in_memory and not self._target.url
        self._starts = Starts(f"{MEMORY} {id(self)}" if in_memory else self._place)

    @property
    def coordinator(self) -> Coordinator:
        """What the client talks to; opened when it is first needed."""
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._opening:
            if self._opened is None:
                self._opened = self._target.open(user=self.user)
            return self._opened

    def describe(self, model: Any, example_inputs: Any = None) -> Described:
        """What a model is, apart from its weights, for those who register it.

        Raises:
            CannotDescribe: It did not run on the inputs there were.
            ModelRefused: It is not to be registered.
        """
        frontend = frontend_for(model)
        refuse(frontend, model)
        trace = frontend.trace(model, example_inputs)
        program = program_of(frontend, model, trace.ran_on if example_inputs is None else example_inputs)
        return Described(describe(trace), program)

    def once(self, model: Any, act: Callable[[Frontend], T]) -> T:
        """Act in one of the processes that train a model together; what came of it comes to all of them."""
        frontend = frontend_for(model)
        team = team_of(frontend, model)
        return act(frontend) if team is None else team.read(act, self.settings.patience)

    def aside(self, model: Any, act: Callable[[Frontend], None], speaks: bool) -> None:
        """Act in the process that speaks for those that train a model together, without holding them up.

        Of a model that is divided among them all have to take part.
        """
        frontend = frontend_for(model)
        team = team_of(frontend, model)
        if team is not None and team.divided:
            team.read(act, self.settings.patience)
        elif speaks:
            act(frontend)

    def keep(
        self,
        described: Described,
        tensors: "Mapping[str, Array] | Iterable[tuple[str, Array]]",
        registration: Registration,
        evidence: bytes = b"",
    ) -> Record:
        """Register a model by what it is, its weights and what is said of it."""
        named = tensors.items() if isinstance(tensors, Mapping) else tensors
        if unknown := unknown_licences(registration.licence):
            warn(f"licence: {', '.join(unknown)} is no name that SPDX knows. See spdx.org/licenses.")
        if not self.settings.history:
            registration = msgspec.structs.replace(registration, curve=None, start="")
        registered = self.coordinator.register(
            described.graph,
            registration,
            named,
            owner=self.user,
            program=described.program,
            evidence=evidence,
            sign=self.sign,
        )
        if registered.record.id in registered.evicted:
            name = registered.record.name
            warn(f"{name}: the zoo had no room for it beside better models. Raise the setting `capacity`.")
        return registered.record

    def _tell(self, gains: Mapping[str, float], answer: Answer) -> None:
        """Say which parents a race spoke for, which against, and how it went. If not, that harms nobody."""
        if answer.start and answer.probe is not None:
            try:
                self.coordinator.raced(answer.start, answer.probe)
            except ModelKeeperError as problem:
                _log.info("how a race went is not noted: %s", problem)
        for parent, gain in gains.items():
            try:
                self.coordinator.tell(parent, RACED, gain, user=self.user)
            except ModelKeeperError as problem:
                _log.info("what a race said of %s is not noted: %s", parent, problem)

    def stop(self) -> None:
        """Let go of the zoo. The client can be used again; it then opens it anew."""
        if self.uri == MEMORY:
            return
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    close = stop

    def _leave_to_parent(self) -> None:
        """In a forked process: open the zoo anew. Threads of the parent may hold locks of the old one.

        Raises:
            ZooUnusable: It is in the parent's memory.
        """
        if self.settings.in_memory and not self._target.url:
            raise ZooUnusable(MEMORY, "it is in the memory of the process that forked this one", _SHARED)
        self._opening, self._process, self._opened = threading.Lock(), os.getpid(), None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.settings.in_memory and not self._target.url:
            raise TypeError(f"a zoo in the memory of this process cannot be shared with others: {_SHARED}")
        return _again, (type(self), self._place, self._given | {"user": self.user})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _speaks(self, model: Any) -> bool:
        """Does this process report for those that train the model with it?"""
        asked: list[Frontend] = []
        with self.faults.guard("What this process reports is not kept"):
            self.once(model, asked.append)
        return bool(asked)

    @property
    def _place(self) -> str:
        return self._target.url or str(self.settings.folder.absolute())


def _again(kind: type[Connection], uri: str, given: dict[str, Any]) -> Connection:
    """A connection that was pickled."""
    return kind(uri, **given)


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
