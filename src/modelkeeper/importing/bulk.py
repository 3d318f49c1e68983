"""How do many models come into a zoo, and what became of each?

    outcomes = import_models(client, ["runs/", "~/.cache/huggingface/hub"], meta={"task": "classification"})
    [outcome.reason for outcome in outcomes if outcome.status == FAILED]

One after the other, or several at once. A thing's id is made of its bytes: what was imported before is found
by it and skipped, also after a kill. What fails is said, and does not stop the rest.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelkeeper.errors import InvalidMetric, InvalidModelFile, InvalidSetting, ModelKeeperError, UnknownModel
from modelkeeper.importing.digests import ids_of
from modelkeeper.importing.factories import Factory
from modelkeeper.importing.meta_files import MetaFile
from modelkeeper.importing.opening import open_thing
from modelkeeper.importing.outcomes import FAILED, IMPORTED, SKIPPED, WOULD, Outcome
from modelkeeper.importing.things import Shape, Terms, Thing
from modelkeeper.meta import read_registration
from modelkeeper.settings import MEMORY
from modelkeeper.zoo.records import MAX_NAME, PROJECT, PUBLIC, STORED

if TYPE_CHECKING:
    from modelkeeper.client import ModelKeeperClient
    from modelkeeper.coordinator import Coordinator
    from modelkeeper.zoo.records import Record, Registration

EVICTED_AT_ONCE = "the zoo had no room for it: it was evicted at once"
DIED = "the process that read it ended: there may be too little memory; run again with one job"
Progress = Callable[[Outcome, int, int], None]  # is told what became of one, how many are done, of how many


@dataclass(frozen=True)
class _Job:
    """What is the same for all things of one import. It goes to other processes."""

    owner: str
    model: str = ""  # a factory or a file of a graph
    shapes: tuple[Shape, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)  # holds for all of them
    beside: MetaFile = field(default_factory=MetaFile)  # what a file says of each
    trust: bool = False
    dry_run: bool = False

    def terms(self) -> Terms:
        """How things are opened."""
        if not self.model:
            return Terms(shapes=self.shapes, trust=self.trust)
        if os.path.isfile(self.model):
            from modelkeeper.graph import from_json

            graph = from_json(Path(self.model).read_bytes())
            return Terms(graph=graph, shapes=self.shapes, trust=self.trust)
        return Terms(Factory(self.model), shapes=self.shapes, trust=self.trust)


# long: what a user may ask for, and the words that explain it.
def import_models(
    client: "ModelKeeperClient",
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    model: str = "",
    meta: Mapping[str, Any] | None = None,
    meta_file: str | os.PathLike[str] | None = None,
    inputs: Sequence[Shape | Sequence[int]] = (),
    jobs: int = 1,
    trust: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Take every model that lies in some files and folders into a zoo.

    Args:
        client: Whose zoo it is, and who registers.
        paths: Files and folders: of PyTorch, safetensors, Hugging Face, MLflow, Lightning, ONNX, Keras.
        model: What makes the model that files of weights belong to, `module:factory`, or a file of its
            graph. Arguments that a file or one beside it names are passed if the factory takes them.
        meta: What holds for all of them: data, task, tags, project, visibility.
        meta_file: A JSON or CSV file that says more of some of them, by patterns of their paths.
        inputs: The shapes of example inputs, if they cannot be found from the models.
        jobs: How many processes read and register at once.
        trust: Run code that lies in the files (pickled models, .pt2 programs, lambdas of Keras).
        dry_run: Read and describe, but register nothing.
        progress: Is told what became of each.

    Returns:
        What became of each, in the order of their paths. Without a metric models are imported, too: how
        good they are is then not known.

    Raises:
        InvalidModelFile: A path is not there.
        InvalidMeta, InvalidMetric, InvalidSetting: What was said of the models cannot be so.
    """
    from modelkeeper.importing.scan import scan

    if jobs < 1:
        raise InvalidSetting("jobs", str(jobs), "give at least 1")
    said = dict(meta or {})
    read_registration(said, "check", measured=False)  # a typo shall not show at each of them
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    job = _Job(
        client.user,
        model,
        tuple(shape if isinstance(shape, Shape) else Shape(tuple(shape)) for shape in inputs),
        said,
        MetaFile.read(meta_file),
        trust,
        dry_run,
    )
    job.terms()  # a wrong name, likewise
    own = None if client.uri == MEMORY else client.settings.folder
    things = scan((Path(path).expanduser() for path in given), leave_out=own)
    several = jobs > 1 and len(things) > 1 and client.uri != MEMORY
    done = _at_once(job, things, client, jobs) if several else _one_by_one(job, things, client)
    outcomes: list[Outcome] = []
    known: dict[str, str] = {}
    for outcome in done:
        outcome = _once(outcome, known)
        outcomes.append(outcome)
        if progress is not None:
            progress(outcome, len(outcomes), len(things))
    return outcomes


