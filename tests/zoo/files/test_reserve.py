"""A full disk: what is there is read without a free byte, and room can be made with the zoo's own tools."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import DiskFull, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.files.reserve import NAME, SIZE, Reserve
from tests.helpers import zoos
from tests.helpers.disks import disk, fill
from tests.helpers.forked import in_child

GRAPH, LARGE = zoos.net(8, 16), zoos.net(64, 128)
ASKED = Query(task=zoos.TASK, data=zoos.DATA)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """The home of a zoo of four models, on a disk without a free byte."""
    with disk(tmp_path, "48m") as place:
        home = place / "zoo"
        coordinator = LocalCoordinator(Settings(home=str(home)))
        for number in range(4):
            zoos.register(coordinator, GRAPH if number else LARGE, f"net {number}", 0.9 + number / 100)
        coordinator.close()
        assert (home / NAME).stat().st_size == SIZE
        fill(place)
        assert shutil.disk_usage(place).free == 0
        yield home


def is_lent(coordinator: LocalCoordinator) -> None:
    """The best model is lent as it is."""
    loan = coordinator.query(GRAPH, ASKED)
    assert loan.answer.parents[0].name == "net 3"
    stored = coordinator.zoo.weights(coordinator.show("net 3"))
    lent = dict(loan.weights())
    for name in zoos.weights(GRAPH):
        np.testing.assert_array_equal(lent[name], np.asarray(stored[name]))


def test_reads_need_no_free_byte(full: Path, caplog: pytest.LogCaptureFixture) -> None:
    coordinator = LocalCoordinator(Settings(home=str(full)))
    for _ in range(10):
        is_lent(coordinator)
    assert sum("loans are not recorded" in line for line in caplog.messages) <= 1
    assert coordinator.count() == 4
    assert coordinator.stats()["models"] == 4
    assert len(coordinator.log()) >= 4
    assert coordinator.tree("net 1").record.name == "net 1"
    with pytest.raises(DiskFull):
        zoos.register(coordinator, LARGE, "another")
    assert coordinator.count() == 4
    coordinator.close()


def test_whoever_had_the_zoo_open_reads_on(tmp_path: Path) -> None:
    with disk(tmp_path, "48m") as place:
        coordinator = LocalCoordinator(Settings(home=str(place / "zoo")))
        for number in range(4):
            zoos.register(coordinator, GRAPH, f"net {number}", 0.9 + number / 100)
        fill(place)
        for _ in range(10):
            is_lent(coordinator)
        in_child(lambda: is_lent(LocalCoordinator(Settings(home=str(place / "zoo")))), seconds=60)
        coordinator.close()


@pytest.mark.parametrize("reserved", [True, False])
def test_room_can_be_made(full: Path, reserved: bool) -> None:
    """Also when the reserve was given up before, and the disk has filled again."""
    if not reserved:
        (full / NAME).unlink()
        fill(full.parent)
    coordinator = LocalCoordinator(Settings(home=str(full)))
    coordinator.remove("net 0")
    assert {record.name for record in coordinator.models()} == {"net 1", "net 2", "net 3"}
    assert shutil.disk_usage(full).free > 0
    coordinator.pin("net 1")
    assert coordinator.show("net 1").pinned
    left = coordinator.gc(grace=0)
    assert (left.damaged, left.unreadable, left.failed) == ((), (), ())
    is_lent(coordinator)
    zoos.register(coordinator, zoos.net(4), "new")  # there is room again
    (full.parent / "filler").unlink()
    coordinator.gc()
    assert (full / NAME).stat().st_size == SIZE, "with plenty of room, some is kept for the next time"
    coordinator.close()


def test_a_pin_is_recorded_by_giving_up_the_reserve(full: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(full)))
    coordinator.pin("net 1")
    assert coordinator.show("net 1").pinned
    coordinator.close()


def test_gc_makes_room(full: Path) -> None:
    """What a killed process left behind goes, and so does what is beyond the capacity."""
    coordinator = LocalCoordinator(Settings(home=str(full)))
    left = full / "models" / "0123456789abcdef"
    shutil.move(str(full.parent / "filler"), full / "staging" / "filler")
    (full / "models" / coordinator.show("net 0").id).rename(left)
    swept = coordinator.gc(grace=0)
    assert (swept.staging, swept.folders) == (1, (f"models/{left.name}",))
    assert len(swept.damaged) == 1
    assert [record.name for record in coordinator.models()] == ["net 3", "net 2", "net 1"]
    assert shutil.disk_usage(full).free > 40 * 2**20
    coordinator.close()


def test_a_smaller_capacity_makes_room(full: Path) -> None:
    size = LocalCoordinator(Settings(home=str(full))).show("net 1").bytes
    coordinator = LocalCoordinator(Settings(home=str(full), capacity=3 * size))
    assert len(coordinator.gc().evicted) == 1
    assert {record.name for record in coordinator.models()} == {"net 1", "net 2", "net 3"}
    coordinator.close()


def test_where_there_is_little_room_nothing_is_reserved(tmp_path: Path) -> None:
    with disk(tmp_path, "8m") as place:
        reserve = Reserve(place)
        reserve.keep()
        assert list(place.iterdir()) == []
        assert not reserve.short
        fill(place)
        assert reserve.short
    nowhere = Reserve(None)
    nowhere.keep()
    nowhere.give_up()
    assert not nowhere.short


def test_other_failures_give_nothing_up(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    zoos.register(coordinator, zoos.net(4))

    def fail() -> None:
        raise ZooUnusable("zoo/", "it is locked", "Wait.")

    with pytest.raises(ZooUnusable, match="locked"):
        coordinator.zoo.freeing(fail)
    assert (tmp_path / NAME).exists()
    coordinator.close()
