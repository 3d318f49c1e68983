"""Snapshots of the search index in the store: new replicas begin with them, and believe what is right."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.app import Application
from modelkeeper.server.serve import working
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.database.schema import ledger
from modelkeeper.zoo.index import index_sync, shared_snapshots
from modelkeeper.zoo.index.shared_snapshots import DATA, FOLDER, MANIFEST, Manifest
from modelkeeper.zoo.records import new_id
from tests.helpers import zoos
from tests.zoo.index.test_index_sync import GRAPHS, found, fresh

Opener = Callable[[], LocalCoordinator]


@pytest.fixture(params=["folder", "s3"])
def replica(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    """Opens coordinators with empty homes over one catalog and one store; all is worth a snapshot."""
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 3)
    monkeypatch.setattr(shared_snapshots, "WORTH", 0)
    blobs = str(tmp_path / "store")
    if request.param == "s3":
        blobs = request.getfixturevalue("bucket")
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    with ExitStack() as stack:

        def open_one() -> LocalCoordinator:
            home = str(tmp_path / new_id())
            coordinator = LocalCoordinator(
                Settings(home=home, catalog=catalog, blobs=blobs, threads=1, admission="off")
            )
            stack.callback(coordinator.close)
            return coordinator

        yield open_one


def grow(coordinator: LocalCoordinator, count: int) -> None:
    for number in range(count):
        zoos.register(coordinator, GRAPHS[number % len(GRAPHS)])


def reads(coordinator: LocalCoordinator, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many graphs a coordinator reads from the catalog to open its index, which is then right."""
    catalog, asked = coordinator.zoo.catalog, []
    prepared = catalog.prepared

    def counting(digests: Any) -> dict[str, bytes]:
        asked.extend(digests)
        return prepared(digests)

    monkeypatch.setattr(catalog, "prepared", counting)
    assert found(coordinator.zoo.follower.index()) == found(fresh(catalog))
    return len(asked)


def put(coordinator: LocalCoordinator) -> bool:
    coordinator.zoo.index()
    return coordinator.zoo.share_index()


def test_a_new_replica_begins_with_what_the_leader_put(
    replica: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = replica()
    grow(leader, 10)
    assert put(leader)
    assert not put(leader), "the store has it"
    assert not put(replica()), "who has brought it has nothing newer"
    grow(leader, 2)
    assert reads(replica(), monkeypatch) <= 3 + 2, "what was not saved, and what came since"


def test_a_catalog_without_a_log_has_snapshots_too(replica: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = replica()
    grow(leader, 10)
    with leader.zoo.catalog.database.writing() as connection:
        connection.execute(ledger.delete())
    assert put(leader)
    assert reads(replica(), monkeypatch) <= 3


@pytest.mark.parametrize("harm", ["damaged", "missing", "nonsense", "of another store", "set back", "newer"])
def test_what_cannot_be_believed_is_made_from_the_catalog(
    replica: Opener, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    leader = replica()
    grow(leader, 10)
    assert put(leader)
    shared, blobs = leader.zoo.shared_snapshots, leader.zoo.blobs
    assert shared is not None
    (name,) = shared._manifests()
    manifest = msgspec.json.decode(blobs.read(f"{name}/{MANIFEST}"), type=Manifest)
    largest = max(manifest.files.values(), key=lambda digest: len(blobs.read(f"{FOLDER}/{digest}/{DATA}")))
    written = {(name, MANIFEST): msgspec.json.encode(manifest)}
    if harm == "damaged":
        content = bytearray(blobs.read(f"{FOLDER}/{largest}/{DATA}"))
        content[len(content) // 2] ^= 1
        written = {(f"{FOLDER}/{largest}", DATA): bytes(content)}
    elif harm == "missing":
        blobs.delete(f"{FOLDER}/{largest}")
    elif harm == "nonsense":
        written = {(name, MANIFEST): b'{"clock": "much"}'}
    elif harm == "of another store":
        other = msgspec.structs.replace(manifest, store="0" * 32)
        written = {(name, MANIFEST): msgspec.json.encode(other)}
    elif harm == "set back":
        with leader.zoo.catalog.database.writing() as connection:
            change = ledger.update().where(ledger.c.number == manifest.entry)
            connection.execute(change.values(digest="0" * 64))
    else:
        later = msgspec.structs.replace(manifest, clock=10**6)
        written = {(f"{FOLDER}/at-{10**6}-00000000", MANIFEST): msgspec.json.encode(later)}
        blobs.delete(name)
    for (folder, file), content_of in written.items():
        with blobs.writing(folder) as rewritten:
            rewritten.write(file, [content_of])
            rewritten.publish(replace=True)
    assert reads(replica(), monkeypatch) == 10


def test_old_snapshots_go_and_what_did_not_change_is_put_once(
    replica: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = replica()
    for _ in range(4):
        grow(leader, 5)
        assert put(leader)
    shared = leader.zoo.shared_snapshots
    assert shared is not None
    manifests = shared._manifests()
    assert len(manifests) == shared_snapshots.KEPT
    stays = len(list(leader.zoo.blobs.folders(FOLDER)))
    monkeypatch.setattr(shared_snapshots, "GRACE", -60.0)  # nobody is about to name anything
    shared._sweep()
    named = {digest for name in manifests for digest in shared._read(name).files.values()}
    left = {folder.rpartition("/")[2] for folder, _ in leader.zoo.blobs.folders(FOLDER)}
    assert left == named | {name.rpartition("/")[2] for name in manifests}
    assert len(left) < stays
    assert leader.gc(grace=0).folders == (), "they are no folders of models"
    assert reads(replica(), monkeypatch) <= 3


def test_a_store_that_is_away_is_no_obstacle(
    replica: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = replica()
    grow(leader, 10)
    assert put(leader)
    new = replica()

    def away(under: str) -> Any:
        raise new.zoo.blobs.failed("listing", OSError("it is away"))

    monkeypatch.setattr(new.zoo.blobs, "folders", away)
    assert reads(new, monkeypatch) == 10
    assert "it is away" in caplog.text


def test_the_leader_of_services_puts(replica: Opener) -> None:
    coordinator = replica()
    grow(coordinator, 10)
    done = threading.Event()
    share = coordinator.zoo.share_index

    def noted() -> bool:
        was = share()
        done.set()
        return was

    coordinator.zoo.share_index = noted  # type: ignore[method-assign]
    with working(Application(coordinator, ServiceSettings(auth=False)).service):
        assert done.wait(60)
    assert any(folder for folder, _ in coordinator.zoo.blobs.folders(FOLDER))
    with coordinator.zoo.catalog.database.reading() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(ledger))