def _once(outcome: Outcome, known: dict[str, str]) -> Outcome:
    """Of things with the same bytes one was imported; the others were at the same time."""
    if outcome.status == IMPORTED and outcome.id in known:
        return replace(outcome, status=SKIPPED, reason=f"the same as {known[outcome.id]}")
    if outcome.status == IMPORTED:
        known[outcome.id] = outcome.path
    return outcome


def _one_by_one(job: _Job, things: Iterable[Thing], client: "ModelKeeperClient") -> Iterator[Outcome]:
    for thing in things:
        yield _import(job, thing, client)


def _at_once(job: _Job, things: Sequence[Thing], client: "ModelKeeperClient", jobs: int) -> Iterator[Outcome]:
    """The same with several processes, each with a client of its own."""
    pool = ProcessPoolExecutor(
        min(jobs, len(things)), get_context("spawn"), initializer=_start, initargs=(job, client, sys.path)
    )
    with pool:
        try:
            waiting: list[tuple[Thing, Future[Outcome]]] = [
                (thing, pool.submit(_work, thing)) for thing in things
            ]
            for thing, future in waiting:
                try:
                    yield future.result()
                except BrokenProcessPool:
                    yield Outcome(str(thing.path), thing.kind, thing.name, FAILED, DIED)
        finally:
            pool.shutdown(cancel_futures=True)


_worker: "tuple[_Job, ModelKeeperClient] | None" = None  # of a process that works for another


def _start(job: _Job, client: "ModelKeeperClient", path: list[str]) -> None:
    global _worker
    sys.path[:] = path
    _worker = job, client


def _work(thing: Thing) -> Outcome:
    assert _worker is not None
    return _import(_worker[0], thing, _worker[1])


def _import(job: _Job, thing: Thing, client: "ModelKeeperClient") -> Outcome:
    """Import one thing. Whatever goes wrong is its outcome."""
    begun = time.perf_counter()
    blank = Outcome(str(thing.path), thing.within or thing.kind, thing.name, FAILED)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the user's code prints
            outcome = _imported(job, thing, client, blank)
    except Exception as problem:  # noqa: BLE001 (files and factories may raise anything; the rest goes on)
        outcome = replace(blank, reason=_why(problem))
    return replace(outcome, seconds=time.perf_counter() - begun)


def _why(problem: Exception) -> str:
    """What went wrong, without the path, which is said beside it."""
    if isinstance(problem, InvalidModelFile):
        text = f"{problem.problem}. {problem.advice}."
    else:
        text = (
            str(problem) if isinstance(problem, ModelKeeperError) else f"{type(problem).__name__}: {problem}"
        )
    return " ".join(text.split())[:1000]


def _imported(job: _Job, thing: Thing, client: "ModelKeeperClient", blank: Outcome) -> Outcome:
    coordinator = client.coordinator
    seen_by = job.meta.get("visibility") or (PROJECT if job.meta.get("project") else PUBLIC)
    keeper = "" if seen_by == PUBLIC else job.owner
    identity = ""
    for identity in () if thing.problem else ids_of(thing, job.model, keeper):
        record = _known(coordinator, identity)
        if record is None:
            break
        if record.state in STORED:
            reason = f"it is in the zoo already, as {record.name} ({record.id})"
            return replace(blank, status=SKIPPED, reason=reason, id=record.id, name=record.name)
    opened = open_thing(thing, job.terms(), program=not job.dry_run)
    meta = {**opened.meta, **job.beside.of(thing.path), **job.meta}
    registration, notes = _registration(meta, thing.name[-MAX_NAME:])
    outcome = replace(
        blank,
        status=WOULD,
        name=registration.name,
        metric=registration.metric.name if registration.metric else "",
        value=registration.metric.value if registration.metric else None,
        parameters=opened.graph.parameters,
        notes=(*opened.notes, *notes),
    )
    if job.dry_run:
        return outcome
    registered = coordinator.register(
        opened.graph,
        registration,
        opened.tensors,
        owner=job.owner,
        model_id=identity,
        program=opened.program,
        sign=client.sign,
    )
    if registered.record.id in registered.evicted:
        outcome = replace(outcome, notes=(*outcome.notes, EVICTED_AT_ONCE))
    return replace(outcome, status=IMPORTED, id=registered.record.id)


def _registration(meta: dict[str, Any], name: str) -> "tuple[Registration, tuple[str, ...]]":
    """What is said of a model; and what a user should know of that."""
    try:
        registration = read_registration(meta, name, measured=False)
    except InvalidMetric:
        if "metric" in meta or "accuracy" in meta:
            raise
        names = ", ".join(meta.pop("metrics"))
        registration = read_registration(meta, name, measured=False)
        return registration, (f"by which of {names} it is to be compared is not said: see --meta",)
    return registration, () if registration.metric else ("how good it is, is not known",)


def _known(coordinator: "Coordinator", identity: str) -> "Record | None":
    """The record with an id; None if there is none that may be seen."""
    try:
        return coordinator.show(identity)
    except UnknownModel:
        return None
