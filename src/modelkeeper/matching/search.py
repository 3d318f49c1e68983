"""Which models of a zoo are most similar to this one, exactly as a full scan would find them?

A snapshot is what the index held at one moment; searching it needs no lock. For every architecture
a bound says how similar it can be at most; architectures are aligned in descending order of their
bound, until no bound reaches the buckets that are asked for. What was not aligned cannot be in them.

    coarse bound   all architectures, from one side of the histograms: below a microsecond each
    fine bound     those that may matter, from both sides: some microseconds each
    alignment      those that still may: a hundred microseconds and more each

With a budget the search stops after so many alignments. If half of them have proven nothing, clusters
say where to look next: the query is aligned with the medoids, and models whose medoid is near come first.
An exact search has no use for them: whatever may reach the best bucket by its bound must be aligned in any
order, and in descending order of bounds hardly anything else is.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from modelkeeper import _native
from modelkeeper.errors import InvalidSetting
from modelkeeper.lasting import cached_property
from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.segments import Segment
from modelkeeper.matching.similarity import buckets_of, similarities

FIRST = 64  # candidates that get a fine bound at a time, to begin with
BATCH = 4  # alignments before the first look at the threshold; then twice as many each time ...
MOST = 64  # ... up to so many, for each thread


Keys = Collection[int] | NDArray[np.int64] | NDArray[np.bool_]  # the last: whether each key is meant


class Wanted(TypedDict, total=False):
    """What a search is asked for: see `Snapshot.search`."""

    buckets: int
    floor: float
    among: Keys | None
    budget: int | None
    stop: Callable[[], bool] | None


@dataclass(frozen=True, order=True)
class Match:
    """A model of the zoo and its exact similarity."""

    key: int
    similarity: float


@dataclass(frozen=True, eq=False)
class Found:
    """The models that a search found, the most similar first; of equals the smallest key first."""

    keys: NDArray[np.int64]
    similarities: NDArray[np.float64]  # of each of them, exactly
    proven: bool  # False: the budget, or `stop`, ended the search, a better model may exist
    aligned: int  # how many architectures were aligned
    considered: int  # how many models passed the filter
    missing: tuple[int, ...] = ()  # the numbers of shards that did not answer; only of searches in shards

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def matches(self) -> tuple[Match, ...]:
        """The same, one by one."""
        return tuple(map(Match, self.keys.tolist(), self.similarities.tolist()))


class Searchable(Protocol):
    """Models by similarity, wherever they lie. Safe for many threads."""

    def search(self, child: Prepared, **wanted: Unpack[Wanted]) -> Found:
        """Search for every model in the highest buckets that hold one: see `Snapshot.search`."""


@dataclass(frozen=True)
class Clusters:
    """Architectures grouped around medoids: `labels[s][a]` is the cluster of architecture a of segment s."""

    medoids: tuple[Prepared, ...]
    labels: tuple[NDArray[np.int16], ...]
    changes: int = 0  # how many changes the index had seen when they were made


@dataclass(frozen=True)
class Part:
    """What a snapshot sees of one segment: all up to a number, and some rows gone."""

    segment: Segment
    rows: int
    architectures: int
    tokens: int
    alive: NDArray[np.bool_]

    @property
    def keys(self) -> NDArray[np.int64]:
        """The key of the model of each row."""
        keys: NDArray[np.int64] = self.segment.columns["keys"][: self.rows]
        return keys

    @property
    def totals(self) -> NDArray[np.int64]:
        """What each architecture scores against itself."""
        totals: NDArray[np.int64] = self.segment.columns["totals"][: self.architectures]
        return totals

    def scan(self, child: Prepared, threads: int) -> _native.Scan:
        """A scan of the child against all architectures of this part, for bounds and scores."""
        return self.segment.scan(child, self.architectures, self.tokens, threads)

    @property
    def kinds(self) -> NDArray[np.int32]:
        """The architecture of each row."""
        kinds: NDArray[np.int32] = self.segment.columns["kinds"][: self.rows]
        return kinds


@dataclass(frozen=True)
class Snapshot:
    """The index at one moment. Immutable; any number of threads may search it."""

    parts: tuple[Part, ...] = ()
    clusters: Clusters | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return sum(int(part.alive[: part.rows].sum()) for part in self.parts)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The keys of all models in the snapshot."""
        keys = [part.keys[part.alive[: part.rows]] for part in self.parts]
        return np.concatenate(keys) if keys else np.empty(0, np.int64)

    def search(
        self,
        child: Prepared,
        *,
        buckets: int = 1,
        floor: float = 0.0,
        among: Keys | None = None,
        budget: int | None = None,
        stop: Callable[[], bool] | None = None,
        threads: int = 1,
    ) -> Found:
        """Search for every model in the highest buckets that hold one, each with its exact similarity.

        Args:
            child: The prepared graph of the new model.
            buckets: How many buckets (tenths of similarity) to return, counting those that hold a model.
            floor: A similarity below which a model is of no use.
            among: Only models with these keys; or an array that says for each key whether it is meant, which
                takes no longer the more there are. Default: all.
            budget: Stop after about so many alignments; `proven` then says whether the answer is exact.
            stop: Asked now and then: is what was found up to now enough? `proven` then says likewise.
            threads: How many threads to align on.
        """
        if buckets < 1 or threads < 1 or (budget is not None and budget < 1):
            raise InvalidSetting(
                "buckets, threads, budget", f"{buckets}, {threads}, {budget}", "give each at least 1"
            )
        run = Running(self, child, buckets, floor, threads)
        run.collect(among)
        proven = run.align(budget, stop)
        return run.result(proven)


