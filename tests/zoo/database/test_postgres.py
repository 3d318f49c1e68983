"""PostgreSQL that hangs, is slow or busy: nobody waits for ever, and long work is not cut."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import CatalogSilent, ModelKeeperError, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.server.serve import serving
from modelkeeper.settings import CatalogLimits, ServiceSettings, Settings
from modelkeeper.zoo.database import postgres as postgres_module
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.postgres import Line, unhurried
from tests.helpers import zoos
from tests.helpers.backends import empty_database
from tests.helpers.parts import Postgres, or_skip, wait_until
from tests.helpers.service import probe

GRAPH = zoos.net(8, 16)
ASKED = Query(task=zoos.TASK, data=zoos.DATA)
WAIT = 60.0  # seconds that nothing here takes, unless it hangs


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A PostgreSQL that nobody else uses, since it is made to hang."""
    with or_skip():
        made = Postgres()
    with made:
        yield made


@pytest.fixture
def url(server: Postgres) -> Iterator[str]:
    with empty_database(str(server.folder)) as url:
        yield url


def told(database: Database, name: str) -> str:
    """A setting of the database, as a transaction of now has it."""
    with database.reading() as connection:
        return str(connection.scalar(sa.text(f"SHOW {name}")))


def zoo(folder: Path, url: str, **more: Any) -> Settings:
    return Settings(home=str(folder / "zoo"), catalog=url, blobs=str(folder / "store"), threads=1, **more)


def answered(database: Database) -> bool:
    """Does the database owe no answer to who watches it?"""
    assert database._line is not None
    return not database._line.watch.silent(0)


def sleep(database: Database, seconds: float) -> None:
    with database.reading() as connection:
        connection.execute(sa.text(f"SELECT pg_sleep({seconds})"))


# -- a database that hangs ------------------------------------------------------------------------


def test_a_service_says_that_its_database_hangs_and_goes_on_with_it(
    server: Postgres, url: str, tmp_path: Path
) -> None:
    settings = zoo(tmp_path, url, catalog_patience=1.0)
    with ExitStack() as stack:
        coordinator = stack.enter_context(closing(LocalCoordinator(settings)))
        record = zoos.register(coordinator, GRAPH)
        at = stack.enter_context(serving(coordinator, ServiceSettings(auth=False, port=0)))
        line = stack.enter_context(closing(RemoteCoordinator(at, spool=tmp_path / "spool", timeout=WAIT)))
        probe(at)
        assert line.query(GRAPH, ASKED).answer.parent == record.id
        with server.frozen():
            reply = httpx.get(f"{at}/readyz", timeout=WAIT)
            assert (reply.status_code, reply.json()["code"]) == (503, "catalog_silent")
            assert "its catalog's database does not answer" in reply.json()["message"]
            with pytest.raises(ModelKeeperError, match="database does not answer"):
                line.query(GRAPH, ASKED)
            with pytest.raises(ModelKeeperError, match="database does not answer"):
                line.models()
            assert httpx.get(f"{at}/healthz", timeout=WAIT).status_code == 200
        probe(at)
        assert line.query(GRAPH, ASKED).answer.parent == record.id
        zoos.register(coordinator, GRAPH, "after")
        assert {each.name for each in line.models()} == {record.name, "after"}


