"""Who is logged in to the pages of a service? Sessions, each tied to the token that it was begun with.

    secret = sessions.begin(token)      what the browser keeps; None: the token is not valid
    sessions.holder(secret)             who that is; None: nobody, or not any more
    sessions.end(secret)

A session ends with its token, when nobody used it for IDLE seconds, and LONGEST seconds after it began. The
secret has 256 random bits and is nowhere kept: as with tokens, its SHA-256 is.
"""

import re
import secrets
import time

import sqlalchemy as sa

from modelkeeper.zoo.accounts.holders import TOKEN, Holder, digest_of, holder_of
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.schema import sessions

IDLE = 12 * 3600.0
LONGEST = 7 * 86_400.0
NOTED = 60.0  # seconds after which it is noted that a session is still in use
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


class Sessions:
    """The sessions of one zoo. Safe to use from several threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, token: str) -> str | None:
        """A new session of who holds this token, by its secret, which is nowhere kept; None: nobody does."""
        parts = TOKEN.fullmatch(token)
        if parts is None:
            return None
        secret, now = secrets.token_urlsafe(32), time.time()
        with self._database.writing() as connection:
            if holder_of(connection, parts[1], parts[2]) is None:
                return None
            connection.execute(sessions.delete().where(_over(now)))
            row = {"digest": digest_of(secret), "token": parts[1], "created": now, "seen": now}
            connection.execute(sessions.insert(), row)
        return secret

    def holder(self, secret: str) -> Holder | None:
        """Who a session belongs to, if it lasts."""
        if _SECRET.fullmatch(secret) is None:
            return None
        now, this = time.time(), sessions.c.digest == digest_of(secret)
        with self._database.reading() as connection:
            row = connection.execute(sa.select(sessions).where(this, lasting(now))).one_or_none()
            holder = holder_of(connection, row.token) if row is not None else None
        if row is not None and holder is not None and now - row.seen > NOTED and not self._database.read_only:
            with self._database.writing() as connection:
                connection.execute(sessions.update().where(this).values(seen=now))
        return holder

    def end(self, secret: str) -> None:
        """End a session, if there is one."""
        with self._database.writing() as connection:
            connection.execute(sessions.delete().where(sessions.c.digest == digest_of(secret)))


def lasting(now: float) -> sa.ColumnElement[bool]:
    """What is true of sessions that have not ended by themselves."""
    return ~_over(now)


def _over(now: float) -> sa.ColumnElement[bool]:
    return (sessions.c.seen <= now - IDLE) | (sessions.c.created <= now - LONGEST)
