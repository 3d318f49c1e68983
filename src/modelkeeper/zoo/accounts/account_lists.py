"""Which users, projects and tokens are there, and how much does each keep? Lists that go on where one ended.

    lists.users(limit=50, after=page.next, text="ad")        with what they keep, and may
    lists.projects(limit=50), lists.members(project)
    lists.tokens(user=user_id)                               the oldest first

A list is ordered by what never changes, and `next` says where it ended: whoever comes or goes between two
pages moves nobody from one to the other.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import InvalidSetting, UnknownAccount
from modelkeeper.zoo.accounts.holders import ADMIN, METRICS, PARTNER, READ, WRITE, Token, User
from modelkeeper.zoo.accounts.sessions import lasting
from modelkeeper.zoo.catalog.totals import OWNER
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.schema import members, projects, sessions, tokens, totals, users

T = TypeVar("T")
_RISING = (METRICS, PARTNER, READ, WRITE, ADMIN)


class Listed(Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list."""

    items: tuple[T, ...]
    total: int  # of the whole list
    next: str = ""  # to be given as `after` for what follows; "": that was all


class Usage(Struct, frozen=True, kw_only=True):
    """A user, and what they have."""

    user: User
    scope: str  # the highest of their valid tokens: what they may do; "": they have none
    models: int  # that they keep
    bytes: int
    projects: int  # that they are members of
    tokens: int  # that are valid
    sessions: int  # at the pages of the service


class Group(Struct, frozen=True, kw_only=True):
    """A project, and how many belong to it."""

    name: str
    id: str
    created: float
    members: int


class Member(Struct, frozen=True, kw_only=True):
    """A user who belongs to a project."""

    name: str
    id: str


