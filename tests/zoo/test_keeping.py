"""What a zoo keeps: within its capacity, the pinned ones, one of each kind of twins, and why others went."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ModelRefused, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import tick
from modelkeeper.zoo.catalog.stock import Stock
from modelkeeper.zoo.records import ACTIONS, DAMAGED, EVICTED, Filter
from tests.helpers import zoos

SMALL = [zoos.net(4, width) for width in (4, 5, 6, 7)]


def opened(home: Path | str, **more: object) -> LocalCoordinator:
    return LocalCoordinator(Settings(home=str(home), threads=1, admission="off", **more))  # type: ignore[arg-type]


def size_of(graph: object) -> int:
    coordinator = opened(":memory:")
    size = zoos.register(coordinator, graph).bytes  # type: ignore[arg-type]
    coordinator.close()
    return size


@pytest.mark.parametrize("home", ["folder", ":memory:"])
def test_the_capacity_is_kept_after_each_registration(tmp_path: Path, home: str) -> None:
    graphs = [zoos.net(4, width) for width in range(4, 16)]
    capacity = 5 * size_of(graphs[6])
    coordinator = opened(tmp_path if home == "folder" else home, capacity=capacity)
    before: set[str] = set()
    for number, graph in enumerate(graphs):
        told = coordinator.register(graph, zoos.told(f"{number}", 0.8), zoos.weights(graph).items())
        assert coordinator.zoo.catalog.bytes_stored() <= capacity
        now = {record.id for record in coordinator.models()}
        assert now == (before | {told.record.id}) - set(told.evicted)
        assert {key.rpartition("/")[2] for key, _ in coordinator.zoo.blobs.folders()} == now
        before = now
    gone = coordinator.models(Filter(states=(EVICTED,)))
    events = {event.model: event for event in coordinator.log(action="evicted")}
    assert {record.id for record in gone} == events.keys()
    assert all(record.reason == events[record.id].detail != "" for record in gone)
    coordinator.close()


def test_a_large_zoo_makes_room_for_the_next_ones_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that not every registration has to choose among all models; the capacity is kept all the same."""
    size = size_of(SMALL[0])
    monkeypatch.setattr("modelkeeper.zoo.zoo.MANY", 5)
    monkeypatch.setattr("modelkeeper.zoo.zoo.SPARE", 4)
    read = 0
    plain = Catalog.stock

    def counted(self: Catalog) -> Stock:
        nonlocal read
        read += 1
        return plain(self)

    monkeypatch.setattr(Catalog, "stock", counted)
    coordinator = opened(tmp_path, capacity=8 * size)
    evicted = []
    for number in range(16):
        told = coordinator.register(SMALL[0], zoos.told(f"{number}", 0.8), zoos.weights(SMALL[0]).items())
        evicted.append(len(told.evicted))
        assert coordinator.zoo.catalog.bytes_stored() <= 8 * size
    assert evicted == [0] * 8 + [3, 0, 0] + [3, 0, 0] + [3, 0]
    assert read == 3
    coordinator.close()


@pytest.mark.parametrize("many", [100, 3])
def test_room_is_made_though_the_zoo_changes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """Where others register faster than one can choose, the last picture counts, in a large zoo the first."""
    monkeypatch.setattr("modelkeeper.zoo.zoo.MANY", many)
    size = size_of(SMALL[0])
    coordinator = opened(tmp_path, capacity=4 * size)
    for number in range(4):
        zoos.register(coordinator, SMALL[0], f"{number}", 0.8)
    read = 0
    plain = Catalog.stock

    def meanwhile(self: Catalog) -> Stock:
        nonlocal read
        read += 1
        found = plain(self)
        with self.taking_turns() as connection:
            tick(connection)
        return found

    monkeypatch.setattr(Catalog, "stock", meanwhile)
    told = coordinator.register(SMALL[0], zoos.told("new", 0.8), zoos.weights(SMALL[0]).items())
    assert told.evicted
    assert coordinator.zoo.catalog.bytes_stored() <= 4 * size
    assert read == (10 if many == 100 else 1)
    coordinator.close()


def test_pinned_models_stay_and_others_go(tmp_path: Path) -> None:
    size = max(size_of(graph) for graph in SMALL)
    coordinator = opened(tmp_path, capacity=2 * size)
    worst = zoos.register(coordinator, SMALL[0], "worst", 0.1)
    coordinator.pin("worst")
    for number, graph in enumerate(SMALL[1:]):
        zoos.register(coordinator, graph, f"net {number}", 0.9)
    names = {record.name for record in coordinator.models()}
    assert "worst" in names
    assert len(names) == 2
    coordinator.pin("worst", False)
    zoos.register(coordinator, SMALL[1], "more", 0.95)
    zoos.register(coordinator, SMALL[2], "and more", 0.95)
    assert coordinator.show(worst.id).state == EVICTED
    assert [event.action for event in coordinator.log(model=worst.id)] == [
        "evicted", "unpinned", "pinned", "registered",
    ]  # fmt: skip
    coordinator.close()


