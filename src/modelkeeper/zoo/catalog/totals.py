"""How many models are there, how large, whose and of what? Totals, kept up to date beside the records.

    with recounted(connection, models.c.id == model): ...      around every change of rows that are counted
    bytes_stored(connection), kept_by(connection, user), stats(connection, viewer)
    counted(connection, wanted)                                how many pass a filter, if that is known here
    count_anew(connection)                                     from the rows, as they are
    differences(connection)                                    what the totals say otherwise than the rows

Totals are of states, and of what is stored by owner, by task and data set, and by architecture. They change
in the transaction that changes the records, so nobody ever sees the one without the other, and to read them
takes as long in a zoo of a million models as in a small one. For a viewer who does not see all, rows are
counted one by one. `modelkeeper verify` compares totals with rows, `modelkeeper gc` counts anew.

Who changes how many models there are takes turns (`Catalog.taking_turns`). Loans do not: they change `hits`
alone, and hold the row of their model, then totals in their order, and the ledger last.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from modelkeeper.zoo.database.rows import visible
from modelkeeper.zoo.database.schema import models, totals
from modelkeeper.zoo.records import REPLACED, STORED, Filter, Viewer

MOST_GROUPS = 1_000  # tasks and data sets that are counted one by one: anybody may invent one
STATE, OWNER, GROUP, ARCHITECTURE = "state", "owner", "group", "architecture"
NUMBER = ("number", "architectures", "")  # the row that counts the rows of architectures
_SUMMED = ("models", "bytes", "parameters", "hits")
_KEY = ("kind", "of", "within")
_LABELS = ("state", "owner_id", "task", "data", "fingerprint")

Key = tuple[str, str, str]
Sums = Counter[tuple[Key, str]]  # of each row and summed column


@contextlib.contextmanager
def recounted(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Iterator[None]:
    """Count rows of models anew that may change meanwhile; `which` is true of the same ones afterwards."""
    before = _sums(connection, which)
    yield
    after = _sums(connection, which)
    after.subtract(before)
    changed = sorted({key for (key, _), number in after.items() if number})
    architectures = 0
    for key in changed:
        more = {name: after[key, name] for name in _SUMMED}
        came, went = _add(connection, key, more)
        architectures += (came - went) * (key[0] == ARCHITECTURE)
    if architectures:
        _add(connection, NUMBER, {"models": architectures})


def _sums(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Sums:
    """What rows add to the totals; nobody else changes them until the transaction ends."""
    columns = [models.c[name] for name in (*_LABELS, *_SUMMED[1:])]
    sums: Sums = Counter()
    for row in connection.execute(sa.select(*columns).where(which).with_for_update()).mappings():
        for key in _keys(row):
            sums[key, "models"] += 1
            for name in _SUMMED[1:]:
                sums[key, name] += int(row[name])
    return sums


def _keys(row: sa.RowMapping) -> Iterator[Key]:
    yield STATE, row["state"], ""
    if row["state"] in STORED:
        yield OWNER, row["owner_id"], ""
        yield GROUP, row["task"], row["data"]
        yield ARCHITECTURE, row["fingerprint"], ""


def _add(connection: sa.Connection, key: Key, more: dict[str, int]) -> tuple[bool, bool]:
    """Add to one row of totals. Did it come, and did it go?"""
    at = sa.and_(*(totals.c[name] == value for name, value in zip(_KEY, key, strict=True)))
    raised = {name: totals.c[name] + number for name, number in more.items()}
    came = not connection.execute(totals.update().where(at).values(raised)).rowcount
    if came:
        empty = dict.fromkeys(_SUMMED, 0)
        connection.execute(totals.insert(), empty | more | dict(zip(_KEY, key, strict=True)))
    gone = more["models"] < 0 and connection.execute(totals.delete().where(at, totals.c.models <= 0)).rowcount
    return came, bool(gone)


def _counted() -> sa.CompoundSelect[Any]:
    """All totals, counted from the rows."""
    sums = [sa.func.count().label("models")]
    sums += [sa.func.coalesce(sa.func.sum(models.c[name]), 0).label(name) for name in _SUMMED[1:]]

    def grouped(kind: str, *by: sa.ColumnElement[str]) -> sa.Select[*tuple[Any, ...]]:
        first, second = (*by, sa.literal(""))[:2]
        chosen = sa.select(sa.literal(kind).label("kind"), first.label("of"), second.label("within"), *sums)
        return chosen.group_by(*by)

    stored = models.c.state.in_(STORED)
    nothing = [sa.literal(0).label(name) for name in _SUMMED[1:]]
    kinds = sa.func.count(sa.distinct(models.c.fingerprint)).label("models")
    return sa.union_all(
        grouped(STATE, models.c.state),
        grouped(OWNER, models.c.owner_id).where(stored),
        grouped(GROUP, models.c.task, models.c.data).where(stored),
        grouped(ARCHITECTURE, models.c.fingerprint).where(stored),
        sa.select(*map(sa.literal, NUMBER), kinds, *nothing).where(stored),
    )


def count_anew(connection: sa.Connection) -> None:
    """Write all totals from the rows. Nobody else may add or retire models meanwhile."""
    connection.execute(totals.delete())
    names = [*_KEY, *_SUMMED]
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(_counted()) if row[3]]
    if rows:
        connection.execute(totals.insert(), rows)


def differences(connection: sa.Connection) -> list[str]:
    """Which totals are not those of the rows, in words."""
    names = [*_KEY, *_SUMMED]
    counted = _counted().subquery()
    both = sa.union_all(  # one statement, so that both are of one moment
        sa.select(sa.literal(0), *(totals.c[name] for name in names)),
        sa.select(sa.literal(1), *counted.c),
    )
    found: tuple[dict[Key, list[int]], dict[Key, list[int]]] = {}, {}
    for row in connection.execute(both):
        if row[4]:
            found[row[0]][row[1], row[2], row[3]] = [int(number) for number in row[4:]]
    says, counts = found
    return [
        f"the totals of {' '.join(filter(None, key))} say {says.get(key)}, its records {counts.get(key)} "
        f"({', '.join(_SUMMED)}): modelkeeper gc counts anew"
        for key in sorted(says.keys() | counts.keys())
        if says.get(key) != counts.get(key)
    ]


def bytes_stored(connection: sa.Connection) -> int:
    """How much room the weights of all stored models take."""
    return _of_stored(connection)["bytes"]


def models_stored(connection: sa.Connection) -> int:
    """How many models are stored."""
    return _of_stored(connection)["models"]


def kept_by(connection: sa.Connection, owner_id: str) -> tuple[int, int]:
    """How many models a user keeps, by their id, and how many bytes of weights they have."""
    theirs = sa.select(totals.c.models, totals.c.bytes)
    row = connection.execute(theirs.where(totals.c.kind == OWNER, totals.c.of == owner_id)).first()
    return (int(row.models), int(row.bytes)) if row is not None else (0, 0)


def _of_stored(connection: sa.Connection) -> dict[str, int]:
    columns = [sa.func.coalesce(sa.func.sum(totals.c[name]), 0).label(name) for name in _SUMMED]
    chosen = sa.select(*columns).where(totals.c.kind == STATE, totals.c.of.in_(STORED))
    return {name: int(number) for name, number in connection.execute(chosen).mappings().one().items()}


def counted(connection: sa.Connection, wanted: Filter) -> int | None:
    """How many models pass a filter, if totals tell; None: rows must be counted."""
    named = {"restrictions": tuple(filter(None, wanted.restrictions)), "task": None, "data": None}
    narrowed = msgspec.structs.replace(wanted, viewer=None, states=STORED, **named)
    if narrowed != Filter() or (wanted.viewer is not None and not wanted.viewer.all):
        return None
    summed = sa.select(sa.func.coalesce(sa.func.sum(totals.c.models), 0))
    if wanted.task is None and wanted.data is None:
        summed = summed.where(totals.c.kind == STATE, totals.c.of.in_(wanted.states))
    elif set(wanted.states) == set(STORED):
        labels = ((totals.c.of, wanted.task), (totals.c.within, wanted.data))
        summed = summed.where(
            totals.c.kind == GROUP, *(of == label for of, label in labels if label is not None)
        )
    else:
        return None
    return int(connection.scalar(summed) or 0)


def stats(connection: sa.Connection, viewer: Viewer | None = None) -> dict[str, Any]:
    """Counts over all that the viewer may see.

    Loans count whatever became of their models, so that their number never falls; those of a version that was
    replaced are counted by the version that came after it.
    """
    if viewer is not None and not viewer.all:
        return _stats_of_seen(connection, viewer)
    of_kind = sa.select(totals.c.of, totals.c.within, totals.c.models, totals.c.hits)
    kinds = sa.select(totals.c.models).where(totals.c.kind == NUMBER[0], totals.c.of == NUMBER[1])
    groups = (
        of_kind.where(totals.c.kind == GROUP)
        .order_by(totals.c.models.desc(), totals.c.of, totals.c.within)
        .limit(MOST_GROUPS)
    )
    states = connection.execute(of_kind.where(totals.c.kind == STATE)).all()
    return {
        **_of_stored(connection),
        "hits": sum(int(hits) for state, _, _, hits in states if state != REPLACED),
        "architectures": int(connection.scalar(kinds) or 0),
        "states": {state: int(number) for state, _, number, _ in states if number},
        "groups": [_group(*row) for row in connection.execute(groups)],
    }


def _stats_of_seen(connection: sa.Connection, viewer: Viewer) -> dict[str, Any]:
    """The same for who does not see all: counted row by row."""
    seen = sa.and_(sa.true(), *visible(viewer))
    stored = models.c.state.in_(STORED) & seen
    used = sa.literal(0) if viewer.partner else models.c.hits
    summed = [sa.func.coalesce(sa.func.sum(column), 0) for column in (models.c.bytes, models.c.parameters)]
    kinds = sa.func.count(sa.distinct(models.c.fingerprint))
    lent = sa.select(sa.func.coalesce(sa.func.sum(used), 0)).where(seen, models.c.state != REPLACED)
    row = connection.execute(sa.select(sa.func.count(), *summed, kinds).where(stored)).one()
    names = ("models", "bytes", "parameters", "architectures")
    by_state = sa.select(models.c.state, sa.func.count()).where(seen).group_by(models.c.state)
    by_task = (
        sa.select(models.c.task, models.c.data, sa.func.count(), sa.func.sum(used))
        .where(stored)
        .group_by(models.c.task, models.c.data)
        .order_by(sa.func.count().desc(), models.c.task, models.c.data)
        .limit(MOST_GROUPS)
    )
    return {
        **{name: int(number) for name, number in zip(names, row, strict=True)},
        "hits": int(connection.scalar(lent) or 0),
        "states": {state: int(number) for state, number in connection.execute(by_state)},
        "groups": [_group(*row) for row in connection.execute(by_task)],
    }


def _group(task: str, data: str, number: int, hits: int) -> dict[str, Any]:
    return {"task": task, "data": data, "models": int(number), "hits": int(hits)}
