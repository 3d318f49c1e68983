"""Which models does a name mean? Names belong to their owners and projects.

    ada/resnet20          the models of this name of who is called ada, or of the project ada
    resnet20              mine; else those of my projects; else those of others: and it is said whose

A model's own name may have slashes in it (`timm/resnet18`): what stands before the first one counts as an
owner or a project if there is one of that name, so that nobody can name a model as if it were another's.
Whoever asks sees what they may see. Ids are no names; whoever has one needs nothing of this.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import InvalidMeta, InvalidSetting
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.rows import batches, visible
from modelkeeper.zoo.database.schema import keys, models, projects, users
from modelkeeper.zoo.database.whose import (
    NOBODY,
    Bearers,
    bearers,
    is_known,
    owner_is,
    passing_all,
    project_is,
)
from modelkeeper.zoo.look_alikes import SLASHES, misleading, skeleton
from modelkeeper.zoo.records import STORED, Record, Viewer, is_id
from modelkeeper.zoo.restriction import Restriction

MINE, OURS, OTHERS = 0, 1, 2
MOST_NAMED = 8  # owners that a note lists


class Meant(Struct, frozen=True):
    """What a name means: a condition that is true of just these models, and what to say of the choice."""

    condition: sa.ColumnElement[bool]
    note: str = ""


class _Holder(Struct, frozen=True):
    """Somebody who has models of a name."""

    near: int  # MINE, OURS or OTHERS
    owner: str
    owner_id: str
    newest: int  # the key of the newest of them


def called(connection: sa.Connection, text: str) -> sa.ColumnElement[bool]:
    """What is true of all models that this name could mean, whoever asks."""
    who, slash, name = text.partition("/")
    if slash and is_known(connection, who):
        return (models.c.name == name) & (owner_is(who) | project_is(who))
    return models.c.name == text


def meant(connection: sa.Connection, text: str, viewer: Viewer | None, *, gone: bool = False) -> Meant | None:
    """The models that whoever asks means by a name; None if there is none that is stored, or `gone`."""
    there = models.c.state.in_(STORED)
    by_name = sa.and_(called(connection, text), ~there if gone else there, *visible(viewer))
    near = _nearness(viewer)
    named = sa.select(models.c.owner, models.c.owner_id, models.c.key, near.label("near")).where(by_name)
    each = named.subquery()
    columns = each.c.near, each.c.owner, each.c.owner_id
    newest = sa.func.max(each.c.key)
    grouped = sa.select(*columns, newest).group_by(*columns).order_by(each.c.near, newest.desc())
    holders = [_Holder(*row) for row in connection.execute(grouped.limit(MOST_NAMED + 1))]
    if not holders:
        return None
    nearest = holders[0].near
    alone = len(holders) == 1 and (
        viewer is None or nearest == MINE or text.startswith(f"{holders[0].owner}/")
    )
    return Meant(by_name & (near == nearest), "" if alone else _said(connection, text, holders))


def _nearness(viewer: Viewer | None) -> sa.ColumnElement[int]:
    """How near a model is to whoever asks."""
    if viewer is None:
        return sa.literal(OTHERS)
    mine = models.c.owner_id == viewer.user if viewer.user else owner_is(viewer.name)
    ours = models.c.project_id.in_(viewer.projects) if viewer.projects else sa.false()
    return sa.case((mine, sa.literal(MINE)), (ours, sa.literal(OURS)), else_=sa.literal(OTHERS))


def _said(connection: sa.Connection, text: str, holders: Sequence[_Holder]) -> str:
    """Which was taken, and what else was called so."""
    first, *others = holders
    newest = sa.select(models.c.key, models.c.id).where(models.c.key.in_([each.newest for each in holders]))
    ids = {row.key: row.id for row in connection.execute(newest)}
    name = text.rpartition("/")[2] if text.startswith(f"{first.owner}/") else text
    labels = [f"{each.owner}/{name} ({ids[each.newest]})" for each in holders]
    whose = ("yours", "of your project", "of another user")[first.near]
    taken = f"{text!r} is {labels[0]}, {whose}"
    if not others:
        return taken
    more = " and more" if len(labels) > MOST_NAMED else ""
    return f"{taken}; there are also {', '.join(labels[1:MOST_NAMED])}{more}"


class Names:
    """The names of the models of one catalog. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def meant(self, names: Collection[str], viewer: Viewer | None = None) -> tuple[dict[int, str], list[str]]:
        """The models (key -> id) that whoever asks means by names or ids, and what to say of the choice."""
        found: dict[int, str] = {}
        notes: list[str] = []
        with self._database.reading() as connection:
            for name in names:
                which = None if is_id(name) else meant(connection, name, viewer)
                notes += [which.note] if which is not None and which.note else []
                found |= _found(connection, models.c.id == name if which is None else which.condition)
        return found, notes

    def called(self, names: Collection[str]) -> dict[int, str]:
        """The models (key -> id) that could be meant by names or ids, whoever asks."""
        found: dict[int, str] = {}
        with self._database.reading() as connection:
            for name in names:
                found |= _found(connection, (models.c.id == name) | called(connection, name))
        return found

    def noted(self, records: Sequence[Record], viewer: Viewer | None = None) -> list[Record]:
        """The same records; one whose name looks like an older one of somebody else says so."""
        with self._database.reading() as connection:
            return with_notes(connection, records, viewer)

    def expect_own(self, name: str, owner: str, project: str) -> None:
        """A model is not named as if it were somebody else's: see `expect_own`."""
        if "/" in name:
            with self._database.reading() as connection:
                expect_own(connection, name, owner, project)

    def passing(self, ids: Collection[str], allowed: Restriction) -> set[str]:
        """The ids of those of these models that pass a restriction."""
        chosen = sa.select(models.c.id).where(models.c.id.in_(ids), *passing_all([allowed]))
        with self._database.reading() as connection:
            return set(connection.execute(chosen).scalars())

    def bearers(self, restrictions: Sequence[Restriction]) -> Bearers:
        """Who is called as restrictions say; nothing is asked if there are none."""
        if not restrictions:
            return NOBODY
        with self._database.reading() as connection:
            return bearers(connection, restrictions)

    def signers(self, of: Collection[str]) -> dict[str, str]:
        """Whose keys these are, by their ids, of those that are trusted."""
        if not of:
            return {}
        chosen = sa.select(keys.c.id, keys.c.name).where(keys.c.id.in_(of), keys.c.revoked.is_(None))
        with self._database.reading() as connection:
            return {row.id: row.name for row in connection.execute(chosen)}


