"""How is PostgreSQL spoken to, so that nobody waits for one that hangs, and that long work is not cut?

    line = Line(limits)
    engine = sa.create_engine(url, **line.options(url))
    line.speak(engine)              from here on waits end when the database is silent
    line.expect(3.0)                or CatalogSilent: does it answer?
    with unhurried(): ...           what this thread does now may take as long as it takes

A database that was stopped, or whose machine is gone, ends no connection: who waits for its answer would wait
for ever. So whoever waits for more than a moment lets another connection ask for anything at all. As long as
that is answered, the wait goes on: a statement may take long, and PostgreSQL itself ends it (`statement`,
`lock`). If nothing is answered for `patience` seconds, the waits end with CatalogSilent, connections that
waited are closed, and nobody begins to wait until that one question is answered. What such a transaction had
asked for last may still be done when the database goes on, as when a line breaks: whoever was told nothing
asks again, by the same id.
"""

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import sqlalchemy as sa

from modelkeeper.errors import CatalogSilent, ZooUnusable
from modelkeeper.settings import CatalogLimits
from modelkeeper.zoo.database.watch import AGAIN, Watch

SLOW = 0.5  # seconds after which whoever waits asks whether the database answers at all
KEPT = 5  # connections that stay open when nobody needs them
LONGEST = 130  # seconds to connect, where nobody hurries
TURN = 10.0  # seconds that a thread waits for its turn when all connections are in use
# A machine that is gone, or a line that swallows everything, breaks also those waits that nobody hurries.
ALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
_pace = threading.local()


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """While the block runs, no wait of this thread is cut: for what looks through a whole zoo."""
    before, _pace.long = is_unhurried(), True
    try:
        yield
    finally:
        _pace.long = before


def is_unhurried() -> bool:
    """May what this thread does take as long as it takes?"""
    return bool(getattr(_pace, "long", False))


class Line:
    """The line to one PostgreSQL, spoken to by psycopg. Safe to use from several threads."""

    def __init__(self, limits: CatalogLimits) -> None:
        self._limits, self.where = limits, ""
        self._engine: sa.Engine | None = None
        self._asking, self._closed = threading.Lock(), False
        self._apart: Any = None  # the connection that asks
        self.watch = Watch(self._ask, self._silent)

    def options(self, url: str | sa.URL) -> dict[str, Any]:
        """What an engine is made with; what the URL or the environment says goes first."""
        said = sa.make_url(url).query
        limits = self._limits
        arguments: dict[str, Any] = {"connect_timeout": max(2, math.ceil(limits.patience)), **ALIVE}
        if "PGCONNECT_TIMEOUT" in os.environ:
            del arguments["connect_timeout"]
        arguments = {name: value for name, value in arguments.items() if name not in said}
        ours = f"-c statement_timeout={limits.statement * 1000:.0f} -c lock_timeout={limits.lock * 1000:.0f}"
        theirs = said.get("options", os.environ.get("PGOPTIONS", ""))
        arguments["options"] = " ".join(
            [ours, theirs if isinstance(theirs, str) else " ".join(theirs)]
        ).strip()
        kept = min(KEPT, limits.connections)
        bounds = {"pool_size": kept, "max_overflow": limits.connections - kept, "pool_timeout": TURN}
        return {"pool_pre_ping": True, "connect_args": arguments, **bounds}

    def speak(self, engine: sa.Engine) -> None:
        """Let the connections of an engine end their waits when the database is silent."""
        self._engine, self.where = engine, engine.url.render_as_string(hide_password=True)

        @sa.event.listens_for(engine, "do_connect")
        def connect(_: Any, __: Any, positional: Any, named: Any) -> Any:
            if is_unhurried():  # also the watch itself: its question stays open
                named = {**named, "connect_timeout": LONGEST}
            elif owed := self.watch.silent(self._limits.patience):
                raise _silence()(owed)
            connection = _connected(positional, named)
            connection.watched = self.watch, self._limits.patience
            return connection

        @sa.event.listens_for(engine, "begin")
        def begin(connection: sa.Connection) -> None:
            if is_unhurried():
                connection.exec_driver_sql(_WITHOUT_LIMITS)

    def expect(self, seconds: float) -> None:
        """Return if the database answers within so many seconds.

        Raises:
            CatalogSilent: It does not.
            ZooUnusable: It answers that something is wrong.
        """
        self.watch.expect(min(seconds, self._limits.patience))

    def renew(self) -> object:
        """In a forked child: another watch. The parent's connection, which is not to be closed here."""
        inherited, self._apart = self._apart, None
        self._asking, self.watch = threading.Lock(), Watch(self._ask, self._silent)
        return inherited

    def close(self) -> None:
        """Let go of the connection that asks; while it does, it closes itself."""
        self._closed = True
        if self._asking.acquire(blocking=False):
            try:
                self._hang_up()
            finally:
                self._asking.release()

    def _ask(self) -> None:
        """Ask for anything, on a connection that nobody else needs, and wait as long as it takes."""
        assert self._engine is not None
        with self._asking, unhurried():
            if self._apart is not None and not _answers(self._apart):  # it may have been restarted
                self._hang_up()
            if self._apart is None:
                self._apart = self._connect(self._engine)
                if not _answers(self._apart):
                    self._hang_up()
                    problem = "its catalog's database ends every connection"
                    raise ZooUnusable(self.where, problem, "Look into its log.")
            if self._closed:
                self._hang_up()

    def _connect(self, engine: sa.Engine) -> Any:
        import psycopg

        try:
            connection = apart(engine)
            connection.autocommit = True
            return connection
        except psycopg.Error as problem:
            text = str(problem).strip().partition("\n")[0]
            raise ZooUnusable(self.where, text, "Check that it runs and can be reached.") from problem

    def _hang_up(self) -> None:
        connection, self._apart = self._apart, None
        if connection is not None:
            connection.close()

    def _silent(self, seconds: float) -> CatalogSilent:
        return silent(self.where, seconds)


