"""Several coordinators over one PostgreSQL and one store that speaks S3: nothing acknowledged is lost."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import (
    CorruptWeights,
    ModelKeeperError,
    ModelRefused,
    ShardsUnreachable,
    StoreSilent,
    WrongStore,
    ZooUnusable,
)
from modelkeeper.meta import Query
from modelkeeper.server.serve import first_token, serving
from modelkeeper.server.service import STORING
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.stepping_out import in_place
from modelkeeper.warmstart.pipeline import LOST
from modelkeeper.zoo.catalog import catalog_reader
from modelkeeper.zoo.database import leases
from modelkeeper.zoo.files import stores
from modelkeeper.zoo.files.blobs import WEIGHTS, Blobs
from modelkeeper.zoo.records import Record, new_id
from modelkeeper.zoo.replicas.store_identity import MARKER
from tests.helpers import zoos
from tests.helpers.service import probe
from tests.zoo.files.test_stores import Item, Shelf

GRAPH = zoos.net(8, 16)
ASKED = Query(task=zoos.TASK, data=zoos.DATA)
WAIT = 60.0  # seconds that nothing here takes, unless it hangs

Opener = Callable[..., LocalCoordinator]


@pytest.fixture
def replica(postgres_url: str, bucket: str, tmp_path: Path) -> Iterator[Opener]:
    """Opens coordinators that share a catalog and a store, each as on a machine of its own."""
    with ExitStack() as stack:

        def open_one(**more: Any) -> LocalCoordinator:
            home = str(tmp_path / new_id())
            shared: dict[str, Any] = {"catalog": postgres_url, "blobs": bucket, "admission": "off"}
            coordinator = LocalCoordinator(Settings(home=home, threads=1, **(shared | more)))
            stack.callback(coordinator.close)
            return coordinator

        yield open_one


def lent(coordinator: LocalCoordinator, record: Record) -> bool:
    """Does a coordinator read the weights that were registered under this record?"""
    return coordinator.zoo.blobs.checksum(record.folder) == record.checksum


# -- publishing -----------------------------------------------------------------------------------


def test_of_two_that_complete_one_id_at_once_the_first_stays(replica: Opener) -> None:
    one, two = replica(), replica()
    one.zoo.expect_own_store()
    for turn in range(6):
        model, both = new_id(), threading.Barrier(2)

        def complete(
            coordinator: LocalCoordinator,
            model: str = model,
            both: threading.Barrier = both,
            turn: int = turn,
        ) -> Record | ModelKeeperError:
            both.wait(WAIT)
            name = "one" if coordinator is one else "two"
            try:
                return zoos.register(coordinator, GRAPH, f"{name}-{turn}", model_id=model)
            except ModelKeeperError as problem:
                return problem

        with ThreadPoolExecutor(2) as threads:
            done = list(threads.map(complete, (one, two)))
        (won,) = [each for each in done if isinstance(each, Record)]
        (lost,) = [each for each in done if not isinstance(each, Record)]
        assert isinstance(lost, ModelRefused)
        assert "taken" in str(lost)
        assert lent(one, won)
        assert lent(two, won)
    assert one.gc(grace=0, verify=True).damaged == ()
    folders = {folder for folder, _ in one.zoo.blobs.folders()}
    assert folders == {record.folder for record in one.models()}, "what lost is gone"


def test_the_same_model_sent_to_two_at_once_is_registered_once(replica: Opener) -> None:
    model, both = new_id(), threading.Barrier(2)

    def complete(coordinator: LocalCoordinator) -> Record:
        both.wait(WAIT)
        return zoos.register(coordinator, GRAPH, model_id=model)

    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(complete, (replica(), replica()))
    assert (one.key, one.folder) == (two.key, two.folder)


def test_a_service_says_that_an_id_is_taken(replica: Opener, tmp_path: Path) -> None:
    with (
        serving(replica(), ServiceSettings(auth=False, port=0)) as first,
        serving(replica(), ServiceSettings(auth=False, port=0)) as second,
    ):
        lines = [RemoteCoordinator(url, spool=tmp_path / "spool", timeout=WAIT) for url in (first, second)]
        entries = [
            line.spool.keep(url, GRAPH, zoos.told(), zoos.weights(GRAPH, seed).items(), "", "")
            for seed, (line, url) in enumerate(zip(lines, (first, second), strict=True))
        ]
        same = entries[0].waiting.request.id
        requests = [msgspec.structs.replace(entry.waiting.request, id=same) for entry in entries]
        for line, entry, request in zip(lines, entries, requests, strict=True):
            client, json = line._calls.client, {"content-type": "application/json"}
            client.post("/uploads", content=msgspec.json.encode(request), headers=json)
            client.put(
                f"/uploads/{same}",
                content=entry.weights.read_bytes(),
            )
        replies = [
            line._calls.client.post(f"/uploads/{same}/complete", params={"checksum": request.checksum})
            for line, request in zip(lines, requests, strict=True)
        ]
        body = msgspec.json.encode(requests[0])
        replies.append(client.post("/uploads", content=body, headers=json))
        for line in lines:
            line.close()
    assert "another model was announced" in replies[0].text, "the other's is not said to be theirs"
    statuses = [CorruptWeights.status, 200, ModelRefused.status]
    assert [reply.status_code for reply in replies] == statuses
    assert "taken" in replies[2].text


def test_a_folder_takes_no_other_folders_place(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    for content in (b"first", b"second"):
        try:
            with blobs.writing("models/0123456789abcdef") as folder:
                folder.write(WEIGHTS, [content])
                folder.publish()
        except ZooUnusable:
            assert content == b"second"
    assert blobs.read(f"models/0123456789abcdef/{WEIGHTS}") == b"first"


# -- sweeping -------------------------------------------------------------------------------------


def test_sweeping_leaves_what_others_are_writing(replica: Opener) -> None:
    writers, sweeper, done = [replica(), replica()], replica(), threading.Event()
    sweeper.zoo.expect_own_store()

    def sweep() -> None:
        while not done.is_set():
            assert sweeper.gc(grace=0).damaged == ()

    def write(coordinator: LocalCoordinator) -> list[Record]:
        return [zoos.register(coordinator, GRAPH, str(turn), model_id=new_id()) for turn in range(8)]

    with ThreadPoolExecutor(3) as threads:
        sweeping = threads.submit(sweep)
        try:
            records = [record for written in threads.map(write, writers) for record in written]
        finally:
            done.set()
        sweeping.result()
    assert all(lent(sweeper, record) for record in records)
    assert {record.id for record in sweeper.models()} == {record.id for record in records}
    assert not held(sweeper), "every lease was given back"


@pytest.mark.parametrize("where", ["s3", "folder"])
def test_a_writer_that_slept_too_long_is_told_and_loses_no_record(
    replica: Opener, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {} if where == "s3" else {"blobs": str(tmp_path / "store")}
    writer, sweeper = replica(**shared), replica(**shared)

    def tensors() -> Iterator[tuple[str, Any]]:
        yield from zoos.weights(GRAPH).items()
        assert len(held(sweeper)) == 1
        sweeper.gc(grace=-WAIT)

    with monkeypatch.context() as asleep:
        asleep.setattr(leases, "SECONDS", -1.0)  # each has run out when it is taken
        if where == "folder":
            with pytest.raises(ZooUnusable):  # its files are gone before it has written them
                writer.register(GRAPH, zoos.told(), tensors(), model_id=new_id())
        with pytest.raises(ZooUnusable, match="left behind"):
            _swept_before_its_record(writer, sweeper)
    assert writer.models() == []
    sweeper.gc(grace=-WAIT)
    assert list(sweeper.zoo.blobs.folders()) == []


def _swept_before_its_record(writer: LocalCoordinator, sweeper: LocalCoordinator) -> None:
    add = writer.zoo.catalog.add

    def late(*arguments: Any, **more: Any) -> Record:
        assert len(sweeper.gc(grace=-WAIT).folders) == 1
        return add(*arguments, **more)

    writer.zoo.catalog.add = late  # type: ignore[method-assign]
    zoos.register(writer, GRAPH)


def test_tidying_up_asks_the_store_for_lists_and_not_for_each_model(
    replica: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = replica()
    records = [zoos.register(coordinator, GRAPH, str(number)) for number in range(5)]
    monkeypatch.setattr(catalog_reader, "AT_A_TIME", 2)
    asked: list[str] = []
    weights = Blobs.weights

    def noting(self: Blobs, folder: str, size: int) -> Any:
        asked.append(folder)
        return weights(self, folder, size)

    monkeypatch.setattr(Blobs, "weights", noting)
    assert coordinator.gc(grace=0, user="ada").damaged == ()
    assert asked == []
    objects = coordinator.zoo.blobs.objects
    assert objects is not None
    objects.delete([f"{records[3].folder}/{WEIGHTS}"])
    objects.put(f"{records[4].folder}/{WEIGHTS}", iter([b"shorter"]))
    assert coordinator.gc(grace=0, user="ada").damaged == (records[3].id, records[4].id)
    assert set(asked) == {records[3].folder, records[4].folder}


def test_a_lease_is_renewed_while_its_holder_lives(replica: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEWED", 0.01)
    coordinator, renewed = replica(), threading.Event()

    def until() -> float:
        (row,) = held(coordinator)
        return float(row.until)

    def interrupted() -> None:
        with coordinator.zoo.leases.writing("models/0123456789abcdef"):
            first = until()
            for _ in range(6_000):
                if until() > first:
                    raise InterruptedError
                renewed.wait(0.01)

    with pytest.raises(InterruptedError):
        interrupted()
    assert held(coordinator) == []


def held(coordinator: LocalCoordinator) -> list[Any]:
    """The leases that there are."""
    with coordinator.zoo.catalog.database.reading() as connection:
        return list(connection.execute(sa.text("SELECT folder, until FROM leases")))


# -- the right store ------------------------------------------------------------------------------


def test_a_wrong_store_is_said_and_nothing_is_called_damaged(replica: Opener, bucket: str) -> None:
    right = replica()
    records = [zoos.register(right, GRAPH, str(number)) for number in range(3)]
    wrong = replica(blobs=bucket + "-other")
    with (
        pytest.raises(WrongStore, match="is not the one that the catalog belongs to"),
        serving(wrong, ServiceSettings(auth=False, port=0)),
    ):
        pass
    for act in (
        lambda: wrong.query(GRAPH, ASKED),
        lambda: wrong.gc(grace=0, verify=True),
        lambda: zoos.register(wrong, GRAPH),
        wrong.ready,
    ):
        with pytest.raises(WrongStore):
            act()
    assert {record.id for record in right.models()} == {record.id for record in records}
    assert right.query(GRAPH, ASKED).answer.parent is not None
    assert right.gc(grace=0, verify=True).damaged == ()


def test_a_second_catalog_does_not_get_the_store(replica: Opener, tmp_path: Path) -> None:
    zoos.register(replica(), GRAPH)
    other = replica(catalog=f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(WrongStore, match="another catalog"):
        other.gc(grace=0)


def test_a_catalog_from_before_there_were_markers_finds_its_store(replica: Opener, bucket: str) -> None:
    zoo = replica().zoo
    coordinator = replica()
    zoos.register(coordinator, GRAPH)
    with zoo.catalog.database.writing() as connection:
        connection.execute(sa.text("DELETE FROM facts"))
    zoo.blobs._store.delete([MARKER])
    with pytest.raises(WrongStore):
        replica(blobs=bucket + "-other").zoo.expect_own_store()
    replica().zoo.expect_own_store()
    assert zoo.blobs.read(MARKER)


# -- starting -------------------------------------------------------------------------------------


def test_many_that_start_at_once_make_one_catalog_and_one_account(replica: Opener) -> None:
    all_at_once = threading.Barrier(4)

    def start(_: int) -> str | None:
        all_at_once.wait(WAIT)
        coordinator = replica()
        coordinator.zoo.expect_own_store()
        return first_token(coordinator)

    with ThreadPoolExecutor(4) as threads:
        tokens = [token for token in threads.map(start, range(4)) if token is not None]
    accounts = replica().accounts
    assert len(tokens) == len(accounts.tokens()) == len(accounts.users()) == 1
    assert accounts.holder(tokens[0]) is not None


def test_a_parent_that_another_removes_while_it_is_streamed_is_said_to_be_gone(
    replica: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts a training then tries the next one: 41 of 50 MB were missing, and it was given up."""
    serves, removes = replica(), replica()
    first = zoos.register(serves, GRAPH, "first")
    second = zoos.register(serves, GRAPH, "second")
    read, reads = Blobs._range, 0

    def removing(self: Blobs, path: str, offset: int, length: int) -> Any:
        nonlocal reads
        reads += 1
        if reads == 4:
            removes.remove(first.id)
        return read(self, path, offset, length)

    with serving(serves, ServiceSettings(auth=False, port=0)) as url:
        line = RemoteCoordinator(url, spool=tmp_path / "spool", timeout=WAIT)
        found = line.query(GRAPH, ASKED)
        lender = {first.id: first, second.id: second}[str(found.answer.parent)]
        first, second = lender, {first.id: second, second.id: first}[lender.id]
        monkeypatch.setattr(Blobs, "_range", removing)
        with pytest.raises(LOST):
            dict(found.weights())
        again = line.query(GRAPH, ASKED)
        assert again.answer.parent == second.id
        assert dict(again.weights()).keys() == zoos.weights(GRAPH, 0).keys()
        line.close()