def _found(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> dict[int, str]:
    chosen = sa.select(models.c.key, models.c.id).where(condition)
    return {row.key: row.id for row in connection.execute(chosen)}


# -- names that look like others ----------------------------------------------------------------


def with_notes(connection: sa.Connection, records: Sequence[Record], viewer: Viewer | None) -> list[Record]:
    """The same records; one whose name looks like an older one of somebody else says so."""
    alike = _alike(connection, {skeleton(record.name) for record in records}, viewer)
    noted = []
    for record in records:
        like = _looks_like(record, alike.get(skeleton(record.name), ()))
        notes = (*record.notes, like) if like and like not in record.notes else record.notes
        noted.append(msgspec.structs.replace(record, notes=notes) if notes != record.notes else record)
    return noted


class _Spelling(Struct, frozen=True):
    """A name as somebody writes it."""

    skeleton: str
    name: str
    owner: str
    owner_id: str
    first: int  # the key of the oldest model of this name


def _alike(
    connection: sa.Connection, skeletons: Collection[str], viewer: Viewer | None
) -> Mapping[str, list[_Spelling]]:
    """Who writes names that look so, and how."""
    alike: dict[str, list[_Spelling]] = {}
    columns = models.c.skeleton, models.c.name, models.c.owner, models.c.owner_id
    several = sa.select(models.c.skeleton).group_by(models.c.skeleton)
    several = several.having(sa.func.min(models.c.name) != sa.func.max(models.c.name))
    for all_of_them in batches(sorted(skeletons)):
        # Many models may be called the same, which an index tells, and only other names are looked into.
        batch = connection.execute(several.where(models.c.skeleton.in_(all_of_them))).scalars().all()
        if not batch:
            continue
        chosen = sa.select(*columns, sa.func.min(models.c.key)).group_by(*columns)
        chosen = chosen.where(models.c.skeleton.in_(batch), models.c.state.in_(STORED), *visible(viewer))
        for row in connection.execute(chosen):
            spelling = _Spelling(*row)
            alike.setdefault(spelling.skeleton, []).append(spelling)
    return alike


def _looks_like(record: Record, alike: Sequence[_Spelling]) -> str:
    """Whose name a model's looks like: of those who write one otherwise, whoever was there first."""
    owner = record.owner_id, record.owner
    own = (each.first for each in alike if (each.owner_id, each.owner) == owner)
    since = min(own, default=record.key)
    before = [
        each
        for each in alike
        if each.name != record.name and (each.owner_id, each.owner) != owner and each.first < since
    ]
    if not before:
        return ""
    first = min(before, key=lambda each: each.first)
    spelt = "" if record.name.isascii() else f", spelt {record.name!a}"
    return f"looks like {first.owner}'s {first.name}, but is {record.owner}'s {record.name}{spelt}"


def expect_own(connection: sa.Connection, name: str, owner: str, project: str) -> None:
    """A model is not named as if it were somebody else's.

    Raises:
        InvalidMeta: What stands before its first slash is, or looks like, another user or project.
    """
    who, slash, _ = name.partition("/")
    if not slash or who in (owner, project):
        return
    looks = skeleton(who)
    for table in (users, projects):
        for other in connection.execute(sa.select(table.c.name)).scalars():
            if skeleton(other) == looks:
                advice = f"it would pass for a model of {other!r}; leave out what is before the slash"
                raise InvalidMeta("name", repr(name), advice)


def expect_new(connection: sa.Connection, what: str, name: str) -> None:
    """A new user or project is called as nobody else is, at a glance.

    Raises:
        InvalidSetting: The name has a slash, or looks like that of another user or project.
    """
    if any(letter in name for letter in f"/{SLASHES}"):
        raise InvalidSetting(what, repr(name), "a slash stands between an owner and the name of a model")
    if reason := misleading(name):
        raise InvalidSetting(what, ascii(name), reason)
    looks = skeleton(name)
    for kind, table in (("user", users), ("project", projects)):
        for other in connection.execute(sa.select(table.c.name)).scalars():
            if skeleton(other) == looks:
                raise InvalidSetting(what, ascii(name), f"it looks like the {kind} {other!r}; choose another")