def test_a_training_starts_cold_while_the_database_hangs(server: Postgres, url: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from modelkeeper.client import ModelKeeperClient
    from tests.test_client import META, give, net

    settings = zoo(tmp_path, url, catalog_patience=1.0)
    with ExitStack() as stack:
        coordinator = stack.enter_context(closing(LocalCoordinator(settings)))
        at = stack.enter_context(serving(coordinator, ServiceSettings(auth=False, port=0)))
        probe(at)
        client = stack.enter_context(ModelKeeperClient(at, spool=str(tmp_path / "spool"), timeout=WAIT))
        parent = give(client, net(seed=1), 0.95, name="parent")
        with server.frozen(), pytest.warns(UserWarning, match="database does not answer"):
            _, meta = client.query_for_model(net(seed=2), meta=META)
        assert meta.parent is None
        probe(at)
        _, meta = client.query_for_model(net(seed=2), meta=META)
        assert meta.parent == parent.id


def test_whoever_waits_in_the_middle_is_told_and_others_are_told_at_once(server: Postgres, url: str) -> None:
    """Many more than there are connections; and what is not hurried goes on when the database does."""
    with closing(Database(url, CatalogLimits(patience=1.0, connections=2))) as database:
        begun, frozen = threading.Barrier(3), threading.Event()

        def hurried() -> None:
            with database.reading() as connection:
                connection.execute(sa.text("SELECT 1"))
                begun.wait(WAIT)
                assert frozen.wait(WAIT)
                connection.execute(sa.text("SELECT 2"))

        def patient() -> None:
            with unhurried():
                hurried()

        def late() -> None:
            assert frozen.wait(WAIT)
            sleep(database, 0)

        with ThreadPoolExecutor(10) as threads:
            cut, stays = threads.submit(hurried), threads.submit(patient)
            begun.wait(WAIT)
            others = [threads.submit(late) for _ in range(8)]
            with server.frozen():
                frozen.set()
                assert isinstance(cut.exception(WAIT), CatalogSilent)
                assert all(isinstance(each.exception(WAIT), CatalogSilent) for each in others)
                assert not stays.done()
            stays.result(WAIT)
        wait_until(lambda: answered(database), "the answer")
        sleep(database, 0)


def test_a_database_that_is_slow_but_answers_cuts_nobody(url: str) -> None:
    with closing(Database(url, CatalogLimits(patience=0.2))) as database:
        sleep(database, postgres_module.SLOW + 1.5)


def test_nobody_is_told_that_it_is_silent_when_it_is_down(server: Postgres) -> None:
    with closing(Database(f"postgresql+psycopg://postgres@/postgres?host={server.folder}")) as database:
        database.expect(WAIT)
        server.stop()
        try:
            with pytest.raises(ZooUnusable) as raised:
                database.expect(WAIT)
            assert not isinstance(raised.value, CatalogSilent)
        finally:
            server.start()
        database.expect(WAIT)
        sleep(database, 0)


# -- limits ---------------------------------------------------------------------------------------


def test_statements_and_locks_have_limits_but_for_long_work(url: str) -> None:
    with closing(Database(url, CatalogLimits(statement=0.2, lock=0.1))) as database:
        with pytest.raises(ZooUnusable, match="statement timeout"):
            sleep(database, WAIT)
        with unhurried():
            sleep(database, 0.5)
        assert told(database, "statement_timeout") == "200ms", "for that transaction alone"
        with database.writing() as one:
            one.execute(sa.text("SELECT value FROM clock FOR UPDATE"))
            with pytest.raises(ZooUnusable, match="lock timeout"), database.writing() as other:
                other.execute(sa.text("SELECT value FROM clock FOR UPDATE"))
        with database._migrating() as connection:
            for name in ("statement_timeout", "lock_timeout"):
                assert connection.scalar(sa.text(f"SHOW {name}")) == "0"


def long_works(coordinator: LocalCoordinator, folder: Path) -> list[Callable[[], object]]:
    from modelkeeper.zoo.care.backup import backup
    from modelkeeper.zoo.care.verify import verify

    return [
        lambda: coordinator.gc(grace=0, verify=True),
        lambda: verify(coordinator.zoo),
        lambda: backup(coordinator.zoo, folder),
    ]


def test_long_work_is_unhurried(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = zoo(tmp_path, url)
    with closing(LocalCoordinator(settings)) as coordinator:
        zoos.register(coordinator, GRAPH)
        find, seen = coordinator.zoo.catalog.find, []

        def noting(*arguments: object, **more: object) -> object:
            seen.append(told(coordinator.zoo.catalog.database, "statement_timeout"))
            return find(*arguments, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(coordinator.zoo.catalog, "find", noting)
        for work in long_works(coordinator, tmp_path / "backup"):
            seen.clear()
            work()
            assert set(seen) == {"0"}
        assert told(coordinator.zoo.catalog.database, "statement_timeout") == "1min"


def test_connections_have_a_bound(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "TURN", 0.1)
    with (
        closing(Database(url, CatalogLimits(connections=2))) as database,
        database.reading(),
        database.reading(),
        pytest.raises(ZooUnusable, match="limit of size 2"),
        database.reading(),
    ):
        pass


def test_what_a_url_or_the_environment_says_goes_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "&connect_timeout=7&keepalives_idle=99&options=-c%20lock_timeout%3D7s"
    arguments = Line(CatalogLimits()).options(url + more)["connect_args"]
    assert not {"connect_timeout", "keepalives_idle"} & arguments.keys()
    assert arguments["keepalives_count"] == 3
    with closing(Database(url + more)) as database:
        assert (told(database, "lock_timeout"), told(database, "statement_timeout")) == ("7s", "1min")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=5MB")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    assert "connect_timeout" not in Line(CatalogLimits()).options(url)["connect_args"]
    with closing(Database(url)) as database:
        assert (told(database, "work_mem"), told(database, "lock_timeout")) == ("5MB", "30s")


def test_a_frozen_server_answers_when_it_is_let_go(server: Postgres, url: str) -> None:
    with closing(Database(url, CatalogLimits(patience=0.5))) as database:
        with server.frozen(), pytest.raises(CatalogSilent, match="has not answered"):
            database.expect(WAIT)
        wait_until(lambda: answered(database), "the answer")
        database.expect(WAIT)
