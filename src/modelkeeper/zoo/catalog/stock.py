"""What of each stored model decides whether it stays? Columns of the catalog as arrays, without records.

    read_stock(connection, damaged)      all stored models, in the order of their ids

To read a record with its seal takes six times as long as the few columns that retention needs. Their seals
are not compared here: a row with values that no model can have is left out and noted as damaged, and so is
one that was found damaged before. Other rows are believed, since nothing goes for what they say alone: who is
to go is read as a record, with its seal, before it does (`Catalog.retire`).
"""

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.zoo.database.rows import VOICE
from modelkeeper.zoo.database.schema import models
from modelkeeper.zoo.records import STORED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LARGEST = 2**50  # bytes: no model has more
_WHOLE = ("bytes", "hits")
_NUMBERS = ("value", "created", "last_used", "twin_similarity")
_FLAGS = ("pinned",)
_ARRAYS = (*_WHOLE, *_NUMBERS, *_FLAGS)
_GROUP = ("task", "data", "metric", "lower_is_better")  # as `Record.group`
_COLUMNS = [models.c.id, VOICE, models.c.twin, *(models.c[name] for name in (*_GROUP, *_ARRAYS))]


class Stock(Struct, frozen=True, kw_only=True, eq=False):
    """The stored models of a zoo, in the order of their ids: a row of each array is a model."""

    ids: list[str]
    bytes: "NDArray[np.int64]"
    hits: "NDArray[np.int64]"
    value: "NDArray[np.float64]"  # NaN: not known
    created: "NDArray[np.float64]"
    last_used: "NDArray[np.float64]"
    twin_similarity: "NDArray[np.float64]"  # to its better twin, 0 if that is not stored
    pinned: "NDArray[np.bool_]"
    voice: "NDArray[np.int64]"  # whose each is: numbers in the order of names
    group: "NDArray[np.int64]"  # the place of its group
    groups: list[tuple[str, str, str, bool]]  # as `Record.group`


def read_stock(connection: sa.Connection, damaged: dict[str, float]) -> Stock:
    """All stored models but those whose rows are known, or seen now, to be damaged: these are noted."""
    rows = connection.execute(sa.select(*_COLUMNS).where(models.c.state.in_(STORED))).all()
    try:
        stock = _stock(row for row in rows if row[0] not in damaged)
    except (ValueError, TypeError, OverflowError):  # one of many is no number any more: which?
        damaged.update((str(row[0]), time.time()) for row in rows if not _reads(row))
        stock = _stock(row for row in rows if _reads(row) and row[0] not in damaged)
    wrong = _impossible(stock)
    if not wrong:
        return stock
    damaged.update((stock.ids[place], time.time()) for place in wrong)
    return _stock(row for row in rows if _reads(row) and row[0] not in damaged)


def _reads(row: sa.Row[Any]) -> bool:
    """Is each value of a row of the kind that it should be?"""
    texts, numbers = tuple(row)[:6], tuple(row)[7:]
    whole = all(isinstance(number, int) for number in numbers[: len(_WHOLE)])
    real = all(isinstance(number, int | float) for number in numbers[1 + len(_WHOLE) :])
    value = numbers[len(_WHOLE)]
    return (
        all(isinstance(text, str) for text in texts)
        and whole
        and real
        and isinstance(value, int | float | None)
    )


def _impossible(stock: Stock) -> list[int]:
    """The places of rows that no model can have."""
    import numpy as np

    sound = (
        (stock.bytes >= 0)
        & (stock.bytes <= LARGEST)
        & (stock.hits >= 0)
        & np.isfinite(stock.created)
        & np.isfinite(stock.last_used)
    )
    sound &= (stock.twin_similarity >= 0) & (stock.twin_similarity <= 1)
    places: list[int] = np.flatnonzero(~sound).tolist()
    return places


def _stock(rows: Iterable[sa.Row[Any]]) -> Stock:
    import numpy as np

    columns = list(zip(*sorted(rows, key=lambda row: row[0]), strict=True))
    ids, voices, twins = columns[:3] if columns else ((), (), ())
    kinds = dict.fromkeys(_WHOLE, np.int64) | dict.fromkeys(_NUMBERS, np.float64)
    numbers: dict[str, Any] = {
        name: np.array(columns[7 + place] if columns else (), kinds.get(name, np.bool_))
        for place, name in enumerate(_ARRAYS)
    }
    stored = set(ids)
    numbers["twin_similarity"] *= np.array([twin in stored for twin in twins], np.bool_)
    names, voice = _numbered(voices)
    order = np.argsort(np.array(names, np.object_))
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    groups, group = _numbered([*zip(*columns[3:7], strict=True)] if columns else ())
    groups = [(*named, bool(lower)) for *named, lower in groups]
    return Stock(ids=list(ids), voice=rank[voice], group=group, groups=groups, **numbers)


def _numbered(values: Sequence[Any]) -> "tuple[list[Any], NDArray[np.int64]]":
    """Each value once, in the order in which they appear, and of each the place among these."""
    import numpy as np

    places: dict[Any, int] = {}
    numbers = [places.setdefault(value, len(places)) for value in values]
    return list(places), np.array(numbers, np.int64)
