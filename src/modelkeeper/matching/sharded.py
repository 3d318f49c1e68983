"""Which models of a zoo are most similar to this one, if no single index holds all of them?

The zoo lies in shards: each model in one, each shard an index of its own. A search goes in rounds. In each,
a shard aligns some of its candidates, and says in which buckets it found models, and how far those that are
left may reach; in the next it hears what all others found, and gives up whatever cannot matter any more. So
shards prune by each other's best, and the answer is what one index of all models would give.

    gather(scatter, buckets=2)       the answer; `scatter` carries turns to shards, and what they tell back
    ShardSearch(snapshot, asked)     what a shard does with them
    Here(snapshots, asked)           a scatter over snapshots in this process

A scatter may lose a shard, and may go on with another copy of it, which begins anew: that is no matter, since
whatever a shard tells is true of what it holds, and what it told before is forgotten. Without a shard the
answer is not proven, and says which are missing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from modelkeeper.matching.prepare import Prepared
from modelkeeper.matching.search import Found, Keys, Running, Snapshot, ranked
from modelkeeper.matching.similarity import buckets_of

FIRST_TURN = 2  # alignments of each shard in the first round; then twice as many each time ...
LONGEST_TURN = 64  # ... up to so many


@dataclass(frozen=True)
class Packed:
    """By key, whether a model is meant, a bit for each: what a filter takes on its way to a shard."""

    bits: NDArray[np.uint8]
    size: int

    @classmethod
    def of(cls, among: Keys | None) -> "Keys | Packed | None":
        """A mask in bits; keys as they are."""
        if isinstance(among, np.ndarray) and among.dtype == np.bool_:
            return cls(np.packbits(among), len(among))
        return among

    def mask(self) -> NDArray[np.bool_]:
        """The mask again."""
        return np.unpackbits(self.bits, count=self.size).astype(np.bool_)


def ends_of(number: int, count: int) -> tuple[str, str]:
    """The fingerprints of one of so many shards: from the first up to the second, without it; "": no end."""
    first, end = (f"{(each << 32) // count:08x}" for each in (number, number + 1))
    return first if number else "", end if number + 1 < count else ""


@dataclass(frozen=True)
class Asked:
    """What is asked of a shard: see `Snapshot.search`."""

    child: Prepared
    buckets: int = 1
    floor: float = 0.0
    among: Keys | Packed | None = None


@dataclass(frozen=True)
class Turn:
    """What one shard is to do in one round."""

    elsewhere: tuple[int, ...] = ()  # buckets in which other shards found models
    most: int = FIRST_TURN  # alignments
    by_clusters: bool = False  # look where the medoids say, no longer by bounds alone


@dataclass(frozen=True)
class Told:
    """How far a shard has come, and the models that it found since it last told."""

    held: tuple[int, ...]  # buckets in which it found models, all in all
    reach: int  # the highest bucket that candidates which are not aligned may reach; -1: none is left
    aligned: int  # architectures, all in all
    considered: int  # models
    keys: NDArray[np.int64]
    similarities: NDArray[np.float64]
    first: bool = False  # has the search just begun? Then forget what this shard told before


class Scatter(Protocol):
    """One search on its way in all shards. Turns go out together, and are taken at the same time."""

    @property
    def numbers(self) -> Collection[int]:
        """The shards that are searched."""

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        """Let shards take their turns. Who cannot be asked, or has not told when it `stop`s, is missing."""

    def close(self) -> None:
        """The search is over: shards may forget it."""


class ShardSearch:
    """One search in one shard."""

    def __init__(self, snapshot: Snapshot, asked: Asked, threads: int = 1) -> None:
        self._run = Running(snapshot, asked.child, asked.buckets, asked.floor, threads)
        among = asked.among.mask() if isinstance(asked.among, Packed) else asked.among
        self._run.collect(among)
        self._sent = np.zeros(len(self._run.similarity), np.bool_)
        self._turns, self._by_clusters = 0, False

    def turn(self, turn: Turn, stop: Callable[[], bool] | None = None) -> Told:
        """Align some candidates, and tell what came of it."""
        run, most = self._run, turn.most
        run.hear(turn.elsewhere)
        medoids = run.clusters.medoids if run.clusters is not None else ()
        if turn.by_clusters and not self._by_clusters and 0 < len(medoids) < most:
            before, self._by_clusters = run.aligned, True
            run.rank_by_clusters()
            most -= run.aligned - before
        run.go_on(run.aligned + most, stop)
        fresh = run.within_reach() & ~self._sent
        self._sent |= fresh
        keys, similarities = run.models_of(np.flatnonzero(fresh))
        self._turns += 1
        return Told(
            held=run.held,
            reach=run.reach,
            aligned=run.aligned,
            considered=run.considered,
            keys=keys,
            similarities=similarities,
            first=self._turns == 1,
        )


class Here:
    """A search of snapshots in this process, one after the other."""

    def __init__(self, snapshots: Sequence[Snapshot], asked: Asked, threads: int = 1) -> None:
        self.numbers = range(len(snapshots))
        self._searches = [ShardSearch(snapshot, asked, threads) for snapshot in snapshots]

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        """Let shards take their turns, one after the other."""
        return {number: self._searches[number].turn(turn, stop) for number, turn in turns.items()}

    def close(self) -> None:
        """Forget the search."""
        self._searches = []


@dataclass
class _Round:
    """What is known of all shards between two rounds."""

    numbers: Collection[int]
    buckets: int
    told: dict[int, Told] = field(default_factory=dict)
    found: dict[int, list[Told]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)

    def hear(self, asked: Mapping[int, Turn], answers: Mapping[int, Told]) -> None:
        """Note what shards told; who was asked and told nothing is lost."""
        self.lost |= asked.keys() - answers.keys()
        for number, told in answers.items():
            if told.first:
                self.found[number] = []
            self.told[number] = told
            self.found[number].append(told)

    @property
    def lowest(self) -> int:
        """The lowest bucket that still matters."""
        holding = sorted({bucket for told in self.told.values() for bucket in told.held})
        return holding[-self.buckets] if len(holding) >= self.buckets else 0

    @property
    def aligned(self) -> int:
        return sum(told.aligned for told in self.told.values())

    def open(self) -> list[int]:
        """The shards in which something may still matter, those that may reach farthest first."""
        lowest = self.lowest
        left = {
            number: self.told[number].reach if number in self.told else BEYOND
            for number in self.numbers
            if number not in self.lost
        }
        return sorted((n for n, reach in left.items() if reach >= lowest), key=lambda n: (-left[n], n))

    def elsewhere(self, number: int) -> tuple[int, ...]:
        """The buckets in which other shards found models."""
        held = {bucket for other, told in self.told.items() if other != number for bucket in told.held}
        return tuple(sorted(held))


BEYOND = 1 << 30  # of a shard that has not told how far it may reach


def gather(
    scatter: Scatter,
    *,
    buckets: int = 1,
    budget: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Found:
    """Search all shards: every model in the highest buckets that hold one, as `Snapshot.search` finds them.

    Args:
        scatter: One search in all shards; `Asked` has said what is looked for.
        buckets: How many buckets to return, as it was asked of the shards.
        budget: Stop after about so many alignments in all shards together.
        stop: Asked now and then: is what was found up to now enough?
    """
    state, size, proven = _Round(scatter.numbers, buckets), FIRST_TURN, True
    while asked := state.open():
        left = None if budget is None else max(0, budget - state.aligned)
        began = len(state.told) + len(state.lost) == len(scatter.numbers)
        if began and (left == 0 or (stop is not None and stop())):
            proven = False
            break
        turns = {}
        for number, most in zip(asked, _sizes(size, len(asked), left), strict=True):
            if most or number not in state.told:
                by_clusters = budget is not None and 2 * state.aligned >= budget
                turns[number] = Turn(state.elsewhere(number), most, by_clusters)
        state.hear(turns, scatter.turn(turns, stop))
        size = min(2 * size, LONGEST_TURN)
    return _result(state, proven)


def _sizes(size: int, shards: int, left: int | None) -> list[int]:
    """How many alignments each shard gets of what is left of a budget; the first ones get what remains."""
    if left is None or left >= size * shards:
        return [size] * shards
    return [left // shards + (number < left % shards) for number in range(shards)]


def _result(state: _Round, proven: bool) -> Found:
    """The models of the buckets that matter, of all shards."""
    told = [told for shard in state.found.values() for told in shard]
    keys = np.concatenate([np.empty(0, np.int64), *(each.keys for each in told)])
    similarities = np.concatenate([np.empty(0), *(each.similarities for each in told)])
    chosen = buckets_of(similarities) >= state.lowest
    considered = sum(each.considered for each in state.told.values())
    missing = tuple(sorted(state.lost))
    found = ranked(keys[chosen], similarities[chosen])
    return Found(*found, proven and not missing, state.aligned, considered, missing)
