"""Whose models are meant? By the names or ids of owners and projects, by signatures and by licences.

    sa.select(models).where(owner_is("ada"))              all that belong to who is called so now
    passing_all([Restriction(owners=("ada",), signed=True)])    what is true of models that may lend
    bearers(connection, restrictions)                     who that is now, for those who ask no database

Names are labels: one that a user or a project bears means who that is, by their id, and never the models of
somebody who was called so before. Where nobody bears it, it is the label of models that belong to no
identity: those of a zoo without users. The id of somebody who was removed goes on meaning their models.
"""

from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.zoo.database.schema import keys, models, projects, users
from modelkeeper.zoo.restriction import Restriction


def passing_all(restrictions: Iterable[Restriction]) -> list[sa.ColumnElement[bool]]:
    """What is true of the models that pass each of these."""
    passed: list[sa.ColumnElement[bool]] = []
    for each in restrictions:
        if each.owners:
            passed.append(sa.or_(*map(owner_is, each.owners)))
        if each.projects:
            passed.append(sa.or_(*map(project_is, each.projects)))
        if each.signed:
            trusted = sa.select(keys.c.id).where(keys.c.revoked.is_(None))
            passed.append((models.c.signer != "") & models.c.signer.in_(trusted))
        if each.licences:  # SPDX does not tell case apart
            passed.append(sa.func.lower(models.c.licence).in_([name.lower() for name in each.licences]))
    return passed


class Bearers(Struct, frozen=True):
    """Who is called as restrictions say: the ids of users and of projects by name; and which keys count."""

    owners: Mapping[str, frozenset[str]] = {}
    projects: Mapping[str, frozenset[str]] = {}
    trusted: frozenset[str] = frozenset()


NOBODY = Bearers()


def bearers(connection: sa.Connection, restrictions: Iterable[Restriction]) -> Bearers:
    """What the database knows of the names and keys that these restrictions speak of."""
    each = tuple(restrictions)

    def borne(table: sa.Table, names: set[str]) -> dict[str, frozenset[str]]:
        if not names:
            return {}
        chosen = sa.select(table.c.name, table.c.id).where(table.c.name.in_(names))
        return {name: frozenset({identity}) for name, identity in connection.execute(chosen)}

    trusted: frozenset[str] = frozenset()
    if any(restriction.signed for restriction in each):
        trusted = frozenset(
            connection.execute(sa.select(keys.c.id).where(keys.c.revoked.is_(None))).scalars()
        )
    return Bearers(
        borne(users, {name for restriction in each for name in restriction.owners}),
        borne(projects, {name for restriction in each for name in restriction.projects}),
        trusted,
    )


def owner_is(who: str) -> sa.ColumnElement[bool]:
    """Is somebody, by name or id, the owner of a model?"""
    return _is(users, models.c.owner_id, models.c.owner, who)


def project_is(which: str) -> sa.ColumnElement[bool]:
    """Is a model of this project, by name or id?"""
    return _is(projects, models.c.project_id, models.c.project, which)


def _is(
    table: sa.Table, identity: sa.ColumnElement[str], label: sa.ColumnElement[str], said: str
) -> sa.ColumnElement[bool]:
    if not said:
        return sa.false()
    named = sa.select(table.c.id).where(table.c.name == said)
    nobody = (label == said) & (identity == "") & ~sa.exists(named)
    return identity.in_(named) | (identity == said) | nobody


def is_known(connection: sa.Connection, who: str) -> bool:
    """Is this the name or the id of an owner or of a project?"""
    borne = (
        sa.select(table.c.id).where((table.c.name == who) | (table.c.id == who))
        for table in (users, projects)
    )
    labels = sa.select(models.c.id).where(owner_is(who) | project_is(who)).limit(1)
    return bool(who) and any(connection.scalar(chosen) is not None for chosen in (*borne, labels))
