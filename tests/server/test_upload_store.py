"""Can more be announced than may be kept, and does a client that died lock its user out?"""

import os
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import QuotaExceeded, TooManyRequests, UnknownModel
from modelkeeper.graph import to_json
from modelkeeper.server import upload_store
from modelkeeper.server.upload_store import MOST_OPEN, Reserved, UploadStore
from modelkeeper.weights import Header
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.service import Team, network, team, tensors, told

GRAPH = network()
HEADER = Header.of(stored_tensors(GRAPH))
SIZE = len(HEADER.to_bytes()) + HEADER.data_bytes


def announcement(number: int, **more: Any) -> UploadRequest:
    given: dict[str, Any] = {"size": SIZE, "checksum": "0" * 64} | more
    return UploadRequest(
        id=f"{number:016x}", graph=msgspec.Raw(to_json(GRAPH)), registration=told(f"n{number}"), **given
    )


def grow_old(store_folder: Path, number: int, seconds: float = 3600.0) -> None:
    """As if nobody had written to an upload for so long."""
    then = time.time() - seconds
    os.utime(store_folder / f"upload-{number:016x}" / "weights", (then, then))


def post(keeper: Team, token: str, request: UploadRequest) -> httpx.Response:
    sent = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return httpx.post(
        f"{keeper.url}/v1/uploads", content=msgspec.json.encode(request), headers=sent, timeout=60
    )


def test_a_quota_of_models_holds_under_parallel_announcements(keeper: Team) -> None:
    """Of 24 at once 12 were accepted, where 2 are allowed."""
    token = keeper.token("mallory", models=2)
    with ThreadPoolExecutor(24) as pool:
        replies = list(
            pool.map(lambda number: post(keeper, token, announcement(number)).status_code, range(24))
        )
    assert replies.count(200) == 2
    assert replies.count(403) == 22


def test_announcing_again_does_not_pass_a_quota(tmp_path: Path) -> None:
    """5,000 bytes were allowed, 311,008 kept."""
    small, large = network(2), network(16)
    sizes = [
        len(header.to_bytes()) + header.data_bytes
        for header in (Header.of(stored_tensors(graph)) for graph in (small, large))
    ]
    with team(tmp_path) as keeper:
        token = keeper.token("mallory", bytes=sizes[0] + 20_000)
        first = announcement(1, size=sizes[0])
        first = msgspec.structs.replace(first, graph=msgspec.Raw(to_json(small)))
        assert post(keeper, token, first).status_code == 200
        again = msgspec.structs.replace(first, graph=msgspec.Raw(to_json(large)), size=sizes[1])
        assert sizes[1] > sizes[0] + 20_000
        assert post(keeper, token, again).status_code == 403
        assert post(keeper, token, first).status_code == 200  # what was announced before is still there


def test_what_lies_in_staging_counts(keeper: Team) -> None:
    """Programs of announced models were in nobody's quota."""
    token = keeper.token("mallory", bytes=SIZE + 100_000)
    assert post(keeper, token, announcement(1, program=b"x" * 200_000)).status_code == 403
    assert (
        post(keeper, token, announcement(2, program=b"x" * 9 * 2**20)).status_code == 422
    )  # none is so large
    assert post(keeper, token, announcement(3)).status_code == 200


def test_what_was_registered_meanwhile_counts_once(keeper: Team) -> None:
    ada = keeper.join("ada", models=2)
    for number in (1, 2):
        ada.register(GRAPH, told(), tensors(GRAPH, number).items())
    with pytest.raises(QuotaExceeded, match="2 models, 2 are allowed"):
        ada.register(GRAPH, told(), tensors(GRAPH, 3).items())


def test_a_quota_holds_at_the_end_too(keeper: Team) -> None:
    """Announced while there was room, at another coordinator of the same zoo perhaps."""
    ada = keeper.join("ada", models=1)
    entry = ada.spool.keep(keeper.url, GRAPH, told(), tensors(GRAPH).items(), "", "")
    ada._calls.client.post(
        "/uploads",
        content=msgspec.json.encode(entry.waiting.request),
        headers={"content-type": "application/json"},
    )
    [who] = [user for user in keeper.accounts.users() if user.name == "ada"]
    keeper.coordinator.register(GRAPH, told(), tensors(GRAPH, 2).items(), owner="ada", owner_id=who.id)
    with pytest.raises(QuotaExceeded, match="1 models, 1 are allowed"):
        ada.send(entry)


