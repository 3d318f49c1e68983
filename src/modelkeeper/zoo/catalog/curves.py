"""How did the trainings of a zoo's models go? Curves, beside their records.

    put(connection, key, curve, earlier)      in the transaction that makes the record
    of_models(connection, ids)                by id, of those that have one

A model that takes the place of an earlier version of its training takes over what that one had been through.
"""

import zlib
from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from modelkeeper.policy.curves import Curve, Point, resumed
from modelkeeper.zoo.database.rows import batches
from modelkeeper.zoo.database.schema import curves, models

_MOST_BYTES = 2**20  # of the points of one curve: more was not written here


def put(connection: sa.Connection, key: int, curve: Curve | None, earlier: Collection[int]) -> None:
    """Note the curve of a new model, and forget those of earlier versions of its training."""
    before: list[Curve] = []
    if earlier:
        among = curves.c.key.in_(earlier)
        before = [_curve(row) for row in connection.execute(sa.select(curves).where(among))]
        connection.execute(curves.delete().where(among))
    if curve is not None:
        for drawn in before:
            curve = resumed(drawn, curve)
        points = zlib.compress(msgspec.json.encode(curve.points))
        values = {"metric": curve.metric, "lower_is_better": curve.lower_is_better, "points": points}
        connection.execute(curves.insert(), {"key": key, **values})


def of_models(connection: sa.Connection, ids: Collection[str]) -> dict[str, Curve]:
    """The curves of models, by id; those without one are left out."""
    found: dict[str, Curve] = {}
    for batch in batches(list(ids)):
        chosen = sa.select(models.c.id, curves).join(curves, curves.c.key == models.c.key)
        for row in connection.execute(chosen.where(models.c.id.in_(batch))):
            found[row.id] = _curve(row)
    return found


def _curve(row: "sa.Row[tuple[object, ...]]") -> Curve:
    """The curve of a row; a ValueError says that it is not what was written."""
    try:
        text = zlib.decompressobj().decompress(row.points, _MOST_BYTES)
    except zlib.error as problem:
        raise ValueError(f"the curve of model {row.key}: {problem}") from problem
    points = msgspec.json.decode(text, type=tuple[Point, ...])
    return Curve(metric=row.metric, lower_is_better=row.lower_is_better, points=points)
