"""Which records come next, in some order? Pages that begin at a model, not after so and so many.

    place = place_of(connection, model, order, viewer)      where a model stands in an order
    turned(wanted, "-value", limit=50, after=place)         the 50 that follow it
    turned(wanted, "-value", limit=50, last=True)           the last 50

A page that begins at a model costs the same wherever it is, and shows the same models to a colleague when
others have come meanwhile. Only keys are sorted; the wide rows are read for those that are chosen.
"""

from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import UnknownModel
from modelkeeper.zoo.database.rows import FIELDS, passing, visible
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.records import Filter, Record, Viewer

NULLABLE = ("value", "similarity")  # of what records can be ordered by


class Place(Struct, frozen=True):
    """Where a model stands in an order: by its value there, and by its key among those of the same."""

    value: Any
    key: int


class Page(Struct, frozen=True):
    """Some records in an order."""

    records: list[Record]
    more: bool  # are there others further in the direction that was asked for?


def place_of(connection: sa.Connection, model: str, order: str, viewer: Viewer | None) -> Place:
    """The place of the model with this id, whether or not it passes a filter.

    Raises:
        UnknownModel: There is none, or the viewer may not see it.
    """
    chosen = sa.select(_column(order), models.c.key).where(models.c.id == model, *visible(viewer))
    row = connection.execute(chosen).first()
    if row is None:
        raise UnknownModel(model)
    return Place(*row)


def turned(
    wanted: Filter,
    order: str,
    *,
    limit: int | None = None,
    offset: int = 0,
    after: Place | None = None,
    before: Place | None = None,
    last: bool = False,
) -> sa.Select[Any]:
    """Rows in the order of a field (`-created`: the newest first; `-value`: the best), what has none last.

    Args:
        wanted: Which records.
        order: A field, with - in front for descending.
        limit: The most of them.
        offset: How many to leave out.
        after: Those that follow this place.
        before: The nearest that come before this place.
        last: Those at the end.
    """
    backwards = last or before is not None
    conditions = passing(wanted)
    if after is not None:
        conditions.append(_beyond(order, after, backwards=False))
    if before is not None:
        conditions.append(_beyond(order, before, backwards=True))
    chosen = sa.select(*FIELDS)
    if limit is None and not offset:
        return chosen.where(*conditions).order_by(*_ordered(order))
    keys = sa.select(models.c.key).where(*conditions).order_by(*_ordered(order, backwards))
    keys = keys.limit(limit).offset(offset)
    return chosen.where(models.c.key.in_(keys)).order_by(*_ordered(order))


def _column(order: str) -> sa.ColumnElement[Any]:
    """What an order compares."""
    name = order.removeprefix("-")
    if name == "value":  # the best first, whether higher or lower is better
        return sa.case((models.c.lower_is_better, -models.c.value), else_=models.c.value)
    return models.c[name]


def _ordered(order: str, backwards: bool = False) -> list[sa.ColumnElement[Any]]:
    """By value, those of the same the newest first."""
    column, falling = _column(order), order.startswith("-") is not backwards
    by_value = column.desc() if falling else column.asc()
    if order.removeprefix("-") in NULLABLE:
        by_value = by_value.nulls_first() if backwards else by_value.nulls_last()
    return [by_value, models.c.key.asc() if backwards else models.c.key.desc()]


def _beyond(order: str, place: Place, *, backwards: bool) -> sa.ColumnElement[bool]:
    """What is true of the rows on one side of a place."""
    column, key = _column(order), models.c.key
    later = key > place.key if backwards else key < place.key
    if place.value is None:
        side = column.is_(None) & later
        return side | column.is_not(None) if backwards else side
    falling = order.startswith("-") is not backwards
    value = sa.literal(place.value, column.type)
    here = column <= value if falling else column >= value  # apart, so that an index is used
    past = column < value if falling else column > value
    if order.removeprefix("-") in NULLABLE and not backwards:
        return (here & (past | later)) | column.is_(None)
    return here & (past | later)