# -- a store that hangs ---------------------------------------------------------------------------


class Hanging(Shelf):
    """A store that answers no more when it is told so, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.goes, self.waiting = threading.Event(), threading.Semaphore(0)
        self.goes.set()

    def _wait(self) -> None:
        if not self.goes.is_set():
            self.waiting.release()
            assert self.goes.wait(WAIT)

    def put(self, path: str, file: Iterator[bytes | memoryview]) -> None:
        self._wait()
        super().put(path, file)

    def get(self, path: str, *, options: Any = None) -> Item:
        self._wait()
        return super().get(path, options=options)

    def delete(self, paths: Any) -> None:
        self._wait()
        super().delete(paths)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """What hanging:// opens."""
    from modelkeeper.zoo.files.stores import STORES, register

    store = Hanging()
    register("hanging", lambda url: store)
    yield store
    store.goes.set()
    STORES.remove("hanging")


def test_a_store_that_hangs_holds_up_nobody_elsewhere(replica: Opener, hanging: Hanging) -> None:
    """One sweeps, one registers and one removes, and none comes back; the catalog is free for all others."""
    stuck, other = replica(blobs="hanging://zoo"), replica(blobs="hanging://zoo")
    record = zoos.register(stuck, GRAPH)
    hanging.items["models/0123456789abcdef/debris"] = b""
    with ThreadPoolExecutor(3) as threads:
        hanging.goes.clear()
        waiting: list[Future[Any]] = [
            threads.submit(other.gc, grace=0),
            threads.submit(zoos.register, stuck, GRAPH, "late"),
            threads.submit(stuck.remove, record.id),
        ]
        for _ in waiting:
            assert hanging.waiting.acquire(timeout=WAIT)
        with other.zoo.catalog.database.writing() as connection:  # what everybody's registration waits for
            connection.execute(sa.text("SET LOCAL lock_timeout = '20s'"))
            connection.execute(sa.text("SELECT value FROM clock FOR UPDATE"))
        assert not any(each.done() for each in waiting)
        with pytest.raises(StoreSilent, match="has not answered"):
            other.ready()
        hanging.goes.set()
        for each in waiting:
            each.result(WAIT)
    assert [each.name for each in other.models()] == ["late"]
    other.ready()


