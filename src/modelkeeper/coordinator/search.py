"""One query on its way: which candidates are there, which is chosen, what would it lend?

    search = Search(zoo, settings, Request(graph, prepared, query), clock)
    pool = search.find()                       the candidates of the zoo
    choice = search.choose(pool)               the parent among them, or a cold start
    choice, lenders = search.settle(pool, choice)      it, or several side by side, and the plan
    search.answer(pool, choice, lenders)       all of it, for whoever asked

It is apart from the coordinator so that only queries pay for importing matching and transforming.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from modelkeeper.coordinator.answering import MOST_RIVALS, Said, answer
from modelkeeper.coordinator.candidates import Matches, Pool, Request, as_candidate, matches_of, same_task
from modelkeeper.coordinator.clock import Clock
from modelkeeper.coordinator.company import SPARE, STANDING, WORTH, Lenders, Meeting, gather
from modelkeeper.coordinator.judging import Planner, judge, judge_field, look_closer
from modelkeeper.coordinator.near_spellings import said_otherwise
from modelkeeper.coordinator.planning import PlanKey, Planned, Plans
from modelkeeper.graph.vocabulary import BATCH_NORM
from modelkeeper.matching import Found, Searchable
from modelkeeper.matching.similarity import BUCKETS
from modelkeeper.patience import OutOfPatience
from modelkeeper.policy.admission import least_standing
from modelkeeper.policy.selection import Candidate, Choice, Terms, policy, select
from modelkeeper.policy.selection.base import FEW, thorough
from modelkeeper.policy.selection.comparing import on_same_data
from modelkeeper.policy.selection.fields import arrays_of, benefits, first
from modelkeeper.settings import Settings
from modelkeeper.transform import SideBySide
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.index.columns import Mask
from modelkeeper.zoo.index.index_sync import Followed
from modelkeeper.zoo.records import ACTIVE, Filter
from modelkeeper.zoo.restriction import Restriction
from modelkeeper.zoo.zoo import Zoo

NOBODY = frozenset({""})  # no model has this id
SHORTLIST = 2 * MOST_RIVALS  # of more candidates than this, so many are looked at one by one
BESIDE = 64  # of very many candidates so many are looked at to lend beside the chosen one
MOST_ROUNDS = 8  # searches, if all that was found is far below its peers
NO_TIME = "there was no time left to plan what {} would lend"


class Search:
    """The steps of one query. Making it does nothing; `find` may be called again when the zoo has changed."""

    def __init__(
        self, zoo: Zoo, settings: Settings, request: Request, clock: Clock, planned: Planned | None = None
    ) -> None:
        """Prepare a query; `planned` is what was planned for others.

        Raises:
            InvalidSetting: The query names a policy that is not there.
        """
        query = request.query
        given = query.minimum_similarity
        self._zoo, self._request, self._clock = zoo, request, clock
        self._policy = policy(query.policy or settings.policy)
        self._arrays = arrays_of(self._policy)
        self._terms = Terms(
            minimum=settings.minimum_similarity if given is None else given,
            preferred=query.parents,
            excluded=query.exclude,
            poor=least_standing(settings.admission, settings.admission_threshold),
            worth=settings.minimum_benefit if given is None else 0.0,  # who asks for less, gets less
        )
        restrictions = Restriction.of(settings), Restriction.of(query)
        self._restrictions = tuple(each for each in restrictions if each)
        allowed = [each for each in (settings.budget, query.budget) if each]
        self._budget = min(allowed, default=None)
        self._notes: list[str] = []  # which models were meant by names
        self._plans = Plans(zoo.catalog, request, clock, planned)

    # -- candidates -----------------------------------------------------------------------------

    def find(self) -> Pool:
        """Search the zoo for models that are similar enough, and see how good each is."""
        index, followed, mask = self._passing()
        self._clock("filter")
        prepared, late = self._request.prepared, self._clock.late_to_search
        search = partial(index.search, prepared, floor=self._terms.minimum, stop=late)
        pool = Pool(considered=int(np.count_nonzero(mask)), budget=self._budget)
        matched: Found | None = None
        if self._request.query.parents:
            meant, self._notes = self._zoo.catalog.names.meant(
                self._request.query.parents, self._request.asker
            )
            matched = search(buckets=BUCKETS, among=[key for key in meant if key < len(mask) and mask[key]])
            # By ids alone, so that nobody is preferred for a name; NOBODY: names that mean nothing.
            named = frozenset(meant.values()) if matched else NOBODY
            self._terms = msgspec.structs.replace(self._terms, preferred=named)
        depth = self._depth(pool.considered)
        for _ in range(MOST_ROUNDS):
            if not matched:
                left = None if self._budget is None else max(1, self._budget - pool.aligned)
                matched = search(buckets=depth, among=mask, budget=left)
            pool.proven, pool.aligned = pool.proven and matched.proven, pool.aligned + matched.aligned
            pool.missing |= set(matched.missing)
            added = matches_of(followed, matched, self._request.query, self._request.viewer)
            pool.matches = added if pool.matches is None else pool.matches.and_then(added)
            if len(added.field.groups(self._terms)[0]) or not len(added) or self._named:
                break
            # Of the poor, none is taken: look below the buckets that they fill.
            mask[added.field.keys] = False
            matched = None
        if not self._shortlists(pool):
            self._meet(pool, np.arange(len(pool.matches or ())))
        self._clock("search")
        return pool

    @property
    def _named(self) -> bool:
        """Has the search found models that were asked for by name?"""
        return bool(self._terms.preferred) and self._terms.preferred != NOBODY

    def _shortlists(self, pool: Pool) -> bool:
        """Are there so many that only the first of the ranking are looked at one by one?"""
        return self._arrays is not None and not self._named and len(pool.matches or ()) > SHORTLIST

    def _meet(self, pool: Pool, places: NDArray[np.int64]) -> bool:
        """Read the records of these places. Is nobody gone? Else the pool is without who went since."""
        assert pool.matches is not None
        field = pool.matches.field
        by_key = self._zoo.catalog.with_keys(field.keys[places].tolist(), self._request.viewer)
        gone = []
        for place in np.sort(places).tolist():
            record = by_key.get(int(field.keys[place]))
            if record is not None and record.state == ACTIVE:
                pool.records[record.id] = record
                pool.candidates[record.id] = as_candidate(record, field, place)
            else:
                gone.append(place)
        if gone:
            pool.matches = pool.matches.at(np.isin(np.arange(len(field)), gone, invert=True))
        return not gone

    def _passing(self) -> tuple[Searchable, Followed, Mask]:
        """The index, what is followed of the catalog, and by key which models the query lets through."""
        query, catalog = self._request.query, self._zoo.catalog
        wanted = Filter(
            viewer=self._request.viewer,
            states=(ACTIVE,),
            task=query.task or None,
            tags=query.tags,
            restrictions=self._restrictions,
        )
        index, followed, mask = self._zoo.passing(wanted)
        left_out = self._zoo.set_aside()
        if query.exclude:
            called = catalog.names.called(query.exclude)
            left_out += called
            self._terms = msgspec.structs.replace(self._terms, excluded=frozenset(called.values()))
        if query.fold:
            left_out += catalog.keys_beyond_fold(query.data, query.fold).tolist()
        mask[[key for key in left_out if key < len(mask)]] = False
        return index, followed, mask

    def _depth(self, models: int) -> int:
        """How many buckets of similarity to go through, for the policy or to explain its choice."""
        depth = self._policy.depth(models)
        return max(depth, thorough(models)) if self._request.runners_up else depth

    def _is_outlier(self, candidate: Candidate) -> bool:
        """Is it far below its peers, or was what it claims refuted, and nobody asked for it?"""
        if candidate.id in self._terms.preferred:
            return False
        poor = candidate.standing is not None and candidate.standing < self._terms.poor
        return poor or candidate.refuted

    # -- the choice -----------------------------------------------------------------------------

    def choose(self, pool: Pool) -> Choice:
        """Choose the parent by the policy; where it asks for that, the best candidates get a plan first."""
        if self._shortlists(pool):
            return self._choose_of_many(pool)
        candidates = list(pool.candidates.values())
        if self._policy.plans_first:
            candidates = judge(candidates, self._policy, self._data, self._planner(pool))
        if self._clock.late():  # nobody gets a plan any more: choose among those who have one
            at_hand, key = self._plans.at_hand(), self._plans.key
            planned = [each for each in candidates if key(pool.records[each.id]) in at_hand]
            if len(planned) < len(candidates):
                pool.proven, candidates = False, planned or candidates
        return self._select(candidates, pool)

    def _choose_of_many(self, pool: Pool) -> Choice:
        """The same choice, with the records of those alone that an answer can name."""
        data, arrays, matches = self._request.query.data, self._arrays, pool.matches
        assert arrays is not None and matches is not None  # noqa: PT018 (as `_shortlists` has seen)
        field = matches.field
        if self._policy.plans_first:
            fits = matches.parameters <= self._request.graph.parameters
            field = judge_field(field, fits, self._planner_of_many(pool, matches))
        if self._clock.late():
            planned = matches.planned(self._plans.at_hand(), self._zoo.follower.columns)
            if not planned.all():
                pool.proven = False
                if planned.any():
                    matches, field = matches.at(planned), field.at(planned)
        others, refuted, outliers = field.groups(self._terms)
        chosen = [arrays.first(field, others, SHORTLIST)]
        if len(others) < SHORTLIST:
            chosen += [field.nearest(refuted, SHORTLIST), field.nearest(outliers, SHORTLIST)]
        pool.matches = replace(matches, field=field)
        pool.records, pool.candidates = {}, {}
        if not self._meet(pool, np.concatenate(chosen)):
            return self.choose(pool)  # without who went meanwhile
        rivals = arrays.rivals(field, others) if len(others) else 0
        return self._select(pool.candidates.values(), pool, partial(arrays.why_won, rivals=rivals, data=data))

    def _select(
        self, among: Iterable[Candidate], pool: Pool, won: Callable[[Candidate], str] | None = None
    ) -> Choice:
        plans, most = self._planner(pool), MOST_RIVALS
        look = partial(look_closer, policy=self._policy, data=self._data, planner=plans, most=most)
        return select(
            among,
            self._policy,
            data=self._data or None,
            terms=self._terms,
            considered=pool.considered,
            won=won,
            look=look if self._request.runners_up and self._policy.plans_first else None,
        )

    def expects(self, choice: Choice) -> float:
        """What training is expected to gain by a choice, from 0 to 1."""
        return 0.0 if choice.parent is None else self._policy.benefit(choice.parent, self._request.query.data)

    def parts(self, choice: Choice, lenders: Lenders) -> dict[str, float]:
        """What training is expected to gain by who lends, and what that is made of, as far as it is known."""
        first = lenders.candidates[0]
        names = ("similarity", "standing", "gap", "rewired", "credit")
        known = {name: getattr(first, name) for name in names if getattr(first, name) is not None}
        return {"expected": self.expects(choice), **known}

    def least(self, choice: Choice) -> float:
        """How similar a model must be to change a choice."""
        return self._terms.minimum if choice.parent is None else choice.parent.similarity

    def _planner(self, pool: Pool) -> Planner[Candidate]:
        graph, records, plans = self._request.graph, pool.records, self._plans
        return Planner(
            fits=lambda candidate: records[candidate.id].parameters <= graph.parameters,
            architecture=lambda candidate: plans.key(records[candidate.id]),
            plan=lambda candidate: plans.verdict(plans.key(records[candidate.id])),
            normed=self._normed,
            few=pool.considered <= FEW,
        )

    def _planner_of_many(self, pool: Pool, matches: Matches) -> Planner[int]:
        columns = self._zoo.follower.columns

        def key(place: int) -> PlanKey:
            return columns.text(int(matches.graph[place])), bool(matches.same_task[place])

        return Planner(
            fits=lambda place: bool(matches.parameters[place] <= self._request.graph.parameters),
            architecture=key,
            plan=lambda place: self._plans.verdict(key(place)),
            normed=self._normed,
            few=pool.considered <= FEW,
        )

    @property
    def _normed(self) -> bool:
        return any(layer.kind == BATCH_NORM for layer in self._request.graph.layers)

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
        alone = Lenders((choice.parent,), self._plans.plan(self._plans.key(chosen)))
        query = self._request.query
        if query.most_parents < 2 or not same_task(chosen, query):
            return alone
        weights = {chosen.checksum}  # the same weights twice are worth no more than once
        rivals = []
        for candidate in self._others(pool, choice, alone):
            record = pool.records[candidate.id]
            if (
                record.checksum not in weights
                and record.parameters <= SPARE * self._request.graph.parameters
                and on_same_data(candidate, self._data)
                and same_task(record, query)
                and self._may_join(candidate)
            ):
                weights.add(record.checksum)
                rivals.append(candidate)
        gathered = gather(alone, rivals, query.most_parents, self._meeting(pool))
        self._clock("plan")
        return gathered

    def _others(self, pool: Pool, choice: Choice, alone: Lenders) -> list[Candidate]:
        """Whoever else was found, the best first; of very many those who may lend beside the chosen one."""
        matches, (chosen,) = pool.matches, alone.candidates
        if not self._shortlists(pool) or matches is None or not alone.plan.exact:
            return [lost.candidate for lost in choice.runners_up]
        field = matches.field
        certain = benefits(replace(field, exact=np.ones(len(field), np.int8)))
        small = matches.parameters <= SPARE * self._request.graph.parameters
        worthy = field.same_data & matches.same_task & small & (field.standing >= STANDING)
        worthy &= certain >= WORTH * self._policy.benefit(
            msgspec.structs.replace(chosen, exact=True), self._data
        )
        places = np.intersect1d(np.flatnonzero(worthy), field.groups(self._terms)[0])
        self._meet(pool, places[first(BESIDE, -certain[places])])
        return self._policy.rank(
            [each for each in pool.candidates.values() if each.id != chosen.id], self._data
        )

    @property
    def _data(self) -> str:
        return self._request.query.data

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
            return self._plans.side_by_side([records[candidate.id].graph for candidate in team])

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

    # -- the answer -----------------------------------------------------------------------------

    def answer(
        self, pool: Pool, choice: Choice, lenders: Lenders | None = None, warnings: Sequence[str] = ()
    ) -> Answer:
        """Say what was chosen and why; without lenders it is a cold start."""
        choice = msgspec.structs.replace(choice, reason=self._said_otherwise(pool) or choice.reason)
        names, taken = self._zoo.catalog.names, () if lenders is None else lenders.candidates
        records = names.noted([pool.records[each.id] for each in taken], self._request.viewer)
        said = Said(
            believed=self._zoo.outcomes.credits(records),
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
