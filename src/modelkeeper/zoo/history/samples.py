"""How busy was a zoo, minute by minute? Counters of all its services, rolled up and summed in the catalog.

    add(connection, minute, {"queries.warm": 3.0})        each process adds what it counted in that minute
    read(connection, since, until, step)                  sums over steps of so many seconds, the oldest first
    forget(connection, before)                            what is older than somebody wants to know

A minute is its number since 1970. What nobody counted is not there: no row is a zero.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.dialects import postgresql, sqlite

from modelkeeper.errors import InvalidMeta
from modelkeeper.zoo.database.schema import samples

MINUTE = 60.0  # seconds
MOST_STEPS = 3_000  # in one reply: two days of minutes, 90 days of hours


class Sample(Struct, frozen=True):
    """What was counted from a moment on, for as long as the steps are that were asked for."""

    at: float
    values: dict[str, float]  # by name; what is not there was not counted


def add(connection: sa.Connection, minute: int, values: Mapping[str, float]) -> None:
    """Add to what others have counted in a minute. In one order, so that nobody waits for each other."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    new = dialect.insert(samples)
    adding = new.on_conflict_do_update(
        index_elements=[samples.c.minute, samples.c.name],
        set_={"value": samples.c.value + new.excluded.value},
    )
    rows = [{"minute": minute, "name": name, "value": values[name]} for name in sorted(values)]
    if rows:
        connection.execute(adding, rows)


def read(connection: sa.Connection, since: float, until: float, step: float) -> list[Sample]:
    """What was counted in each step between two moments; steps begin at multiples of their length.

    Raises:
        InvalidMeta: A step is no number of whole minutes, or they are too many for one reply.
    """
    minutes = int(step // MINUTE)
    if minutes < 1 or minutes * MINUTE != step:
        raise InvalidMeta("step", f"{step:g}", "give a multiple of 60 seconds")
    if not 0 <= (until - since) / step <= MOST_STEPS:
        advice = f"at most {MOST_STEPS:,} steps, the end after the beginning: choose a longer `step`"
        raise InvalidMeta("the time", f"from {since:.0f} to {until:.0f}", advice)
    first, end = int(since // step) * minutes, until / MINUTE
    begins = (samples.c.minute - samples.c.minute % minutes).label("begins")
    chosen = sa.select(begins, samples.c.name, sa.func.sum(samples.c.value))
    chosen = chosen.where(samples.c.minute >= first, samples.c.minute < end)
    found: dict[int, dict[str, float]] = {}
    for minute, name, value in connection.execute(chosen.group_by(begins, samples.c.name)):
        found.setdefault(int(minute), {})[name] = float(value)
    return [Sample(minute * MINUTE, found[minute]) for minute in sorted(found)]


def forget(connection: sa.Connection, before: float) -> int:
    """Delete what was counted before a moment. How many rows?"""
    return connection.execute(samples.delete().where(samples.c.minute < int(before // MINUTE))).rowcount
