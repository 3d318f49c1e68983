"""Clusters come in the background, change no answer, and never keep a process alive."""

import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from modelkeeper.errors import InvalidIndex
from modelkeeper.matching import Index, Match, Prepared, prepare
from tests.helpers import generated as net
from tests.helpers.scans import full_scan


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
