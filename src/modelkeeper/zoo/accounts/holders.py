"""Who sends a token, and what may they do? Scopes, users, projects, and whoever holds a token.

    holder = holder_of(connection, token_id, secret)         None: it is not valid, or not any more
    holder.may(WRITE), holder.viewer                         what they may do, and see

A token that a user made with one of theirs (`maker`) is never more than that one: see `Accounts.add_token`.
"""

import hashlib
import hmac
import re
import time
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.zoo.database.schema import members, projects, tokens, users
from modelkeeper.zoo.records import Viewer

READ, WRITE, ADMIN = _RISING = ("read", "write", "admin")  # each includes those before it
METRICS = (
    "metrics"  # counts over everything, for a scraper: it includes nothing else, and ADMIN alone includes it
)
PARTNER = "partner"  # of another organisation: reads as READ does, but sees published models alone
SCOPES = (*_RISING, METRICS, PARTNER)
TOKEN = re.compile(r"mk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class User(Struct, frozen=True, kw_only=True):
    """Somebody with tokens. A quota of None is the one that the service is set to."""

    name: str
    id: str = ""  # who it is, whatever they are called; "": where there are no users
    created: float
    bytes: int | None = None
    models: int | None = None
    rate: float | None = None
    pins: int | None = None  # models that they may pin


class Token(Struct, frozen=True, kw_only=True):
    """What is known of a token: not its secret."""

    id: str
    user: str
    user_id: str
    scope: str
    note: str
    created: float
    expires: float | None
    maker: str = ""  # the token that it was made with, and ends with; "": an administrator made it


class Holder(Struct, frozen=True, kw_only=True):
    """Who makes a request."""

    user: User
    scope: str
    projects: dict[str, str] = {}  # name -> id
    expires: float | None = None  # when the token ends
    token: str = ""  # its id
    maker: str = ""  # the token that it was made with, and ends with

    def may(self, scope: str) -> bool:
        """Does the token's scope include this one?"""
        if METRICS in (scope, self.scope):
            return self.scope in (scope, ADMIN)
        own = READ if self.scope == PARTNER else self.scope
        return _RISING.index(own) >= _RISING.index(scope)

    @property
    def viewer(self) -> Viewer:
        """Whose eyes models are seen with; who administers a zoo sees all."""
        if self.scope == PARTNER:
            return Viewer(self.user.id, (), self.user.name, self.user.created, partner=True)
        projects = tuple(self.projects.values())
        return Viewer(self.user.id, projects, self.user.name, self.user.created, self.may(ADMIN))


class Project(Struct, frozen=True, kw_only=True):
    """Users who see each other's models."""

    name: str
    id: str
    members: tuple[str, ...] = ()


def holder_of(connection: sa.Connection, token: str, secret: str | None = None) -> Holder | None:
    """Who holds the token of this id, if it is valid and, where a secret is given, has that one."""
    joined = sa.select(projects.c.name, projects.c.id).join(members).order_by(projects.c.name)
    columns = (tokens.c[name] for name in ("digest", "scope", "expires", "maker"))
    chosen = sa.select(*columns, users).join(users)
    row: Any = connection.execute(chosen.where(tokens.c.id == token)).mappings().one_or_none()
    digest = row["digest"] if row is not None else digest_of("")
    valid = secret is None or hmac.compare_digest(digest, digest_of(secret))
    if row is None or not valid or (row["expires"] is not None and row["expires"] <= time.time()):
        return None
    user = User(**{name: row[name] for name in User.__struct_fields__})
    rows = connection.execute(joined.where(members.c.user == user.id))
    belongs = {str(project): str(identity) for project, identity in rows}
    known = {name: row[name] for name in ("scope", "expires", "maker")}
    return Holder(user=user, projects=belongs, token=token, **known)


def digest_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
