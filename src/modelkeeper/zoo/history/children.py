"""Which models started from one, and what did each gain by it? In score, and in steps where that is known.

    children_of(catalog, record, viewer, limit=50, before=id)       the newest first
    gain(child, parent)                                             in score, above 0 is better

Of children that a viewer may not see nothing is told, and they are not counted. What a start saved is known
in the kinds of `savings`, which are never added up.
"""

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.zoo.catalog.catalog_reader import CatalogReader
from modelkeeper.zoo.catalog.starts import Starts
from modelkeeper.zoo.database.rows import FIELDS, records_of, shown, visible
from modelkeeper.zoo.database.schema import models, parents
from modelkeeper.zoo.history.savings import ESTIMATED, MATCHED, MEASURED, Saved, evidence
from modelkeeper.zoo.history.twins import alike, cold_twins
from modelkeeper.zoo.records import Record, Viewer


class Child(Struct, frozen=True, kw_only=True):
    """A model that started from another, and what came of that."""

    id: str
    name: str
    owner: str
    created: float
    state: str
    metric: str
    value: float | None
    lower_is_better: bool
    similarity: float | None  # to this parent; None: it is not its first one, or nobody said
    gain: float | None  # in score over this parent, above 0 is better; None: they cannot be compared
    measured: Saved = Saved()
    matched: Saved = Saved()
    estimated: Saved = Saved()

    @property
    def kind(self) -> str:
        """The kind of evidence that says how much its start saved, the surest there is; "": none does."""
        known = (kind for kind in (MEASURED, MATCHED, ESTIMATED) if self.saved(kind).starts)
        return next(known, "")

    def saved(self, kind: str) -> Saved:
        """What its start saved, by one kind of evidence."""
        part: Saved = getattr(self, kind)
        return part


def gain(record: Record, parent: Record | None) -> float | None:
    """By how much a model is better than its parent, where both were measured alike."""
    if parent is None or record.group != parent.group or record.value is None or parent.value is None:
        return None
    return (record.value - parent.value) * (-1 if record.lower_is_better else 1)


def children_of(
    catalog: CatalogReader,
    parent: Record,
    viewer: Viewer | None = None,
    *,
    limit: int = 50,
    before: str | None = None,
) -> list[Child]:
    """What started from a model, of what the viewer may see, the newest first; `before` a child's id."""
    started = sa.select(parents.c.key).where(parents.c.parent == parent.id)
    chosen = sa.select(*FIELDS).where(models.c.key.in_(started), *visible(viewer))
    if before is not None:
        at = sa.select(models.c.key).where(models.c.id == before, *visible(viewer)).scalar_subquery()
        chosen = chosen.where(models.c.key < at)
    with catalog.database.reading() as connection:
        rows = connection.execute(chosen.order_by(models.c.key.desc()).limit(limit))
        records = shown(connection, records_of(rows, catalog.damaged), viewer)
    drawn = catalog.curves([record.id for record in records])
    begun = Starts(catalog.database).of_models([record.id for record in records], viewer)
    twins = cold_twins(catalog, (record for record in records if record.id in drawn), viewer)
    found = []
    for record in records:
        cold = twins.get(alike(record), {}).values()
        saved = evidence(begun.get(record.id), drawn.get(record.id), cold)
        found.append(_child(record, parent, saved))
    return found


def _child(record: Record, parent: Record, saved: dict[str, Saved]) -> Child:
    return Child(
        id=record.id,
        name=record.name,
        owner=record.owner,
        created=record.created,
        state=record.state,
        metric=record.metric,
        value=record.value,
        lower_is_better=record.lower_is_better,
        similarity=record.similarity if record.parent == parent.id else None,
        gain=gain(record, parent),
        measured=saved[MEASURED],
        matched=saved[MATCHED],
        estimated=saved[ESTIMATED],
    )
