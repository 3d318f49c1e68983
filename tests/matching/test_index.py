"""A search returns what a full scan would, whatever was added, removed, saved or done at the same time."""

import contextlib
import doctest
import random
import subprocess
import sys
import threading
import weakref
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from modelkeeper.errors import InvalidIndex, InvalidSetting
from modelkeeper.graph import Graph
from modelkeeper.matching import Index, Match, Prepared, align, prepare
from modelkeeper.matching.similarity import bucket
from tests.helpers import generated as net

zoos = st.lists(net.networks | net.tangles(), max_size=12)


def full_scan(
    zoo: dict[int, Prepared], child: Prepared, buckets: int = 1, floor: float = 0.0
) -> tuple[Match, ...]:
    every = [Match(key, align(model, child).similarity) for key, model in zoo.items()]
    useful = [match for match in every if match.similarity >= floor]
    top = sorted({bucket(match.similarity) for match in useful}, reverse=True)[:buckets]
    chosen = [match for match in useful if bucket(match.similarity) in top]
    return tuple(sorted(chosen, key=lambda match: (-match.similarity, match.key)))


def filled(models: dict[int, Prepared]) -> Index:
    index = Index(threads=1)
    for key, model in models.items():
        index.add(key, model)
    return index


@given(zoos, net.networks, st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.7]))
def test_a_search_equals_a_full_scan(graphs: list[Graph], query: Graph, buckets: int, floor: float) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    found = filled(zoo).search(child, buckets=buckets, floor=floor)
    assert found.matches == full_scan(zoo, child, buckets, floor)
    assert found.proven
    assert found.considered == len(zoo)


@given(zoos, net.networks, st.sets(st.integers(0, 15)))
def test_a_filter_comes_before_everything_else(graphs: list[Graph], query: Graph, among: set[int]) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    found = filled(zoo).search(child, among=among)
    assert found.matches == full_scan({key: model for key, model in zoo.items() if key in among}, child)
    assert found.considered == len(among & set(zoo))


@given(zoos, net.networks, st.integers(1, 8))
def test_a_budget_says_whether_the_answer_is_proven(graphs: list[Graph], query: Graph, budget: int) -> None:
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    index = filled(zoo)
    if len(index) > 2:
        index.refresh_clusters(count=2, sample=8)
    found = index.search(child, budget=budget)
    exact = full_scan(zoo, child)
    if found.proven:
        assert found.matches == exact
    for match in found.matches:
        assert match.similarity == align(zoo[match.key], child).similarity


def test_one_architecture_is_aligned_once() -> None:
    graph, rng = net.resnet((1, 1)), random.Random(0)
    index = filled({key: prepare(net.shuffled(graph, rng)[0]) for key in range(20)})
    near, same = index.search(prepare(net.resnet((1, 1), 24))), index.search(prepare(graph))
    assert near.aligned == 1
    assert len(near.matches) == 20
    assert same.aligned == 0
    assert {match.similarity for match in same.matches} == {1.0}


@given(zoos, st.sets(st.integers(0, 11)), net.networks)
@settings(max_examples=30)
def test_an_index_survives_its_files(
    tmp_path_factory: pytest.TempPathFactory, graphs: list[Graph], gone: set[int], query: Graph
) -> None:
    folder = tmp_path_factory.mktemp("index")
    zoo = {key: prepare(graph) for key, graph in enumerate(graphs)}
    child = prepare(query)
    index = filled(zoo)
    index.save(folder)
    for key in gone & set(zoo):
        assert index.remove(key)
        del zoo[key]
    index.save(folder)
    again = Index.load(folder, threads=1)
    assert len(again) == len(zoo)
    assert again.search(child).matches == index.search(child).matches == full_scan(zoo, child)
    again.add(100, child)
    again.save(folder)
    last = Index.load(folder)
    assert last.search(child, among=[100]).matches == (Match(100, 1.0),)
    assert len(list(folder.glob("*.segment"))) == len(last.snapshot.parts)


