"""Whose signatures count in a zoo? Public keys that its administrators pinned; changes are logged.

    trust = Trust(catalog)
    trust.add(public, "Partner", user="ada")      models that it signed are trusted from now on
    trust.revoke(key_id, user="ada")              and no more; those that are there stay, as signed by it

A key that was revoked is kept, so that what it signed can be told; it may be trusted again.
"""

import time
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import InvalidKey
from modelkeeper.signing import PublicKey
from modelkeeper.zoo.catalog.catalog_reader import CatalogReader
from modelkeeper.zoo.catalog.ledger import KEY_REVOKED, KEY_TRUSTED, Note, append
from modelkeeper.zoo.database.rows import event_row
from modelkeeper.zoo.database.schema import events, keys
from modelkeeper.zoo.records import ADMINISTERED, Event, checked_name


class TrustedKey(Struct, frozen=True, kw_only=True):
    """A public key, and whose it is."""

    id: str
    public: str  # in hexadecimal
    name: str
    created: float
    revoked: float | None = None  # None: it is trusted

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Trust:
    """The trusted keys of one zoo. Safe to use from several threads and processes."""

    def __init__(self, catalog: CatalogReader) -> None:
        self._database = catalog.database

    def listed(self) -> list[TrustedKey]:
        """All keys, also those that were revoked, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(keys).order_by(keys.c.created, keys.c.id))
            return [TrustedKey(**row) for row in rows.mappings()]

    def add(self, public: PublicKey, name: str, user: str = "") -> TrustedKey:
        """Trust a key, also one that was revoked, by this name."""
        name, now = checked_name("the key's name", name, empty=False), time.time()
        new = TrustedKey(id=public.id, public=public.raw.hex(), name=name, created=now)
        note = Note(now, KEY_TRUSTED, "", {"key": public.id, "name": name, "user": user})
        with self._database.writing() as connection:
            connection.execute(keys.delete().where(keys.c.id == public.id))
            connection.execute(keys.insert(), new.to_dict())
            append(connection, [note])
            _log(connection, new, "trusted", user)
        return new

    def revoke(self, key: str, user: str = "") -> TrustedKey:
        """Trust a key no more, by its id or the beginning of it.

        Raises:
            InvalidKey: No trusted key, or more than one, has an id that begins so.
        """
        now = time.time()
        with self._database.writing() as connection:
            begins = keys.c.id.startswith(key, autoescape=True) & keys.c.revoked.is_(None)
            rows = connection.execute(sa.select(keys).where(begins).limit(2)).mappings().all()
            if len(rows) != 1 or len(key) < 4:
                raise InvalidKey(
                    repr(key[:80]), "no trusted key alone has this id", "modelkeeper key list shows them."
                )
            revoked = msgspec.structs.replace(TrustedKey(**rows[0]), revoked=now)
            connection.execute(keys.update().where(keys.c.id == revoked.id).values(revoked=now))
            append(connection, [Note(now, KEY_REVOKED, "", {"key": revoked.id, "user": user})])
            _log(connection, revoked, "revoked", user)
        return revoked


def _log(connection: sa.Connection, key: TrustedKey, change: str, user: str) -> None:
    """Write into the log of events, too, who changed what."""
    detail, data = f"key {key.id} of {key.name} {change}", {"change": change, "key": key.id, "name": key.name}
    event = Event(at=time.time(), action=ADMINISTERED, user=user, detail=detail, data=data)
    connection.execute(events.insert(), event_row(event))
