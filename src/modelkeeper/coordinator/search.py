"""One query on its way: which candidates are there, which is chosen, what would it lend?

    search = Search(zoo, settings, graph, prepared, query, viewer, runners_up, clock)
    choice = search.choose()
    search.plan(search.parent(choice))

It is apart from the coordinator so that only queries pay for importing matching and transforming.
"""

import math
import time
from typing import Any

import msgspec
import numpy as np

from modelkeeper.graph import Graph
from modelkeeper.matching import Found, Prepared, align
from modelkeeper.meta import Query
from modelkeeper.policy.quality import Metric, Peers, gap, standing
from modelkeeper.policy.selection import Candidate, Choice, expected_benefit, select
from modelkeeper.settings import Settings
from modelkeeper.transform import Plan, make_plan
from modelkeeper.warmstart.advice import advise
from modelkeeper.warmstart.answer import Answer, Rival
from modelkeeper.zoo.records import ACTIVE, Filter, Record, Viewer
from modelkeeper.zoo.zoo import Zoo

PLANNED, PLANNED_OF_FEW = 2, 8  # architectures of each kind that get a plan before `benefit` decides
ENOUGH = 0.8  # of expected benefit, where there are many: an exact parent that is not poor
MOST_RIVALS = 20  # runners-up in an answer
CUT_SHORT = "the search took too long and was cut short: there may be a better parent"
MOST_ROUNDS = 8  # searches, if all that was found is far below its peers
BENEFIT_BUCKETS = 3  # how far down `benefit` looks: an exact parent may be less similar than others ...
FEW, BUCKETS_OF_FEW = 2_000, 10  # ... and of so few models it looks at all