def test_what_was_removed_does_not_stay_on_disk_for_ever(tmp_path: Path) -> None:
    models = [prepare(net.vgg((8, width))) for width in range(1, 30)]
    index, child = Index(threads=1), prepare(net.vgg((8, 9)))
    for key in range(5000):
        index.add(key, models[key % len(models)])
    before = index.snapshot
    for key in range(4000):
        index.remove(key)
    index.save(tmp_path)
    assert sum(part.rows for part in index.snapshot.parts) == len(index) == 1000
    assert len(before) == 5000
    expected = full_scan({key: models[key % len(models)] for key in range(4000, 5000)}, child)
    assert index.search(child).matches == Index.load(tmp_path).search(child).matches == expected
    index.add(1, child)
    assert index.search(child).matches[0] == Match(1, 1.0)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidIndex, match="cannot be used"):
        Index.load(tmp_path)
    index = filled({1: prepare(net.vgg()), 2: prepare(net.resnet())})
    index.save(tmp_path)
    (file,) = tmp_path.glob("*.segment")
    whole = file.read_bytes()
    for damaged in (b"", b"not a segment", whole[: len(whole) // 2], whole[:40] + b"\xff" * 8 + whole[48:]):
        file.write_bytes(damaged)
        with pytest.raises(InvalidIndex):
            Index.load(tmp_path)


@given(st.data())
@settings(max_examples=40)
def test_flipped_bytes_never_crash_a_search(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("index")
    filled({1: prepare(net.vgg()), 2: prepare(net.resnet()), 3: prepare(net.darts())}).save(folder)
    (file,) = folder.glob("*.segment")
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content))
    with contextlib.suppress(InvalidIndex, ValueError, IndexError, UnicodeDecodeError):
        Index.load(folder).search(prepare(net.resnet((1, 2))), buckets=10)


class Life(RuleBasedStateMachine):
    """Models come, are replaced and go; a search is right at every moment, and a snapshot stays as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index(threads=1)
        self.zoo: dict[int, Prepared] = {}
        self.old = (self.index.snapshot, dict(self.zoo))
        self.child = prepare(net.resnet((1, 1)))

    @rule(key=st.integers(0, 9), graph=net.networks)
    def add(self, key: int, graph: Graph) -> None:
        model = prepare(graph)
        self.index.add(key, model)
        self.zoo[key] = model

    @rule(key=st.integers(0, 9))
    def remove(self, key: int) -> None:
        assert self.index.remove(key) == (self.zoo.pop(key, None) is not None)

    @rule()
    def look_aside(self) -> None:
        self.old = (self.index.snapshot, dict(self.zoo))

    @invariant()
    def searches_are_right(self) -> None:
        assert len(self.index) == len(self.zoo)
        assert self.index.search(self.child).matches == full_scan(self.zoo, self.child)
        snapshot, zoo = self.old
        assert snapshot.search(self.child).matches == full_scan(zoo, self.child)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=15, stateful_step_count=12)


def test_readers_and_a_writer_at_the_same_time() -> None:
    models = [prepare(net.resnet((1, depth), width)) for depth in range(1, 4) for width in range(4, 40, 4)]
    index, child = filled(dict(enumerate(models))), prepare(net.resnet((1, 2), 16))
    expected = {key: align(model, child).similarity for key, model in enumerate(models)}
    problems: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            snapshot = index.snapshot
            keys = set(snapshot.keys.tolist())
            found = snapshot.search(child, buckets=10)
            right = {key: expected[key % len(models)] for key in keys}
            if {match.key: match.similarity for match in found.matches} != right:
                problems.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(300):
        index.add(len(models) + step, models[step % len(models)])
        index.remove(len(models) + step - 5)
    stop.set()
    for reader in readers:
        reader.join()
    assert not problems


def clustered(count: int = 30) -> tuple[Index, dict[int, Prepared]]:
    models = {key: prepare(net.resnet((1, 1), width)) for key, width in enumerate(range(4, 4 + 2 * count, 2))}
    index = Index(threads=1, cluster_from=10)
    for key, model in models.items():
        index.add(key, model)
    for thread in index._background:
        thread.join()
    return index, models


def test_clusters_come_in_the_background_and_change_no_answer(tmp_path: Path) -> None:
    index, models = clustered()
    clusters = index.snapshot.clusters
    assert clusters is not None
    child = prepare(net.resnet((1, 2), 30))
    assert index.search(child).matches == full_scan(models, child)
    index.save(tmp_path)
    opened = Index.load(tmp_path, threads=1)
    again = opened.snapshot.clusters
    assert again is not None
    assert [m.fingerprint for m in again.medoids] == [m.fingerprint for m in clusters.medoids]
    assert [label.tolist() for label in again.labels] == [label.tolist() for label in clusters.labels]
    opened.add(1000, child)
    assert opened.search(child, budget=4).matches[0] == Match(1000, 1.0)
    (file,) = tmp_path.glob("*.clusters")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InvalidIndex, match="not what was written"):
        Index.load(tmp_path)


def test_no_thread_outlives_its_index() -> None:
    index, _ = clustered(40)
    index.close()
    index.add(1000, prepare(net.vgg()))
    assert not any(thread.is_alive() for thread in index._background)
    other, models = clustered(12)
    other._changes += 1000
    other.add(12, models[0])
    (thread,), gone = other._background, weakref.ref(other)
    del other  # joins the thread, unless that holds the index just now and lets go of it itself
    thread.join(30)
    assert not thread.is_alive()
    assert gone() is None


def test_a_process_ends_while_clusters_are_made() -> None:
    program = """
from tests.helpers import generated as net
from modelkeeper.matching import Index, prepare
index = Index(cluster_from=60)
for width in range(4, 64):
    index.add(width, prepare(net.resnet((3, 3, 3), width)))
assert index._background[0].is_alive()
"""
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True, timeout=30)


def test_the_example_of_the_docstring_runs(tmp_path: Path) -> None:
    graphs = {1: net.vgg((8, 8)), 2: net.resnet((1, 1)), 3: net.resnet((1, 2))}
    known = {"Index": Index, "prepare": prepare, "np": np}
    (test,) = doctest.DocTestFinder(recurse=False).find(
        Index, "Index", globs={**known, "catalog": graphs, "child": net.resnet((1, 1)), "folder": tmp_path}
    )
    assert doctest.DocTestRunner().run(test) == (0, len(test.examples))


def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Each adds what it was told of and saves; nobody's file is swept away or mistaken for another's."""
    first = filled({key: prepare(net.vgg((8, 8 + key))) for key in range(20)})
    first.save(tmp_path)
    one, other = Index.load(tmp_path, threads=1), Index.load(tmp_path, threads=1)
    one.add(100, prepare(net.vgg((4, 5))))
    one.remove(3)
    other.add(200, prepare(net.vgg((5, 4))))
    other.remove(4)
    one.save(tmp_path)
    between = Index.load(tmp_path)
    other.save(tmp_path)
    assert set(Index.load(tmp_path).keys.tolist()) == {*range(20), 200} - {4}
    assert set(between.keys.tolist()) == {*range(20), 100} - {3}
    for index in (one, other, between):  # files of theirs are gone; they go on, and save again
        index.add(300, prepare(net.vgg((6, 6))))
        index.save(tmp_path)
        assert set(Index.load(tmp_path).keys.tolist()) == set(index.keys.tolist())


def test_an_index_opens_while_others_save(tmp_path: Path) -> None:
    models = [prepare(net.vgg((8, width))) for width in range(1, 40)]
    index = filled({0: models[0]})
    index.save(tmp_path)
    stop = threading.Event()
    problems: list[object] = []

    def read() -> None:
        while not stop.is_set():
            try:
                opened = Index.load(tmp_path, threads=1)
                if 0 not in opened:
                    problems.append(opened.keys)
            except InvalidIndex as problem:
                problems.append(problem)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for key, model in enumerate(models):
        index.add(key, model)
        index.save(tmp_path)
    stop.set()
    for reader in readers:
        reader.join()
    assert not problems


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8))
@settings(max_examples=10)
def test_small_segments_are_put_together(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    folder, models = tmp_path_factory.mktemp("index"), [prepare(net.vgg((8, w))) for w in (4, 8, 16)]
    Index().save(folder)
    total = 0
    for size in sizes:
        index = Index.load(folder)
        for key in range(total, total + size):
            index.add(key, models[key % 3])
        total += size
        index.save(folder)
    parts = Index.load(folder).snapshot.parts
    assert sum(part.rows for part in parts) == total
    assert all(before.rows > 2 * after.rows for before, after in pairwise(parts))
    found = Index.load(folder).search(models[0], buckets=10)
    assert found.matches == full_scan({key: models[key % 3] for key in range(total)}, models[0], 10)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="at least 1"):
        Index().search(prepare(net.vgg()), buckets=0)
    empty = Index().search(prepare(net.vgg()))
    assert empty.matches == ()
    assert empty.proven
    assert np.array_equal(Index().snapshot.keys, np.empty(0, np.int64))
