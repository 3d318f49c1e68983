"""A zoo is destroyed, and had again from a backup that was made while models came and went."""

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidBackup, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.care import backup as backups
from modelkeeper.zoo.care.archive import Archive
from modelkeeper.zoo.care.backup import backup, restore
from modelkeeper.zoo.care.verify import verify
from modelkeeper.zoo.files.blobs import WEIGHTS
from tests.helpers import zoos
from tests.helpers.disks import disk, fill

GRAPH, OTHER = zoos.net(4), zoos.net(8)
BEFORE, DURING = 3, 6


def blob(coordinator: LocalCoordinator, model: str) -> str:
    """The SHA-256 of a model's weights as they are in the store."""
    return coordinator.zoo.blobs.checksum(f"models/{model}")


def register(coordinator: LocalCoordinator, name: str, accuracy: float = 0.9) -> str:
    tensors = zoos.weights(GRAPH, hash(name) % 2**32)
    told = zoos.told(name, accuracy)
    return coordinator.register(GRAPH, told, tensors.items(), program=name.encode()).record.id


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[LocalCoordinator]:
    """A zoo of two models, one with a program."""
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo"), admission="off"))
    register(coordinator, "first")
    zoos.register(coordinator, OTHER, "second", 0.95)
    yield coordinator
    coordinator.close()


def restored(tmp_path: Path, **options: Any) -> LocalCoordinator:
    home = tmp_path / f"restored-{len(list(tmp_path.iterdir()))}"
    restore(tmp_path / "backup", Settings(home=str(home)), **options)
    return LocalCoordinator(Settings(home=str(home)))


# From where, into what: a catalog in a file and a folder, or PostgreSQL and a store that speaks S3.
WAYS = [("files", "files"), ("scale", "scale"), ("files", "scale"), ("scale", "files")]


@pytest.mark.parametrize(("source", "into"), WAYS)
def test_a_zoo_that_is_destroyed_is_had_again(
    tmp_path: Path, source: str, into: str, request: pytest.FixtureRequest
) -> None:
    """Every model that was acknowledged before the backup ended is there, with the right bytes."""
    place: dict[str, Any] = {}
    if "scale" in (source, into):
        names = {"catalog": "postgres_url", "blobs": "bucket"}
        place = {name: request.getfixturevalue(fixture) for name, fixture in names.items()}

    def settings(kind: str, home: str) -> Settings:
        at_scale: dict[str, Any] = place if kind == "scale" else {}
        return Settings(home=str(tmp_path / home), admission="off", **at_scale)

    zoo = LocalCoordinator(settings(source, "zoo"))
    acknowledged = {model: blob(zoo, model) for model in (register(zoo, f"{n}") for n in range(BEFORE))}
    gone = register(zoo, "removed before")
    zoo.remove(gone)
    child = zoos.register(zoo, OTHER, "child", parent=next(iter(acknowledged)))
    acknowledged[child.id] = child.checksum
    zoo.accounts.add_user("ada")
    during: dict[str, str] = {}
    copying, wanted = threading.Event(), threading.Event()

    def come_and_go() -> None:
        with closing(LocalCoordinator(settings(source, "zoo"))) as other:
            assert copying.wait(60)
            for number in range(DURING):
                model = register(other, f"during {number}")
                during[model] = blob(other, model)
            wanted.set()
            for number in range(DURING):  # what comes from here on may be in it, or not
                other.remove(register(other, f"late {number}"))

    def hold(done: float, total: float) -> None:
        copying.set()
        assert wanted.wait(60)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    made = backup(zoo.zoo, tmp_path / "backup", progress=hold)
    thread.join()
    assert made.left_out == {}
    zoo.close()
    destroy(tmp_path / "zoo", place)

    done = restore(tmp_path / "backup", settings(into, "restored"))
    assert done.missing == ()
    with closing(LocalCoordinator(settings(into, "restored"))) as again:
        there = {record.id: record.checksum for record in again.models()}
        assert (acknowledged | during).items() <= there.items()
        assert gone not in there
        assert {model: blob(again, model) for model in there} == there
        assert again.show(gone).state == "removed"
        assert again.tree(child.id).ancestors[0].id == child.parent
        assert [account.name for account in again.accounts.users()] == ["ada"]
        assert verify(again.zoo).whole
        loan = again.query(OTHER, Query(task=zoos.TASK))
        assert loan.answer.parent == child.id
        assert dict(loan.weights())
        new = register(again, "after")  # numbers go on after those that were there
        assert again.show(new).key > max(again.show(model).key for model in there)
        assert again.program(again.show(new)) == b"after"


