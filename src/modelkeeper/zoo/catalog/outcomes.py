"""What came of starts from a zoo's models, and who may say so? Beside the catalog's records.

    outcomes = Outcomes(catalog)
    outcomes.add(Outcome(parent=id, user="ann", kind="raced", gain=-0.2, at=now))
    outcomes.credits(records)            how far each claim is believed: see `policy.credit`
    outcomes.found()                     what each user found, of all stored models, counted
    outcomes.was_lent(id, user)          only who was lent a model can know what came of it

Of one user, model and kind the newest are kept: more of them would say no more.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from modelkeeper.policy.credit import CHECKED, FAILED_CHECK, Credit, Outcome, credit
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import tick
from modelkeeper.zoo.database.rows import VOICE, batches
from modelkeeper.zoo.database.schema import events, models, outcomes, users
from modelkeeper.zoo.records import LENT, STORED, Record

MOST = 16  # outcomes of one kind that are kept of one user and model
_FIELDS = [outcomes.c[name] for name in Outcome.__struct_fields__]


class Outcomes:
    """The outcomes of one zoo. Safe to use from several threads and processes."""

    def __init__(self, catalog: Catalog) -> None:
        self._database = catalog.database

    def add(self, outcome: Outcome) -> None:
        """Note an outcome, and forget the oldest of many like it; a change that all replicas follow."""
        row = {name: getattr(outcome, name) for name in outcome.__struct_fields__}
        alike = [outcomes.c[name] == row[name] for name in ("parent", "user", "kind")]
        with self._database.writing() as connection:
            changed = models.update().where(models.c.id == outcome.parent).values(changed=tick(connection))
            connection.execute(changed)
            connection.execute(outcomes.insert(), row)
            newest = sa.select(outcomes.c.number).where(*alike).order_by(outcomes.c.number.desc())
            old = connection.execute(newest.offset(MOST).limit(1000)).scalars().all()
            if old:
                connection.execute(outcomes.delete().where(outcomes.c.number.in_(old)))

    def credits(self, records: Iterable[Record]) -> dict[str, Credit]:
        """By id, how far what is claimed of each model is believed."""
        by_id = {record.id: record for record in records}
        found: dict[str, list[Outcome]] = {}
        with self._database.reading() as connection:
            for batch in batches(list(by_id)):
                for row in connection.execute(sa.select(*_FIELDS).where(outcomes.c.parent.in_(batch))):
                    found.setdefault(row.parent, []).append(Outcome(**row._mapping))
        return {
            identity: credit(found.get(identity, ()), record.voice, bool(record.evidence))
            for identity, record in by_id.items()
        }

    def found(self) -> list[tuple[str, str, int, int]]:
        """Of each stored model and user but its owner: ids, and how many outcomes were good and bad.

        Bad ones as `policy.credit.factors` counts them. Models come by their ids, their users by theirs.
        """
        good = outcomes.c.gain > 0
        weight = sa.case((outcomes.c.kind == CHECKED, FAILED_CHECK), else_=1)
        counted = [sa.func.sum(sa.case((good, 1), else_=0)), sa.func.sum(sa.case((good, 0), else_=weight))]
        chosen = (
            sa.select(outcomes.c.parent, outcomes.c.user, *counted)
            .join(models, models.c.id == outcomes.c.parent)
            .where(models.c.state.in_(STORED), outcomes.c.user != VOICE)
            .group_by(outcomes.c.parent, outcomes.c.user)
        )
        with self._database.reading() as connection:
            rows = connection.execute(chosen).all()
        return sorted((parent, user, int(good), int(bad)) for parent, user, good, bad in rows)

    def was_lent(self, model: str, user: str) -> bool:
        """Was a model lent to a user, by their id?"""
        known = sa.select(users.c.name, users.c.created).where(users.c.id == user)
        with self._database.reading() as connection:
            row = connection.execute(known).one_or_none()
            if row is None:
                return False
            lent = sa.select(events.c.number).where(
                events.c.model == model,
                events.c.action == LENT,
                events.c.user == row.name,
                events.c.at >= row.created,  # another one of this name may have been there before
            )
            return connection.execute(lent.limit(1)).first() is not None