class Search:
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
        clock: "Clock",
    ) -> None:
        self._zoo, self._graph, self._query, self._viewer, self._clock = zoo, graph, query, viewer, clock
        self._prepared = prepared
        self._policy = query.policy or settings.policy
        given = query.minimum_similarity
        self._minimum = settings.minimum_similarity if given is None else given
        self._worth = settings.minimum_benefit if given is None else 0.0  # who asks for less, gets less
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
        buckets = (BUCKETS_OF_FEW if len(keys) <= FEW else BENEFIT_BUCKETS) if deep else 1
        found: Found | None = None
        if query.parents:
            preferred = np.intersect1d(keys, zoo.catalog.keys_named(query.parents))
            found = index.search(prepared, buckets=10, floor=self._minimum, among=preferred, stop=clock.late)
        self.proven, self.aligned = True, 0
        self.similarity: dict[int, float] = {}
        self._records: dict[int, Record] = {}
        self._peers: dict[tuple[str, str, str, bool], Peers] = {}
        threshold = settings.admission_threshold
        self._poor = 0.0 if settings.admission == "off" else 1 / (2 + 2 * threshold)  # as a standing
        for _ in range(MOST_ROUNDS):
            if found is None or not found.matches:
                found = index.search(
                    prepared, buckets=buckets, floor=self._minimum, among=keys, stop=clock.late
                )
            new = self._take(found)
            if not new or not all(self._outlier(record) for record in new):
                break
            # Of the poor, none is taken: look below the buckets that they fill.
            keys, found = np.setdiff1d(keys, [record.key for record in new]), None
        self._by_id = {record.id: record for record in self._records.values()}
        clock("search")

    def _take(self, found: Found) -> list[Record]:
        """Remember what was found, without those that went since."""
        self.proven, self.aligned = self.proven and found.proven, self.aligned + found.aligned
        matches = {match.key: match.similarity for match in found.matches}
        known = self._zoo.catalog.with_keys(matches)
        new = {key: record for key, record in known.items() if record.state == ACTIVE}
        self.similarity |= matches
        self._records |= new
        groups = {each.group for each in new.values() if each.metric}
        for group in groups - self._peers.keys():
            task, data, metric, lower_is_better = group
            values = self._zoo.catalog.peers(task, data, metric, self._viewer)
            self._peers[group] = Peers.of(values, lower_is_better)
        return list(new.values())

    def _outlier(self, record: Record) -> bool:
        """Is it far below its peers, and nobody asked for it?"""
        place = self._candidate(record).standing
        wanted = {record.id, record.name} & set(self._query.parents)
        return place is not None and place < self._poor and not wanted

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
            poor=self._poor,
            worth=self._worth,
        )

    def parent(self, choice: Choice) -> Record | None:
        return None if choice.parent is None else self._by_id[choice.parent.id]

    def plan(self, parent: Record) -> Plan:
        """What the parent would lend."""
        if parent.key not in self._plans:
            theirs = self._zoo.catalog.graph(parent.graph)
            self._plans[parent.key] = plan_from(parent, theirs, self._graph, self._query, self._prepared)
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
            "warnings": warnings if self.proven else (*warnings, CUT_SHORT),
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
            advice=advise(
                exact=plan.exact,
                similarity=self.similarity[parent.key],
                same_data=same_task(parent, self._query),
            ),
            actions=plan.summary(),
            transferred=round(100 * plan.coverage, 2),
            **common,
        )

    def _candidate(self, record: Record) -> Candidate:
        metric = place = memorised = None
        if record.value is not None:
            metric = Metric(record.metric, record.value, record.lower_is_better)
            place = standing(metric, self._peers[record.group])
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
        """The candidates, the most promising of them judged by a plan: is it exact, how much is rewired?

        First those no larger than the child: a parent that it contains is exact however little of the child
        it fills. Who could not win gets none; of many models nobody does once one is good ENOUGH.
        """
        data = self._query.data
        ranked = sorted(candidates, key=lambda each: -expected_benefit(each, data))
        smaller = [each for each in ranked if self._fits(each)]
        normed = any(layer.kind == "batch_norm" for layer in self._graph.layers)
        plans: dict[tuple[str, bool], Plan] = {}  # one for all models of one architecture
        judged: dict[str, Candidate] = {}
        best, few = 0.0, self.considered <= FEW
        for pool in (smaller, ranked):
            most = len(plans) + (PLANNED_OF_FEW if few else PLANNED)
            for each in pool:
                hoped = expected_benefit(msgspec.structs.replace(each, exact=self._fits(each)), data)
                if each.id in judged or hoped <= best or (best >= ENOUGH and not few):
                    continue
                record = self._by_id[each.id]
                key = record.graph, same_task(record, self._query)
                if key not in plans and len(plans) == most:
                    break
                plan = plans[key] = plans.get(key) or self.plan(record)
                found = msgspec.structs.replace(each, exact=plan.exact, rewired=plan.rewired, normed=normed)
                judged[each.id] = found
                best = max(best, expected_benefit(found, data))
        return [judged.get(each.id, each) for each in ranked]

    def _fits(self, candidate: Candidate) -> bool:
        """Is it small enough to be contained in the child?"""
        return self._by_id[candidate.id].parameters <= self._graph.parameters


def same_task(parent: Record, query: Query) -> bool:
    """Do a parent and a model predict the same things?"""
    return parent.data == query.data and parent.task == (query.task or parent.task)


def plan_from(
    parent: Record, theirs: Graph, graph: Graph, query: Query, prepared: Prepared | None = None
) -> Plan:
    """What a parent would lend to a model. The head goes along if both predict the same things."""
    return make_plan(theirs, graph, align(theirs, prepared or graph), same_task=same_task(parent, query))


class Clock:
    """How long did each stage take, and is it too long in all?"""

    def __init__(self, seconds: float = math.inf) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()
        self._end = self._last + seconds

    def late(self) -> bool:
        return time.perf_counter() > self._end

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.spent[stage] = self.spent.get(stage, 0.0) + now - self._last
        self._last = now
