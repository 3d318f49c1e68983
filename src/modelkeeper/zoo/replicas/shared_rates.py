"""How much may a user ask of all replicas of a service together? A bucket of each user, in the catalog.

    settle(database, {"ada": Spent(rate=100.0, requests=17)})      {"ada": 183.0}: what is left for her

A replica lets requests through by a bucket of its own, without asking anybody, and settles now and then: what
it has let through is taken from the shared bucket, whose level is then that of its own. Replicas that do not
know of each other's requests yet may let too many through; the shared bucket is then in debt, and they wait
until it is paid. So over any time T all of them let through what one would, which is 2 x rate + rate x T,
and at most what each of the others lets through between two times that it settles, once.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.exc import IntegrityError

from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.leases import now
from modelkeeper.zoo.database.schema import rates

FORGOTTEN = 3600.0  # seconds after which a bucket is full, however little it holds a second


class Spent(Struct, frozen=True):
    """What a replica has let through of a user's requests."""

    rate: float  # requests a second that a user may make
    requests: float = 0.0


def holds(rate: float) -> float:
    """How many requests a bucket holds: what comes in two seconds."""
    return max(1.0, 2 * rate)


def settle(database: Database, spent: Mapping[str, Spent]) -> dict[str, float]:
    """Take what was let through from the shared buckets; the level of each."""
    levels: dict[str, float] = {}
    with database.writing() as connection:
        for user, used in sorted(spent.items()):  # in one order, so that no two wait for each other
            most = holds(used.rate)
            at = float(connection.scalar(sa.select(now(connection))) or 0.0)
            row = _row(connection, user)
            if row is None:
                try:
                    with connection.begin_nested():
                        connection.execute(rates.insert().values(user=user, level=most, at=at))
                except IntegrityError:  # another replica was first
                    row = _row(connection, user)
            level, then = (most, at) if row is None else (row.level, row.at)
            level = min(most, level + max(0.0, at - then) * used.rate) - used.requests
            change = rates.update().where(rates.c.user == user)
            connection.execute(change.values(level=level, at=max(at, then)))
            levels[user] = level
    return levels


def forget(database: Database) -> None:
    """Delete buckets that nobody has taken from for so long that they are full."""
    with database.writing() as connection:
        connection.execute(rates.delete().where(rates.c.at < now(connection) - FORGOTTEN))


def _row(connection: sa.Connection, user: str) -> "sa.Row[Any, Any] | None":
    chosen = sa.select(rates.c.level, rates.c.at).where(rates.c.user == user)
    return connection.execute(chosen.with_for_update()).first()
