"""Which models are near of kin to one? Lines to parents and to children, walked in the database.

    kin = Relatives(connection, viewer, damaged)
    kin.lines(key, up=True, most=4_000)         pairs of keys: whoever is nearer, whoever is further
    kin.children(ids, most=1_000)               the newest that started from any of these
    kin.records(keys)

A walk goes along models that the viewer may see, and reads wide rows only of those that are chosen.
"""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from modelkeeper.zoo.database.rows import FIELDS, batches, records_of, shown, visible
from modelkeeper.zoo.database.schema import models, parents
from modelkeeper.zoo.records import Record, Viewer

Line = tuple[int, int]


class Relatives:
    """The family of a model, for as long as a connection is there."""

    def __init__(
        self, connection: sa.Connection, viewer: Viewer | None, damaged: "dict[str, float] | None" = None
    ) -> None:
        self._connection, self._viewer, self._damaged = connection, viewer, damaged

    def lines(self, of: int, *, up: bool, most: int) -> list[Line]:
        """Lines above or below the model of a key, the nearest generations first; not more than so many."""
        near, far = models.alias("near"), models
        lies = sa.and_(parents.c.key == (near if up else far).c.key)
        lies &= parents.c.parent == (far if up else near).c.id
        step = sa.select(near.c.key.label("near"), far.c.key.label("far")).where(lies, *visible(self._viewer))
        walk = step.where(near.c.key == of).cte("walk", recursive=True)
        walk = walk.union(step.where(near.c.key == walk.c.far))  # each line once, so that it ends
        found = self._connection.execute(sa.select(walk.c.near, walk.c.far).limit(most))
        return [(row.near, row.far) for row in found]

    def children(self, of: Sequence[str], *, most: int, but: Collection[int] = ()) -> dict[int, str]:
        """The newest models that started from any of these ids, by key, `but` for those that are known."""
        found: dict[int, str] = {}
        for batch in batches(of):
            started = self._started(batch)
            newest = started.order_by(started.selected_columns[0].desc()).limit(most + len(but))
            chosen = sa.select(models.c.key, models.c.id).where(models.c.key.in_(newest))
            found |= {row.key: row.id for row in self._connection.execute(chosen)}
        return {key: found[key] for key in sorted(found.keys() - set(but), reverse=True)[:most]}

    def count_children(self, of: Sequence[str], but: Collection[int] = ()) -> int:
        """How many such models there are; of more parents than one question takes, at least how many."""
        most = 0
        for batch in batches(of):
            started = self._started(batch)
            total = self._count(started)
            for known in batches(list(but)):
                total -= self._count(started.where(started.selected_columns[0].in_(known)))
            most = max(most, total)
        return most

    def _count(self, chosen: sa.Select[tuple[int]]) -> int:
        return self._connection.scalar(sa.select(sa.func.count()).select_from(chosen.subquery())) or 0

    def _started(self, of: Sequence[str]) -> sa.Select[tuple[int]]:
        """The keys of models that started from any of these; records are read only where they must be."""
        lines = parents.c.parent.in_(of)
        if not (seen := visible(self._viewer)):
            return sa.select(parents.c.key).where(lines).distinct()
        return sa.select(models.c.key).where(models.c.key.in_(sa.select(parents.c.key).where(lines)), *seen)

    def records(self, keys: Sequence[int]) -> dict[int, Record]:
        """Records by key."""
        found: list[Record] = []
        for batch in batches(keys):
            rows = self._connection.execute(sa.select(*FIELDS).where(models.c.key.in_(batch)))
            found += shown(self._connection, records_of(rows, self._damaged), self._viewer)
        return {record.key: record for record in found}
