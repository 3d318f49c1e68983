"""How does a process learn that another one has changed something? It asks for counts, or is told.

    count(connection, CHANGES)              in the transaction that changes what can be searched
    counts(database)                        what every process may ask, as often as it likes
    with listening(database, wake): ...     wake() whenever somebody has counted; True: the database tells so

PostgreSQL tells whoever listens (NOTIFY) when a transaction that counted is committed. Nothing relies on
that: it comes after the commit, so that a query could come before it, and not at all while a connection is
made again. So a query still asks for the count, and being told only means to ask, and to do the work, sooner.
Other databases tell nothing.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from modelkeeper.logs import logger
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.schema import ACCOUNTS, CHANGES, clock

CHANNEL = "modelkeeper"
AGAIN = 1.0  # seconds after which a connection that broke is made again, and between two looks at the end
_log = logger()


def count(connection: sa.Connection, what: str) -> None:
    """Count one more change, and tell whoever listens once this is committed."""
    connection.execute(clock.update().where(clock.c.name == what).values(value=clock.c.value + 1))
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_notify(CHANNEL, what)))


def counts(database: Database) -> tuple[int, int]:
    """How many changes of what can be searched, and of accounts, there have been."""
    with database.reading() as connection:
        rows = connection.execute(sa.select(clock.c.name, clock.c.value)).all()
        by_name = {str(name): int(value) for name, value in rows}
    return by_name.get(CHANGES, 0), by_name.get(ACCOUNTS, 0)


@contextlib.contextmanager
def listening(database: Database, wake: Callable[[], None]) -> Iterator[bool]:
    """Call `wake` when another process has counted, in a thread, while the block runs. Can the database?"""
    if not database.tells:
        yield False
        return
    stopped = threading.Event()
    thread = threading.Thread(
        target=_listen, args=(database, wake, stopped), name="modelkeeper-notices", daemon=True
    )
    thread.start()
    try:
        yield True
    finally:
        stopped.set()
        thread.join()


def _listen(database: Database, wake: Callable[[], None], stopped: threading.Event) -> None:
    while not stopped.is_set():
        try:
            with contextlib.closing(database.connection_apart()) as connection:
                _hear(connection, wake, stopped)
        except (SQLAlchemyError, OSError, _psycopg_error()) as problem:
            _log.debug("the database tells nothing for now: %s", problem)
            stopped.wait(AGAIN)


def _hear(connection: Any, wake: Callable[[], None], stopped: threading.Event) -> None:
    """Wait for what the database tells on a connection of psycopg, until that breaks."""
    connection.autocommit = True
    connection.execute(f"LISTEN {CHANNEL}")
    wake()  # for what was told while nobody listened
    while not stopped.is_set():
        for _ in connection.notifies(timeout=AGAIN, stop_after=1):
            wake()


def _psycopg_error() -> type[Exception]:
    import psycopg

    return psycopg.Error
