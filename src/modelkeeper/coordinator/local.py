"""The coordinator: query, register, list and remove over one zoo, in one process.

    coordinator = Coordinator(Settings(home="zoo/"))
    found = coordinator.query(graph, Query(task="classification", data="Flowers102"))
    found.answer                     parent or cold start, why, and what will be transferred
    found.weights()                  the child's tensors, gathered one by one from the parent's

It knows graphs and arrays, no framework; whoever holds a model (a client) describes it first. What only
queries and registrations need (NumPy, matching, transforming) is imported when they come.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from modelkeeper.errors import CorruptWeights, InvalidWeights, UnknownModel
from modelkeeper.graph import Graph
from modelkeeper.settings import Settings
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.gc import Swept, sweep
from modelkeeper.zoo.records import (
    ACTIVE,
    DAMAGED,
    LENT,
    STORED,
    Event,
    Filter,
    Record,
    Registration,
    Viewer,
    is_id,
)
from modelkeeper.zoo.zoo import Registered, Zoo

if TYPE_CHECKING:
    from modelkeeper.meta import Query
    from modelkeeper.transform import Plan
    from modelkeeper.warmstart.lender import Lender
    from modelkeeper.weights import Array, Header, Weights
    from modelkeeper.zoo.staged import Staged

MOST_GENERATIONS = 200  # of descendants in one tree; whoever wants more asks for a descendant's
ATTEMPTS = 3  # parents to try if one turns out to be damaged


class Lineage(Struct, frozen=True):
    """A model, its ancestors (the nearest first) and its descendants."""

    record: Record
    ancestors: tuple[Record, ...]
    descendants: tuple["Lineage", ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return {
            "record": self.record.to_dict(),
            "ancestors": [each.to_dict() for each in self.ancestors],
            "descendants": [each.to_dict() for each in self.descendants],
        }


class Warmth:
    """What a query found: the answer, and the weights that go with it."""

    def __init__(
        self,
        answer: Answer,
        plan: "Plan | None" = None,
        source: "Weights | None" = None,
        program: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        self.answer, self.plan, self._source, self._program = answer, plan, source, program

    @contextlib.contextmanager
    def lender(self) -> "Iterator[Lender | None]":
        """The parent itself; None for a cold start, or a dry run."""
        if self.plan is None or self._source is None:
            yield None
        else:
            from modelkeeper.warmstart.lender import Lender

            yield Lender(self.plan, self._source, self._program())

    def weights(self) -> "Iterator[tuple[str, Array]]":
        """The child's tensors by name, each made when it is asked for; none for a cold start.

        Raises:
            InvalidWeights: The parent's weights do not fit its graph, or hold NaN.
        """
        if self.plan is not None and self._source is not None:
            from modelkeeper.transform import apply

            yield from apply(self.plan, self._source)

    @property
    def header(self) -> "Header":
        """Where each tensor lies in a file of these weights."""
        from modelkeeper.weights import Header

        if self.plan is None:
            return Header({})
        tensors = self.plan.child.tensors
        made = [tensors[entry.tensor] for entry in self.plan.entries if entry.action != "kept"]
        return Header.of((tensor.name, tensor.dtype, tensor.shape) for tensor in made)

    def stream(self) -> Iterator[memoryview | bytes]:
        """The bytes of that file. Tensors are made in its order, so that none has to wait for another."""
        if self.plan is not None and self._source is not None:
            from modelkeeper.transform import apply
            from modelkeeper.weights import stream

            header = self.header
            place = {name: number for number, name in enumerate(header.tensors)}
            ordered = sorted(self.plan.entries, key=lambda entry: place.get(entry.tensor, -1))
            plan = msgspec.structs.replace(self.plan, entries=tuple(ordered))
            yield from stream(header, apply(plan, self._source))


class Coordinator:
    """One zoo and all that can be asked of it. Safe to use from several threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.zoo = Zoo(settings)

    def close(self) -> None:
        """Let go of the zoo."""
        self.zoo.close()

    # -- query ----------------------------------------------------------------------------------

    def query(
        self,
        graph: Graph,
        query: "Query",
        *,
        viewer: Viewer | None = None,
        dry_run: bool = False,
        runners_up: bool = False,
        seconds: float = math.inf,
    ) -> Warmth:
        """Find a parent for a model, and plan what it lends.

        Args:
            graph: The model.
            query: Which parents it would take.
            viewer: Whose eyes it is seen with. Default: everything is seen.
            dry_run: Do not count the parent as used.
            runners_up: Look for more candidates than the choice needs, to explain it.
            seconds: After so many a search ends with what it has found; the answer then says so.
        """
        from modelkeeper.coordinator.search import Clock, Request, Search
        from modelkeeper.matching import prepare
        from modelkeeper.policy.selection import Choice

        clock = Clock(seconds)
        prepared = prepare(graph)
        clock("prepare")
        request = Request(graph, prepared, query, viewer, runners_up, dry_run)
        search = Search(self.zoo, self.settings, request, clock)
        warnings: list[str] = []
        for _ in range(ATTEMPTS):
            pool = search.find()
            choice = search.choose(pool)
            parent = pool.parent(choice)
            if parent is None:
                break
            try:
                plan = search.plan(parent)
                source = None if dry_run else self.zoo.weights(parent)
            except (CorruptWeights, InvalidWeights) as problem:
                warnings.append(f"{parent.name} could not be read and was taken out: {problem}")
                self.zoo.catalog.retire({parent.id: str(problem)}, DAMAGED)
                choice = Choice(None, "the models that fit best could not be read")
                continue  # with one fewer to choose from
            clock("read")
            if not dry_run:
                self._lent(parent, pool.candidates[parent.id].similarity, viewer)
            answer = search.answer(pool, choice, plan, warnings)
            return Warmth(answer, plan, source, partial(self.zoo.program, parent))
        return Warmth(search.answer(pool, choice, warnings=warnings))

    def lend(self, graph: Graph, query: "Query", parent: str, viewer: Viewer | None = None) -> Warmth:
        """What a parent that is known by its id lends to a model: the weights that `query` found, again.

        Raises:
            UnknownModel: There is no such model, or it is not there any more.
            CorruptWeights: Its file is damaged.
        """
        from modelkeeper.coordinator.search import plan_from

        record = self.show(parent, viewer)
        if record.state != ACTIVE:
            raise UnknownModel(parent)
        plan = plan_from(record, self.zoo.catalog.graph(record.graph), graph, query)
        return Warmth(Answer(parent=record.id), plan, self.zoo.weights(record))

    def _lent(self, parent: Record, similarity: float, viewer: Viewer | None) -> None:
        """Count that a parent lent its weights, and write it into the log."""
        now, user = time.time(), viewer.user if viewer else ""
        detail = f"{parent.name} lent its weights, similarity {similarity:.3f}"
        event = Event(at=now, action=LENT, model=parent.id, user=user, detail=detail)
        self.zoo.catalog.lent(parent.id, now, event)

    # -- register and the rest ------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        told: Registration,
        tensors: "Iterable[tuple[str, Array]] | Staged",
        *,
        owner: str = "",
        model_id: str = "",
        program: bytes = b"",
    ) -> Registered:
        """Take a trained model into the zoo: see `Zoo.register`.

        Raises:
            UnknownModel: No model is called as its parent is said to be.
        """
        if told.parent and not is_id(told.parent):
            told = msgspec.structs.replace(told, parent=self.show(told.parent).id)
        return self.zoo.register(graph, told, tensors, owner, model_id, program)

    def models(
        self,
        wanted: Filter | None = None,
        *,
        order: str = "-created",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Record]:
        """Records, the newest first unless another order is asked for."""
        return self.zoo.catalog.find(wanted or Filter(), order=order, limit=limit, offset=offset)

    def count(self, wanted: Filter | None = None) -> int:
        """How many records there are."""
        return self.zoo.catalog.count(wanted or Filter())

    def show(self, name: str, viewer: Viewer | None = None) -> Record:
        """The model with this id, the only one whose id begins so, or the newest of this name."""
        return self.zoo.catalog.get(name, viewer)

    def graph(self, record: Record) -> Graph:
        """The graph of a model."""
        return self.zoo.catalog.graph(record.graph)

    def location(self, record: Record) -> str:
        """Where the files of a model are."""
        return f"{self.settings.blobs_url.rstrip('/')}/{record.folder}"

    def tree(self, name: str, viewer: Viewer | None = None) -> Lineage:
        """A model with all that it descends from and all that descends from it, as far as it may be seen.

        Descendants of more than MOST_GENERATIONS are left out: nested so deep, no JSON can be read.
        """
        record = self.show(name, viewer)
        catalog, ancestors, seen = self.zoo.catalog, [], {record.id}
        at = record
        while at.parent and at.parent not in seen:
            seen.add(at.parent)
            found = catalog.with_ids([at.parent], viewer)
            if not found:
                break
            at = found[at.parent]
            ancestors.append(at)
        generations, seen = [[record]], {record.id}
        while generations[-1] and len(generations) <= MOST_GENERATIONS:
            children = catalog.children([each.id for each in generations[-1]], viewer)
            generations.append([child for child in children if child.id not in seen])
            seen |= {child.id for child in children}
        below: dict[str, list[Lineage]] = {}  # from the last generation up: each finds its children made
        for generation in reversed(generations):
            for each in generation:
                made = Lineage(each, (), tuple(below.pop(each.id, ())))
                below.setdefault(each.parent if each is not record else "", []).append(made)
        return msgspec.structs.replace(below[""][0], ancestors=tuple(ancestors))

    def remove(self, name: str, *, user: str = "", viewer: Viewer | None = None) -> Record:
        """Take a model out of the zoo. Its record stays, for those who descend from it."""
        record = self.show(name, viewer)
        if not self.zoo.remove(record, user=user):
            raise UnknownModel(name)
        return record

    def pin(self, name: str, pinned: bool = True, *, user: str = "", viewer: Viewer | None = None) -> Record:
        """Keep a model whatever it is worth, or no longer."""
        record = self.show(name, viewer)
        if record.state not in STORED:
            raise UnknownModel(name)
        self.zoo.pin(record, pinned, user)
        return msgspec.structs.replace(record, pinned=pinned)

    def gc(
        self,
        *,
        grace: float | None = None,
        verify: bool = False,
        progress: Callable[[float, float], None] | None = None,
    ) -> Swept:
        """Sweep what was left behind: see `zoo.gc`."""
        return sweep(self.zoo, grace=grace, verify=verify, progress=progress)

    def stats(self, *, viewer: Viewer | None = None) -> dict[str, Any]:
        """Counts over the zoo."""
        return self.zoo.catalog.stats(viewer) | {"capacity": self.settings.capacity}

    def log(
        self,
        *,
        limit: int = 50,
        model: str | None = None,
        action: str | None = None,
        viewer: Viewer | None = None,
    ) -> list[Event]:
        """What happened in the zoo, the newest first."""
        return self.zoo.catalog.log(limit=limit, model=model, action=action, viewer=viewer)
