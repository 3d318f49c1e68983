"""What would a parent lend to a model? Plans, made once for all who ask for the same within a process.

    planned = Planned()                                  one for a coordinator
    plans = Plans(catalog, request, clock, planned)      of one query
    plans.verdict(key)                                   is it exact, how much is rewired? None: no time left
    plans.plan(key)                                      the plan itself, for whoever is chosen

A plan follows from the two graphs, whether both predict the same things, and what is frozen: trials of one
search ask for few architectures again and again. Verdicts are small, and many are remembered; plans are
large, and few are.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from modelkeeper.coordinator.candidates import Request, same_task
from modelkeeper.coordinator.clock import Clock
from modelkeeper.errors import InvalidWeights
from modelkeeper.graph import Graph
from modelkeeper.matching import Prepared, align, prepare
from modelkeeper.meta import Query
from modelkeeper.patience import OutOfPatience, go_on, waiting
from modelkeeper.text import enumeration
from modelkeeper.transform import Decisions, Plan, SideBySide, make_plan, side_by_side
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database.recent import Recent
from modelkeeper.zoo.records import Record

MOST_VERDICTS = 10_000
MOST_PLANS = 256
MOST_LAYERS = 30_000  # of the children of all plans that are remembered: some KB each

PlanKey = tuple[str, bool]  # the digest of the parent's graph; does it predict the same things?
_Asked = tuple[PlanKey, Graph, frozenset[str]]


class Verdict(NamedTuple):
    """What a plan says of a parent."""

    exact: bool
    rewired: float


class Planned:
    """What a process has planned lately. Safe to use from several threads."""

    def __init__(self) -> None:
        self.verdicts: Recent[_Asked, Verdict] = Recent(MOST_VERDICTS, 10 * MOST_LAYERS)
        self.plans: Recent[_Asked, Plan] = Recent(MOST_PLANS, MOST_LAYERS)


class Plans:
    """The plans of one query."""

    def __init__(
        self, catalog: Catalog, request: Request, clock: Clock, planned: Planned | None = None
    ) -> None:
        self._catalog, self._request, self._clock = catalog, request, clock
        self._planned = planned or Planned()
        self._plans: dict[PlanKey, Plan] = {}

    def key(self, parent: Record) -> PlanKey:
        """Parents of which this is the same share a plan."""
        return parent.graph, same_task(parent, self._request.query)

    def at_hand(self) -> frozenset[PlanKey]:
        """Which plans this query has looked at, and so has without making them?"""
        return frozenset(self._plans)

    def plan(self, key: PlanKey) -> Plan:
        """Plan what a parent would lend.

        Raises:
            OutOfPatience: There is no time left.
        """
        plan = self._known(key)
        return self._made(key) if plan is None else plan

    def verdict(self, key: PlanKey) -> Verdict | None:
        """What a plan would say; None: there is no time left to make one."""
        plan, verdict = self._known(key), self._planned.verdicts.get(self._asked(key))
        if plan is None and verdict is not None:
            return verdict
        try:
            plan = plan or self._made(key)
        except OutOfPatience:
            self._clock("plan")
            return None
        return Verdict(plan.exact, plan.rewired)

    def side_by_side(self, parents: Sequence[str]) -> SideBySide | None:
        """Plan what several parents (digests of graphs) lend together; None: they do not fit, or too late."""
        request = self._request
        graphs = [self._catalog.graph(digest) for digest in parents]
        with contextlib.suppress(OutOfPatience), waiting(self._clock.late):
            return plan_side_by_side(graphs, request.graph, request.query, request.prepared)
        return None

    def _asked(self, key: PlanKey) -> _Asked:
        return key, self._request.graph, frozenset(self._request.query.frozen)

    def _known(self, key: PlanKey) -> Plan | None:
        plan = self._plans.get(key) or self._planned.plans.get(self._asked(key))
        if plan is not None:
            self._plans[key] = plan
        return plan

    def _made(self, key: PlanKey) -> Plan:
        request, parent_graph = self._request, self._catalog.graph(key[0])
        with waiting(self._clock.late):
            go_on()
            plan = plan_from(
                parent_graph, request.graph, request.query, same=key[1], prepared=request.prepared
            )
        self._clock("plan")
        asked, size = self._asked(key), len(request.graph.layers)
        self._planned.plans.put(asked, plan, size)
        self._planned.verdicts.put(asked, Verdict(plan.exact, plan.rewired), size)
        self._plans[key] = plan
        return plan


def plan_for(
    records: Sequence[Record],
    graph: Graph,
    query: Query,
    catalog: Catalog,
    seconds: float,
    planned: Planned | None = None,
) -> Decisions:
    """Plan what models that are there lend, together if they are several.

    Raises:
        InvalidWeights: They do not fit side by side, or not for this task.
        OutOfPatience: It takes more seconds than that.
    """
    clock, prepared = Clock(seconds), prepare(graph)
    if len(records) == 1:
        plans = Plans(catalog, Request(graph, prepared, query), clock, planned)
        return plans.plan(plans.key(records[0]))
    plan = None
    if all(same_task(record, query) for record in records):
        graphs = [catalog.graph(record.graph) for record in records]
        with waiting(clock.late):
            plan = plan_side_by_side(graphs, graph, query, prepared)
    if plan is None:
        names = enumeration([record.name for record in records])
        raise InvalidWeights("parents", f"{names} do not fit side by side into the model")
    return plan


def plan_from(
    parent_graph: Graph, graph: Graph, query: Query, *, same: bool, prepared: Prepared | None = None
) -> Plan:
    """Plan what a parent would lend to a model. The head goes along if both predict the `same` things."""
    alignment = align(parent_graph, prepared or graph)
    return make_plan(parent_graph, graph, alignment, same_task=same, frozen=query.frozen)


def plan_side_by_side(
    parents: Sequence[Graph], graph: Graph, query: Query, prepared: Prepared | None = None
) -> SideBySide | None:
    """Plan what several parents of the same task would lend together; None if they do not fit."""
    aligned = [(parent, align(parent, prepared or graph)) for parent in parents]
    return side_by_side(aligned, graph, frozen=query.frozen)
