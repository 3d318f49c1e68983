"""Acknowledged means durable: processes are killed, disks are full, and nothing is lost or half there."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidMeta, InvalidWeights, ModelRefused, ZooUnusable
from modelkeeper.matching import prepare
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.weights import Array
from modelkeeper.zoo.care.gc import Swept
from modelkeeper.zoo.files.blobs import WEIGHTS
from modelkeeper.zoo.records import STORED, Filter, Record
from tests.helpers import zoos

ROOT = Path(__file__).parents[2]
KILLS = 60  # `make kills` has thousands


def whole(home: Path, record: Record) -> bool:
    """Are the weights of a record what was registered, and is the rest of its folder there?"""
    folder = home / record.folder
    names = {"model.safetensors", "README.md", "config.json", "graph.json"}
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    return digest == record.checksum and {path.name for path in folder.iterdir()} == names


def left_behind(home: Path) -> list[str]:
    """What no record names."""
    return [path.name for path in (*home.glob("staging/*"), *home.glob("index/tmp-*"))]


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory if there is one: more happens between two kills. A kill leaves memory as it is."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def test_what_was_acknowledged_survives_kills_at_any_moment(quick: Path) -> None:
    home, acknowledged = quick / "zoo", quick / "acknowledged"
    command = [sys.executable, "-m", "tests.helpers.nursery", str(home), str(acknowledged), str(KILLS)]
    subprocess.run(command, check=True, timeout=300, cwd=ROOT)

    lines = [line.split() for line in acknowledged.read_text().splitlines()]
    registered = {line[1]: line[2] for line in lines if line[0] == "+"}
    doubtful = {line[1] for line in lines if line[0] == "?"}
    removed = {line[1] for line in lines if line[0] == "-"}
    assert len(registered) > KILLS / 20, "the children hardly came to register anything"

    coordinator = LocalCoordinator(Settings(home=str(home)))
    stored = {record.id: record for record in coordinator.models()}
    assert not registered.keys() - doubtful - stored.keys(), "acknowledged, and lost"
    assert not removed & stored.keys(), "removed, and still there"
    assert all(stored[key].checksum == registered[key] for key in registered.keys() & stored.keys())
    assert all(whole(home, record) for record in stored.values()), "visible, but not whole"

    swept = coordinator.gc(grace=0, verify=True)
    assert swept.damaged == ()
    assert {folder.name for folder in (home / "models").iterdir()} == set(stored)
    assert left_behind(home) == []
    every = coordinator.zoo.catalog.find(Filter(states=(*STORED, "damaged")))
    assert {record.id for record in every} == set(stored), "nothing was called damaged"

    # Each of them can be found, by an index that began with what was saved on the way.
    for digest in {record.graph for record in stored.values()}:
        wanted = {record.key for record in stored.values() if record.graph == digest}
        found = coordinator.zoo.index().search(prepare(coordinator.zoo.catalog.graph(digest)))
        assert {match.key for match in found.matches if match.similarity == 1.0} == wanted
    kept = next(iter(stored.values()))
    assert coordinator.query(coordinator.graph(kept), Query()).answer.similarity == 1.0
    coordinator.close()


FULL = """
import resource, signal, sys
from tests.helpers import zoos
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ZooUnusable
from modelkeeper.settings import Settings

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
coordinator = LocalCoordinator(Settings(home=sys.argv[1]))
zoos.register(coordinator, zoos.net(4), "small")
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, resource.RLIM_INFINITY))
try:
    zoos.register(coordinator, zoos.net(256, 256), "large")
except ZooUnusable as problem:
    print(problem)
else:
    sys.exit("it was registered")
