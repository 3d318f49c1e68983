"""Give a model the weights that a parent lends: as they are, calibrated, or those that win a race.

    outcome = start(Request(frontend, model, calibrate=batches), source, faults)
    outcome.model                     with its weights: the one that was given, where that is done in place
    outcome.final                     the Answer that goes with the start that was taken

The one way from a model to its start, whoever lends:

    describe the model -> source.loan(graph): a plan -> the weights -> load them, calibrate, let starts race

    Source   where a parent comes from: a coordinator's zoo (`client`), or a single model (`transfer`)
    Loan     what that parent lends: an answer, the weights, and the parent itself, to be run
    Faults   what becomes of a fault: raised, or turned into a warning

After a fault that was turned into a warning the best holds that there was before: if starts cannot race, the
model starts warm; if layers cannot be fitted, it starts with the plain weights.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from modelkeeper.errors import CorruptWeights, InvalidSetting, UnknownModel, UnreadableWeights
from modelkeeper.frontends import describe
from modelkeeper.frontends.abilities import frozen_of, layouts_of, materialise, prepare, trained_signs
from modelkeeper.frontends.fit_tasks import Budget, Calibration, Progress
from modelkeeper.frontends.protocol import Examples, Frontend, runner_of
from modelkeeper.graph import Graph
from modelkeeper.layouts import Laid
from modelkeeper.transform import apply
from modelkeeper.warmstart.advice import Advice, once_calibrated
from modelkeeper.warmstart.answer import Answer, Parent, Rival
from modelkeeper.warmstart.calibration import calibrated
from modelkeeper.warmstart.gains import gains
from modelkeeper.warmstart.holding import held
from modelkeeper.warmstart.lender import Lender
from modelkeeper.warmstart.loan import Loan
from modelkeeper.warmstart.race.rules import COLD, Race
from modelkeeper.warmstart.race.starts import CALIBRATED, SECOND, SHRUNK, Probe, Starts, perturbed
from modelkeeper.weights import Array

# What becomes of a parent that is removed or damaged while it is read; the next best one is tried.
LOST = (CorruptWeights, UnknownModel, UnreadableWeights)
MOST_TRIED = 4  # parents of one start
CLOSE = 0.1  # by how much less similar a second parent may be, to race as well: a bucket


@dataclass(frozen=True)
class Request:
    """A model that is to start, and what its user wants beside the plain weights."""

    frontend: Frontend  # that takes the model
    model: Any  # with its own initial values
    example_inputs: Any = None  # to describe it on
    calibrate: Any = None  # examples to fit layers on; False: none, also not those of a probe
    labels: Any = None  # of these examples
    budget: Budget = field(default_factory=Budget)
    progress: Progress | bool = False
    probe: Probe | None = None
    shrink_perturb: tuple[float, float] | None = None  # factors for the loan and for the model's own values
    foreign: bool = False  # will the parent be a program that came from elsewhere?
    frozen: frozenset[str] = frozenset()  # tensors that keep their values, whatever is lent: those of `kept`

    @property
    def fits(self) -> bool:
        """Are there examples to fit layers on?"""
        return self.calibrate is not None and self.calibrate is not False

    @property
    def may_fit(self) -> bool:
        """Could layers be fitted on the batches of a race, though nobody asked for it?"""
        return self.probe is not None and self.calibrate is None and self.frontend.runner is not None


KEEP, REPLACE, WARN = "keep", "replace", "warn"


def kept(frontend: Frontend, model: Any, frozen: str) -> frozenset[str]:
    """Which tensors of a model keep their values: those that are frozen, unless they are to be replaced.

    Raises:
        InvalidSetting: `frozen` is neither "keep" nor "replace".
    """
    if frozen not in (KEEP, REPLACE):
        raise InvalidSetting("frozen", repr(frozen), 'choose "keep" or "replace"')
    return frozen_of(frontend, model) if frozen == KEEP else frozenset()


def signs_of_training(frontend: Frontend, model: Any, trained: str) -> str:
    """The signs that a model is trained already, unless nobody wants to know.

    Raises:
        InvalidSetting: `trained` is neither "warn", "keep" nor "replace".
    """
    if trained not in (WARN, KEEP, REPLACE):
        raise InvalidSetting("trained", repr(trained), 'choose "warn", "keep" or "replace"')
    return "" if trained == REPLACE else trained_signs(frontend, model)


def replaced(signs: str, dry_run: bool) -> str:
    """What is said of a model that was trained already."""
    were = "would be" if dry_run else "were"
    return (
        f"The model does not look freshly initialised ({signs}), and its weights {were} replaced. "
        'Pass trained="keep" to leave such models alone, or trained="replace" if that is what you want.'
    )


W = TypeVar("W", Array, "Array | Laid")
L_co = TypeVar("L_co", bound=Loan, covariant=True)


class Source(Protocol[L_co]):
    """Where a parent comes from."""

    def loan(self, graph: Graph) -> L_co:
        """What a model with this graph gets."""

    def another(self, graph: Graph, than: Answer) -> Loan | None:
        """What it would get from the next best parent; None if there is none."""


class Faults(Protocol):
    """What becomes of a fault of the keeper."""

    def guard(self, consequence: str) -> AbstractContextManager[list[str]]:
        """A context that lets a fault through, or says what follows from it and goes on behind the block.

        It gives the list of what went wrong within, which is complete when the context is left.
        """


class Raised:
    """Faults are raised: whoever asked wants to know."""

    @contextmanager
    def guard(self, consequence: str) -> Iterator[list[str]]:
        """Lets everything through."""
        yield []


@dataclass(frozen=True)
class Outcome(Generic[L_co]):
    """What became of a request."""

    model: Any  # with its weights; where the framework writes in place, the one that was given
    loan: L_co
    answer: Answer  # that of the loan, with what went wrong since and how long everything took
    calibration: Calibration | None = None  # what was fitted, whether or not it was taken in the end
    race: Race | None = None
    second: Answer | None = None  # of the second parent, if one raced

    @property
    def final(self) -> Answer:
        """The answer that goes with the start that was taken."""
        answer, race = self.answer, self.race
        if race is None:
            return self._calibrated(answer)
        if race.winner == COLD:
            return _lost(answer, race)
        if race.winner == CALIBRATED:
            return self._calibrated(msgspec.structs.replace(answer, probe=race))
        if race.winner == SHRUNK:
            doubts = (*answer.doubts, "the weights were shrunk and perturbed")
            advice = Advice(why="the weights were shrunk and perturbed")
            return msgspec.structs.replace(answer, probe=race, exact=False, doubts=doubts, advice=advice)
        if race.winner == SECOND and self.second is not None:
            warnings = (*answer.warnings, *self.second.warnings)
            return msgspec.structs.replace(self.second, probe=race, warnings=warnings, seconds=answer.seconds)
        return msgspec.structs.replace(answer, probe=race)

    @property
    def gains(self) -> Mapping[str, float]:
        """By the ids of parents that raced, what the race says of them: see `gains`."""
        return {} if self.race is None else gains(self.answer, self.second, self.race)

    def _calibrated(self, answer: Answer) -> Answer:
        """The answer with what was fitted, if anything was; if that was kept, less is to be trained."""
        kept = self.calibration is not None and self.calibration.kept
        advice = once_calibrated(answer.advice) if kept else answer.advice
        return msgspec.structs.replace(answer, calibration=self.calibration, advice=advice)


def _lost(answer: Answer, race: Race) -> Answer:
    """The answer of parents that were not ahead of a cold start by enough."""
    parents = (
        Rival(
            id=parent.id,
            name=parent.name,
            similarity=parent.similarity or 0.0,
            metric=parent.metric,
            value=parent.value,
            framework=parent.framework,
            why="lost the race against a cold start",
        )
        for parent in answer.parents
    )
    return Answer(
        reason=f"in a race of a few steps, starting from {answer.parents_named} was not ahead by enough",
        runners_up=(*parents, *answer.runners_up),
        considered=answer.considered,
        aligned=answer.aligned,
        warnings=answer.warnings,
        seconds=answer.seconds,
        probe=race,
        start=answer.start,
    )


def start(request: Request, source: Source[L_co], faults: Faults) -> Outcome[L_co]:
    """Find a parent for a model, and write the weights that it lends into the model.

    Raises:
        ModelKeeperError: Whatever describing, finding a parent and loading raise; and what `faults` lets
            through of what calibrating and racing raise. The model is then as it was, or has the plain
            weights if it was to be calibrated.
    """
    begun = time.perf_counter()
    if request.foreign and (request.fits or request.may_fit) and request.budget.sandbox != "off":
        prepare(request.frontend)
    graph = describe(request.frontend, request.model, request.example_inputs)
    described = time.perf_counter() - begun
    loan = source.loan(graph)
    tried: tuple[Parent, ...] = ()
    warnings: tuple[str, ...] = ()
    while True:
        seconds = {"describe": described, **loan.answer.seconds}
        answer = msgspec.structs.replace(
            loan.answer,
            seconds=seconds,
            frozen=len(request.frozen),
            warnings=(*warnings, *loan.answer.warnings),
        )
        if answer.cold or answer.dry_run:
            return Outcome(request.model, loan, answer)
        try:
            return _Start(request, graph, source, loan, answer, faults).run()
        except LOST as problem:  # it was removed, say, while it was read: the model is as it was
            tried += answer.parents
            another = None
            if len(tried) < MOST_TRIED:
                another = source.another(graph, msgspec.structs.replace(answer, parents=tried))
            if another is None:
                raise
            warnings += (
                f"{answer.parents_named} could not be read to the end ({problem}), and another lends",
            )
            loan = cast("L_co", another)


class _Start(Generic[L_co]):
    """One start on its way. `answer` gathers warnings and seconds."""

    def __init__(
        self,
        request: Request,
        graph: Graph,
        source: Source[L_co],
        loan: L_co,
        answer: Answer,
        faults: Faults,
    ) -> None:
        self._request, self._graph, self._source, self._loan = request, graph, source, loan
        self._faults, self.answer = faults, answer

    def run(self) -> Outcome[L_co]:
        request, begun = self._request, time.perf_counter()
        if request.probe is not None or request.shrink_perturb is not None:  # its own values count as well
            materialise(request.frontend, request.model)
        with ExitStack() as stack:
            lender = self._lender(stack)
            weights: Mapping[str, Array | Laid]
            if request.probe is not None:
                weights = lent = self._weights(lender)
                with self._guarded("The model starts warm, but unprobed"):
                    return self._raced(request.probe, lent, lender)
            elif request.shrink_perturb is not None:
                weights = self._weights(lender)
            else:
                weights = self._stored_weights(lender)
            model = request.frontend.load(request.model, weights)
            self._took("load", begun)
            calibration = None
            if request.fits and lender is not None:
                begun = time.perf_counter()
                with self._guarded("The model starts warm, but uncalibrated"):
                    calibration = self._calibrated(model, lender)
                self._took("calibrate", begun)
            return Outcome(model, self._loan, self.answer, calibration)

    def _lender(self, stack: ExitStack) -> Lender | None:
        """The parent itself, where layers may be fitted; it then gives the plain weights, too."""
        request = self._request
        if self.answer.exact or not (request.fits or request.may_fit):
            return None
        racing = request.probe is not None
        with self._guarded(
            "No calibrated start races" if racing else "The model starts warm, but uncalibrated"
        ):
            runner_of(request.frontend)
            return stack.enter_context(self._loan.lender())
        return None

    def _weights(self, lender: Lender | None) -> dict[str, Array]:
        """The plain weights, between warm and cold if that was asked for."""
        request = self._request
        lent = self._loan.weights() if lender is None else apply(lender.plan, lender.tensors)
        if request.shrink_perturb is not None:
            own = dict(request.frontend.read(request.model))
            lent = perturbed(lent, own, self._graph, *request.shrink_perturb)
        return self._unfrozen(lent)

    def _stored_weights(self, lender: Lender | None) -> Mapping[str, Array | Laid]:
        """The plain weights, in the order in which the model stores them, if that is known."""
        layouts = layouts_of(self._request.frontend, self._request.model)
        if lender is None:
            return self._unfrozen(self._loan.stored_weights(layouts))
        return self._unfrozen(apply(lender.plan, lender.tensors, layouts=layouts))

    def _unfrozen(self, lent: Iterable[tuple[str, W]]) -> dict[str, W]:
        """All that is lent but for what is frozen, in case that whoever lends does not know of that."""
        return held((name, value) for name, value in lent if name not in self._request.frozen)

    def _calibrated(self, model: Any, lender: Lender) -> Calibration | None:
        request, runner = self._request, runner_of(self._request.frontend)
        examples = self._examples()
        assert examples is not None
        parent = lender.runnable(runner, self.answer.parent_name)
        with shown(request.progress) as progress:
            return calibrated(
                runner, model, lender, parent, examples, budget=request.budget, progress=progress
            )

    def _raced(self, probe: Probe, weights: Mapping[str, Array], lender: Lender | None) -> Outcome[L_co]:
        request, begun = self._request, time.perf_counter()
        starts = Starts(request.frontend, request.model, self._graph, probe)
        starts.lend(weights, self.answer.parents_named)
        calibration = None
        if lender is not None and (lender.runs or request.fits):
            with self._guarded("No calibrated start races"), shown(request.progress) as progress:
                parent = lender.runnable(runner_of(request.frontend), self.answer.parent_name)
                calibration = starts.calibrate(
                    lender, parent, self._examples(), budget=request.budget, progress=progress
                )
            self._took("calibrate", begun)
            begun = time.perf_counter()
        second = self._second(starts)
        model, race = starts.race()
        self._took("probe", begun)
        return Outcome(model, self._loan, self.answer, calibration, race, second)

    def _second(self, starts: Starts) -> Answer | None:
        """Let a second parent race, if one is about as similar as the first; its answer."""
        nearest = [rival.similarity for rival in self.answer.runners_up[:1]]
        if not any(similarity >= (self.answer.similarity or 0) - CLOSE for similarity in nearest):
            return None
        with self._guarded("No second parent races"):
            loan = self._source.another(self._graph, self.answer)
            if loan is not None:
                starts.lend(self._unfrozen(loan.weights()), loan.answer.parents_named)
                return loan.answer
        return None

    def _examples(self) -> Examples | None:
        request = self._request
        if not request.fits:
            return None
        return runner_of(request.frontend).collect(request.calibrate, request.labels, request.budget.examples)

    @contextmanager
    def _guarded(self, consequence: str) -> Iterator[None]:
        with self._faults.guard(consequence) as trouble:
            yield
        self.answer = msgspec.structs.replace(self.answer, warnings=(*self.answer.warnings, *trouble))

    def _took(self, stage: str, begun: float) -> None:
        spent = self.answer.seconds | {stage: time.perf_counter() - begun}
        self.answer = msgspec.structs.replace(self.answer, seconds=spent)


@contextmanager
def shown(progress: Progress | bool) -> Iterator[Progress | None]:
    """A bar in the terminal, if that was asked for."""
    if progress is not True:
        yield progress or None
        return
    from rich.progress import Progress as Bar

    with Bar(transient=True) as bar:
        task = bar.add_task("calibrating")
        yield lambda done, total, layer: bar.update(task, completed=done, total=total, description=layer)
