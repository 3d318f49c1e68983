"""How is a catalog's database spoken to? SQLite so that many processes can share it, others as they are.

    database = Database("sqlite:///zoo/catalog.db")     its schema is up to date from here on
    with database.reading() as connection: ...
    with database.writing() as connection: ...          all of it or nothing

Threads and processes may share one database. Writers of SQLite take turns from the start of a transaction
(BEGIN IMMEDIATE), readers are never kept waiting (WAL); what was committed survives a power cut. Whatever
goes wrong with a database is a `ZooUnusable` that names it.
"""

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from modelkeeper.errors import ZooUnusable
from modelkeeper.zoo import schema
from modelkeeper.zoo.unusable import zoo_unusable

BUSY = 60.0  # seconds to wait for other writers


class Database:
    """Transactions on one database. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        """Open a database by its SQLAlchemy URL, and bring its schema up to date.

        Raises:
            ZooUnusable: It cannot be reached, or a newer modelkeeper made it.
        """
        self._engine = _open_engine(url)
        self.where = self._engine.url.render_as_string(hide_password=True)
        # A database in memory is one connection: threads take turns.
        self._turn: contextlib.AbstractContextManager[Any] = (
            threading.RLock() if _in_memory(url) else contextlib.nullcontext()
        )
        try:
            self._prepare_schema()
        except ZooUnusable:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads."""
        with self._turn, self._translated(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes: committed when the block ends, undone if it raises."""
        with self._turn, self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(modelkeeper_begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as problem:
            text = str(getattr(problem, "orig", None) or problem).strip().partition("\n")[0]
            advice = "Check that it is reachable, that its disk is not full, and that you may write to it."
            if isinstance(problem, IntegrityError):
                advice = "Another process may have written the same record."
            raise zoo_unusable(self.where, text, advice, problem) from problem

    def _prepare_schema(self) -> None:
        if self._version() == schema.VERSION:
            return
        from modelkeeper.zoo.migrations import upgrade

        with self.writing() as connection:
            if connection.dialect.name == "postgresql":  # as BEGIN IMMEDIATE: one process at a time
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x6D6F64656C)))
            version = _schema_version(connection)
            if version is not None and version > schema.VERSION:
                problem = f"its schema is version {version}, this modelkeeper knows {schema.VERSION}"
                raise ZooUnusable(self.where, problem, "Upgrade modelkeeper.")
            if version != schema.VERSION:
                upgrade(connection)

    def _version(self) -> str | None:
        with self.reading() as connection:
            return _schema_version(connection)


def _schema_version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return str(version) if version is not None else None


def _in_memory(url: str) -> bool:
    """Does the database end with its only connection?"""
    return url in ("sqlite://", "sqlite:///:memory:")


def _open_engine(url: str) -> sa.Engine:
    """The database behind a URL.

    Raises:
        ZooUnusable: It is no URL of a database that can be used here.
    """
    options: dict[str, Any] = {}
    try:
        if _in_memory(url):
            options = {"poolclass": sa.StaticPool, "connect_args": {"check_same_thread": False}}
        elif sa.make_url(url).get_backend_name() == "sqlite":
            options = {"connect_args": {"timeout": BUSY}}
        else:
            options = {"pool_pre_ping": True}
        engine = sa.create_engine(url, **options)
    except (SQLAlchemyError, ImportError) as problem:
        advice = "Give a SQLAlchemy URL, e.g. sqlite:///zoo/catalog.db or postgresql+psycopg://host/name."
        raise ZooUnusable(repr(url), str(problem), advice) from problem
    if engine.dialect.name == "sqlite":
        _speak_sqlite(engine)
    engine_ref = weakref.ref(engine)

    def forget() -> None:  # connections do not survive a fork
        if (inherited := engine_ref()) is not None and not _in_memory(url):
            inherited.dispose(close=False)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)
    return engine


def _speak_sqlite(engine: sa.Engine) -> None:
    """Transactions that begin when we say so, and that are on the disk when they end."""

    @sa.event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver leaves BEGIN to us
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
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
