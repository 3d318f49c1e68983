"""What is the curve of a training compared with? A cold run of the same thing, or else its parent's.

    curves_of(catalog, record, viewer)      its own curve, and the one to draw beside it
    cold_twins(catalog, records, viewer)    curves of cold runs, by what makes trainings alike

A cold twin has the same architecture, data, fold and task, and started from its own initial values. Nothing
is told of models that the viewer may not see.
"""

from collections.abc import Iterable

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.policy.curves import Curve
from modelkeeper.zoo.catalog.catalog_reader import CatalogReader
from modelkeeper.zoo.database.rows import batches, visible
from modelkeeper.zoo.database.schema import curves, models
from modelkeeper.zoo.records import Record, Viewer

TWIN, PARENT = "cold twin", "parent"
Alike = tuple[str, str, str, str]


class Curves(Struct, frozen=True, kw_only=True):
    """How a training went, and what it is compared with."""

    curve: Curve | None = None  # None: nobody said
    cold: bool = True  # did it start from its own initial values?
    beside: Curve | None = None  # by the same metric; None: there is none to compare with
    kind: str = ""  # of what that is: TWIN or PARENT
    model: str = ""  # the id of what that is
    name: str = ""
    twins: int = 0  # cold runs alike of which a curve is known; the best of them is shown


def alike(record: Record) -> Alike:
    """Models of which this is the same are trainings of one thing."""
    return record.fingerprint, record.data, record.fold, record.task


def comparable(one: Curve, other: Curve) -> bool:
    """Are both drawn by the same metric?"""
    return (one.metric, one.lower_is_better) == (other.metric, other.lower_is_better)


def cold_twins(
    catalog: CatalogReader, warm: Iterable[Record], viewer: Viewer | None
) -> dict[Alike, dict[str, Curve]]:
    """The curves of trainings that started cold, by id, by what warm ones are compared by."""
    wanted = {alike(record) for record in warm}
    names = ("fingerprint", "data", "fold", "task")
    kinds: dict[str, Alike] = {}
    with catalog.database.reading() as connection:
        for batch in batches(sorted({fingerprint for fingerprint, *_ in wanted})):
            chosen = sa.select(models.c.id, *(models.c[name] for name in names))
            chosen = chosen.join(curves, curves.c.key == models.c.key)
            cold = models.c.fingerprint.in_(batch), models.c.parent == "", *visible(viewer)
            for row in connection.execute(chosen.where(*cold)):
                kind = row.fingerprint, row.data, row.fold, row.task
                if kind in wanted:
                    kinds[row.id] = kind
    found: dict[Alike, dict[str, Curve]] = {}
    for model, curve in catalog.curves(kinds).items():
        found.setdefault(kinds[model], {})[model] = curve
    return found


def curves_of(catalog: CatalogReader, record: Record, viewer: Viewer | None = None) -> Curves:
    """How the training of a model went, beside the best of its cold twins, or else a parent's."""
    cold, own = not record.parents, catalog.curves([record.id]).get(record.id)
    if own is None or cold:
        return Curves(curve=own, cold=cold)
    twins = cold_twins(catalog, [record], viewer).get(alike(record), {})
    twins = {model: curve for model, curve in twins.items() if comparable(own, curve)}
    if twins:
        best = max(twins, key=lambda model: (twins[model].goodness(twins[model].best), model))
        return _beside(catalog, own, TWIN, best, twins[best], viewer, len(twins))
    drawn = catalog.curves(record.parents)
    for parent in record.parents:
        if parent in drawn and comparable(own, drawn[parent]):
            return _beside(catalog, own, PARENT, parent, drawn[parent], viewer, 0)
    return Curves(curve=own, cold=False)


def _beside(
    catalog: CatalogReader, own: Curve, kind: str, model: str, curve: Curve, viewer: Viewer | None, twins: int
) -> Curves:
    seen = catalog.with_ids([model], viewer).get(model)
    if seen is None:  # it went between two questions
        return Curves(curve=own, cold=False)
    return Curves(curve=own, cold=False, beside=curve, kind=kind, model=model, name=seen.name, twins=twins)
