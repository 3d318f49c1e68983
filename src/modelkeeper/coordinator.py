"""The coordinator: query, register, list and remove over one zoo, in one process.

    coordinator = Coordinator(Settings(home="zoo/"))
    found = coordinator.query(graph, Query(task="classification", data="Flowers102"))
    found.answer                     parent or cold start, why, and what will be transferred
    found.weights()                  the child's tensors, gathered one by one from the parent's

It knows graphs and arrays, no framework; whoever holds a model (a client) describes it first.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from modelkeeper.answers import Answer, Rival
from modelkeeper.errors import CorruptWeights, InvalidWeights
from modelkeeper.graph import Graph
from modelkeeper.matching import Found, Prepared, align, prepare
from modelkeeper.meta import Query
from modelkeeper.metrics import Metric, gap, standing
from modelkeeper.selection import Candidate, Choice, expected_benefit, select
from modelkeeper.settings import Settings
from modelkeeper.transform import Plan, apply, make_plan
from modelkeeper.weights import Array, Weights
from modelkeeper.zoo.records import ACTIVE, DAMAGED, Event, Filter, Record, Registration, Viewer
from modelkeeper.zoo.zoo import Registered, Swept, Zoo

PLANNED = 8  # candidates that get a plan before `benefit` decides
MOST_RIVALS = 20  # runners-up in an answer
BENEFIT_BUCKETS = 3  # how far down `benefit` looks: accuracy may outweigh a little similarity
ATTEMPTS = 3  # parents to try if one turns out to be damaged


class Lineage(Struct, frozen=True):
    """A model, its ancestors (the nearest first) and its descendants."""

    record: Record
    ancestors: tuple[Record, ...]
    descendants: tuple["Lineage", ...]


class Warmth:
    """What a query found: the answer, and the weights that go with it."""

    def __init__(self, answer: Answer, plan: Plan | None = None, source: Weights | None = None) -> None:
        self.answer, self.plan, self._source = answer, plan, source

    def weights(self) -> Iterator[tuple[str, Array]]:
        """The child's tensors by name, each made when it is asked for; none for a cold start.

        Raises:
            InvalidWeights: The parent's weights do not fit its graph, or hold NaN.
        """
        if self.plan is not None and self._source is not None:
            yield from apply(self.plan, self._source)


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
        query: Query,
        *,
        viewer: Viewer | None = None,
        dry_run: bool = False,
        runners_up: bool = False,
    ) -> Warmth:
        """Find a parent for a model, and plan what it lends.

        Args:
            graph: The model.
            query: Which parents it would take.
            viewer: Whose eyes it is seen with. Default: everything is seen.
            dry_run: Do not count the parent as used.
            runners_up: Look for more candidates than the choice needs, to explain it.
        """
        clock = _Clock()
        prepared = prepare(graph)
        clock("prepare")
        search = _Search(self.zoo, self.settings, graph, prepared, query, viewer, runners_up, clock)
        warnings: list[str] = []
        for _ in range(ATTEMPTS):
            choice = search.choose()
            parent = search.parent(choice)
            if parent is None:
                break
            try:
                plan = search.plan(parent)
                source = None if dry_run else self.zoo.weights(parent)
            except (CorruptWeights, InvalidWeights) as problem:
                warnings.append(f"{parent.name} could not be read and was taken out: {problem}")
                self.zoo.remove(parent, str(problem), state=DAMAGED)
                search.exclude(parent)
                continue
            clock("read")
            if not dry_run:
                self._lent(parent, search, viewer)
            answer = search.answer(choice, parent, plan, tuple(warnings), dry_run)
            return Warmth(answer, plan, source)
        return Warmth(search.answer(choice, None, None, tuple(warnings), dry_run))

    def _lent(self, parent: Record, search: "_Search", viewer: Viewer | None) -> None:
        now, user = time.time(), viewer.user if viewer else ""
        similarity = search.similarity[parent.key]
        detail = f"{parent.name} lent its weights, similarity {similarity:.3f}"
        event = Event(at=now, action="lent", model=parent.id, user=user, detail=detail)
        self.zoo.catalog.lent(parent.id, now, event)

    # -- register and the rest ------------------------------------------------------------------

    def register(
        self,
        graph: Graph,
        told: Registration,
        tensors: Iterable[tuple[str, Array]],
        *,
        owner: str = "",
        model_id: str = "",
    ) -> Registered:
        """Take a trained model into the zoo: see `Zoo.register`."""
        return self.zoo.register(graph, told, tensors, owner, model_id)

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

    def show(self, name: str, viewer: Viewer | None = None) -> Record:
        """The model with this id, the only one whose id begins so, or the newest of this name."""
        return self.zoo.catalog.get(name, viewer)

    def graph(self, record: Record) -> Graph:
        """The graph of a model."""
        return self.zoo.catalog.graph(record.graph)

    def tree(self, name: str, viewer: Viewer | None = None) -> Lineage:
        """A model with all that it descends from and all that descends from it."""
        record = self.show(name, viewer)
        catalog, ancestors, seen = self.zoo.catalog, [], {record.id}
        at = record
        while at.parent and at.parent not in seen:
            seen.add(at.parent)
            found = catalog.with_ids([at.parent])
            if not found:
                break
            at = found[at.parent]
            ancestors.append(at)
        return msgspec.structs.replace(self._descendants(record, {record.id}), ancestors=tuple(ancestors))

    def _descendants(self, record: Record, seen: set[str]) -> Lineage:
        children = [child for child in self.zoo.catalog.children(record.id) if child.id not in seen]
        seen |= {child.id for child in children}
        return Lineage(record, (), tuple(self._descendants(child, seen) for child in children))

    def remove(self, name: str, *, user: str = "", viewer: Viewer | None = None) -> Record:
        """Take a model out of the zoo. Its record stays, for those who descend from it."""
        record = self.show(name, viewer)
        self.zoo.remove(record, user=user)
        return record

    def pin(self, name: str, pinned: bool = True, *, user: str = "", viewer: Viewer | None = None) -> Record:
        """Keep a model whatever it is worth, or no longer."""
        record = self.show(name, viewer)
        self.zoo.pin(record, pinned, user)
        return msgspec.structs.replace(record, pinned=pinned)

    def gc(self, *, grace: float | None = None, verify: bool = False) -> Swept:
        """Sweep what was left behind: see `Zoo.gc`."""
        return self.zoo.gc(grace=grace, verify=verify)

    def stats(self) -> dict[str, Any]:
        """Counts over the zoo."""
        return self.zoo.catalog.stats() | {"capacity": self.settings.capacity}

    def log(self, *, limit: int = 50, model: str | None = None, action: str | None = None) -> list[Event]:
        """What happened in the zoo, the newest first."""
        return self.zoo.catalog.log(limit=limit, model=model, action=action)


class _Search:
    """One query on its way: candidates, the choice among them, and plans already made."""

    def __init__(
        self,
        zoo: Zoo,
        settings: Settings,
        graph: Graph,
        prepared: Prepared,
        query: Query,
        viewer: Viewer | None,
        runners_up: bool,
        clock: "_Clock",
    ) -> None:
        self._zoo, self._graph, self._query, self._clock = zoo, graph, query, clock
        self._policy = query.policy or settings.policy
        given = query.minimum_similarity
        self._minimum = settings.minimum_similarity if given is None else given
        self._plans: dict[int, Plan] = {}
        wanted = Filter(viewer=viewer, states=(ACTIVE,), task=query.task or None, tags=query.tags)
        keys = zoo.catalog.keys(wanted)
        if query.exclude:
            keys = np.setdiff1d(keys, zoo.catalog.keys_named(query.exclude))
        self.considered = len(keys)
        clock("filter")
        index = zoo.index()
        clock("follow")
        deep = self._policy == "benefit" or runners_up
        buckets = BENEFIT_BUCKETS if deep else 1
        found: Found | None = None
        if query.parents:
            preferred = np.intersect1d(keys, zoo.catalog.keys_named(query.parents))
            found = index.search(prepared, buckets=10, floor=self._minimum, among=preferred)
        if found is None or not found.matches:
            found = index.search(prepared, buckets=buckets, floor=self._minimum, among=keys)
        self.aligned = found.aligned
        self.similarity = {match.key: match.similarity for match in found.matches}
        self._records = zoo.catalog.with_keys(self.similarity)
        self._by_id = {record.id: record for record in self._records.values()}
        self._standing = self._standings()
        clock("search")

    def exclude(self, record: Record) -> None:
        """Look no more at a model."""
        self._records.pop(record.key)

    def choose(self) -> Choice:
        candidates = [self._candidate(record) for record in self._records.values()]
        if self._policy == "benefit":
            candidates = self._with_plans(candidates)
        return select(
            candidates,
            data=self._query.data or None,
            policy=self._policy,
            minimum=self._minimum,
            preferred=self._query.parents,
            excluded=self._query.exclude,
            considered=self.considered,
        )

    def parent(self, choice: Choice) -> Record | None:
        return None if choice.parent is None else self._by_id[choice.parent.id]

    def plan(self, parent: Record) -> Plan:
        """What the parent would lend. The head goes along if both predict the same things."""
        if parent.key not in self._plans:
            theirs = self._zoo.catalog.graph(parent.graph)
            alignment = align(theirs, self._graph)
            same = parent.data == self._query.data and parent.task == (self._query.task or parent.task)
            self._plans[parent.key] = make_plan(theirs, self._graph, alignment, same_task=same)
            self._clock("plan")
        return self._plans[parent.key]

    def answer(
        self,
        choice: Choice,
        parent: Record | None,
        plan: Plan | None,
        warnings: tuple[str, ...],
        dry_run: bool,
    ) -> Answer:
        rivals = tuple(
            Rival(
                id=lost.candidate.id,
                name=lost.candidate.name,
                similarity=lost.candidate.similarity,
                metric=lost.candidate.metric.name if lost.candidate.metric else "",
                value=lost.candidate.metric.value if lost.candidate.metric else None,
                why=lost.why_lost,
            )
            for lost in choice.runners_up[:MOST_RIVALS]
        )
        common: dict[str, Any] = {
            "reason": choice.reason,
            "runners_up": rivals,
            "considered": self.considered,
            "aligned": self.aligned,
            "warnings": warnings,
            "seconds": self._clock.spent,
            "dry_run": dry_run,
        }
        if parent is None or plan is None:
            return Answer(**common)
        return Answer(
            parent=parent.id,
            parent_name=parent.name,
            similarity=self.similarity[parent.key],
            metric=parent.metric,
            value=parent.value,
            data=parent.data,
            exact=plan.exact,
            doubts=plan.doubts,
            actions=plan.summary(),
            transferred=round(100 * plan.coverage, 2),
            **common,
        )

    def _standings(self) -> dict[tuple[str, str, str], list[float]]:
        groups = {(each.task, each.data, each.metric) for each in self._records.values() if each.metric}
        return {group: self._zoo.catalog.peers(*group) for group in groups}

    def _candidate(self, record: Record) -> Candidate:
        metric = place = memorised = None
        if record.value is not None:
            metric = Metric(record.metric, record.value, record.lower_is_better)
            place = standing(metric, self._standing[record.task, record.data, record.metric])
            memorised = gap(record.metrics, metric)
        return Candidate(
            id=record.id,
            name=record.name,
            similarity=self.similarity[record.key],
            metric=metric,
            standing=place,
            gap=memorised,
            data=record.data,
            task=record.task,
            created=record.created,
        )

    def _with_plans(self, candidates: list[Candidate]) -> list[Candidate]:
        """The most promising candidates, judged by what a plan would really cover."""
        data = self._query.data
        ranked = sorted(candidates, key=lambda each: -expected_benefit(each, data))
        for number, each in enumerate(ranked[:PLANNED]):
            plan = self.plan(self._by_id[each.id])
            ranked[number] = msgspec.structs.replace(each, exact=plan.exact, coverage=plan.coverage)
        return ranked


class _Clock:
    """How long did each stage take?"""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.spent[stage] = self.spent.get(stage, 0.0) + now - self._last
        self._last = now