"""


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "zoo"
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(home)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    assert "File too large" in run.stdout
    assert "disk is not full" in run.stdout
    coordinator = LocalCoordinator(Settings(home=str(home)))
    assert [record.name for record in coordinator.models()] == ["small"]
    assert coordinator.gc(grace=0) == Swept(0, (), 0, (), ())
    assert [whole(home, record) for record in coordinator.models()] == [True]
    assert left_behind(home) == []
    coordinator.close()


def test_a_catalog_on_a_full_disk_leaves_a_folder_that_is_swept(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    zoos.register(coordinator, zoos.net(4), "first")
    pages = coordinator.zoo.catalog.database._engine.connect()
    pages.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite's own way to be full
    pages.close()

    def fill() -> None:
        for number in range(100):
            zoos.register(coordinator, zoos.net(8, number + 1), "second")

    with pytest.raises(ZooUnusable, match="full"):
        fill()
    coordinator.close()

    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    stored = coordinator.models()
    assert all(whole(tmp_path, record) for record in stored)
    coordinator.gc(grace=0)
    assert {path.name for path in (tmp_path / "models").iterdir()} == {record.id for record in stored}
    assert left_behind(tmp_path) == []
    coordinator.close()


def test_a_registration_may_be_sent_twice(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), minimum_peers=1))
    key, graph = "0123456789abcdef", zoos.net(4)
    first = zoos.register(coordinator, graph, model_id=key)
    assert first.id == key
    assert zoos.register(coordinator, graph, model_id=key) == first
    for other in ({"accuracy": 0.91}, {"owner": "bob"}):
        with pytest.raises(ModelRefused, match="another model has the id"):
            zoos.register(coordinator, graph, model_id=key, **other)
    assert coordinator.models() == [first]
    assert whole(tmp_path, first)
    coordinator.remove(key)
    assert zoos.register(coordinator, graph, model_id=key).state == "removed", "it was taken in, and is gone"
    coordinator.close()


def test_a_registration_that_died_on_the_way_may_be_sent_again(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    key = "0123456789abcdef"
    (tmp_path / "models" / key).mkdir(parents=True)
    (tmp_path / "models" / key / "model.safetensors").write_bytes(b"of another attempt")
    record = zoos.register(coordinator, zoos.net(4), model_id=key)
    assert whole(tmp_path, record)
    coordinator.gc(grace=0)
    assert left_behind(tmp_path) == []
    assert whole(tmp_path, record)
    coordinator.close()


def test_the_same_registration_from_many_threads_is_one(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    graph, key = zoos.net(8, 16), "00000000000000aa"
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: zoos.register(coordinator, graph, model_id=key), range(8)))
    assert len({record.key for record in made}) == 1
    assert [record.id for record in coordinator.models()] == [key]
    assert whole(tmp_path, made[0])
    assert left_behind(tmp_path) == []
    coordinator.close()


@pytest.mark.parametrize(
    "key", ["../../../../etc/x", "0123", "0123456789ABCDEF", "x" * 16, "0123456789abcdef\n"]
)
def test_an_id_is_no_path(tmp_path: Path, key: str) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    with pytest.raises(InvalidMeta, match="16 hexadecimal digits"):
        zoos.register(coordinator, zoos.net(4), model_id=key)
    assert not list(tmp_path.rglob("*.safetensors"))
    coordinator.close()


def test_weights_that_hold_nan_leave_nothing(tmp_path: Path) -> None:
    for home in (str(tmp_path), ":memory:"):
        coordinator = LocalCoordinator(Settings(home=home))
        graph = zoos.net(4)
        tensors = zoos.weights(graph)
        last = list(tensors)[-1]
        tensors[last] = tensors[last] * np.nan
        with pytest.raises(InvalidWeights, match="NaN"):
            coordinator.register(graph, zoos.told(), tensors.items())
        assert coordinator.models() == []
        assert list(coordinator.zoo.blobs.folders()) == []
        coordinator.close()
    assert left_behind(tmp_path) == []


def test_what_is_being_registered_is_not_swept(tmp_path: Path) -> None:
    """With the usual grace, a sweep in the middle of a registration takes nothing of it."""
    coordinator, other = (
        LocalCoordinator(Settings(home=str(tmp_path))),
        LocalCoordinator(Settings(home=str(tmp_path))),
    )
    graph = zoos.net(4)

    def slowly() -> Iterator[tuple[str, Array]]:
        for name, array in zoos.weights(graph).items():
            assert other.gc() == Swept(0, (), 0, (), ())
            yield name, array

    record = coordinator.register(graph, zoos.told(), slowly()).record
    assert whole(tmp_path, record)
    for each in (coordinator, other):
        each.close()
