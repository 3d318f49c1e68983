"""Does any process go on with an upload, and can more be announced than may be kept?"""

import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.coordinator.wire import UploadRequest
from modelkeeper.errors import InvalidWeights, QuotaExceeded, TooManyRequests, UnknownModel
from modelkeeper.graph import to_json
from modelkeeper.server.serve import serving
from modelkeeper.server.upload_store import (
    IDLE,
    MOST_OPEN,
    FolderUploads,
    ObjectUploads,
    Reserved,
    UploadStore,
    base,
)
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.weights import Header
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.schema import uploads
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.files.folders import Written
from modelkeeper.zoo.files.stores import put_whole
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.replicas.parts import Part, Parts
from modelkeeper.zoo.zoo import stored_tensors
from tests.helpers.service import Team, network, spread, team, tensors, told

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


# -- the contract, over a folder and over an object store ------------------------------------------


class Shared:
    """Where several processes keep uploads: each `open` is another one's."""

    def __init__(self, kind: str, folder: Path, bucket: str, catalog: str = "") -> None:
        self.kind, self._folder, self._bucket = kind, folder, bucket
        self._catalog = catalog or f"sqlite:///{folder / 'catalog.db'}"
        self._databases: list[Database] = []
        self.parts: Parts | None = None

    def open(self) -> UploadStore:
        if self.kind == "folder":
            return FolderUploads(self._folder / "staging")
        self._databases.append(Database(self._catalog))
        blobs = Blobs(self._bucket)
        assert blobs.objects is not None
        self.parts = Parts(self._databases[-1], blobs, blobs.objects)
        return ObjectUploads(self.parts, self._folder / f"scratch-{len(self._databases)}")

    def grow_old(self, number: int, seconds: float = 3600.0) -> None:
        """As if nobody had worked on an upload for so long."""
        if self.kind == "folder":
            grow_old(self._folder / "staging", number, seconds)
            return
        with self._databases[0].writing() as connection:
            rows = uploads.update().where(uploads.c.id == announcement(number).id)
            connection.execute(rows.values(touched=uploads.c.touched - seconds))

    def left(self) -> list[str]:
        """What lies in staging."""
        if self.kind == "folder":
            return sorted(path.name for path in (self._folder / "staging").iterdir())
        blobs = Blobs(self._bucket)
        assert blobs.objects is not None
        return sorted(str(item["path"]) for batch in blobs.objects.list("staging/") for item in batch)

    def sweep(self, store: UploadStore, grace: float) -> int:
        """As `gc` does."""
        return store.sweep(grace) + (0 if self.parts is None else self.parts.sweep(grace))

    def close(self) -> None:
        for database in self._databases:
            database.close()