class Running:
    """The state of one search: for each candidate (an architecture of a part) a bound, then a similarity.

    Whoever searches a zoo in shards (`sharded`) takes its steps one by one: `collect`, then `hear` what
    others have found and `go_on`, until `reach` says that nothing more can matter.
    """

    def __init__(self, snapshot: Snapshot, child: Prepared, buckets: int, floor: float, threads: int) -> None:
        self.parts, self.clusters, self.child = snapshot.parts, snapshot.clusters, child
        self.buckets, self.floor, self.threads = buckets, floor, threads
        self.lowest = 0  # the lowest bucket that still matters
        self.elsewhere: Collection[int] = ()  # buckets in which others, who search other models, found some
        self.aligned = self.considered = 0
        self._chosen: NDArray[np.int64] = np.empty(0, np.int64)  # refined, the next to align first
        self._waiting = self._chosen  # all others that may still matter

    def collect(self, among: Keys | None) -> None:
        """Make a candidate, with a coarse bound, of each architecture that a model to be considered has."""
        meant = _meant(among)
        self.masks: list[NDArray[np.bool_]] = []  # of each part: which rows are considered
        self.scans: list[_native.Scan] = []
        part_numbers = [np.empty(0, np.int16)]
        kinds = [np.empty(0, np.int32)]
        totals = [np.empty(0, np.int64)]
        bounds, known = [np.empty(0)], [np.empty(0)]
        fingerprint = np.frombuffer(bytes.fromhex(self.child.fingerprint), np.uint64)
        for number, part in enumerate(self.parts):
            mask = part.alive[: part.rows]
            if meant is not None:
                mask = mask & meant(part.keys)
            present = np.zeros(part.architectures, np.bool_)
            present[part.kinds[mask]] = True
            kind = np.flatnonzero(present).astype(np.int32)
            same = (part.segment.columns["fingerprints"][kind] == fingerprint).all(axis=1)
            scan, total = part.scan(self.child, self.threads), part.totals[kind]
            bound = similarities(scan.bounds(kind, False), total, self.child.total)
            part_numbers.append(np.full(len(kind), number, np.int16))
            kinds.append(kind)
            totals.append(total)
            known.append(np.where(same, 1.0, -1.0))
            bounds.append(np.where(same, 1.0, bound))
            self.masks.append(mask)
            self.scans.append(scan)
            self.considered += int(mask.sum())
        self.part, self.kind = np.concatenate(part_numbers), np.concatenate(kinds)
        self.total, self.bound = np.concatenate(totals), np.concatenate(bounds)
        self.similarity = np.concatenate(known)  # -1: not aligned yet
        self._set_threshold()
        self.rank_by(self.bound)

    def align(self, budget: int | None, stop: Callable[[], bool] | None = None) -> bool:
        """Align what may reach the buckets asked for; True if the answer is proven.

        Half of a budget goes by bounds alone: that finds relatives at once. If it proved nothing, the
        other half goes where the medoids say.
        """
        if budget is None or not self.can_rank_by_clusters:
            return self.go_on(budget, stop)
        if self.go_on((budget + 1) // 2, stop):
            return True
        self.rank_by_clusters()
        return self.go_on(budget, stop)

    def go_on(self, budget: int | None, stop: Callable[[], bool] | None) -> bool:
        """Align in descending order of rank, until the budget or all that matters is used up."""
        batch = BATCH
        while len(self.next()):
            if (budget is not None and self.aligned >= budget) or (stop is not None and stop()):
                return False
            most = batch if budget is None else min(batch, budget - self.aligned)
            self._score(self._chosen[:most])
            self._chosen = self._chosen[most:]
            self._set_threshold()
            batch = min(2 * batch, MOST * self.threads)
        return True

    def rank_by(self, rank: NDArray[np.float64]) -> None:
        """From now on align in descending order of this rank all that may matter and is not aligned yet."""
        self._rank, self._take = rank, FIRST
        self._waiting = self._reaching(np.flatnonzero(self.similarity < 0))
        self._chosen = self._waiting[:0]

    @property
    def can_rank_by_clusters(self) -> bool:
        """Are there clusters that could say where to look?"""
        return self.clusters is not None and bool(self.clusters.medoids)

    def rank_by_clusters(self) -> None:
        """From now on look where the nearest medoids are."""
        assert self.clusters is not None
        self.rank_by(self._nearness(self.clusters))

    def next(self) -> NDArray[np.int64]:
        """The candidates to align next, the best first; none: nothing that is left can matter."""
        self._chosen = self._reaching(self._chosen)
        while not len(self._chosen) and len(self._waiting):
            waiting = self._reaching(self._waiting)
            top = np.arange(len(waiting))
            if self._take < len(waiting):
                top = np.argpartition(-self._rank[waiting], self._take - 1)[: self._take]
            chosen = waiting[top]
            self._refine(chosen)
            chosen = self._reaching(chosen)
            self._chosen = chosen[np.lexsort((chosen, -self._rank[chosen]))]
            left = np.ones(len(waiting), np.bool_)
            left[top] = False
            self._waiting = waiting[left]
            self._take *= 2
        return self._chosen

    def hear(self, elsewhere: Collection[int]) -> None:
        """Take into account in which buckets others found models; it may be fewer than they said before."""
        self.elsewhere, before = elsewhere, self.lowest
        self._set_threshold()
        if self.lowest < before:  # what was given up may matter again
            self.rank_by(self._rank)

    @property
    def held(self) -> tuple[int, ...]:
        """The buckets in which it found models that are similar enough."""
        known = self.similarity[self.similarity >= max(self.floor, 0.0)]
        return tuple(np.unique(buckets_of(known)).tolist())

    @property
    def reach(self) -> int:
        """The highest bucket that what is not aligned may reach, by its bounds; -1: there is nothing left."""
        self.next()  # what gets a fine bound may reach less far
        left = self.bound[(self.similarity < 0) & (self.bound >= self.floor)]
        return int(buckets_of(left).max()) if len(left) else -1

    def within_reach(self) -> NDArray[np.bool_]:
        """Which candidates are known to be in the buckets asked for?"""
        known = self.similarity >= max(self.floor, 0.0)
        return known & (buckets_of(self.similarity) >= self.lowest)

    def models_of(self, candidates: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The keys of the models that have these architectures, and how similar each is."""
        keys, similarities = [np.empty(0, np.int64)], [np.empty(0)]
        for number, members in self._by_part(candidates):
            part = self.parts[number]
            of_architecture = np.full(part.architectures, -1.0)
            of_architecture[self.kind[members]] = self.similarity[members]
            of_row = of_architecture[part.kinds]
            rows = np.flatnonzero(self.masks[number] & (of_row >= 0))
            keys.append(part.keys[rows])
            similarities.append(of_row[rows])
        return np.concatenate(keys), np.concatenate(similarities)

    def result(self, proven: bool) -> Found:
        """The models whose architectures are in the buckets asked for."""
        keys, similarities = ranked(*self.models_of(np.flatnonzero(self.within_reach())))
        return Found(keys, similarities, proven, self.aligned, self.considered)

    def _reaching(self, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those candidates that may still reach the lowest bucket that matters, by their bounds."""
        bound = self.bound[candidates]
        return candidates[(buckets_of(bound) >= self.lowest) & (bound >= self.floor)]

    def _set_threshold(self) -> None:
        """Give up buckets below those asked for, as far as better ones hold a model, here or elsewhere."""
        holding = sorted({*self.held, *self.elsewhere})
        self.lowest = holding[-self.buckets] if len(holding) >= self.buckets else 0

    def _refine(self, candidates: NDArray[np.int64]) -> None:
        """Give candidates a fine bound."""
        for number, members in self._by_part(candidates):
            fine = self._similarity(self.scans[number].bounds(self.kind[members], True), members)
            self.bound[members] = np.minimum(self.bound[members], fine)

    def _score(self, candidates: NDArray[np.int64]) -> None:
        """Align candidates with the child: from now on their similarity is known."""
        for number, members in self._by_part(candidates):
            scores = self.scans[number].scores(self.kind[members])
            self.similarity[members] = self._similarity(scores, members)
        self.aligned += len(candidates)

    def _similarity(self, scores: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.float64]:
        """The similarities of candidates, from their scores against the child or from bounds on these."""
        return similarities(scores, self.total[candidates], self.child.total)

    def _by_part(self, candidates: NDArray[np.int64]) -> Sequence[tuple[int, NDArray[np.int64]]]:
        """Candidates by the number of their part."""
        part = self.part[candidates]
        return [(int(number), candidates[part == number]) for number in np.unique(part)]

    def _nearness(self, clusters: Clusters) -> NDArray[np.float64]:
        """The bound of each candidate, raised by how near its medoid is."""
        from modelkeeper.matching.alignment import align

        near = np.array([align(medoid, self.child).similarity for medoid in clusters.medoids])
        self.aligned += len(near)
        rank = self.bound.copy()
        for number, labels in enumerate(clusters.labels[: len(self.parts)]):
            members = np.flatnonzero(self.part == number)
            architecture = self.kind[members]
            labelled = architecture < len(labels)
            rank[members[labelled]] += near[labels[architecture[labelled]]]
        return rank


def ranked(
    keys: NDArray[np.int64], similarities: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Models by similarity, the most similar first; of equals the smallest key first."""
    order = np.lexsort((keys, -similarities))
    return keys[order], similarities[order]


def _meant(among: Keys | None) -> Callable[[NDArray[np.int64]], NDArray[np.bool_]] | None:
    """Which of an array of keys are meant? None: all."""
    if among is None:
        return None
    if not isinstance(among, np.ndarray) or among.dtype != np.bool_:
        wanted = np.unique(among if isinstance(among, np.ndarray) else np.array(list(among), np.int64))
        return lambda keys: np.isin(keys, wanted)
    mask = np.append(among, False)  # what lies beyond is not meant
    return lambda keys: mask[np.clip(keys, 0, len(among))] & (keys >= 0)
