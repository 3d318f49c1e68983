"""How is a catalog's database spoken to? SQLite so that many processes can share it, others as they are.

    database = Database(Path("zoo/catalog.db"))         or a URL; its schema is up to date from here on
    with database.reading() as connection: ...
    with database.writing() as connection: ...          all of it or nothing

Threads and processes may share one database, also forked ones. Writers of SQLite take turns from the start
of a transaction (BEGIN IMMEDIATE), readers are never kept waiting (WAL); what was committed survives a power
cut. A file that may not be written to is read all the same, and so is one on a disk without a free byte.
Whatever goes wrong with a database is a `ZooUnusable` that names it.
"""

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from modelkeeper.errors import CorruptCatalog, ReadOnlyZoo, ZooUnusable
from modelkeeper.settings import CatalogLimits
from modelkeeper.zoo.database import schema
from modelkeeper.zoo.database.forks import passing, renew_after_fork
from modelkeeper.zoo.database.postgres import Line, apart, silent, unhurried
from modelkeeper.zoo.database.read_only import BUSY, ReadOnly, may_write
from modelkeeper.zoo.files.rights import as_its_folder
from modelkeeper.zoo.files.unusable import CORRUPT_ADVICE, cannot_open, zoo_unusable

_inherited: list[object] = []  # in a forked child: connections of the parent, which are not to be closed here