@pytest.fixture(params=["folder", "objects"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    place = Shared(
        request.param, tmp_path, request.getfixturevalue("bucket") if request.param == "objects" else ""
    )
    yield place
    place.close()


def sent(store: UploadStore, number: int, owner: str = "ada") -> bytes:
    """All bytes of an upload, as they are taken in."""
    with store.staged(announcement(number).id) as staged:
        content = staged.path.read_bytes()
        assert staged.written == Written(len(content), hashlib.sha256(content).hexdigest())
    return content


def test_any_process_goes_on(shared: Shared) -> None:
    one, two, three = shared.open(), shared.open(), shared.open()
    request, content = announcement(1), os.urandom(SIZE)
    assert one.begin("ada", request) == 0
    at = 0
    for turn, store in enumerate([two, three, one, two, two, one, three]):
        upload = store.get(request.id, "ada")
        assert (upload.offset, upload.request) == (at, request)
        piece = content[at : at + 997 * (turn + 1)]
        store.write(request.id, upload.attempt, at, memoryview(piece))
        at += len(piece)
        assert three.begin("ada", request) == at  # announced again, it goes on
    last = two.get(request.id, None)
    two.write(request.id, last.attempt, at, content[at:])
    assert [sent(store, 1) for store in (three, one, two)] == [content] * 3
    assert one.announced_checksum(request.id) == "0" * 64
    three.forget(request.id)
    two.forget(request.id)  # gone already
    assert shared.left() == []
    for store in (one, two, three):
        assert store.open() == []
        with pytest.raises(UnknownModel):
            store.get(request.id, "ada")
        with pytest.raises(UnknownModel), store.staged(request.id):
            pass
        with pytest.raises(UnknownModel):
            store.write(request.id, last.attempt, 0, b"late")
    assert shared.left() == [], "what came late lies nowhere"


def test_of_several_who_write_at_one_place_one_does(shared: Shared) -> None:
    """Bytes never mix: a retry that reaches two processes counts once, also if it holds other bytes."""
    stores = [shared.open() for _ in range(4)]
    request = announcement(1)
    stores[0].begin("ada", request)
    attempt, content = stores[0].get(request.id, "ada").attempt, b""
    for _ in range(3):
        pieces = [bytes([number]) * 50_000 for number in range(len(stores))]
        together = threading.Barrier(len(stores))

        def write(
            number: int,
            pieces: list[bytes] = pieces,
            together: threading.Barrier = together,
            at: int = len(content),
        ) -> bytes:
            together.wait(30)
            try:
                stores[number].write(request.id, attempt, at, pieces[number])
            except InvalidWeights:
                return b""
            return pieces[number]

        with ThreadPoolExecutor(len(stores)) as pool:
            (won,) = [piece for piece in pool.map(write, range(len(stores))) if piece]
        content += won
    assert sent(stores[-1], 1) == content
    stores[0].forget(request.id)
    assert shared.left() == []


def test_another_announcement_under_an_id_begins_anew(shared: Shared) -> None:
    one, two = shared.open(), shared.open()
    first, second = announcement(1), announcement(1, checksum="1" * 64)
    one.begin("ada", first)
    old = one.get(first.id, "ada").attempt
    one.write(first.id, old, 0, b"old")
    with pytest.raises(UnknownModel):  # nor is it anybody else's
        two.begin("bob", first)
    with pytest.raises(UnknownModel):
        two.get(first.id, "bob")
    assert two.begin("ada", second) == 0
    with pytest.raises(InvalidWeights):  # whoever still sends the first
        one.write(first.id, old, 0, b"old")
    two.write(second.id, two.get(second.id, "ada").attempt, 0, b"new")
    assert sent(one, 1) == b"new"


def two_at_most(reserved: Sequence[Reserved]) -> None:
    if len(reserved) > 2:
        raise QuotaExceeded("two are allowed", "Wait.")


def test_a_quota_holds_over_processes(shared: Shared) -> None:
    """3 replicas kept 9 where 3 were allowed."""
    stores = [shared.open() for _ in range(3)]

    def announce(number: int) -> bool:
        try:
            stores[number % 3].begin("ada", announcement(number), two_at_most)
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(announce, range(12))) == 2
    assert len(stores[0].open()) == 2
    stores[1].begin("bob", announcement(98), two_at_most)  # another's are not in the way


def test_what_a_dead_client_began_gives_way(shared: Shared) -> None:
    one, two = shared.open(), shared.open()
    for number in range(2):
        one.begin("ada", announcement(number), two_at_most)
        one.write(announcement(number).id, one.get(announcement(number).id, "ada").attempt, 0, b"x" * 9)
    with pytest.raises(QuotaExceeded):
        two.begin("ada", announcement(9), two_at_most)
    shared.grow_old(0, 500.0)
    shared.grow_old(1, 1000.0)
    two.begin("ada", announcement(9), two_at_most)
    with pytest.raises(UnknownModel):
        one.get(announcement(1).id, "ada")  # the oldest
    assert one.get(announcement(0).id, "ada").offset == 9


def test_no_more_than_so_many_are_sent_at_once(shared: Shared) -> None:
    store = shared.open()
    for number in range(MOST_OPEN):
        store.begin("ada", announcement(number))
    with pytest.raises(TooManyRequests, match="32 models are being sent"):
        store.begin("ada", announcement(99))
    shared.grow_old(7)
    store.begin("ada", announcement(99))
    assert len(store.open()) == MOST_OPEN


def test_what_is_being_worked_on_stays(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the grace, and whichever process sweeps, or wants its room."""
    monkeypatch.setattr(base, "BEAT", 0.01)
    one, two = shared.open(), shared.open()
    for number in range(2):
        one.begin("ada", announcement(number), two_at_most)
    with one.working(announcement(0).id), one.working(announcement(0).id):
        for number in range(2):
            shared.grow_old(number)
        until = time.monotonic() + 60
        while (idle := _idle(shared, 0)) > 10:
            assert time.monotonic() < until, idle
            time.sleep(0.01)
        assert shared.sweep(two, 0.0) == 1
        assert [known.id for known in two.open()] == [announcement(0).id]
        two.begin("ada", announcement(2), two_at_most)
        with pytest.raises(QuotaExceeded):
            two.begin("ada", announcement(3), two_at_most)
    shared.grow_old(0)
    two.begin("ada", announcement(3), two_at_most)
    assert shared.sweep(one, 0.0) == 0, "what was announced just now"


def _idle(shared: Shared, number: int) -> float:
    identity = announcement(number).id
    if shared.parts is None:
        return time.time() - (shared._folder / "staging" / f"upload-{identity}" / "weights").stat().st_mtime
    return next(known.idle for known in shared.parts.open() if known.id == identity)


def test_what_is_left_behind_is_swept(shared: Shared) -> None:
    one, two = shared.open(), shared.open()
    for number in range(3):
        one.begin("ada", announcement(number))
        one.write(announcement(number).id, one.get(announcement(number).id, "ada").attempt, 0, b"x")
    if shared.parts is not None:  # a process died before its part counted, another after its upload had ended
        assert not shared.parts._count(announcement(0).id, "another", Part(0, 1, "staging/none"))
        put_whole(shared.parts._store, f"staging/{announcement(7).id}-dead/0-0", b"x")
    shared.grow_old(0)
    shared.grow_old(1, 600.0)
    assert shared.sweep(two, 1000.0) == 1
    assert {known.id for known in one.open()} == {announcement(1).id, announcement(2).id}
    assert len(shared.left()) == 2
    shared.grow_old(2)
    assert shared.sweep(two, 0.0) == 2
    assert shared.left() == []


def test_an_upload_that_ends_while_it_is_taken_in(shared: Shared) -> None:
    """Another process has completed it: there is no such upload any more, and that is what is said."""
    one, two = shared.open(), shared.open()
    one.begin("ada", announcement(1))
    attempt = one.get(announcement(1).id, "ada").attempt
    one.write(announcement(1).id, attempt, 0, b"abc")
    if shared.parts is not None:
        there = shared.parts.all(announcement(1).id)
        two.forget(announcement(1).id)
        with pytest.raises(UnknownModel):
            list(shared.parts.read(announcement(1).id, there[0]))
    else:
        two.forget(announcement(1).id)
    with pytest.raises(UnknownModel), one.staged(announcement(1).id):
        pass


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["write", "again", "dies", "announce"]), st.integers(1, 999)
        ),
        max_size=25,
    )
)
def test_whatever_happens_between_two_requests_the_bytes_are_those_that_were_acknowledged(
    steps: list[tuple[int, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Pieces that come twice, processes that die before a piece counts, announcements that are repeated."""
    blobs = Blobs("memory://")
    assert blobs.objects is not None
    database = Database("sqlite://")
    scratch = tmp_path_factory.mktemp("scratch")
    stores = [ObjectUploads(Parts(database, blobs, blobs.objects), scratch) for _ in range(3)]
    request, acknowledged = announcement(1), b""
    stores[0].begin("ada", request)
    attempt = stores[0].get(request.id, "ada").attempt
    for number, step, size in steps:
        store, piece, at = stores[number], os.urandom(size), len(acknowledged)
        if step == "write":
            store.write(request.id, attempt, at, piece)
            acknowledged += piece
        elif step == "again" and at:
            with pytest.raises(InvalidWeights):
                store.write(request.id, attempt, size % at, piece)
        elif step == "dies":
            put_whole(blobs.objects, f"staging/{request.id}-{attempt}/{at:020d}-{os.urandom(8).hex()}", piece)
        else:
            assert store.begin("ada", request) == at
        assert stores[size % 3].get(request.id, None).offset == len(acknowledged)
    assert sent(stores[-1], 1) == acknowledged
    stores[1].forget(request.id)
    assert [item for batch in blobs.objects.list("staging/") for item in batch] == []
    database.close()


# -- services that take requests in turn -----------------------------------------------------------


class Replicas:
    """Services of one zoo, each as on a machine of its own, with users."""

    def __init__(self, stack: ExitStack, folder: Path, number: int, **shared: Any) -> None:
        self._stack, self._folder = stack, folder
        self.coordinators = []
        self.urls = []
        for each in range(number):
            home = folder / ("zoo" if not shared else f"zoo-{each}")
            local = LocalCoordinator(Settings(home=str(home), threads=1, admission="off", **shared))
            stack.callback(local.close)
            self.coordinators.append(local)
            self.urls.append(stack.enter_context(serving(local, ServiceSettings(port=0))))
        self.accounts = self.coordinators[0].accounts

    def join(self, user: str, scope: str = "write", **quotas: Any) -> RemoteCoordinator:
        """A client whose requests go to all of them in turn."""
        self.accounts.add_user(user, **quotas)
        client, _ = spread(self.urls, self._folder / "spool", self.accounts.add_token(user, scope))
        self._stack.callback(client.close)
        return client


@pytest.fixture(params=["folder", "objects"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replicas]:
    shared = {}
    if request.param == "objects":
        names = {"catalog": "postgres_url", "blobs": "bucket"}
        shared = {setting: request.getfixturevalue(name) for setting, name in names.items()}
    with ExitStack() as stack:
        yield Replicas(stack, tmp_path, 3, **shared)


def staging(replicas: Replicas) -> list[str]:
    blobs = replicas.coordinators[0].zoo.blobs
    if blobs.staging is not None:
        return sorted(path.name for path in blobs.staging.iterdir())
    assert blobs.objects is not None
    return [str(item["path"]) for batch in blobs.objects.list("staging/") for item in batch]


def test_registrations_behind_round_robin(replicas: Replicas) -> None:
    """47 of 48 failed: an upload was known to the process where it began."""
    clients = [replicas.join(f"user-{number}", scope="admin") for number in range(3)]

    def register(number: int) -> Record:
        line = clients[number % 3]
        return line.register(GRAPH, told(f"n{number}"), tensors(GRAPH, number).items()).record

    with ThreadPoolExecutor(3) as pool:
        records = list(pool.map(register, range(9)))
    assert len({record.id for record in records}) == 9
    for coordinator in replicas.coordinators:
        assert coordinator.zoo.blobs.checksum(records[0].folder) == records[0].checksum
    assert staging(replicas) == []
    swept = clients[0].gc(grace=0, verify=True)
    assert (swept.damaged, swept.folders) == ((), ())


def test_an_upload_goes_on_anywhere_and_is_completed_once(replicas: Replicas) -> None:
    line = replicas.join("ada")
    entry = line.spool.keep(replicas.urls[0], GRAPH, told(), tensors(GRAPH).items(), "", "")
    request, whole = entry.waiting.request, entry.weights.read_bytes()
    headers = {"authorization": line._calls._headers["authorization"], "content-type": "application/json"}
    one, two, three = (
        httpx.Client(base_url=url + "/v1", headers=headers, timeout=60) for url in replicas.urls
    )
    body, place = msgspec.json.encode(request), f"/uploads/{request.id}"
    with one, two, three:
        assert one.post("/uploads", content=body).json()["offset"] == 0
        assert two.put(place, content=whole[:5000]).json()["offset"] == 5000
        assert three.put(place, params={"offset": 4000}, content=whole[4000:]).status_code == 409
        assert three.get(place).json()["offset"] == 5000
        assert one.post(f"{place}/complete").status_code == 410  # some are missing; they stay
        assert one.put(place, params={"offset": 5000}, content=whole[5000:]).json()["offset"] == len(whole)
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(lambda at: at.post(f"{place}/complete"), [one, two, three] * 2))
        assert [reply.status_code for reply in replies] == [200] * 6
        assert {reply.json()["registered"]["record"]["id"] for reply in replies} == {request.id}
        again = two.post("/uploads", content=body).json()
        assert again["registered"]["record"]["checksum"] == request.checksum
    assert staging(replicas) == []
    assert len(replicas.coordinators[0].models()) == 1


def test_a_quota_holds_over_services(replicas: Replicas) -> None:
    """9 models were kept where 3 were allowed."""
    line = replicas.join("ada", models=3)

    def register(number: int) -> bool:
        try:
            line.register(GRAPH, told(f"n{number}"), tensors(GRAPH, number).items())
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        done = sum(pool.map(register, range(9)))
    assert done == len(replicas.coordinators[0].models()) == 3


def test_what_was_damaged_on_its_way_is_sent_again(replicas: Replicas) -> None:
    line = replicas.join("ada")
    entry = line.spool.keep(replicas.urls[0], GRAPH, told(), tensors(GRAPH).items(), "", "")
    request, client = entry.waiting.request, line._calls.client
    json = {"content-type": "application/json"}
    client.post("/uploads", content=msgspec.json.encode(request), headers=json)
    client.put(f"/uploads/{request.id}", content=b"damaged", params={"offset": 0})
    assert line.send(entry).record.checksum == request.checksum


# -- a folder -------------------------------------------------------------------------------------


def test_nothing_goes_if_that_would_not_help(tmp_path: Path) -> None:
    store = FolderUploads(tmp_path)
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
    store = FolderUploads(tmp_path)
    for number in range(3):
        store.begin("mallory", announcement(number, program=b"x" * 10**6))
    read: list[str] = []
    monkeypatch.setattr(store, "_read", read.append)
    store.begin("ada", announcement(9))
    assert set(read) <= {announcement(9).id}
    assert sum(known.bytes for known in store.open() if known.owner == "mallory") > 3 * 10**6


def test_uploads_that_an_older_version_began_go_on(tmp_path: Path) -> None:
    store = FolderUploads(tmp_path)
    store.begin("ada", announcement(1))
    (tmp_path / f"upload-{1:016x}" / "reserved.json").unlink()
    assert store.open() == [Reserved(announcement(1).id, "ada", SIZE)]
    assert store.begin("ada", announcement(1)) == 0


def test_processes_take_turns(tmp_path: Path) -> None:
    """Another process on the same folder waits: both have a lock of their own."""
    first, second = FolderUploads(tmp_path), FolderUploads(tmp_path)
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
    store = FolderUploads(tmp_path)
    store.begin("ada", announcement(1))
    place = tmp_path / f"upload-{1:016x}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


def test_how_long_an_upload_may_rest_is_short() -> None:
    assert IDLE <= 60  # what a client waits, and `sync` of the same user after a crash
