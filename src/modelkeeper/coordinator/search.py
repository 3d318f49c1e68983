"""One query on its way: which candidates are there, which is chosen, what would it lend?

    search = Search(zoo, settings, Request(graph, prepared, query), clock)
    pool = search.find()                       the candidates of the zoo
    choice = search.choose(pool)               the parent among them, or a cold start
    choice, lenders = search.settle(pool, choice)      it, or several side by side, and the plan
    search.answer(pool, choice, lenders)       all of it, for whoever asked

It is apart from the coordinator so that only queries pay for importing matching and transforming.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkeeper.coordinator.answering import Said, answer
from modelkeeper.coordinator.candidates import Pool, Request, as_candidate, same_task
from modelkeeper.coordinator.company import Lenders, Meeting, gather
from modelkeeper.coordinator.judging import Planner, judge
from modelkeeper.coordinator.near_spellings import said_otherwise
from modelkeeper.graph import Graph
from modelkeeper.graph.vocabulary import BATCH_NORM
from modelkeeper.matching import Found, Prepared, align
from modelkeeper.matching.similarity import BUCKETS
from modelkeeper.meta import Query
from modelkeeper.patience import OutOfPatience, go_on, waiting
from modelkeeper.policy.admission import least_standing
from modelkeeper.policy.quality import Peers
from modelkeeper.policy.selection import Candidate, Choice, Terms, policy, select
from modelkeeper.policy.selection.base import FEW, thorough
from modelkeeper.policy.selection.comparing import on_same_data
from modelkeeper.settings import Settings
from modelkeeper.transform import Plan, SideBySide, make_plan, side_by_side
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.records import ACTIVE, Filter, Record
from modelkeeper.zoo.restriction import Restriction
from modelkeeper.zoo.zoo import Zoo

NOBODY = frozenset({""})  # no model has this id
MOST_ROUNDS = 8  # searches, if all that was found is far below its peers
SEARCHING = 0.6  # of the time that a query may take; the rest is for plans
NO_TIME = "there was no time left to plan what {} would lend"


class Search:
    """The steps of one query. Making it does nothing; `find` may be called again when the zoo has changed."""

    def __init__(self, zoo: Zoo, settings: Settings, request: Request, clock: "Clock") -> None:
        """Prepare a query.

        Raises:
            InvalidSetting: The query names a policy that is not there.
        """
        query = request.query
        given = query.minimum_similarity
        self._zoo, self._request, self._clock = zoo, request, clock
        self._policy = policy(query.policy or settings.policy)
        self._terms = Terms(
            minimum=settings.minimum_similarity if given is None else given,
            preferred=query.parents,
            excluded=query.exclude,
            poor=least_standing(settings.admission, settings.admission_threshold),
            worth=settings.minimum_benefit if given is None else 0.0,  # who asks for less, gets less
        )
        restrictions = Restriction.of(settings), Restriction.of(query)
        self._restrictions = tuple(each for each in restrictions if each)
        self._notes: list[str] = []  # which models were meant by names
        self._plans: dict[tuple[str, bool], Plan] = {}  # one for all models of one architecture

    # -- candidates -----------------------------------------------------------------------------

    def find(self) -> Pool:
        """Search the zoo for models that are similar enough, and see how good each is."""
        keys = self._passing()
        self._clock("filter")
        index = self._zoo.index()
        self._clock("follow")
        prepared, late = self._request.prepared, self._clock.late_to_search
        search = partial(index.search, prepared, floor=self._terms.minimum, stop=late)
        pool = Pool(considered=len(keys))
        matched: Found | None = None
        if self._request.query.parents:
            meant, self._notes = self._zoo.catalog.names.meant(
                self._request.query.parents, self._request.asker
            )
            preferred = np.intersect1d(keys, np.array(list(meant), np.int64))
            matched = search(buckets=BUCKETS, among=preferred)
            # By ids alone, so that nobody is preferred for a name; NOBODY: names that mean nothing.
            self._terms = msgspec.structs.replace(self._terms, preferred=frozenset(meant.values()) or NOBODY)
        depth = self._depth(len(keys))
        for _ in range(MOST_ROUNDS):
            if matched is None or not matched.matches:
                matched = search(buckets=depth, among=keys)
            added = self._add(pool, matched)
            if not added or not all(self._is_outlier(pool.candidates[record.id]) for record in added):
                break
            # Of the poor, none is taken: look below the buckets that they fill.
            keys, matched = np.setdiff1d(keys, [record.key for record in added]), None
        self._clock("search")
        return pool

    def _passing(self) -> NDArray[np.int64]:
        """The keys of all models that the query lets through."""
        query, catalog = self._request.query, self._zoo.catalog
        wanted = Filter(
            viewer=self._request.viewer,
            states=(ACTIVE,),
            task=query.task or None,
            tags=query.tags,
            restrictions=self._restrictions,
        )
        keys = catalog.keys(wanted)
        if unreadable := self._zoo.set_aside():
            keys = np.setdiff1d(keys, unreadable)
        if query.exclude:
            called = catalog.names.called(query.exclude)
            keys = np.setdiff1d(keys, np.array(list(called), np.int64))
            self._terms = msgspec.structs.replace(self._terms, excluded=frozenset(called.values()))
        if query.fold:
            keys = np.setdiff1d(keys, catalog.keys_beyond_fold(query.data, query.fold))
        return keys

    def _depth(self, models: int) -> int:
        """How many buckets of similarity to go through, for the policy or to explain its choice."""
        depth = self._policy.depth(models)
        return max(depth, thorough(models)) if self._request.runners_up else depth

    def _add(self, pool: Pool, matched: Found) -> list[Record]:
        """Add what one search matched to the pool, without models that went since. Which were added?"""
        pool.proven, pool.aligned = pool.proven and matched.proven, pool.aligned + matched.aligned
        similarity = {match.key: match.similarity for match in matched.matches}
        records = self._zoo.catalog.with_keys(similarity)
        added = [record for record in records.values() if record.state == ACTIVE]
        groups = {record.group for record in added if record.metric}
        for group in groups - pool.peers.keys():
            task, data, metric, lower_is_better = group
            owners, values = self._zoo.peers(task, data, metric, self._request.viewer)
            pool.peers[group] = Peers.of(values, lower_is_better, owners)
        pool.credits.update(self._zoo.outcomes.credits(added))
        for record in added:
            pool.records[record.id] = record
            pool.candidates[record.id] = as_candidate(
                record, similarity[record.key], pool.peers, pool.credits[record.id]
            )
        return added

    def _is_outlier(self, candidate: Candidate) -> bool:
        """Is it far below its peers, or was what it claims refuted, and nobody asked for it?"""
        if candidate.id in self._terms.preferred:
            return False
        poor = candidate.standing is not None and candidate.standing < self._terms.poor
        return poor or candidate.refuted

    # -- the choice -----------------------------------------------------------------------------

    def choose(self, pool: Pool) -> Choice:
        """Choose the parent by the policy; where it asks for that, the best candidates get a plan first."""
        data = self._request.query.data
        candidates = list(pool.candidates.values())
        if self._policy.plans_first:
            candidates = judge(candidates, self._policy, data, self._planner(pool))
        if self._clock.late():  # nobody gets a plan any more: choose among those who have one
            planned = [each for each in candidates if self._plan_key(pool.records[each.id]) in self._plans]
            if len(planned) < len(candidates):
                pool.proven, candidates = False, planned or candidates
        return select(
            candidates, self._policy, data=data or None, terms=self._terms, considered=pool.considered
        )

    def expects(self, choice: Choice) -> float:
        """What training is expected to gain by a choice, from 0 to 1."""
        return 0.0 if choice.parent is None else self._policy.benefit(choice.parent, self._request.query.data)

    def least(self, choice: Choice) -> float:
        """How similar a model must be to change a choice."""
        return self._terms.minimum if choice.parent is None else choice.parent.similarity

    def _planner(self, pool: Pool) -> Planner:
        graph, records = self._request.graph, pool.records
        return Planner(
            fits=lambda candidate: records[candidate.id].parameters <= graph.parameters,
            architecture=lambda candidate: self._plan_key(records[candidate.id]),
            plan=lambda candidate: self._plan_in_time(records[candidate.id]),
            normed=any(layer.kind == BATCH_NORM for layer in graph.layers),
            few=pool.considered <= FEW,
        )

    def plan(self, parent: Record) -> Plan:
        """Plan what a parent would lend; of parents with one graph this is done once.

        Raises:
            OutOfPatience: There is no time left.
        """
        key = self._plan_key(parent)
        if key not in self._plans:
            parent_graph = self._zoo.catalog.graph(parent.graph)
            request = self._request
            with waiting(self._clock.late):
                go_on()
                self._plans[key] = plan_from(
                    parent, parent_graph, request.graph, request.query, request.prepared
                )
            self._clock("plan")
        return self._plans[key]

    def _plan_in_time(self, parent: Record) -> Plan | None:
        try:
            return self.plan(parent)
        except OutOfPatience:
            self._clock("plan")
            return None

    def settle(self, pool: Pool, choice: Choice) -> tuple[Choice, Lenders | None]:
        """The choice and who lends; a cold start if there is no time left to plan what the chosen lends."""
        try:
            return choice, self.lenders(pool, choice)
        except OutOfPatience:
            self._clock("plan")
            pool.proven = False
            assert choice.parent is not None
            return msgspec.structs.replace(
                choice, parent=None, reason=NO_TIME.format(choice.parent.name)
            ), None

    def lenders(self, pool: Pool, choice: Choice) -> Lenders | None:
        """Who lends by which plan: the chosen parent, or several side by side; None for a cold start.

        Raises:
            OutOfPatience: There is no time left to plan what the chosen one lends.
        """
        if choice.parent is None:
            return None
        chosen = pool.records[choice.parent.id]
        alone = Lenders((choice.parent,), self.plan(chosen))
        query, data = self._request.query, self._request.query.data
        if query.most_parents < 2 or not same_task(chosen, query):
            return alone
        weights = {chosen.checksum}  # the same weights twice are worth no more than once
        rivals = []
        for candidate in (lost.candidate for lost in choice.runners_up):
            record = pool.records[candidate.id]
            if (
                record.checksum not in weights
                and on_same_data(candidate, data)
                and same_task(record, query)
                and self._may_join(candidate)
            ):
                weights.add(record.checksum)
                rivals.append(candidate)
        gathered = gather(alone, rivals, query.most_parents, self._meeting(pool))
        self._clock("plan")
        return gathered

    def _may_join(self, candidate: Candidate) -> bool:
        """Could it lend beside another one? Only who is known to be good, and who is named if names were."""
        terms = self._terms
        if candidate.id in terms.excluded or (terms.preferred and candidate.id not in terms.preferred):
            return False
        measured = candidate.metric is not None
        return measured and candidate.similarity >= terms.minimum and not self._is_outlier(candidate)

    def _meeting(self, pool: Pool) -> Meeting:
        graph, query, records = self._request.graph, self._request.query, pool.records

        def benefit(candidate: Candidate) -> float:
            return self._policy.benefit(msgspec.structs.replace(candidate, exact=True), query.data)

        def plan(team: Sequence[Candidate]) -> SideBySide | None:
            graphs = [self._zoo.catalog.graph(records[candidate.id].graph) for candidate in team]
            with contextlib.suppress(OutOfPatience), waiting(self._clock.late):
                return plan_side_by_side(graphs, graph, query, self._request.prepared)
            return None

        def related(first: Candidate, second: Candidate) -> bool:
            lines = records[first.id].parents, records[second.id].parents
            return first.id in lines[1] or second.id in lines[0]

        return Meeting(
            benefit=benefit,
            related=related,
            size=lambda candidate: records[candidate.id].parameters,
            room=graph.parameters,
            plan=plan,
            late=self._clock.late,
        )

    def _plan_key(self, parent: Record) -> tuple[str, bool]:
        return parent.graph, same_task(parent, self._request.query)

    # -- the answer -----------------------------------------------------------------------------

    def answer(
        self, pool: Pool, choice: Choice, lenders: Lenders | None = None, warnings: Sequence[str] = ()
    ) -> Answer:
        """Say what was chosen and why; without lenders it is a cold start."""
        choice = msgspec.structs.replace(choice, reason=self._said_otherwise(pool) or choice.reason)
        names, taken = self._zoo.catalog.names, () if lenders is None else lenders.candidates
        records = names.noted([pool.records[each.id] for each in taken], self._request.viewer)
        said = Said(
            seconds=self._clock.spent,
            warnings=(*warnings, *self._notes, *(note for record in records for note in record.notes)),
            signers=names.signers({record.signer for record in records if record.signer}),
            restricted="; ".join(map(str, self._restrictions)),
        )
        return answer(self._request, pool, choice, lenders, said)

    def _said_otherwise(self, pool: Pool) -> str:
        """Why nothing passed the filters: who may lend, or the zoo calls tasks or tags otherwise."""
        query = self._request.query
        if pool.considered:
            return ""
        seen = Filter(viewer=self._request.viewer, states=(ACTIVE,))
        if self._restrictions and (others := self._zoo.catalog.count(seen)):
            who = "; ".join(map(str, self._restrictions))
            return f"only models {who} may lend, and none of them passes; the zoo has {others:,} in all"
        if not (query.task or query.tags):
            return ""
        return said_otherwise(*self._zoo.catalog.words(seen), query.task, query.tags)


def plan_from(
    parent: Record, parent_graph: Graph, graph: Graph, query: Query, prepared: Prepared | None = None
) -> Plan:
    """Plan what a parent would lend to a model. The head goes along if both predict the same things."""
    alignment = align(parent_graph, prepared or graph)
    same = same_task(parent, query)
    return make_plan(parent_graph, graph, alignment, same_task=same, frozen=query.frozen)


def plan_side_by_side(
    parents: Sequence[Graph], graph: Graph, query: Query, prepared: Prepared | None = None
) -> SideBySide | None:
    """Plan what several parents of the same task would lend together; None if they do not fit."""
    aligned = [(parent, align(parent, prepared or graph)) for parent in parents]
    return side_by_side(aligned, graph, frozen=query.frozen)


class Clock:
    """How long did each stage take, and is it too long in all?"""

    def __init__(self, seconds: float = math.inf) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()
        self._end, self._found = self._last + seconds, self._last + SEARCHING * seconds

    def late(self) -> bool:
        """Is the time over that a query may take?"""
        return time.perf_counter() > self._end

    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self._end - time.perf_counter())

    def late_to_search(self) -> bool:
        """Is the part of it over in which candidates are looked for?"""
        return time.perf_counter() > self._found

    def __call__(self, stage: str) -> None:
        """A stage has ended: count the time since the last one."""
        now = time.perf_counter()
        self.spent[stage] = self.spent.get(stage, 0.0) + now - self._last
        self._last = now
