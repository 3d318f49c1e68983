"""One process that finds a model damaged takes it from nobody else; two do, or the leader who looks, too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.files.blobs import WEIGHTS, Blobs
from tests.helpers import zoos
from tests.zoo.replicas import test_replicas
from tests.zoo.replicas.test_replicas import ASKED, GRAPH, Opener

replica = test_replicas.replica  # the fixture: coordinators that share a PostgreSQL and an S3


def test_one_readers_failure_retires_a_model_for_nobody(
    replica: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = replica()
    record = zoos.register(coordinator, GRAPH)
    reader = replica()
    with monkeypatch.context() as broken:
        broken.setattr(reader.zoo.blobs, "intact", lambda folder, checksum: False)  # its line, say
        assert reader.query(GRAPH, ASKED).answer.cold
    assert coordinator.show(record.id).state == "active"
    coordinator.zoo.blobs._store.delete([f"{record.folder}/{WEIGHTS}"])
    finder = replica()
    for _ in range(2):
        assert finder.query(GRAPH, ASKED).answer.cold
        finder.zoo._aside.clear()
        assert coordinator.show(record.id).state == "active", "however often one finds so"
    assert replica().query(GRAPH, ASKED).answer.cold
    assert coordinator.show(record.id).state == "damaged", "two processes have looked"
    assert coordinator.zoo.suspicions.of_others() == {}


@pytest.fixture
def lagging(replica: Opener, bucket: str) -> Callable[[], LocalCoordinator]:
    """Opens a coordinator that is given a copy of the bucket, as of the first time that it is opened."""
    behind = bucket + "-behind"
    made: list[Any] = []

    def open_one() -> LocalCoordinator:
        if not made:
            source, target = Blobs(bucket).objects, Blobs(behind).objects
            assert source is not None
            assert target is not None
            made.append(target)
            for item in [item for lot in source.list("") for item in lot]:
                target.put(item["path"], iter([bytes(source.get(item["path"]).bytes())]))
        return replica(blobs=behind)

    return open_one


def test_a_reader_of_a_copy_that_lags_behind_takes_nothing_from_others(
    replica: Opener, lagging: Callable[[], LocalCoordinator], caplog: pytest.LogCaptureFixture
) -> None:
    """By queries and by tidying up; the leader finds the model whole, and forgets the suspicion."""
    right = replica()
    zoos.register(right, zoos.net(4), "old")
    behind = lagging()
    record = zoos.register(right, GRAPH, "new")
    assert behind.query(GRAPH, ASKED).answer.parent != record.id
    assert behind.query(GRAPH, ASKED).answer.parent != record.id, "it is set aside here"
    assert behind.gc(grace=0).damaged == ()
    assert right.show(record.id).state == "active"
    assert right.query(GRAPH, ASKED).answer.parent == record.id
    assert list(right.zoo.suspicions.of_others()) == [record.id]
    assert right.gc(grace=0).damaged == ()
    assert "is whole, but another process says" in caplog.text
    assert right.zoo.suspicions.of_others() == {}
    assert right.show(record.id).state == "active"


def test_the_leader_confirms_what_another_suspects(replica: Opener) -> None:
    finder, leader = replica(), replica()
    record, other = zoos.register(finder, GRAPH), zoos.register(finder, zoos.net(4), "other")
    leader.zoo.blobs._store.delete([f"{record.folder}/{WEIGHTS}"])
    assert finder.query(GRAPH, ASKED).answer.parent != record.id
    assert leader.show(record.id).state == "active"
    assert leader.gc().damaged == (record.id,)
    assert [each.id for each in leader.models()] == [other.id]
    assert leader.zoo.suspicions.of_others() == {}


def test_in_a_folder_a_second_look_of_the_same_process_is_enough(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), threads=1, admission="off"))
    record = zoos.register(coordinator, GRAPH)
    (tmp_path / record.folder / WEIGHTS).unlink()
    assert coordinator.query(GRAPH, ASKED).answer.cold
    assert coordinator.show(record.id).state == "damaged"
    coordinator.close()
