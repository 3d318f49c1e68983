"""Is the log of a zoo whole, and does the catalog say what it says?

    audit(catalog)                       what does not fit, and the head: to be kept elsewhere
    audit(catalog, Head.read("17:5f…"))  likewise; and is that earlier head still what all began with?

The chain is followed from its first entry. Then what it tells of each model, and of each trusted key, is held
against the tables. Whoever may write to the database can write a whole new chain that fits; they cannot make
it go through a head that somebody else kept.
"""

from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.signing.chain import BEFORE, Entry, Head, broken
from modelkeeper.zoo.catalog import ledger
from modelkeeper.zoo.catalog.catalog_reader import CatalogReader
from modelkeeper.zoo.database.rows import FIELDS, record_of
from modelkeeper.zoo.database.schema import keys, models
from modelkeeper.zoo.records import LENT, PINNED, REGISTERED, REPORTED, UNPINNED

MOST = 50  # problems of one kind that are named
_AT_ONCE = 5_000  # entries, or models, that are read together


class Audited(Struct, frozen=True, kw_only=True):
    """What an audit found. All is well if there are no problems."""

    head: str  # number and digest of the last entry
    entries: int
    models: int  # in the catalog, also those that are gone
    broken: tuple[str, ...] = ()  # where the chain is not what was written
    rewritten: str = ""  # why an earlier head is not part of it
    unknown: tuple[str, ...] = ()  # models that the log does not know, or the catalog does not
    different: tuple[str, ...] = ()  # what the catalog says otherwise

    @property
    def whole(self) -> bool:
        """Was nothing found?"""
        return not (self.broken or self.rewritten or self.unknown or self.different)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain | {"whole": self.whole}


class _Told:
    """What the log tells of one model."""

    __slots__ = ("facts", "hits", "pinned", "state")

    def __init__(self, state: str, pinned: bool, hits: int, facts: str) -> None:
        self.state, self.pinned, self.hits, self.facts = state, pinned, hits, facts


class _Reading:
    """The log as far as it was read."""

    def __init__(self, since: Head | None) -> None:
        self._since = since
        self.head, self.entries = BEFORE, 0
        self.broken: list[str] = []
        self.rewritten = ""
        self.told: dict[str, _Told] = {}
        self.keys: dict[str, bool] = {}  # by id: is it trusted?

    def take(self, entry: Entry) -> None:
        """Follow the chain by one entry, and believe what it tells."""
        problem = broken(entry, self.head)
        if problem and len(self.broken) < MOST:
            self.broken.append(f"entry {entry.number}: {problem}")
        if self._since is not None and entry.number == self._since.number:
            if entry.digest != self._since.digest:
                self.rewritten = f"entry {entry.number} is another than it was: {entry.digest}"
            self._since = None
        self.head, self.entries = entry.head, self.entries + 1
        try:
            self._believe(entry, entry.said())
        except (ValueError, TypeError, KeyError, AttributeError):
            if not problem and len(self.broken) < MOST:
                self.broken.append(f"entry {entry.number}: it tells nothing that can be understood")

    def _believe(self, entry: Entry, said: dict[str, Any]) -> None:
        kind, model = entry.kind, self.told.get(entry.model)
        if kind == ledger.PRESENT:
            self.told.update({identity: _Told(*rest) for identity, *rest in said["models"]})
        elif kind in (REGISTERED, REPORTED):
            self.told[entry.model] = _Told(said["state"], said["pinned"], said["hits"], said["facts"])
        elif kind in (ledger.KEY_TRUSTED, ledger.KEY_REVOKED):
            self.keys[said["key"]] = kind == ledger.KEY_TRUSTED
        elif model is not None and kind == LENT:
            model.hits += 1
        elif model is not None and kind in (PINNED, UNPINNED):
            model.pinned = kind == PINNED
        elif model is not None and "state" in said:  # removed, evicted, damaged, replaced, repaired
            model.state = said["state"]

    def end(self) -> None:
        """All of it was read."""
        if self._since is not None:
            self.rewritten = f"it ends at entry {self.head.number}: what came later is gone"


def audit(catalog: CatalogReader, since: Head | None = None) -> Audited:
    """Verify the log of a zoo, and compare it with the catalog; since an earlier head, if that is given."""
    reading = _Reading(since)
    with catalog.database.reading() as connection:
        if connection.dialect.name == "postgresql":  # all of one moment
            connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        number = BEFORE.number
        while entries := ledger.entries_after(connection, number, _AT_ONCE):
            for entry in entries:
                reading.take(entry)
            number = entries[-1].number
        reading.end()
        count, unknown, different = _compare_models(connection, reading.told)
        different += _compare_keys(connection, reading.keys)
    if reading.head == BEFORE:
        reading.broken.append("entry 0: it is missing, and so are all others")
    return Audited(
        head=str(reading.head),
        entries=reading.entries,
        models=count,
        broken=tuple(reading.broken),
        rewritten=reading.rewritten,
        unknown=tuple(unknown[:MOST]),
        different=tuple(different[:MOST]),
    )


def _compare_models(connection: sa.Connection, told: dict[str, _Told]) -> tuple[int, list[str], list[str]]:
    """How many models there are, which of them the log does not know, and what is otherwise."""
    count, key, unknown, different = 0, -1, list[str](), list[str]()
    while True:
        after = sa.select(*FIELDS).where(models.c.key > key).order_by(models.c.key).limit(_AT_ONCE)
        records = [record_of(row) for row in connection.execute(after)]
        if not records:
            break
        key, count = records[-1].key, count + len(records)
        for record in records:
            known = told.pop(record.id, None)
            if known is None:
                unknown.append(f"model {record.id} ({record.name}) is not in the log")
                continue
            for name, is_so, was_told in (
                ("its state", record.state, known.state),
                ("pinned", record.pinned, known.pinned),
                ("how often it lent", record.hits, known.hits),
                ("what was registered", ledger.facts(record), known.facts),
            ):
                if is_so != was_told:
                    values = "" if name.startswith("what") else f": {is_so}, by the log {was_told}"
                    different.append(f"model {record.id} ({record.name}): {name}{values}")
    unknown += [f"model {model} of the log is not in the catalog" for model in sorted(told)]
    return count, unknown, different


def _compare_keys(connection: sa.Connection, told: dict[str, bool]) -> list[str]:
    """Which keys are trusted otherwise than the log tells."""
    trusted = {
        row.id: row.revoked is None for row in connection.execute(sa.select(keys.c.id, keys.c.revoked))
    }
    return [
        f"key {key}: {'trusted' if trusted.get(key) else 'not trusted'}, which the log does not tell"
        for key in sorted(trusted.keys() | told.keys())
        if trusted.get(key, False) != told.get(key, False)
    ]
