"""Who may use a service, and for what? Users, projects and tokens, beside the catalog's records.

    accounts = Accounts(catalog)
    accounts.add_user("ada"), accounts.add_project("vision", ["ada"])
    accounts.give("3fa9c2d1e0b4a567", "ada")                 models of one identity become another's
    secret = accounts.add_token("ada", "write", days=90)     shown once, nowhere kept
    accounts.holder(secret)                                  who sends it, and what they may do; None: nobody

Whoever is removed is gone: users and projects are known by ids, so that another one of the same name has none
of their models and rights. Names are labels, and no two of them may look alike. Who changed what is logged.

A token is `mk_<id>_<secret>`. The secret has 256 random bits, so a plain SHA-256 of it can be kept: there is
nothing to guess, and no need to slow guessing down.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import InvalidSetting
from modelkeeper.zoo.catalog import Catalog
from modelkeeper.zoo.database import one_at_a_time
from modelkeeper.zoo.naming import expect_new
from modelkeeper.zoo.records import ADMINISTERED, GIVEN, Event, Viewer, checked_name, new_id
from modelkeeper.zoo.rows import batches, event_row, reseal
from modelkeeper.zoo.schema import events, members, models, projects, tokens, users
from modelkeeper.zoo.whose import owner_is

READ, WRITE, ADMIN = _RISING = ("read", "write", "admin")  # each includes those before it
METRICS = (
    "metrics"  # counts over everything, for a scraper: it includes nothing else, and ADMIN alone includes it
)
PARTNER = "partner"  # of another organisation: reads as READ does, but sees published models alone
SCOPES = (*_RISING, METRICS, PARTNER)
_TOKEN = re.compile(r"mk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_SECONDS = 86400.0


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
    scope: str
    note: str
    created: float
    expires: float | None


class Holder(Struct, frozen=True, kw_only=True):
    """Who makes a request."""

    user: User
    scope: str
    projects: dict[str, str] = {}  # name -> id

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


class Accounts:
    """Users, projects and tokens of one zoo. Safe to use from several threads and processes."""

    def __init__(self, catalog: Catalog, by: str = "") -> None:
        """`by` is who changes them, as the log calls them."""
        self._database, self._by = catalog.database, by

    # -- users and projects ---------------------------------------------------------------------

    def add_first(self, name: str, scope: str, *, note: str = "") -> str | None:
        """Add a user with a token, unless there is a token already. Of all who try at once, one does."""
        with self._database.writing() as connection:
            one_at_a_time(connection)
            if connection.scalar(sa.select(tokens.c.id).limit(1)) is not None:
                return None
            known = connection.scalar(sa.select(users.c.id).where(users.c.name == name))
            if known is None:
                known = new_id()
                connection.execute(users.insert(), {"id": known, "name": name, "created": time.time()})
            token, row = _new_token(str(known), scope, note)
            connection.execute(tokens.insert(), row)
        return token

    def add_user(self, name: str, **quotas: float | None) -> User:
        """Add a user, or change the quotas of one who is there: bytes, models, rate, pins."""
        name = checked_name("user", name, empty=False)
        with self._database.writing() as connection:
            known = connection.scalar(sa.select(users.c.id).where(users.c.name == name))
            said = "".join(f", {quota} {most}" for quota, most in quotas.items())
            if known is None:
                expect_new(connection, "user", name)
                new = {"id": new_id(), "name": name, "created": time.time(), **quotas}
                connection.execute(users.insert(), new)
                self._log(connection, f"user {name} ({new['id']}) added{said}")
            elif quotas:
                connection.execute(users.update().where(users.c.name == name).values(**quotas))
                self._log(connection, f"user {name} ({known}) changed{said}")
        return next(user for user in self.users() if user.name == name)

    def users(self) -> list[User]:
        """All users by name."""
        with self._database.reading() as connection:
            return [User(**row) for row in connection.execute(sa.select(users).order_by("name")).mappings()]

    def remove_user(self, name: str) -> bool:
        """Remove a user with all tokens; models stay. Was there one?"""
        return self._remove(users, "user", name)

    def add_project(self, name: str, people: Sequence[str] = ()) -> str:
        """Add a project with these users as members; one that is there gets them besides.

        Raises:
            InvalidSetting: There is no such user; nothing is added.
        """
        name = checked_name("project", name, empty=False)
        with self._database.writing() as connection:
            joining = [(user, _id(connection, users, "user", user)) for user in people]
            identity = connection.scalar(sa.select(projects.c.id).where(projects.c.name == name))
            if identity is None:
                expect_new(connection, "project", name)
                identity = new_id()
                new = {"id": identity, "name": name, "created": time.time()}
                connection.execute(projects.insert(), new)
                self._log(connection, f"project {name} ({identity}) added")
            for user, member in joining:
                self._join(connection, (name, identity), (user, member))
        return name

    def projects(self) -> list[Project]:
        """All projects by name, with their members."""
        people = projects.outerjoin(members).outerjoin(users, users.c.id == members.c.user)
        both = sa.select(projects.c.name, projects.c.id, users.c.name).select_from(people)
        both = both.order_by(projects.c.name, users.c.name)
        members_of: dict[tuple[str, str], tuple[str, ...]] = {}
        with self._database.reading() as connection:
            for name, identity, user in connection.execute(both):
                of = members_of.get((name, identity), ())
                members_of[name, identity] = of + ((user,) if user is not None else ())
        return [Project(name=name, id=key, members=known) for (name, key), known in members_of.items()]

    def project_id(self, name: str) -> str:
        """The id of a project; "": there is none of this name."""
        with self._database.reading() as connection:
            return connection.scalar(sa.select(projects.c.id).where(projects.c.name == name)) or ""

    def remove_project(self, name: str) -> bool:
        """Remove a project; its models are then seen by their owners alone. Was there one?"""
        return self._remove(projects, "project", name)

    def _remove(self, table: sa.Table, what: str, name: str) -> bool:
        with self._database.writing() as connection:
            identity = connection.scalar(sa.select(table.c.id).where(table.c.name == name))
            if identity is not None:
                connection.execute(table.delete().where(table.c.id == identity))
                self._log(connection, f"{what} {name} ({identity}) removed")
        return identity is not None

    def join(self, project: str, user: str) -> None:
        """Make a user a member of a project."""
        with self._database.writing() as connection:
            of = project, _id(connection, projects, "project", project)
            self._join(connection, of, (user, _id(connection, users, "user", user)))

    def _join(self, connection: sa.Connection, project: tuple[str, str], user: tuple[str, str]) -> None:
        membership = (members.c.project == project[1]) & (members.c.user == user[1])
        if connection.scalar(sa.select(members.c.user).where(membership)) is None:
            connection.execute(members.insert(), {"project": project[1], "user": user[1]})
            self._log(connection, f"user {user[0]} ({user[1]}) joined project {project[0]} ({project[1]})")

    def leave(self, project: str, user: str) -> bool:
        """End a membership. Was there one?"""
        named = (projects, members.c.project, project), (users, members.c.user, user)
        membership = sa.and_(
            *(column.in_(sa.select(table.c.id).where(table.c.name == name)) for table, column, name in named)
        )
        with self._database.writing() as connection:
            left = connection.execute(members.delete().where(membership)).rowcount > 0
            if left:
                self._log(connection, f"user {user} left project {project}")
        return left

    def give(self, giver: str, taker: str) -> int:
        """Make the models of one identity another user's. How many were there?

        Args:
            giver: A user, by name or id; the id of one who was removed; or, in a zoo that had no users, the
                name that models were registered under.
            taker: A user, by name or id.

        Raises:
            InvalidSetting: There is no such user, or nobody of that name has models.
        """
        with self._database.writing() as connection:
            identity = _id(connection, users, "user", taker)
            name = str(connection.scalar(sa.select(users.c.name).where(users.c.id == identity)))
            theirs = owner_is(giver) & (models.c.owner_id != identity)
            given = connection.execute(sa.select(models.c.key, models.c.id).where(theirs)).all()
            if not given:
                raise InvalidSetting("giver", repr(giver), _known_as(connection, giver))
            for batch in batches([row.key for row in given]):
                among = models.c.key.in_(batch)
                connection.execute(models.update().where(among).values(owner=name, owner_id=identity))
                reseal(connection, among)
            now, said = time.time(), f"from {giver} to {name} ({identity})"
            happened = (
                Event(at=now, action=GIVEN, model=row.id, user=self._by, detail=said) for row in given
            )
            connection.execute(events.insert(), [event_row(event) for event in happened])
            self._log(connection, f"{len(given):,} models given {said}")
        return len(given)

    def _log(self, connection: sa.Connection, detail: str) -> None:
        """Write into the log who changed what."""
        event = Event(at=time.time(), action=ADMINISTERED, user=self._by, detail=detail)
        connection.execute(events.insert(), event_row(event))

    # -- tokens ---------------------------------------------------------------------------------

    def add_token(self, user: str, scope: str, *, days: float | None = None, note: str = "") -> str:
        """Make a token. What is returned is nowhere kept, and cannot be shown again."""
        if scope not in SCOPES:
            raise InvalidSetting("scope", repr(scope), f"choose one of {', '.join(SCOPES)}")
        if days is not None and not 0 < days < 100_000:
            raise InvalidSetting("days", str(days), "give a number above 0")
        note = checked_name("note", note)
        with self._database.writing() as connection:
            holder = _id(connection, users, "user", user)
            token, row = _new_token(holder, scope, note, days)
            connection.execute(tokens.insert(), row)
            self._log(connection, f"token {row['id']} of scope {scope} made for user {user} ({holder})")
        return token

    def tokens(self) -> list[Token]:
        """What is known of all tokens, the oldest first."""
        names = [name for name in Token.__struct_fields__ if name != "user"]
        chosen = sa.select(*(tokens.c[name] for name in names), users.c.name.label("user")).join(users)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.order_by(tokens.c.created, tokens.c.id))
            return [Token(**row) for row in rows.mappings()]

    def revoke(self, identity: str) -> bool:
        """Forget a token by its id (the part behind `mk_`). Was there one?"""
        with self._database.writing() as connection:
            revoked = connection.execute(tokens.delete().where(tokens.c.id == identity)).rowcount > 0
            if revoked:
                self._log(connection, f"token {identity} revoked")
        return revoked

    def holder(self, token: str) -> Holder | None:
        """Who sends this token, if it is valid."""
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            return None
        joined = sa.select(projects.c.name, projects.c.id).join(members).order_by(projects.c.name)
        with self._database.reading() as connection:
            chosen = sa.select(tokens.c.digest, tokens.c.scope, tokens.c.expires, users).join(users)
            row: Any = connection.execute(chosen.where(tokens.c.id == parts[1])).mappings().one_or_none()
            digest = row["digest"] if row is not None else _digest("")
            valid = hmac.compare_digest(digest, _digest(parts[2]))
            if row is None or not valid or (row["expires"] is not None and row["expires"] <= time.time()):
                return None
            user = User(**{name: row[name] for name in User.__struct_fields__})
            rows = connection.execute(joined.where(members.c.user == user.id))
            belongs = {str(project): str(identity) for project, identity in rows}
        return Holder(user=user, scope=row["scope"], projects=belongs)


def _id(connection: sa.Connection, table: sa.Table, what: str, said: str) -> str:
    """The id of the user or the project of this name, or of this id."""
    chosen = sa.select(table.c.id).where((table.c.name == said) | (table.c.id == said))
    identity = connection.scalar(chosen.order_by(table.c.name != said))
    if identity is None:
        raise InvalidSetting(what, repr(said), f"there is none; modelkeeper {what} add {said} adds one")
    return str(identity)


def _known_as(connection: sa.Connection, name: str) -> str:
    """What to do about a name that nobody with models has now."""
    chosen = sa.select(models.c.owner_id).distinct().where(models.c.owner == name, models.c.owner_id != "")
    if ids := sorted(connection.execute(chosen).scalars()):
        return f"models registered under that name belong to {', '.join(ids)}: give the id that is meant"
    return "nobody of that name or id has models that are not the taker's already"


def _new_token(user: str, scope: str, note: str, days: float | None = None) -> tuple[str, dict[str, Any]]:
    """A token, and the row that knows it by its digest."""
    identity, secret, now = secrets.token_hex(8), secrets.token_urlsafe(32), time.time()
    expires = None if days is None else now + days * _SECONDS
    row = {"id": identity, "user": user, "digest": _digest(secret), "scope": scope, "note": note}
    return f"mk_{identity}_{secret}", row | {"created": now, "expires": expires}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
