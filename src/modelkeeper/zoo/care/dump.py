"""How does a catalog become lines of text, and go from there into any database?

    for line in dump(connection): ...     {"table": "models", "row": {...}}, all of one moment
    load(connection, version, lines)      into an empty catalog, of whatever kind of database

A dump says which schema it has. One of an older schema is loaded as it was and then migrated.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from modelkeeper.zoo.catalog.totals import count_anew
from modelkeeper.zoo.database import schema
from modelkeeper.zoo.database.migrations import upgrade

MANY = 500  # rows that are inserted at once
Line = dict[str, Any]
# Of this moment and this store, not of what was kept; and what is counted anew where it goes.
LEFT_OUT = (
    *(schema.leases, schema.facts, schema.uploads, schema.upload_parts, schema.totals, schema.rates),
    schema.sessions,
)


def dump(connection: sa.Connection) -> Iterator[Line]:
    """Every row of a catalog, in an order in which they can be inserted. The transaction must be new."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    for table in schema.metadata.sorted_tables:
        if table in LEFT_OUT:
            continue
        for row in connection.execute(sa.select(table)).mappings():
            yield {"table": table.name, "row": {name: _plain(value) for name, value in row.items()}}


def load(connection: sa.Connection, version: str, lines: Iterable[Line]) -> None:
    """Make a catalog that holds just these rows, which a catalog of this version had."""
    schema.metadata.drop_all(connection)
    connection.execute(sa.text("DROP TABLE IF EXISTS alembic_version"))
    upgrade(connection, version)
    found = sa.MetaData()
    found.reflect(connection)
    for table in reversed(found.sorted_tables):
        if table.name != "alembic_version":
            connection.execute(table.delete())
    waiting: list[Line] = []
    for line in lines:
        if waiting and (line["table"] != waiting[0]["table"] or len(waiting) == MANY):
            _insert(connection, found, waiting)
            waiting = []
        waiting.append(line)
    if waiting:
        _insert(connection, found, waiting)
    if connection.dialect.name == "postgresql":
        _count_on(connection, found)
    if version != schema.VERSION:
        upgrade(connection)
    count_anew(connection)


def _insert(connection: sa.Connection, found: sa.MetaData, lines: list[Line]) -> None:
    table = found.tables[lines[0]["table"]]
    packed = [column.name for column in table.columns if isinstance(column.type, sa.LargeBinary)]
    rows = [line["row"] for line in lines]
    for row in rows:
        row.update((name, base64.b64decode(row[name])) for name in packed)
    connection.execute(table.insert(), rows)


def _count_on(connection: sa.Connection, found: sa.MetaData) -> None:
    """Rows that come later get numbers after those that are there."""
    for name, column in (("models", "key"), *((name, "number") for name in ("events", "outcomes", "starts"))):
        if name not in found.tables:  # in a catalog of before
            continue
        highest = connection.scalar(sa.select(sa.func.max(found.tables[name].c[column])))
        if highest:
            sequence = sa.func.pg_get_serial_sequence(name, column)
            connection.execute(sa.select(sa.func.setval(sequence, highest)))


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