class AccountLists:
    """The accounts of one zoo, to be read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def users(self, *, limit: int, after: str = "", text: str = "") -> Listed[Usage]:
        """Users by name, from behind one; with a text, those whose names have it somewhere."""
        named = [users.c.name.icontains(text, autoescape=True)] if text else []
        with self._database.reading() as connection:
            total = _count(connection, users, *named)
            chosen = sa.select(users).where(*named, users.c.name > after).order_by(users.c.name)
            found = [User(**row) for row in connection.execute(chosen.limit(limit + 1)).mappings()]
            page = found[:limit]
            return _listed(_usage(connection, page), total, page[-1].name if len(found) > limit else "")

    def user(self, identity: str) -> Usage:
        """One user, by id.

        Raises:
            UnknownAccount: There is none.
        """
        with self._database.reading() as connection:
            row: Any = connection.execute(sa.select(users).where(users.c.id == identity)).mappings().first()
            if row is None:
                raise _unknown("user", identity)
            return _usage(connection, [User(**row)])[0]

    def projects(self, *, limit: int, after: str = "", text: str = "") -> Listed[Group]:
        """Projects by name, from behind one; with a text, those whose names have it somewhere."""
        named = [projects.c.name.icontains(text, autoescape=True)] if text else []
        with self._database.reading() as connection:
            total = _count(connection, projects, *named)
            chosen = _groups().where(*named, projects.c.name > after).order_by(projects.c.name)
            found = [Group(**row) for row in connection.execute(chosen.limit(limit + 1)).mappings()]
        return _listed(found[:limit], total, found[limit - 1].name if len(found) > limit else "")

    def project(self, identity: str) -> Group:
        """One project, by id.

        Raises:
            UnknownAccount: There is none.
        """
        with self._database.reading() as connection:
            chosen = _groups().where(projects.c.id == identity)
            row: Any = connection.execute(chosen).mappings().first()
        if row is None:
            raise _unknown("project", identity)
        return Group(**row)

    def members(self, project: str, *, limit: int, after: str = "") -> Listed[Member]:
        """Who belongs to a project, by name, from behind one.

        Raises:
            UnknownAccount: There is no project of this id.
        """
        total = self.project(project).members
        chosen = sa.select(users.c.name, users.c.id).join(members).where(members.c.project == project)
        chosen = chosen.where(users.c.name > after).order_by(users.c.name)
        with self._database.reading() as connection:
            found = [Member(**row) for row in connection.execute(chosen.limit(limit + 1)).mappings()]
        return _listed(found[:limit], total, found[limit - 1].name if len(found) > limit else "")

    def tokens(self, *, limit: int | None, after: str = "", user: str = "") -> Listed[Token]:
        """Tokens, the oldest first, from behind one; with an id, those of that user.

        Raises:
            InvalidSetting: `after` is not what a list ended with.
        """
        own = [tokens.c.user == user] if user else []
        chosen = _tokens().where(*own, *_behind(after)).order_by(tokens.c.created, tokens.c.id)
        with self._database.reading() as connection:
            total = _count(connection, tokens, *own)
            rows = connection.execute(chosen.limit(None if limit is None else limit + 1)).mappings()
            found = [Token(**row) for row in rows]
        if limit is None or len(found) <= limit:
            return _listed(found, total)
        last = found[limit - 1]
        return _listed(found[:limit], total, f"{last.created!r}-{last.id}")

    def token(self, identity: str) -> Token:
        """What is known of one token, by its id.

        Raises:
            UnknownAccount: There is none.
        """
        with self._database.reading() as connection:
            row: Any = connection.execute(_tokens().where(tokens.c.id == identity)).mappings().first()
        if row is None:
            raise _unknown("token", identity)
        return Token(**row)


def _listed(items: Sequence[T], total: int, after: str = "") -> Listed[T]:
    return Listed(items=tuple(items), total=total, next=after)


def _unknown(what: str, identity: str) -> UnknownAccount:
    return UnknownAccount(what, repr(identity[:80]), "there is none of this id")


def _count(connection: sa.Connection, table: sa.Table, *chosen: sa.ColumnElement[bool]) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table).where(*chosen)) or 0)


def _tokens() -> sa.Select[*tuple[Any, ...]]:
    names = [name for name in Token.__struct_fields__ if name not in ("user", "user_id")]
    whose = users.c.name.label("user"), users.c.id.label("user_id")
    return sa.select(*(tokens.c[name] for name in names), *whose).join(users)


def _behind(after: str) -> list[sa.ColumnElement[bool]]:
    """What comes behind the token that a list ended with."""
    if not after:
        return []
    created, _, identity = after.partition("-")
    try:
        at = float(created)
    except ValueError:
        raise InvalidSetting("after", repr(after[:80]), "give what `next` said") from None
    return [(tokens.c.created > at) | ((tokens.c.created == at) & (tokens.c.id > identity))]


def _groups() -> sa.Select[*tuple[Any, ...]]:
    of = sa.select(sa.func.count()).where(members.c.project == projects.c.id).correlate(projects)
    return sa.select(
        projects.c.name, projects.c.id, projects.c.created, of.scalar_subquery().label("members")
    )


def _usage(connection: sa.Connection, page: Sequence[User]) -> list[Usage]:
    """The same users with what they have."""
    ids, now = [user.id for user in page], time.time()
    kept = sa.select(totals.c.of, totals.c.models, totals.c.bytes)
    kept = kept.where(totals.c.kind == OWNER, totals.c.of.in_(ids))
    keeps = {str(row.of): (int(row.models), int(row.bytes)) for row in connection.execute(kept)}
    belongs = sa.select(members.c.user, sa.func.count()).where(members.c.user.in_(ids))
    joined = _counts(connection, belongs.group_by(members.c.user))
    valid = tokens.c.user.in_(ids) & (tokens.c.expires.is_(None) | (tokens.c.expires > now))
    held: dict[str, Counter[str]] = {}
    by_scope = sa.select(tokens.c.user, tokens.c.scope, sa.func.count()).where(valid)
    for user, scope, number in connection.execute(by_scope.group_by(tokens.c.user, tokens.c.scope)):
        held.setdefault(str(user), Counter())[str(scope)] = int(number)
    seen = sa.select(tokens.c.user, sa.func.count()).join(sessions).where(valid, lasting(now))
    visits = _counts(connection, seen.group_by(tokens.c.user))
    return [
        Usage(
            user=user,
            scope=max(held.get(user.id, ()), key=_RISING.index, default=""),
            models=keeps.get(user.id, (0, 0))[0],
            bytes=keeps.get(user.id, (0, 0))[1],
            projects=joined.get(user.id, 0),
            tokens=sum(held.get(user.id, Counter()).values()),
            sessions=visits.get(user.id, 0),
        )
        for user in page
    ]


def _counts(connection: sa.Connection, chosen: sa.Select[*tuple[Any, ...]]) -> dict[str, int]:
    return {str(of): int(number) for of, number in connection.execute(chosen)}