@pytest.mark.parametrize(
    "call",
    [
        lambda blobs: blobs.names("models/0123456789abcdef"),
        lambda blobs: list(blobs.folders()),
        lambda blobs: blobs.create("marker", b"text"),
        lambda blobs: blobs.delete("models/0123456789abcdef"),
        lambda blobs: blobs.ask(),
    ],
    ids=["names", "folders", "create", "delete", "ask"],
)
def test_whoever_asks_a_store_steps_out_of_their_pool(
    hanging: Hanging, call: Callable[[Blobs], object]
) -> None:
    steps: list[str] = []

    def leave() -> bool:
        steps.append("left")
        return True

    with in_place(leave, lambda: steps.append("back")):
        call(Blobs("hanging://zoo"))
    assert steps
    assert steps == ["left", "back"] * (len(steps) // 2)


def test_what_a_query_waits_for_fails_soon_at_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes connections and never answers, while large pieces would have an hour."""
    monkeypatch.setattr(stores, "DEADLINE", timedelta(hours=1))
    monkeypatch.setattr(stores, "SOON", timedelta(seconds=0.3))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        given = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x"}
        for name, value in {**given, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
            monkeypatch.setenv(name, value)
        blobs = Blobs("s3://zoo/models")
        for call in (
            lambda: blobs.weights("models/0123456789abcdef", 10),
            lambda: blobs.read("models/0123456789abcdef/graph.json"),
            lambda: blobs._range(f"models/0123456789abcdef/{WEIGHTS}", 0, 8),
            lambda: next(blobs.chunks(f"models/0123456789abcdef/{WEIGHTS}")),
        ):
            with pytest.raises(ZooUnusable, match="failed"):
                call()


def test_whoever_looks_for_shards_holds_up_nobody_who_needs_the_store(
    replica: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo, looking, goes_on = replica(shards="ray://head:10001").zoo, threading.Event(), threading.Event()

    def slowly(settings: Settings) -> None:
        looking.set()
        assert goes_on.wait(WAIT)
        raise ShardsUnreachable("ray://head:10001", "it does not answer", "Start it.")

    monkeypatch.setattr("modelkeeper.zoo.index.shards.open_shards", slowly)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(zoo.index)
        assert looking.wait(WAIT)
        zoo.expect_store()
        assert zoo.blobs.objects is not None
        assert not found.done()
        goes_on.set()
        assert isinstance(found.exception(WAIT), ShardsUnreachable)


def test_downloads_that_wait_for_a_store_keep_nobody_from_what_needs_none(
    replica: Opener, hanging: Hanging, tmp_path: Path
) -> None:
    """More of them than there are threads; each says later what it had to."""
    coordinator = replica(blobs="hanging://zoo")
    record = zoos.register(coordinator, GRAPH)
    whole, hanging_range = hanging.items[f"{record.folder}/{WEIGHTS}"], hanging.get_range

    def get_range(path: str, *, start: int, length: int) -> bytes:
        if length == len(whole):  # the file itself; who reads its header alone has an answer
            hanging._wait()
        return hanging_range(path, start=start, length=length)

    hanging.get_range = get_range  # type: ignore[method-assign]
    hanging.head = lambda path: {"size": len(hanging.items[path])}  # type: ignore[method-assign]
    with serving(coordinator, ServiceSettings(auth=False, port=0)) as url, ExitStack() as stack:
        line = RemoteCoordinator(url, timeout=WAIT, spool=tmp_path / "spool")
        stack.callback(line.close)
        stack.callback(hanging.goes.set)
        entry = line.spool.keep(url, GRAPH, zoos.told(), zoos.weights(GRAPH, 5).items(), "", "")
        request = entry.waiting.request
        body, json = msgspec.json.encode(request), {"content-type": "application/json"}
        assert line._calls.client.post("/uploads", content=body, headers=json).is_success
        probe(url)
        hanging.goes.clear()
        place = f"{url}/v1/models/{record.id}/{WEIGHTS}"
        streams = [stack.enter_context(httpx.stream("GET", place, timeout=WAIT)) for _ in range(STORING + 6)]
        assert hanging.waiting.acquire(timeout=WAIT)
        assert line.query(GRAPH, ASKED, dry_run=True).answer.parent == record.id
        assert line._calls.client.get(f"/uploads/{request.id}").json()["offset"] == 0
        hanging.goes.set()
        assert {stream.read() for stream in streams} == {whole}


def test_queries_that_wait_for_a_store_keep_nobody_from_a_dry_run(replica: Opener, hanging: Hanging) -> None:
    coordinator = replica(blobs="hanging://zoo")
    zoos.register(coordinator, GRAPH)
    coordinator.zoo._verified.clear()
    hanging_range, waits = hanging.get_range, 4

    def get_range(path: str, *, start: int, length: int) -> bytes:
        hanging._wait()
        return hanging_range(path, start=start, length=length)

    hanging.get_range = get_range  # type: ignore[method-assign]
    with serving(coordinator, ServiceSettings(auth=False, port=0)) as url:
        lines = [RemoteCoordinator(url, timeout=WAIT) for _ in range(waits + 1)]
        probe(url)
        hanging.goes.clear()
        with ThreadPoolExecutor(waits) as threads:
            asked = [threads.submit(line.query, GRAPH, ASKED) for line in lines[:waits]]
            assert hanging.waiting.acquire(timeout=WAIT)
            assert lines[-1].query(GRAPH, ASKED, dry_run=True).answer.parent is not None
            ready = httpx.get(f"{url}/readyz", timeout=WAIT)
            assert (ready.status_code, "its store does not answer" in ready.text) == (503, True)
            assert not any(each.done() for each in asked)
            hanging.goes.set()
            assert all(each.result(WAIT).answer.parent for each in asked)
        for line in lines:
            line.close()


# -- a parent that goes while it is read ----------------------------------------------------------


@pytest.mark.parametrize("served", [False, True])
def test_a_parent_that_is_removed_while_it_is_read_gives_way_to_the_next(
    replica: Opener, served: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from modelkeeper.client import ModelKeeperClient
    from tests.test_client import META, give, net

    here, elsewhere = replica(), replica()
    with ExitStack() as stack:
        url = ":memory:"
        if served:
            url = stack.enter_context(serving(here, ServiceSettings(auth=False, port=0)))
        client = stack.enter_context(ModelKeeperClient(url, on_error="raise"))
        if not served:
            monkeypatch.setattr(type(client), "coordinator", here)
        best = give(client, net(seed=1), 0.95, name="best")
        other = give(client, net(16, seed=2), 0.8, name="next")
        query = client.coordinator.query

        def then_removed(*arguments: Any, **more: Any) -> Any:
            loan = query(*arguments, **more)
            if loan.answer.parent == best.id:
                elsewhere.remove(best.id)
            return loan

        monkeypatch.setattr(client.coordinator, "query", then_removed)
        _, meta = client.query_for_model(net(seed=3), meta=META)
        assert meta.parent == other.id
        assert "best could not be read to the end" in meta.warnings[0]


def test_no_stream_that_broke_is_taken_for_whole(replica: Opener, tmp_path: Path) -> None:
    here, elsewhere = replica(), replica()
    record = zoos.register(here, GRAPH)
    loan = here.query(GRAPH, ASKED)
    elsewhere.remove(record.id)
    with pytest.raises(ModelKeeperError, match="missing"):
        dict(loan.weights())
    with serving(here, ServiceSettings(auth=False, port=0)) as url:
        line = RemoteCoordinator(url, spool=tmp_path / "spool", timeout=WAIT)
        second = zoos.register(elsewhere, GRAPH, "second")
        found = line.query(GRAPH, ASKED)
        elsewhere.remove(second.id)
        with pytest.raises(ModelKeeperError):
            dict(found.weights())
        assert line.query(GRAPH, ASKED).answer.cold
        line.close()
