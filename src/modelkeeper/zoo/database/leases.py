"""Who is writing the files of a model right now? Leases in the catalog, so that no other process sweeps them.

    with leases.writing("models/17"):          taken, renewed while the block runs, given back if it fails
        ...                                    write the files
        catalog.add(record, ..., leased=True)  in one transaction: is it still ours? then here is the record

A process that dies stops renewing, and its lease runs out. Whoever then sweeps the folder ends the lease
first; a process that was only asleep finds so when it comes to its record, and gives up. So the times decide
how long debris stays, and never whether a model is lost. That a process of this machine is dead is seen.
"""

import contextlib
import hashlib
import os
import platform
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from modelkeeper.errors import ZooUnusable
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.schema import leases

SECONDS = 120.0  # for which a lease counts
RENEWED = 20.0  # seconds after which it is renewed


class Leases:
    """The leases of one catalog. Safe to use from several threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextlib.contextmanager
    def writing(self, folder: str) -> Iterator[None]:
        """Nobody sweeps this folder while the block runs. Its last act is to `confirm` the lease."""
        holder = f"{machine()}:{os.getpid()}"
        with self._database.writing() as connection:
            until = now(connection) + SECONDS
            connection.execute(leases.insert().values(folder=folder, holder=holder, until=until))
        ended = threading.Event()
        renewing = threading.Thread(
            target=self._renew, args=(folder, ended), name="modelkeeper-lease", daemon=True
        )
        renewing.start()
        try:
            yield
        except BaseException:
            ended.set()
            with contextlib.suppress(ZooUnusable), self._database.writing() as connection:  # else it runs out
                connection.execute(leases.delete().where(leases.c.folder == folder))
            raise
        finally:
            ended.set()

    def _renew(self, folder: str, ended: threading.Event) -> None:
        while not ended.wait(RENEWED):
            with contextlib.suppress(ZooUnusable), self._database.writing() as connection:  # the next time
                until = now(connection) + SECONDS
                connection.execute(leases.update().where(leases.c.folder == folder).values(until=until))


def now(connection: sa.Connection) -> Any:
    """The time by a clock that all who use a database share: its own, or that of the one machine."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return time.time()


def confirm(connection: sa.Connection, folder: str, where: str) -> None:
    """End the lease of whoever has written a folder, in the transaction that makes its record.

    Raises:
        ZooUnusable: It had run out, and somebody has swept the folder.
    """
    if not connection.execute(leases.delete().where(leases.c.folder == folder)).rowcount:
        problem = f"writing {folder} was interrupted for so long that it was taken for left behind"
        raise ZooUnusable(where, problem, "Register the model again.")


def end_if_over(connection: sa.Connection, folder: str) -> bool:
    """Is nobody writing a folder? A lease on it that has run out is ended: its holder can confirm no more."""
    lease = leases.c.folder == folder
    over = sa.select(leases.c.holder, leases.c.until <= now(connection)).where(lease)
    row = connection.execute(over).first()
    if row is not None and (row[1] or is_dead(row[0])):
        connection.execute(leases.delete().where(lease))
        return True
    return row is None


def is_dead(holder: str) -> bool:
    """Is it a process of this machine that is no more? Which part of that process, stands before an @."""
    place, _, process = holder.rpartition("@")[2].rpartition(":")
    if place != machine():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


@cache
def machine() -> str:
    """This machine since it was started, and which of its processes can be seen from here."""
    apart = []
    with contextlib.suppress(OSError):  # other systems have no containers that share a name
        apart = [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]
    digest = hashlib.sha256("".join(apart).encode()).hexdigest()[:16]
    return f"{platform.node()[:150]}/{digest}"
