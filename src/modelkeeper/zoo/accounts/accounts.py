"""Who may use a service, and for what? Users, projects and tokens come and go, and the log says by whom.

    accounts = Accounts(catalog)
    accounts.add_user("ada"), accounts.add_project("vision", ["ada"])
    accounts.give("3fa9c2d1e0b4a567", "ada")                 models of one identity become another's
    secret = accounts.add_token("ada", "write", days=90)     shown once, nowhere kept
    accounts.holder(secret)                                  who sends it, and what they may do; None: nobody
    accounts.by(holder).remove_user("bob")                   as the log has it, by whom

Whoever is removed is gone: users and projects are known by ids, so that another one of the same name has none
of their models and rights. Names are labels, and no two of them may look alike. Who changed what is logged.
Whoever holds a valid token of scope admin is an administrator; the last one cannot be removed or revoked.

A token is `mk_<id>_<secret>`. The secret has 256 random bits, so a plain SHA-256 of it can be kept: there is
nothing to guess, and no need to slow guessing down.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from modelkeeper.errors import AccountConflict, InvalidSetting
from modelkeeper.zoo.accounts.account_rules import (
    administered,
    expect_known,
    expect_name,
    expect_quotas,
    find,
    new_token,
    user_of,
)
from modelkeeper.zoo.accounts.holders import SCOPES, TOKEN, Holder, Project, Token, User, holder_of
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import tick
from modelkeeper.zoo.catalog.totals import recounted
from modelkeeper.zoo.database.database import one_at_a_time
from modelkeeper.zoo.database.notices import count
from modelkeeper.zoo.database.rows import batches, event_row, reseal
from modelkeeper.zoo.database.schema import ACCOUNTS, events, members, models, projects, tokens, users
from modelkeeper.zoo.database.whose import owner_is
from modelkeeper.zoo.records import ADMINISTERED, GIVEN, Event, checked_name, new_id

if TYPE_CHECKING:
    from modelkeeper.zoo.accounts.account_lists import AccountLists
    from modelkeeper.zoo.accounts.sessions import Sessions

_TURN = "accounts"


class Accounts:
    """Users, projects and tokens of one zoo. Safe to use from several threads and processes."""

    def __init__(self, catalog: Catalog, by: str = "", by_id: str = "") -> None:
        """`by` is who changes them, as the log calls them; `by_id` if it is a user of a service."""
        self._catalog, self._database, self._by, self._by_id = catalog, catalog.database, by, by_id

    def by(self, holder: Holder) -> "Accounts":
        """The same accounts, changed by a user of a service."""
        return Accounts(self._catalog, holder.user.name, holder.user.id)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sa.Connection]:
        """A transaction; whoever changes accounts takes turns, as what one may do hangs on the others."""
        with self._database.writing() as connection:
            one_at_a_time(connection, _TURN)
            yield connection

    @property
    def lists(self) -> "AccountLists":
        """Who and what there is, with how much they keep, page by page."""
        from modelkeeper.zoo.accounts.account_lists import AccountLists

        return AccountLists(self._database)

    @property
    def sessions(self) -> "Sessions":
        """Who is logged in to the pages of a service."""
        from modelkeeper.zoo.accounts.sessions import Sessions

        return Sessions(self._database)

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
            token, row = new_token(str(known), scope, note)
            connection.execute(tokens.insert(), row)
            detail = f"user {name} ({known}) and their token {row['id']} of scope {scope} {note}"
            self._log(connection, detail, "added", user=name, id=known, token=row["id"], scope=scope)
        return token

    def add_user(self, name: str, *, new: bool = False, **quotas: float | None) -> User:
        """Add a user, or change the quotas of one who is there: bytes, models, rate, pins; None: the default.

        Raises:
            AccountConflict: There is one of this name, and it was to be a new one.
        """
        name = checked_name("user", name, empty=False)
        expect_quotas(quotas)
        with self._changing() as connection:
            known = connection.scalar(sa.select(users.c.id).where(users.c.name == name))
            if known is not None and new:
                raise AccountConflict(f"there is a user {name!r}", "Choose another name.")
            if known is None:
                expect_name(connection, "user", name)
                known = new_id()
                row = {"id": known, "name": name, "created": time.time(), **quotas}
                connection.execute(users.insert(), row)
                detail = f"user {name} ({known}) added{_said(quotas)}"
                self._log(connection, detail, "added", user=name, id=known, quotas=quotas)
            elif quotas:
                self._set_quotas(connection, (str(known), name), quotas)
            return user_of(connection, str(known))

    def set_quotas(self, user: str, **quotas: float | None) -> User:
        """Change quotas of a user, by name or id; those that are not named stay.

        Raises:
            UnknownAccount: There is no such user.
        """
        expect_quotas(quotas)
        with self._changing() as connection:
            known = expect_known(connection, users, "user", user)
            self._set_quotas(connection, known, quotas)
            return user_of(connection, known[0])

    def _set_quotas(self, connection: sa.Connection, user: tuple[str, str], quotas: dict[str, Any]) -> None:
        before = user_of(connection, user[0])
        changed = {name: most for name, most in quotas.items() if getattr(before, name) != most}
        if changed:
            connection.execute(users.update().where(users.c.id == user[0]).values(**changed))
            detail = f"user {user[1]} ({user[0]}) changed{_said(changed)}"
            self._log(connection, detail, "changed", user=user[1], id=user[0], quotas=changed)

    def users(self) -> list[User]:
        """All users by name."""
        with self._database.reading() as connection:
            return [User(**row) for row in connection.execute(sa.select(users).order_by("name")).mappings()]

    def remove_user(self, user: str) -> bool:
        """Remove a user, by name or id, with all tokens; models stay. Was there one?

        Raises:
            AccountConflict: It is the last administrator.
        """
        return self._remove(users, "user", user)

    def add_project(self, name: str, people: Sequence[str] = (), *, new: bool = False) -> str:
        """Add a project with these users as members; one that is there gets them besides.

        Raises:
            UnknownAccount: There is no such user; nothing is added.
            AccountConflict: There is one of this name, and it was to be a new one.
        """
        name = checked_name("project", name, empty=False)
        with self._changing() as connection:
            joining = [expect_known(connection, users, "user", user) for user in people]
            identity = connection.scalar(sa.select(projects.c.id).where(projects.c.name == name))
            if identity is not None and new:
                raise AccountConflict(f"there is a project {name!r}", "Choose another name.")
            if identity is None:
                expect_name(connection, "project", name)
                identity = new_id()
                row = {"id": identity, "name": name, "created": time.time()}
                connection.execute(projects.insert(), row)
                detail = f"project {name} ({identity}) added"
                self._log(connection, detail, "added", project=name, id=identity)
            for user in joining:
                self._join(connection, (str(identity), name), user)
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

    def remove_project(self, project: str) -> bool:
        """Remove a project, by name or id; its models are then seen by their owners alone. Was there one?"""
        return self._remove(projects, "project", project)

    def _remove(self, table: sa.Table, what: str, said: str) -> bool:
        with self._changing() as connection:
            known = find(connection, table, said)
            if known is not None:
                with administered(connection, f"{what} {known[1]!r}"):
                    connection.execute(table.delete().where(table.c.id == known[0]))
                detail = f"{what} {known[1]} ({known[0]}) removed"
                self._log(connection, detail, "removed", **{what: known[1], "id": known[0]})
        return known is not None

    def join(self, project: str, user: str) -> None:
        """Make a user a member of a project, each by name or id.

        Raises:
            UnknownAccount: There is no such project or user.
        """
        with self._changing() as connection:
            to = expect_known(connection, projects, "project", project)
            self._join(connection, to, expect_known(connection, users, "user", user))

    def _join(self, connection: sa.Connection, project: tuple[str, str], user: tuple[str, str]) -> None:
        membership = (members.c.project == project[0]) & (members.c.user == user[0])
        if connection.scalar(sa.select(members.c.user).where(membership)) is None:
            connection.execute(members.insert(), {"project": project[0], "user": user[0]})
            detail = f"user {user[1]} ({user[0]}) joined project {project[1]} ({project[0]})"
            self._log(connection, detail, "joined", user=user[1], project=project[1])

    def leave(self, project: str, user: str) -> bool:
        """End a membership; project and user by name or id. Was there one?"""
        with self._changing() as connection:
            of, who = find(connection, projects, project), find(connection, users, user)
            if of is None or who is None:
                return False
            membership = (members.c.project == of[0]) & (members.c.user == who[0])
            left = connection.execute(members.delete().where(membership)).rowcount > 0
            if left:
                detail = f"user {who[1]} ({who[0]}) left project {of[1]} ({of[0]})"
                self._log(connection, detail, "left", user=who[1], project=of[1])
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
        with self._catalog.taking_turns() as connection:
            changed = tick(connection)
            identity, name = expect_known(connection, users, "user", taker)
            theirs = owner_is(giver) & (models.c.owner_id != identity)
            chosen = sa.select(models.c.key, models.c.id).where(theirs).order_by(models.c.key)
            given = connection.execute(chosen.with_for_update()).all()
            if not given:
                raise InvalidSetting("giver", repr(giver), _known_as(connection, giver))
            for batch in batches([row.key for row in given]):
                among = models.c.key.in_(batch)
                values = {"owner": name, "owner_id": identity, "changed": changed}
                with recounted(connection, among):
                    connection.execute(models.update().where(among).values(values))
                reseal(connection, among)
            said, data = f"from {giver} to {name} ({identity})", {"giver": giver, "taker": name}
            event = Event(at=time.time(), action=GIVEN, user=self._by, detail=said, data=data)
            rows = [event_row(event) | {"model": row.id} for row in given]
            connection.execute(events.insert(), rows)
            self._log(connection, f"{len(given):,} models given {said}", "given", models=len(given), **data)
        return len(given)

    def _log(self, connection: sa.Connection, detail: str, change: str, **data: Any) -> None:
        """Write into the log what somebody changed: in words, and as data for programs; and count it."""
        said = {"change": change, **data} | ({"by": self._by_id} if self._by_id else {})
        event = Event(at=time.time(), action=ADMINISTERED, user=self._by, detail=detail, data=said)
        connection.execute(events.insert(), event_row(event))
        count(connection, ACCOUNTS)  # so that every service asks again who may do what

    # -- tokens ---------------------------------------------------------------------------------

    def add_token(
        self,
        user: str,
        scope: str,
        *,
        days: float | None = None,
        note: str = "",
        maker: Holder | None = None,
    ) -> str:
        """Make a token of a user, by name or id. What is returned is nowhere kept, and cannot be shown again.

        With a `maker` it is made with the token that they hold: it ends when that one does, or is revoked.

        Raises:
            UnknownAccount: There is no such user.
            AccountConflict: The token that it is made with is gone.
        """
        if scope not in SCOPES:
            raise InvalidSetting("scope", repr(scope[:40]), f"choose one of {', '.join(SCOPES)}")
        if days is not None and not 0 < days < 100_000:
            raise InvalidSetting("days", str(days), "give a number above 0")
        note = checked_name("note", note)
        with self._changing() as connection:
            holder, name = expect_known(connection, users, "user", user)
            token, row = new_token(holder, scope, note, days)
            if maker is not None:
                if holder_of(connection, maker.token) is None:
                    raise AccountConflict(f"token {maker.token} is gone", "Log in with another.")
                ends = [end for end in (row["expires"], maker.expires) if end is not None]
                row |= {"maker": maker.token, "expires": min(ends, default=None)}
            connection.execute(tokens.insert(), row)
            detail = f"token {row['id']} of scope {scope} made for user {name} ({holder})"
            about = {name: row[name] for name in ("scope", "note", "expires", "maker") if row[name]}
            self._log(connection, detail, "added", token=row["id"], user=name, **about)
        return token

    def tokens(self) -> list[Token]:
        """What is known of all tokens, the oldest first."""
        return list(self.lists.tokens(limit=None).items)

    def revoke(self, identity: str) -> bool:
        """Forget a token by its id (the part behind `mk_`), and those that were made with it. Was there one?

        Raises:
            AccountConflict: It is the last one of an administrator.
        """
        with self._changing() as connection:
            named = sa.select(tokens.c.scope, users.c.name).join(users).where(tokens.c.id == identity)
            known = connection.execute(named).one_or_none()
            if known is not None:
                with administered(connection, f"token {identity}"):
                    with_it = (tokens.c.id == identity) | (tokens.c.maker == identity)
                    more = connection.execute(tokens.delete().where(with_it)).rowcount - 1
                detail = f"token {identity} of scope {known.scope} of user {known.name} revoked"
                detail += f", and {more} made with it" * (more > 0)
                self._log(connection, detail, "revoked", token=identity, user=known.name, with_it=more)
        return known is not None

    def holder(self, token: str) -> Holder | None:
        """Who sends this token, if it is valid."""
        parts = TOKEN.fullmatch(token)
        if parts is None:
            return None
        with self._database.reading() as connection:
            return holder_of(connection, parts[1], parts[2])


def _known_as(connection: sa.Connection, name: str) -> str:
    """What to do about a name that nobody with models has now."""
    chosen = sa.select(models.c.owner_id).distinct().where(models.c.owner == name, models.c.owner_id != "")
    if ids := sorted(connection.execute(chosen).scalars()):
        return f"models registered under that name belong to {', '.join(ids)}: give the id that is meant"
    return "nobody of that name or id has models that are not the taker's already"


def _said(quotas: dict[str, Any]) -> str:
    return "".join(f", {quota} {'default' if most is None else most}" for quota, most in quotas.items())
