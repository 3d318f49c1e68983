"""An index finds what a full scan would, whatever was added, removed, saved or done at the same time."""

import doctest
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from modelkeeper.errors import InvalidIndex
from modelkeeper.graph import Graph
from modelkeeper.matching import Index, Match, Prepared, align, prepare
from tests.helpers import generated as net
from tests.helpers.scans import filled, full_scan, zoos


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
            result = snapshot.search(child, buckets=10)
            right = {key: expected[key % len(models)] for key in keys}
            if {match.key: match.similarity for match in result.matches} != right:
                problems.append(result)

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


def test_an_index_is_kept_where_files_cannot_be_locked() -> None:
    """As on Windows, where there is no fcntl."""
    script = """
import sys, tempfile
import numpy, msgspec
from pathlib import Path
sys.platform, sys.modules["fcntl"] = "win32", None
from modelkeeper.matching.index import Index
with tempfile.TemporaryDirectory() as folder:
    Index().save(Path(folder))
    print(len(Index.load(Path(folder))))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0", done.stderr