def test_what_a_dead_client_began_gives_way(tmp_path: Path) -> None:
    store = UploadStore(tmp_path)
    for number in range(MOST_OPEN):
        store.begin("ada", announcement(number))
    with pytest.raises(TooManyRequests, match="32 models are being sent"):
        store.begin("ada", announcement(99))
    store.begin("bob", announcement(98))  # another's are not in the way
    grow_old(tmp_path, 7, 500.0)
    grow_old(tmp_path, 9, 1000.0)
    store.begin("ada", announcement(99))
    with pytest.raises(UnknownModel):
        store.get(announcement(9).id, "ada")  # the oldest
    assert store.get(announcement(7).id, "ada")
    assert len(store.open()) == MOST_OPEN + 1


def test_what_is_being_written_does_not_give_way(tmp_path: Path) -> None:
    busy = {announcement(0).id}
    store = UploadStore(tmp_path, busy.__contains__)

    def two(reserved: object) -> None:
        assert isinstance(reserved, list)
        if len(reserved) > 2:
            raise QuotaExceeded("two are allowed", "Wait.")

    for number in range(2):
        store.begin("ada", announcement(number), two)
        grow_old(tmp_path, number)
    store.begin("ada", announcement(2), two)
    assert {known.id for known in store.open()} == {announcement(0).id, announcement(2).id}
    assert store.sweep(0.0) <= 1
    assert store.get(announcement(0).id, "ada")


def test_nothing_goes_if_that_would_not_help(tmp_path: Path) -> None:
    store = UploadStore(tmp_path)
    store.begin("ada", announcement(1))
    grow_old(tmp_path, 1)

    def never(reserved: object) -> None:
        raise QuotaExceeded("nothing is allowed", "Remove some.")

    with pytest.raises(QuotaExceeded):
        store.begin("ada", announcement(2), never)
    assert [known.id for known in store.open()] == [announcement(1).id]


def test_announcing_does_not_read_what_others_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With programs of 14 MB under way an announcement took 12.6 s."""
    store = UploadStore(tmp_path)
    for number in range(3):
        store.begin("mallory", announcement(number, program=b"x" * 10**6))
    monkeypatch.setattr(store, "_read", lambda identity: pytest.fail("it was read"))
    store.begin("ada", announcement(9))
    assert sum(known.bytes for known in store.open() if known.owner == "mallory") > 3 * 10**6


def test_uploads_that_an_older_version_began_go_on(tmp_path: Path) -> None:
    store = UploadStore(tmp_path)
    store.begin("ada", announcement(1))
    (tmp_path / f"upload-{1:016x}" / "reserved.json").unlink()
    assert store.open() == [Reserved(announcement(1).id, "ada", SIZE)]
    assert store.begin("ada", announcement(1)) == 0


def test_processes_take_turns(tmp_path: Path) -> None:
    """Another process on the same folder waits: both have a lock of their own."""
    first, second = UploadStore(tmp_path), UploadStore(tmp_path)
    inside, leave = threading.Event(), threading.Event()

    def slow(reserved: object) -> None:
        inside.set()
        leave.wait(30)

    thread = threading.Thread(target=first.begin, args=("ada", announcement(1), slow))
    thread.start()
    assert inside.wait(30)
    seen: list[int] = []
    other = threading.Thread(
        target=second.begin, args=("ada", announcement(2), lambda reserved: seen.append(len(reserved)))
    )
    other.start()
    time.sleep(0.1)
    assert seen == []
    leave.set()
    thread.join()
    other.join()
    assert seen == [1, 2]  # alone, and beside the first


def test_what_is_sent_is_seen_by_nobody_else(tmp_path: Path) -> None:
    store = UploadStore(tmp_path)
    store.begin("ada", announcement(1))
    place = tmp_path / f"upload-{1:016x}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


def test_how_long_an_upload_may_rest_is_short() -> None:
    assert upload_store.IDLE <= 60  # what a client waits, and `sync` of the same user after a crash
