"""A search in shards answers what one index of all models would, however they are split and whoever dies."""

from collections.abc import Callable, Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.graph import Graph
from modelkeeper.matching import Index, Prepared, align, prepare
from modelkeeper.matching.sharded import Asked, Here, Packed, ShardSearch, Told, Turn, ends_of, gather
from tests.helpers import generated as net
from tests.helpers.scans import filled, full_scan, zoos

floors = st.sampled_from([0.0, 0.3, 0.7])
homes = st.lists(st.integers(0, 4), min_size=12, max_size=12)  # of each model its shard


def split(zoo: dict[int, Prepared], home: list[int]) -> list[Index]:
    """The models of a zoo in five indexes, of which some may be empty."""
    return [filled({key: model for key, model in zoo.items() if home[key] == number}) for number in range(5)]


@given(zoos, net.networks, homes, st.integers(1, 4), floors, st.none() | st.sets(st.integers(0, 15)))
def test_shards_answer_what_one_index_does(
    graphs: list[Graph], query: Graph, home: list[int], buckets: int, floor: float, among: set[int] | None
) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    shards = Here([index.snapshot for index in split(zoo, home)], Asked(child, buckets, floor, among))
    one = filled(zoo).search(child, buckets=buckets, floor=floor, among=among)
    several = gather(shards, buckets=buckets)
    assert (several.matches, several.proven, several.considered) == (one.matches, True, one.considered)
    assert several.missing == ()


@given(zoos, net.networks, homes, st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_a_budget_says_whether_the_answer_is_proven(
    graphs: list[Graph], query: Graph, home: list[int], buckets: int, budget: int, clustered: bool
) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child, indexes = prepare(query), split(zoo, home)
    for index in indexes if clustered else ():
        if len(index) > 1:
            index.refresh_clusters(count=1, sample=8)
    found = gather(
        Here([index.snapshot for index in indexes], Asked(child, buckets)), buckets=buckets, budget=budget
    )
    assert found.aligned <= budget
    if found.proven:
        assert found.matches == full_scan(zoo, child, buckets)
    for match in found.matches:
        assert match.similarity == align(zoo[match.key], child).similarity


class Mortal:
    """Shards that die between two turns; a copy that lacks some models takes over, and begins anew."""

    def __init__(self, indexes: list[Index], asked: Asked, deaths: list[int], gone: set[int]) -> None:
        self.numbers, self._indexes, self._asked = range(len(indexes)), indexes, asked
        self._deaths, self._gone = list(deaths), gone
        self._searches = [ShardSearch(index.snapshot, asked) for index in indexes]
        self.told_of: dict[int, set[int]] = {}  # of each shard the models that it had when it last told

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        if self._deaths and self.told_of:
            number = self._deaths.pop(0)
            for key in self._gone:
                self._indexes[number].remove(key)
            self._searches[number] = ShardSearch(self._indexes[number].snapshot, self._asked)
        self.told_of |= {number: set(self._indexes[number].keys.tolist()) for number in turns}
        return {number: self._searches[number].turn(turn, stop) for number, turn in turns.items()}

    def close(self) -> None:
        self._searches = []


@given(
    st.lists(net.networks | net.tangles(), min_size=6, max_size=12),
    net.networks,
    homes,
    st.integers(1, 3),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.sets(st.integers(0, 11)),
)
def test_a_copy_that_takes_over_changes_nothing_but_what_it_lacks(
    graphs: list[Graph], query: Graph, home: list[int], buckets: int, deaths: list[int], gone: set[int]
) -> None:
    """Others pruned by what the dead one had found; where its copy lacks that, they look again."""
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    shards = Mortal(split(zoo, home), Asked(child, buckets), deaths, gone)
    found = gather(shards, buckets=buckets)
    assert found.proven
    there = set().union(*shards.told_of.values())
    assert found.matches == full_scan({key: zoo[key] for key in there}, child, buckets)


class Dying(Here):
    """Shards of which one cannot be asked any more after some turns."""

    def __init__(self, indexes: list[Index], asked: Asked, lost: int, after: int) -> None:
        super().__init__([index.snapshot for index in indexes], asked)
        self._lost, self._left = lost, after

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        self._left -= 1
        dead = self._lost if self._left < 0 else -1
        return super().turn({number: turn for number, turn in turns.items() if number != dead}, stop)


@given(zoos, net.networks, homes, st.integers(0, 4), st.integers(0, 2))
def test_without_a_shard_the_answer_is_not_proven(
    graphs: list[Graph], query: Graph, home: list[int], lost: int, after: int
) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    found = gather(Dying(split(zoo, home), Asked(child), lost, after))
    assert found.proven == (not found.missing)
    assert found.missing in ((), (lost,))
    if found.proven:
        assert found.matches == full_scan(zoo, child)
    else:
        others = {key: model for key, model in zoo.items() if home[key] != lost}
        best = full_scan(others, child)
        assert not best or (found.matches and found.matches[0].similarity >= best[0].similarity)


def test_shards_prune_by_what_others_found() -> None:
    """One shard has a near relative, the others have what is far: they stop as soon as they hear of it."""
    near, child = net.resnet((2, 2), 16), prepare(net.resnet((2, 2), 20))
    far = [net.vgg([width, 8, 8 + width]) for width in range(4, 68)]
    shards = [filled({0: prepare(near)})]
    shards += [
        filled({1 + key: prepare(graph) for key, graph in enumerate(far) if key % 7 == n}) for n in range(7)
    ]
    snapshots = [index.snapshot for index in shards]
    found = gather(Here(snapshots, Asked(child)))
    assert [match.key for match in found.matches] == [0]
    assert found.aligned < sum(snapshot.search(child).aligned for snapshot in snapshots)


def test_a_search_that_is_stopped_has_what_was_found() -> None:
    zoo = {key: prepare(net.vgg([4 + key, 8, 12])) for key in range(40)}
    shards = [filled({key: model for key, model in zoo.items() if key % 2 == n}) for n in range(2)]
    child = prepare(net.vgg([24, 8, 16]))
    found = gather(Here([index.snapshot for index in shards], Asked(child)), stop=lambda: True)
    assert not found.proven
    assert found.aligned == 0
    assert found.considered == 40


@given(st.lists(st.booleans(), max_size=40))
def test_a_filter_in_bits_is_the_same_filter(meant: list[bool]) -> None:
    mask = np.array(meant, np.bool_)
    packed = Packed.of(mask)
    assert isinstance(packed, Packed)
    assert np.array_equal(packed.mask(), mask)
    assert Packed.of([1, 2]) == [1, 2]
    assert Packed.of(None) is None


@given(st.integers(1, 64), st.binary(min_size=16, max_size=16))
def test_a_fingerprint_lies_in_one_shard(count: int, fingerprint: bytes) -> None:
    text = fingerprint.hex()
    ends = [ends_of(number, count) for number in range(count)]
    assert sum(first <= text and (text < end or not end) for first, end in ends) == 1


def test_a_shard_takes_a_mask() -> None:
    zoo = {key: prepare(net.vgg([4 + key, 8])) for key in range(12)}
    mask = np.arange(12) % 3 != 1
    shards = [filled({key: model for key, model in zoo.items() if key % 2 == n}) for n in range(2)]
    asked = Asked(prepare(net.vgg([9, 8])), 10, among=Packed.of(mask))
    told = [ShardSearch(index.snapshot, asked).turn(Turn(most=100)) for index in shards]
    assert sorted(key for each in told for key in each.keys.tolist()) == np.flatnonzero(mask).tolist()