class Database:
    """Transactions on one database. Safe to use from several threads."""

    def __init__(self, place: str | Path, limits: CatalogLimits | None = None) -> None:
        """Open a SQLite file by its path, or a database by its SQLAlchemy URL; bring its schema up to date.

        `limits` are those of a PostgreSQL.

        Raises:
            ZooUnusable: It cannot be reached, or a newer modelkeeper made it.
        """
        self.file = place if isinstance(place, Path) else _file_of(place)
        self.read_only = self.file is not None and not may_write(self.file)
        in_memory = place in ("sqlite://", "sqlite:///:memory:")  # it ends with its only connection
        # Threads take turns then.
        self._turn: Any = threading.RLock() if in_memory else contextlib.nullcontext()
        self._source = ReadOnly(self.file) if self.file is not None else None
        with passing():
            self._line = Line(limits or CatalogLimits()) if _is_postgres(place) else None
            source = self._source if self.read_only else None
            self._engine = _open_engine(place, self.file, source, self._line)
        self._aside: sa.Engine | None = None
        self.where = self._engine.url.render_as_string(hide_password=True)
        renew_after_fork(self, Database._renew)
        try:
            self._prepare_schema()
        except ZooUnusable:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        if self._line is not None:
            self._line.close()
        self._engine.dispose()
        if self._source is not None:
            self._source.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads."""
        with passing(), self._turn, self._translated(), self._connected() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes: committed when the block ends, undone if it raises.

        Raises:
            ReadOnlyZoo: It may not be written to.
        """
        self.expect_writable()
        with passing(), self._turn, self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(modelkeeper_begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    def expect_writable(self) -> None:
        """Raise ReadOnlyZoo if nothing may be written."""
        if self.read_only:
            problem = "it may only be read here: its folder or its file cannot be written to"
            raise ReadOnlyZoo(self.where, problem, "Ask its owner, or register into a zoo of your own.")

    @property
    def tells(self) -> bool:
        """Does it tell whoever listens what others have committed: PostgreSQL, by psycopg?"""
        return self._engine.dialect.name == "postgresql" and self._engine.dialect.driver == "psycopg"

    def connection_apart(self) -> Any:
        """A connection of the driver that is nobody else's; whoever asked for it closes it."""
        return apart(self._engine)

    def expect(self, seconds: float) -> None:
        """Return if the database answers within so many seconds, if it is one that can hang.

        Raises:
            CatalogSilent: It does not.
            ZooUnusable: It answers that something is wrong.
        """
        if self._line is not None:
            with self._translated():
                self._line.expect(seconds)

    def truncate_log(self) -> None:
        """Put what SQLite wrote beside its file into it, and give the room back, as far as it can."""
        if self.file is not None and not self.read_only:
            with self._translated(), contextlib.closing(_connect(self.file)) as plain:
                plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def _connected(self) -> sa.Connection:
        """A connection to read by; on a full disk one that needs no file of its own."""
        try:
            return self._engine.connect()
        except SQLAlchemyError as problem:
            if self.read_only or self._source is None or not cannot_open(problem):
                raise
            if self._aside is None:
                self._aside = _open_engine(self.file or "", self.file, self._source)
            with contextlib.suppress(SQLAlchemyError, OSError):
                return self._aside.connect()
            raise

    def _renew(self) -> None:
        """In a forked child: nothing of the parent's connections is used, nor closed."""
        if not isinstance(self._turn, contextlib.nullcontext):
            self._turn = threading.RLock()
            return
        if self._line is not None:
            _inherited.append(self._line.renew())
        for engine in (self._engine, self._aside):
            if engine is not None:
                _inherited.append(engine.pool)
                engine.dispose(close=False)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as problem:
            owed = getattr(getattr(problem, "orig", None), "silent", 0.0)
            if owed:
                raise silent(self.where, owed) from problem
            text = str(getattr(problem, "orig", None) or problem).strip().partition("\n")[0]
            advice = "Check that it is reachable, that its disk is not full, and that you may write to it."
            if isinstance(problem, IntegrityError):
                advice = "Another process may have written the same record."
            raise zoo_unusable(self.where, text, advice, problem) from problem
        except sqlite3.Error as problem:
            raise zoo_unusable(self.where, str(problem), "Check its disk.", problem) from problem
        except (ValueError, TypeError) as problem:  # what JSON, a number or a date in it was, it is no more
            text = f"a value in it cannot be read ({problem})"
            raise CorruptCatalog(self.where, text[:300], CORRUPT_ADVICE) from problem

    def _prepare_schema(self) -> None:
        if self._version() == schema.VERSION:
            return
        from modelkeeper.zoo.database.migrations import create, upgrade

        if self.read_only and self.file is not None and self._source is not None:
            with self._translated():  # an older one becomes what it should be in a copy
                self._engine = _open_engine(self._source.copy(), self._source.copy(), None)
        with self._migrating() as connection:
            one_at_a_time(connection)
            version = _schema_version(connection)
            if version is not None and version > schema.VERSION:
                problem = f"its schema is version {version}, this modelkeeper knows {schema.VERSION}"
                raise ZooUnusable(self.where, problem, "Upgrade modelkeeper.")
            if version is None:
                create(connection)
            elif version != schema.VERSION:
                upgrade(connection)

    @contextlib.contextmanager
    def _migrating(self) -> Iterator[sa.Connection]:
        read_only, self.read_only = self.read_only, False
        try:
            with unhurried(), self.writing() as connection:
                yield connection
        finally:
            self.read_only = read_only

    def _version(self) -> str | None:
        with self.reading() as connection:
            return _schema_version(connection)


def one_at_a_time(connection: sa.Connection, what: str = "") -> None:
    """Of all processes, let one at a time do what is done once, or `what`, until its transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite's writers do so by BEGIN IMMEDIATE
        key = (
            int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], signed=True) if what else 0x6D6F64656C
        )
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.cast(key, sa.BigInteger))))


def _schema_version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return str(version) if version is not None else None


def _file_of(url: str) -> Path | None:
    """The file of a SQLite database, if that is all that a URL says of it."""
    with contextlib.suppress(SQLAlchemyError):
        parts = sa.make_url(url)
        named = parts.database or ":memory:"
        if parts.get_backend_name() == "sqlite" and not parts.query and named != ":memory:":
            return Path(named).absolute()
    return None


def _is_postgres(place: str | Path) -> bool:
    """Is it a PostgreSQL that psycopg speaks to?"""
    with contextlib.suppress(SQLAlchemyError, ImportError):
        return not isinstance(place, Path) and sa.make_url(place).get_dialect().driver == "psycopg"
    return False


def _open_engine(
    place: str | Path, file: Path | None, source: ReadOnly | None, line: Line | None = None
) -> sa.Engine:
    """The database at a place; with a `source`, that is read and nothing is written.

    Raises:
        ZooUnusable: It is no URL of a database that can be used here.
    """
    options: dict[str, Any] = {"pool_pre_ping": True}
    url: str | sa.URL = str(place)
    if file is not None:
        url = sa.URL.create("sqlite", database=str(file))  # as text, a ? in its name would end it
        options = {"creator": lambda: _connect(file), "poolclass": sa.QueuePool}
        if source is not None:
            options = {"creator": source.connect, "poolclass": sa.NullPool}
    elif url in ("sqlite://", "sqlite:///:memory:"):
        options = {"poolclass": sa.StaticPool, "connect_args": {"check_same_thread": False}}
    elif line is not None:
        options = line.options(url)
    try:
        engine = sa.create_engine(url, **options)
    except (SQLAlchemyError, ImportError) as problem:
        advice = "Give a SQLAlchemy URL, e.g. sqlite:///zoo/catalog.db or postgresql+psycopg://host/name."
        raise ZooUnusable(repr(_without_password(url)), str(problem), advice) from problem
    if line is not None:
        line.speak(engine)
    if engine.dialect.name == "sqlite":
        _speak_sqlite(engine, writes=source is None)
    return engine


def _without_password(url: str | sa.URL) -> str:
    """A URL that may be shown; text that is none has no password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return str(url)


def _connect(file: Path) -> sqlite3.Connection:
    """A connection to a file; a new one, and those that SQLite puts beside it, are as their folder says."""
    if not os.path.exists(file):
        with contextlib.suppress(OSError):  # what the matter is, SQLite says
            os.close(as_its_folder(str(file), os.O_RDWR | os.O_CREAT))
    return sqlite3.connect(file, timeout=BUSY, check_same_thread=False)


def _speak_sqlite(engine: sa.Engine, writes: bool) -> None:
    """Transactions that begin when we say so, and that are on the disk when they end."""

    @sa.event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver leaves BEGIN to us
        durable = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON") if writes else ()
        for pragma in (*durable, "temp_store=MEMORY"):  # sorting needs no free disk
            _patiently(connection, f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("modelkeeper_begin", "BEGIN"))


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Of two that switch a new file to WAL at once, SQLite refuses one without waiting."""
    end = time.monotonic() + BUSY
    while True:
        try:
            connection.execute(statement).close()
            return
        except sqlite3.OperationalError as problem:
            if "locked" not in str(problem) or time.monotonic() > end:
                raise
            time.sleep(0.01)
