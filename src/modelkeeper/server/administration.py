"""Who may change users, projects and tokens by a service, and what of them? For routes and for pages alike.

Administrators may do everything, except to leave the zoo without one of them. Everybody else may list and
revoke their own tokens, and make more of them with a token that an administrator made: such a token is never
more than the one it was made with. Its scope is no higher, it ends no later, it is revoked with it, and it
makes none itself. So whoever revokes a token that got lost has shut out whoever found it.

Where there are no users (`--no-auth`) there is nothing to administer: anybody on the machine could else make
themselves an administrator of the same zoo where it is served to others.
"""

from modelkeeper.coordinator.wire import KnownUser, MadeToken, NewProject, NewToken, NewUser, Quotas
from modelkeeper.errors import NotAllowed, UnknownAccount
from modelkeeper.settings import ServiceSettings
from modelkeeper.zoo.accounts.account_lists import AccountLists, Group, Listed, Member, Usage
from modelkeeper.zoo.accounts.accounts import Accounts
from modelkeeper.zoo.accounts.holders import ADMIN, READ, WRITE, Holder, Token


class Administration:
    """Users, projects and tokens of a service, for whoever asks: administrators, unless it says otherwise."""

    def __init__(self, accounts: Accounts, settings: ServiceSettings) -> None:
        self._accounts, self._settings = accounts, settings

    def _lists(self, who: Holder, scope: str = ADMIN) -> AccountLists:
        self._expect(who, scope)
        return self._accounts.lists

    def _changes(self, who: Holder, scope: str = ADMIN) -> Accounts:
        self._expect(who, scope)
        return self._accounts.by(who)

    def _expect(self, who: Holder, scope: str) -> None:
        if not self._settings.auth:
            advice = "Serve it without --no-auth; on the machine, modelkeeper user, project and token do it."
            raise NotAllowed("this service has no users", advice)
        if not who.may(scope):
            raise NotAllowed(f"this needs the scope {scope}, yours is {who.scope}", "Ask an administrator.")

    # -- users ----------------------------------------------------------------------------------

    def users(self, who: Holder, *, limit: int, after: str = "", text: str = "") -> Listed[KnownUser]:
        """Users by name, with what they keep and may keep."""
        found = self._lists(who).users(limit=limit, after=after, text=text)
        items = tuple(self._known(usage) for usage in found.items)
        return Listed(items=items, total=found.total, next=found.next)

    def user(self, who: Holder, identity: str) -> KnownUser:
        """One user, by id."""
        return self._known(self._lists(who).user(identity))

    def _known(self, usage: Usage) -> KnownUser:
        user, common = usage.user, self._settings
        quotas = Quotas(bytes=user.bytes, models=user.models, pins=user.pins, rate=user.rate)
        most = Quotas(
            bytes=common.quota_bytes if user.bytes is None else user.bytes,
            models=common.quota_models if user.models is None else user.models,
            pins=common.quota_pins if user.pins is None else user.pins,
            rate=common.rate if user.rate is None else user.rate,
        )
        return KnownUser(
            name=user.name,
            id=user.id,
            created=user.created,
            scope=usage.scope,
            models=usage.models,
            bytes=usage.bytes,
            projects=usage.projects,
            tokens=usage.tokens,
            sessions=usage.sessions,
            quotas=quotas,
            most=most,
        )

    def add_user(self, who: Holder, asked: NewUser) -> KnownUser:
        """Add a user, who may do nothing before they have a token."""
        quotas = {name: most for name, most in _quotas(asked.quotas).items() if most is not None}
        return self.user(who, self._changes(who).add_user(asked.name, new=True, **quotas).id)

    def set_quotas(self, who: Holder, identity: str, quotas: Quotas) -> KnownUser:
        """Set all quotas of a user, by id."""
        self.user(who, identity)
        self._changes(who).set_quotas(identity, **_quotas(quotas))
        return self.user(who, identity)

    def remove_user(self, who: Holder, identity: str) -> KnownUser:
        """Remove a user, by id, with all tokens; models stay."""
        user = self.user(who, identity)
        self._changes(who).remove_user(identity)
        return user

    # -- projects -------------------------------------------------------------------------------

    def projects(self, who: Holder, *, limit: int, after: str = "", text: str = "") -> Listed[Group]:
        """Projects by name."""
        return self._lists(who).projects(limit=limit, after=after, text=text)

    def project(self, who: Holder, identity: str) -> Group:
        """One project, by id."""
        return self._lists(who).project(identity)

    def members(self, who: Holder, project: str, *, limit: int, after: str = "") -> Listed[Member]:
        """Who belongs to a project, by name."""
        return self._lists(who).members(project, limit=limit, after=after)

    def add_project(self, who: Holder, asked: NewProject) -> Group:
        """Add a project."""
        changes = self._changes(who)
        name = changes.add_project(asked.name, asked.members, new=True)
        return self.project(who, changes.project_id(name))

    def remove_project(self, who: Holder, identity: str) -> Group:
        """Remove a project, by id; its models are then seen by their owners alone."""
        project = self.project(who, identity)
        self._changes(who).remove_project(identity)
        return project

    def join(self, who: Holder, project: str, user: str) -> Group:
        """Make a user a member of a project, by ids; who is one stays one."""
        self._changes(who).join(project, user)
        return self.project(who, project)

    def leave(self, who: Holder, project: str, user: str) -> Group:
        """End that a user belongs to a project, by ids."""
        of = self.project(who, project)
        if not self._changes(who).leave(project, user):
            raise UnknownAccount("member", repr(user), f"nobody of this id belongs to project {of.name!r}")
        return self.project(who, project)

    # -- tokens: everybody's own, and all of them for administrators ------------------------------

    def tokens(self, who: Holder, *, limit: int, after: str = "", user: str = "") -> Listed[Token]:
        """What is known of tokens, the oldest first: of a user by id, or of all; for others, of their own."""
        lists = self._lists(who, READ)
        own = who.user.id if not who.may(ADMIN) else user
        return lists.tokens(limit=limit, after=after, user=own)

    def add_token(self, who: Holder, asked: NewToken) -> MadeToken:
        """Make a token of any user; others than administrators, of their own."""
        changes = self._changes(who, READ)
        user = asked.user or who.user.id
        if not who.may(ADMIN):
            self._expect_own(who, user, asked.scope)
        maker = None if who.may(ADMIN) else who
        token = changes.add_token(user, asked.scope, days=asked.days, note=asked.note, maker=maker)
        return MadeToken(token=token, known=self._accounts.lists.token(token.split("_")[1]))

    def _expect_own(self, who: Holder, user: str, scope: str) -> None:
        """Somebody who is no administrator makes a token for themselves, of no more than they have."""
        if user not in (who.user.id, who.user.name):
            raise NotAllowed("only administrators make tokens for others", "Ask one.")
        if who.maker:
            advice = "Use the one that it was made with, or ask an administrator."
            raise NotAllowed("a token that was made with another makes none itself", advice)
        if scope not in (READ, WRITE) or not who.may(scope):
            raise NotAllowed(
                f"your token is of scope {who.scope}, it makes none of {scope[:40]!r}", "Ask for one."
            )

    def revoke(self, who: Holder, identity: str) -> Token:
        """End a token, and those made with it; others than administrators, one of their own.

        Raises:
            UnknownAccount: There is none, or it is somebody else's.
            NotAllowed: It may do more than the one that is used.
        """
        changes = self._changes(who, READ)
        token = self._accounts.lists.token(identity)
        if not who.may(ADMIN):
            if token.user_id != who.user.id:
                raise UnknownAccount("token", repr(identity), "there is none of this id")
            if token.scope not in (READ, WRITE) or not who.may(token.scope):
                problem = f"token {identity} is of scope {token.scope}, yours of {who.scope}"
                raise NotAllowed(problem, "Use that one, or ask an administrator.")
        if not changes.revoke(identity):
            raise UnknownAccount("token", repr(identity), "somebody else has revoked it")
        return token


def _quotas(quotas: Quotas) -> dict[str, float | None]:
    return {"bytes": quotas.bytes, "models": quotas.models, "pins": quotas.pins, "rate": quotas.rate}
