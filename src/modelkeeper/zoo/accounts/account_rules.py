"""What must hold of users, projects and tokens? Names, quotas, and that somebody administers a zoo."""

import contextlib
import secrets
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from modelkeeper.errors import AccountConflict, InvalidSetting, UnknownAccount
from modelkeeper.zoo.accounts.holders import ADMIN, User, digest_of
from modelkeeper.zoo.catalog.naming import expect_new
from modelkeeper.zoo.database.schema import tokens, users
from modelkeeper.zoo.records import is_id

_DAY = 86400.0


@contextlib.contextmanager
def administered(connection: sa.Connection, what: str) -> Iterator[None]:
    """Whatever goes meanwhile, an administrator stays, if there was one.

    Raises:
        AccountConflict: None would.
    """
    valid = tokens.c.expires.is_(None) | (tokens.c.expires > time.time())
    chosen = sa.select(tokens.c.id).where(tokens.c.scope == ADMIN, valid).limit(1)
    before = connection.scalar(chosen)
    yield
    if before is not None and connection.scalar(chosen) is None:
        advice = "Make another first: modelkeeper token add NAME --scope admin."
        raise AccountConflict(f"{what} holds the last valid token of an administrator", advice)


def find(connection: sa.Connection, table: sa.Table, said: str) -> tuple[str, str] | None:
    """Id and name of the user or the project of this id, or of this name."""
    chosen = sa.select(table.c.id, table.c.name).where((table.c.name == said) | (table.c.id == said))
    row = connection.execute(chosen.order_by(table.c.id != said)).first()
    return None if row is None else (str(row.id), str(row.name))


def expect_known(connection: sa.Connection, table: sa.Table, what: str, said: str) -> tuple[str, str]:
    """Id and name of the user or the project of this id, or of this name, which must be there."""
    known = find(connection, table, said)
    if known is None:
        raise UnknownAccount(what, repr(said), f"there is none; modelkeeper {what} add {said} adds one")
    return known


def user_of(connection: sa.Connection, identity: str) -> User:
    """The user of an id, who is there."""
    row: Any = connection.execute(sa.select(users).where(users.c.id == identity)).mappings().one()
    return User(**row)


def expect_name(connection: sa.Connection, what: str, name: str) -> None:
    """A new user or project has a name that nobody could take for another's, nor for an id."""
    expect_new(connection, what, name)
    if is_id(name):
        raise InvalidSetting(what, repr(name), "16 hexadecimal digits are an id")


def expect_quotas(quotas: dict[str, float | None]) -> None:
    """Quotas are numbers that somebody can keep to, or None."""
    for name, most in quotas.items():
        if most is not None and not (0 < most < 10**9 if name == "rate" else 0 <= most < 2**60):
            advice = "give a number above 0" if name == "rate" else "give a number from 0 on"
            raise InvalidSetting(f"the quota of {name}", str(most), advice)


def new_token(user: str, scope: str, note: str, days: float | None = None) -> tuple[str, dict[str, Any]]:
    """A token, and the row that knows it by its digest."""
    identity, secret, now = secrets.token_hex(8), secrets.token_urlsafe(32), time.time()
    row: dict[str, Any] = {
        "id": identity,
        "user": user,
        "digest": digest_of(secret),
        "scope": scope,
        "note": note,
    }
    row |= {"created": now, "expires": None if days is None else now + days * _DAY, "maker": ""}
    return f"mk_{identity}_{secret}", row
