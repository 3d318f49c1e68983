"""How is a catalog's database spoken to? SQLite so that many processes can share it, others as they are."""

import os
import sqlite3
import time
import weakref
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from modelkeeper.errors import ZooUnusable

BUSY = 60.0  # seconds to wait for other writers


def in_memory(url: str) -> bool:
    """Does the database end with its only connection?"""
    return url in ("sqlite://", "sqlite:///:memory:")


def open_engine(url: str) -> sa.Engine:
    """The database behind a URL.

    Raises:
        ZooUnusable: It is no URL of a database that can be used here.
    """
    options: dict[str, Any] = {}
    try:
        if in_memory(url):
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
    known = weakref.ref(engine)

    def forget() -> None:  # connections do not survive a fork
        if (inherited := known()) is not None and not in_memory(url):
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
