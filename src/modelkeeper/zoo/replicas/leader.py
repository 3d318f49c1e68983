"""Which of several processes does what one is enough for? The leader: whoever holds a lease in the catalog.

    leader = Leader(database)
    leader.take()           do we lead now? Asked again and again, so that the lease does not run out
    leader.leads            do we, by the clock of this process? False before another one can lead
    leader.resign()         so that another one need not wait

A leader that dies stops renewing, and its lease runs out; if it was a process of this machine, it is seen to
be dead. All that a leader does is safe if two do it at once, so that a lease decides who works, and never
whether anything is lost: a process that sleeps for a minute in the middle wakes up as a leader that is none.

Not for a leader: making room. Whoever registers evicts what the zoo has no room for then, since its caller is
told what went, and retires by the count of changes that it has judged by: of two at once the second judges
anew. Nor clusters of the index, which each process has in memory, and samples, to which each adds its own.
"""

import os
import secrets
import time

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.leases import is_dead, machine, now
from modelkeeper.zoo.database.schema import leases

LEASE = "leader"  # in the place of a folder
SECONDS = 10.0  # for which a lease counts
RENEWED = 3.0  # seconds after which it is to be renewed
SPARE = 2.0  # seconds before its end from which a process does not rely on it


class Leader:
    """The wish of one service to lead. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._me = f"{secrets.token_hex(4)}@{machine()}:{os.getpid()}"
        self._until = 0.0  # by the clock of this process

    @property
    def leads(self) -> bool:
        """Does this process lead?"""
        return time.monotonic() < self._until

    def take(self) -> bool:
        """Take the lease if nobody has it, renew it if it is ours. Do we lead?

        Raises:
            ZooUnusable: The catalog does not answer. A lease that we have goes on until it runs out.
        """
        asked = time.monotonic()
        if self._database.read_only or not self._may():
            self._until = 0.0
            return False
        with self._database.writing() as connection:
            row = connection.execute(_LEASE.with_for_update()).first()
            until = now(connection) + SECONDS
            if row is None:
                try:
                    with connection.begin_nested():
                        connection.execute(leases.insert().values(folder=LEASE, holder=self._me, until=until))
                except IntegrityError:  # another one was first
                    return False
            elif row.holder == self._me or self._is_over(connection, row.holder):
                change = leases.update().where(leases.c.folder == LEASE)
                connection.execute(change.values(holder=self._me, until=until))
            else:
                self._until = 0.0
                return False
        self._until = asked + SECONDS - SPARE
        return True

    def resign(self) -> None:
        """Give the lease back, if it is ours."""
        self._until = 0.0
        if not self._database.read_only:
            ours = (leases.c.folder == LEASE) & (leases.c.holder == self._me)
            with self._database.writing() as connection:
                connection.execute(leases.delete().where(ours))

    def _may(self) -> bool:
        """Is the lease ours or nobody's? Most who ask are told so without writing."""
        with self._database.reading() as connection:
            row = connection.execute(_LEASE).first()
            return row is None or row.holder == self._me or self._is_over(connection, row.holder)

    @staticmethod
    def _is_over(connection: sa.Connection, holder: str) -> bool:
        over = sa.select(leases.c.until <= now(connection)).where(leases.c.folder == LEASE)
        return bool(connection.scalar(over)) or is_dead(holder)


def who_leads(database: Database) -> str:
    """Who has the lease, as `machine:process`; "": nobody."""
    with database.reading() as connection:
        valid = leases.c.until > now(connection)
        holder = connection.scalar(sa.select(leases.c.holder).where(leases.c.folder == LEASE, valid))
    return _plainly(str(holder)) if holder else ""


def _plainly(holder: str) -> str:
    place, _, process = holder.partition("@")[2].rpartition(":")
    return f"{place.rpartition('/')[0]}:{process}"


_LEASE = sa.select(leases.c.holder).where(leases.c.folder == LEASE)