def test_of_twins_the_worse_goes_first(tmp_path: Path) -> None:
    kinds = [SMALL[0], SMALL[0], zoos.net(16), zoos.net(8, 8, 8)]
    coordinator = opened(tmp_path, capacity=sum(size_of(kind) for kind in kinds) - 1)  # one must go
    zoos.register(coordinator, SMALL[0], "better twin", 0.92)
    zoos.register(coordinator, SMALL[0], "worse twin", 0.91)
    zoos.register(coordinator, kinds[2], "other kind", 0.5)
    twin = coordinator.show("worse twin")
    assert (twin.twin, twin.twin_similarity) == (coordinator.show("better twin").id, 1.0)
    assert coordinator.show("better twin").twin == ""
    told = coordinator.register(kinds[3], zoos.told("new", 0.7), zoos.weights(kinds[3]).items())
    assert told.evicted == (twin.id,)
    assert "covered by a better model" in coordinator.show(twin.id).reason
    coordinator.close()


def test_what_was_evicted_is_a_parent_no_more_but_still_an_ancestor(tmp_path: Path) -> None:
    coordinator = opened(tmp_path)
    first = zoos.register(coordinator, SMALL[0], "first")
    child = zoos.register(coordinator, SMALL[0], "child", 0.95, parent=first.id)
    coordinator.remove("first")
    assert coordinator.query(SMALL[0], Query()).answer.parent == child.id
    assert [record.name for record in coordinator.tree("child").ancestors] == ["first"]
    assert coordinator.show("first").id == first.id  # by name what is gone, too, if nothing else is called so
    assert coordinator.show(first.id).state == "removed"
    again = zoos.register(coordinator, SMALL[0], "first", 0.5)
    assert coordinator.show("first").id == again.id
    coordinator.remove("first")
    coordinator.gc(grace=0)
    assert coordinator.query(SMALL[0], Query()).answer.parent == child.id
    coordinator.close()


def test_a_model_that_went_while_it_was_being_chosen_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search and the look at its record, another process may remove a model."""
    coordinator, other = opened(tmp_path), opened(tmp_path)
    best = zoos.register(coordinator, SMALL[0], "best", 0.95)
    zoos.register(coordinator, SMALL[0], "next", 0.9)
    plain = Catalog.with_keys

    def meanwhile(self: Catalog, *keys: Any) -> object:
        other.remove(best.id)
        return plain(self, *keys)

    monkeypatch.setattr(Catalog, "with_keys", meanwhile)
    answer = coordinator.query(SMALL[0], Query()).answer
    assert answer.parent_name == "next"
    assert answer.warnings == ()
    for each in (coordinator, other):
        each.close()


def test_a_registration_stands_even_if_what_follows_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = opened(tmp_path)
    zoos.register(coordinator, SMALL[0], "first")

    def fails(*_: object) -> None:
        raise ZooUnusable("zoo", "database is locked", "Wait.")

    monkeypatch.setattr(Catalog, "set_twins", fails)
    record = zoos.register(coordinator, SMALL[0], "second", 0.95)
    assert coordinator.show(record.id) == record
    assert "database is locked" in caplog.text
    coordinator.close()


def test_every_action_is_written_to_the_log_under_its_name(tmp_path: Path) -> None:
    size = size_of(SMALL[0])
    coordinator = LocalCoordinator(
        Settings(home=str(tmp_path), threads=1, capacity=6 * size, minimum_peers=5)
    )
    for number in range(5):
        zoos.register(coordinator, SMALL[0], f"net {number}", 0.9)
    with pytest.raises(ModelRefused):
        zoos.register(coordinator, SMALL[0], "outlier", 0.1)
    coordinator.query(SMALL[0], Query(task=zoos.TASK))
    coordinator.pin("net 1")
    coordinator.pin("net 1", False)
    licensed = zoos.register(coordinator, SMALL[0], "licensed", 0.9, owner_id="0" * 16, licence="MIT")
    coordinator.publish(licensed.id)
    coordinator.publish(licensed.id, False)
    coordinator.accounts.add_user("ada")
    coordinator.accounts.give("0" * 16, "ada")
    coordinator.remove("licensed")
    coordinator.remove("net 1")
    under_way = msgspec.structs.replace(zoos.told("net 5"), run="0123456789abcdef", finished=False)
    coordinator.register(SMALL[0], under_way, zoos.weights(SMALL[0]).items())
    lost = coordinator.show("net 2")
    weights = tmp_path / lost.folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(b"")
    (tmp_path / "staging" / "left behind").mkdir()
    coordinator.gc(grace=0)
    assert coordinator.show(lost.id).state == DAMAGED
    weights.write_bytes(content)
    coordinator.gc(grace=0, verify=True)
    for number in range(5):
        zoos.register(coordinator, SMALL[0], f"more {number}", 0.9)
    assert {event.action for event in coordinator.log(limit=1000)} == set(ACTIONS)
    coordinator.close()


def test_a_damaged_model_comes_back_when_its_file_is_repaired(tmp_path: Path) -> None:
    coordinator = opened(tmp_path)
    mine = zoos.register(coordinator, SMALL[0], "mine", 0.9)
    file = tmp_path / mine.folder / "model.safetensors"
    backup = file.read_bytes()
    file.write_bytes(backup[:-1] + bytes([backup[-1] ^ 1]))
    assert coordinator.gc(verify=True).damaged == (mine.id,)
    assert coordinator.gc(verify=True).repaired == ()
    assert coordinator.query(SMALL[0], Query(task=zoos.TASK)).answer.cold
    file.write_bytes(backup)
    assert coordinator.gc().repaired == (), "without checksums nobody knows"
    assert coordinator.gc(verify=True).repaired == (mine.id,)
    assert coordinator.query(SMALL[0], Query(task=zoos.TASK)).answer.parent == mine.id
    assert [event.action for event in coordinator.log(model=mine.id)][:3] == ["lent", "repaired", "damaged"]
    coordinator.close()