def destroy(home: Path, place: dict[str, str]) -> None:
    """Nothing is left of a zoo, wherever it was."""
    shutil.rmtree(home, ignore_errors=True)
    if place:
        import sqlalchemy as sa

        from modelkeeper.zoo.files.stores import open_store

        engine = sa.create_engine(place["catalog"])
        with engine.begin() as connection:
            connection.execute(sa.text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
        engine.dispose()
        store = open_store(place["blobs"])
        assert not isinstance(store, Path)
        for batch in store.list(""):
            store.delete([item["path"] for item in batch])


def test_what_is_there_is_not_copied_again(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    first = backup(coordinator.zoo, tmp_path / "backup")
    assert (first.models, first.copied) == (2, 9)  # weights, card, config, graph of each, and one program
    assert backup(coordinator.zoo, tmp_path / "backup").copied == 0
    register(coordinator, "third")
    third = backup(coordinator.zoo, tmp_path / "backup")
    assert third.models == 3
    assert 0 < third.copied <= 5
    assert len(Archive(tmp_path / "backup").snapshots()) == 3


def test_each_snapshot_is_the_zoo_of_its_moment(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    first = backup(coordinator.zoo, tmp_path / "backup").snapshot
    coordinator.remove("first")
    register(coordinator, "third")
    backup(coordinator.zoo, tmp_path / "backup")
    for options, names in ((dict[str, str](), {"second", "third"}), ({"at": first}, {"first", "second"})):
        with closing(restored(tmp_path, **options)) as again:
            assert {record.name for record in again.models()} == names
            assert verify(again.zoo).whole


def test_only_the_newest_are_kept(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    backup(coordinator.zoo, tmp_path / "backup")
    coordinator.remove("first")
    made = backup(coordinator.zoo, tmp_path / "backup", keep=1)
    archive = Archive(tmp_path / "backup")
    assert archive.snapshots() == [made.snapshot]
    assert made.pruned == 5
    assert len(list((tmp_path / "backup" / "files").glob("*/*"))) == 4
    with closing(restored(tmp_path)) as again:
        assert [record.name for record in again.models()] == ["second"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_a_damaged_model_is_left_out_and_named(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    first, second = coordinator.show("first"), coordinator.show("second")
    flip(tmp_path / "zoo" / first.folder / WEIGHTS)
    made = backup(coordinator.zoo, tmp_path / "backup")
    assert list(made.left_out) == [first.id]
    assert "checksum" in made.left_out[first.id]
    done = restore(tmp_path / "backup", Settings(home=str(tmp_path / "again")))
    assert done.missing == (first.id,)
    with closing(LocalCoordinator(Settings(home=str(tmp_path / "again")))) as again:
        assert not again.query(OTHER, Query(task=zoos.TASK)).answer.cold
        assert blob(again, second.id) == second.checksum


@pytest.mark.parametrize("what", ["files", "snapshots"])
def test_a_damaged_backup_is_said(tmp_path: Path, coordinator: LocalCoordinator, what: str) -> None:
    backup(coordinator.zoo, tmp_path / "backup")
    flip(max((tmp_path / "backup" / what).rglob("*"), key=lambda path: path.is_file() * path.stat().st_size))
    with pytest.raises(InvalidBackup, match="damaged"):
        restore(tmp_path / "backup", Settings(home=str(tmp_path / "again")))
    backup(coordinator.zoo, tmp_path / "backup", verify=True)
    with closing(restored(tmp_path)) as again:
        assert verify(again.zoo).whole


def test_an_interrupted_restore_goes_on(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    backup(coordinator.zoo, tmp_path / "backup")
    settings = Settings(home=str(tmp_path / "again"))

    def stop(done: float, total: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(tmp_path / "backup", settings, progress=stop)
    with closing(LocalCoordinator(settings)) as empty:
        assert empty.count() == 0, "nothing is seen before all is there"
    restore(tmp_path / "backup", settings)
    with closing(LocalCoordinator(settings)) as again:
        assert again.count() == 2
        assert verify(again.zoo).whole


def refused(work: Callable[[], object], match: str) -> None:
    with pytest.raises(InvalidBackup, match=match):
        work()


def test_what_cannot_be_restored_is_said(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    refused(lambda: restore(tmp_path / "none", Settings(home=str(tmp_path / "again"))), "there is none")
    name = backup(coordinator.zoo, tmp_path / "backup").snapshot
    again = Settings(home=str(tmp_path / "again"))
    refused(lambda: restore(tmp_path / "backup", again, at="yesterday"), name)
    refused(lambda: restore(tmp_path / "backup", again, at="../../etc"), "there is no snapshot")
    refused(lambda: restore(tmp_path / "backup", coordinator.settings), "holds models already")
    path = tmp_path / "backup" / "snapshots" / f"{name}.jsonl"
    lines = path.read_text().splitlines()
    newer = [json.dumps(json.loads(lines[0]) | {"schema": "9999"}), *lines[1:-1]]
    text = "".join(f"{line}\n" for line in newer)
    path.write_text(text + json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest()}) + "\n")
    refused(lambda: restore(tmp_path / "backup", again), "newer modelkeeper")


def test_one_process_at_a_time_writes(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    with Archive(tmp_path / "backup").writing():
        refused(lambda: backup(coordinator.zoo, tmp_path / "backup"), "another process")


def test_a_full_disk_leaves_the_backups_that_are_there(tmp_path: Path, coordinator: LocalCoordinator) -> None:
    with disk(tmp_path, "8m") as place:
        backup(coordinator.zoo, place / "backup")
        register(coordinator, "third")
        filler = fill(place)
        with pytest.raises(ZooUnusable, match="No space left"):
            backup(coordinator.zoo, place / "backup")
        again = Settings(home=str(tmp_path / "again"))
        assert restore(place / "backup", again).models == 2
        filler.unlink()
        assert backup(coordinator.zoo, place / "backup").models == 3
        assert list((place / "backup" / "tmp").iterdir()) == []


def test_models_that_come_all_the_time_do_not_keep_it_from_ending(
    tmp_path: Path, coordinator: LocalCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = backups._Copying.copy

    def and_another(self: backups._Copying, progress: backups.Progress | None) -> None:
        copied(self, progress)
        register(coordinator, f"one more {len(self.files)}")

    monkeypatch.setattr(backups._Copying, "copy", and_another)
    made = backup(coordinator.zoo, tmp_path / "backup")
    assert made.left_out == {}
    monkeypatch.undo()
    with closing(restored(tmp_path)) as again:
        assert again.count() == made.models > backups.ROUNDS
        assert verify(again.zoo).whole