def silent(where: str, seconds: float) -> CatalogSilent:
    """The error of a database that has not answered for so long."""
    problem = f"its catalog's database has not answered for {seconds:.0f} s"
    return CatalogSilent(where, problem, "Check that it runs and can be reached.")


def apart(engine: sa.Engine) -> Any:
    """A connection of the driver that is nobody else's; whoever asked for it closes it."""
    connection = engine.raw_connection()
    connection.detach()
    return connection.dbapi_connection


def _answers(connection: Any) -> bool:
    """Does the database answer anything on a connection, however late?"""
    import psycopg

    try:
        return bool(connection.execute("SELECT 1").fetchall())
    except psycopg.Error:
        return False


# No query: a transaction may still be told to see but one state of the database.
_WITHOUT_LIMITS = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"


@functools.cache
def _silence() -> type[Exception]:
    """What a wait ends with, as an error of the driver, so that SQLAlchemy knows what to do."""
    import psycopg

    class Silence(psycopg.OperationalError):
        def __init__(self, silent: float) -> None:
            super().__init__(f"the database has not answered for {silent:.0f} s")
            self.silent = silent  # seconds

    return Silence


def _connected(positional: Any, named: Any) -> Any:
    from psycopg.errors import ConnectionTimeout

    begun = time.monotonic()
    try:
        return _impatient().connect(*positional, **named)
    except ConnectionTimeout as problem:
        raise _silence()(time.monotonic() - begun) from problem


@functools.cache
def _impatient() -> Any:
    """A connection of psycopg whose waits end when the database is silent."""
    import psycopg

    class Impatient(psycopg.Connection[Any]):
        watched: tuple[Watch, float] | None = None

        def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
            # Whoever names a timeout waits for nothing in particular: for what the database tells.
            if self.watched is None or more.get("timeout") is not None or is_unhurried():
                return super().wait(gen, *arguments, **more)
            return super().wait(self._watching(gen, *self.watched), *arguments, **more)

        def _watching(self, gen: Any, watch: Watch, patience: float) -> Generator[Any, Any, Any]:
            """The same steps; between those in which nothing came, see whether anything comes at all."""
            begun = time.monotonic()
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    now = time.monotonic()
                    if not ready and now - begun > SLOW:
                        watch.look()
                        owed = now - max(begun + SLOW, watch.answered + AGAIN)
                        if owed > patience:
                            self.pgconn.finish()  # what comes now is nobody's any more
                            raise _silence()(owed)
                    wanted = gen.send(ready)
            except StopIteration as done:
                return done.value

    return Impatient
