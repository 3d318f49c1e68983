"""What happened to the models of a zoo, so that nobody can have it otherwise later? A log that only grows.

    append(connection, [Note(at, LENT, model, {"user": "ada"})])    in the transaction that does it
    head(connection)                                                the last entry, which stands for all
    begin(connection)                                               of a zoo that has none yet

Registrations, loans, removals, pins and changes of trusted keys are noted, each bound to the one before: see
`signing.chain`. Entries are never changed or deleted. Writers take turns: of SQLite they do so anyway, of
other databases they wait for each other at the first entry, the last thing that a transaction waits for.
`audit` reads it, and compares it with the catalog.
"""

import hashlib
import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.signing.canonical import canonical
from modelkeeper.signing.chain import BEFORE, Entry, Head, following
from modelkeeper.zoo.database.rows import FIELDS, record_of
from modelkeeper.zoo.database.schema import ledger, models
from modelkeeper.zoo.records import Record

GENESIS, PRESENT = "genesis", "present"  # a log begins: with how many models, and which
KEY_TRUSTED, KEY_REVOKED = "key_trusted", "key_revoked"
MANY = 500  # models in one entry, of those that were there before the log
_COLUMNS = [ledger.c[name] for name in Entry.__struct_fields__]
_LASTING = (
    *("id", "name", "data", "fold", "task", "tags", "metrics", "metric", "value"),
    *("lower_is_better", "framework", "parameters", "bytes", "fingerprint", "graph", "checksum", "program"),
    *("evidence", "signer", "licence", "parent", "more_parents", "run", "finished"),
)


class Note(Struct, frozen=True):
    """Something that happened, before it has its place in the log."""

    at: float
    kind: str
    model: str = ""
    more: dict[str, Any] = {}


def append(connection: sa.Connection, notes: Iterable[Note]) -> None:
    """Write entries behind all others. Nothing that others may hold is to be waited for afterwards."""
    if connection.dialect.name != "sqlite":
        connection.execute(sa.select(ledger.c.number).where(ledger.c.number == 0).with_for_update())
    at, entries = head(connection), []
    for note in notes:
        entries.append(following(at, note.at, note.kind, note.model, note.more))
        at = entries[-1].head
    if entries:
        rows = [{name: getattr(entry, name) for name in entry.__struct_fields__} for entry in entries]
        connection.execute(ledger.insert(), rows)


def head(connection: sa.Connection) -> Head:
    """The last entry."""
    last = sa.select(ledger.c.number, ledger.c.digest).order_by(ledger.c.number.desc()).limit(1)
    row = connection.execute(last).first()
    return BEFORE if row is None else Head(row.number, row.digest)


def entries_after(connection: sa.Connection, number: int, most: int) -> list[Entry]:
    """The entries that follow a number."""
    chosen = sa.select(*_COLUMNS).where(ledger.c.number > number).order_by(ledger.c.number).limit(most)
    return [Entry(**row) for row in connection.execute(chosen).mappings()]


def facts(record: Record) -> str:
    """A digest of all that stays as it was registered."""
    plain = {name: _plain(getattr(record, name)) for name in _LASTING}
    return hashlib.sha256(canonical(plain)).hexdigest()


def coming(record: Record, kind: str, user: str) -> Note:
    """That a model was registered."""
    more = {
        "user": user,
        "name": record.name,
        "weights": record.checksum,
        "signer": record.signer,
        "facts": facts(record),
        "state": record.state,
        "pinned": record.pinned,
        "hits": record.hits,
    }
    return Note(record.created, kind, record.id, more)


def begin(connection: sa.Connection) -> None:
    """Begin the log of a zoo that has none: with the models that are there."""
    if head(connection) != BEFORE:
        return
    now, key = time.time(), -1
    append(connection, [Note(now, GENESIS, "", {"models": _count(connection)})])
    while True:
        after = sa.select(*FIELDS).where(models.c.key > key).order_by(models.c.key).limit(MANY)
        records = [record_of(row) for row in connection.execute(after)]
        if not records:
            return
        there = [[one.id, one.state, one.pinned, one.hits, facts(one)] for one in records]
        append(connection, [Note(now, PRESENT, "", {"models": there})])
        key = records[-1].key


def _count(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(models)) or 0)


def _plain(value: Any) -> Any:
    """A value of a record as it is hashed, whichever database it was in."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return {name: repr(float(number)) for name, number in value.items()}
    return value
