"""What a service tidies up by itself, by a clock that the test holds."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidSetting, ZooUnusable
from modelkeeper.server.app import Application
from modelkeeper.server.service import Service
from modelkeeper.server.upkeep import keeping_tidy, tidy_up
from modelkeeper.settings import DAY, ServiceSettings, Settings
from modelkeeper.zoo.records import Event
from tests.helpers import zoos


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service over a zoo of a parent and its child; what is a minute old counts as left behind."""
    with closing(LocalCoordinator(Settings(home=str(tmp_path), grace=60.0))) as coordinator:
        parent = zoos.register(coordinator, zoos.net(4), "parent")
        zoos.register(coordinator, zoos.net(8), "child", parent=parent.id)
        yield Application(coordinator, ServiceSettings(auth=False, upkeep=0.001)).service


def grow_old(folder: Path) -> None:
    then = time.time() - 3600
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then))


def test_what_was_left_behind_goes(service: Service, tmp_path: Path) -> None:
    for number in range(2):
        request = UploadRequest(
            id=f"{number:016x}", graph=msgspec.Raw(b"{}"), registration=zoos.told(), size=9, checksum=""
        )
        service.uploads.begin("ada", request)
    left, orphan = tmp_path / "staging" / "of a dead process", tmp_path / "models" / "00000000000000aa"
    for folder in (left, orphan):
        folder.mkdir()
    for folder in (left, orphan, tmp_path / "staging" / "upload-0000000000000000"):
        grow_old(folder)
    tidy_up(service)
    assert [upload.id for upload in service.uploads.open()] == ["0000000000000001"], "one may still go on"
    assert not left.exists()
    assert not orphan.exists()
    assert service.coordinator.count() == 2


def test_old_events_go_and_lineage_stays(service: Service) -> None:
    coordinator = service.coordinator
    assert isinstance(coordinator, LocalCoordinator)
    coordinator.zoo.catalog.note(Event(at=time.time() - 80 * DAY, action="swept", detail="old"))
    tidy_up(service)
    assert "old" in [event.detail for event in coordinator.log()]
    tidy_up(service, now=lambda: time.time() + 11 * DAY)
    assert "old" not in [event.detail for event in coordinator.log()]
    assert len(coordinator.log()) >= 2
    tidy_up(service, now=lambda: time.time() + 100 * DAY)
    assert coordinator.log() == []
    assert coordinator.tree("child").ancestors[0].name == "parent"
    assert coordinator.count() == 2


def test_events_may_be_kept_for_ever(service: Service) -> None:
    kept = Application(service.coordinator, ServiceSettings(auth=False, keep_events=0)).service
    before = len(service.coordinator.log())
    tidy_up(kept, now=lambda: time.time() + 1000 * DAY)
    assert len(service.coordinator.log()) == before


def test_it_goes_on_after_a_failure(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turns, third = [], threading.Event()

    def fail(grace: float | None, verify: bool) -> None:
        turns.append(1)
        if len(turns) == 3:
            third.set()
        raise ZooUnusable("zoo/", "it is away", "Wait.") if len(turns) % 2 else KeyError("a bug")

    monkeypatch.setattr(service, "gc", fail)
    with caplog.at_level(logging.WARNING), service.beat.going_on(), keeping_tidy(service):
        assert third.wait(60)
    assert sum("tried again" in line for line in caplog.messages) >= 3
    count = len(turns)
    assert all(thread.name != "modelkeeper-upkeep" for thread in threading.enumerate())
    assert len(turns) == count


def test_it_can_be_left_out(service: Service) -> None:
    never = Application(service.coordinator, ServiceSettings(auth=False, upkeep=0)).service
    with keeping_tidy(never):
        assert all(thread.name != "modelkeeper-upkeep" for thread in threading.enumerate())


@pytest.mark.parametrize("name", ["upkeep", "keep_events"])
def test_a_time_before_now_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=name):
        ServiceSettings(auth=False, **{name: -1.0})  # type: ignore[arg-type]
