"""Which rows of the catalog are meant, what of them may be seen, and how are they records?

    chosen = sa.select(*FIELDS).where(*passing(wanted))
    shown(connection, records_of(connection.execute(chosen)), wanted.viewer)

A viewer sees some models and not others. What it may not see is not there: neither as a row, nor as the
parent or the twin that the record of another model names.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from modelkeeper.logs import logger
from modelkeeper.zoo.database.schema import graphs, models, tags
from modelkeeper.zoo.database.seals import holds, seal_of, seal_of_bytes
from modelkeeper.zoo.database.whose import passing_all
from modelkeeper.zoo.look_alikes import skeleton
from modelkeeper.zoo.records import KEPT_FIELDS, PROJECT, PUBLIC, Event, Filter, Record, Viewer

VOICE = sa.case((models.c.owner_id != "", models.c.owner_id), else_=models.c.owner)  # see `Record.voice`
FIELDS = [*(models.c[name] for name in KEPT_FIELDS), models.c.seal]
_log = logger()
_LISTED = ("tags", "more_parents")  # JSON knows lists, records hold tuples
MANY = 500  # values in one IN (...): databases have limits


def visible(viewer: Viewer | None) -> list[sa.ColumnElement[bool]]:
    """What is true of the models that a viewer may see."""
    if viewer is None or viewer.all:
        return []
    if viewer.partner:
        return [models.c.published.is_(True)]
    seen = models.c.visibility == PUBLIC
    if viewer.user:
        seen |= models.c.owner_id == viewer.user
    if viewer.projects:
        seen |= (models.c.visibility == PROJECT) & models.c.project_id.in_(viewer.projects)
    return [seen]


def shown(connection: sa.Connection, records: list[Record], viewer: Viewer | None) -> list[Record]:
    """The same records without the ids of models that the viewer may not see."""
    if viewer is None or viewer.all:
        return records
    named = {other for record in records for other in (*record.parents, record.twin) if other}
    hidden: set[str] = set()
    for batch in batches(sorted(named)):
        seen = sa.select(models.c.id).where(models.c.id.in_(batch), *visible(viewer))
        hidden |= set(batch) - set(connection.execute(seen).scalars())
    reduced = []
    for record in records:
        if hidden & set(record.parents):
            left = [parent for parent in record.parents if parent not in hidden]
            first = left[0] if left else ""
            similarity = record.similarity if first == record.parent else None
            record = msgspec.structs.replace(
                record, parent=first, more_parents=tuple(left[1:]), similarity=similarity
            )
        if record.twin in hidden:
            record = msgspec.structs.replace(record, twin="", twin_similarity=0.0)
        reduced.append(_for_partners(record) if viewer.partner else record)
    return reduced


def _for_partners(record: Record) -> Record:
    """A published record without what is this organisation's own: projects, and who uses it how often."""
    return msgspec.structs.replace(
        record,
        owner_id="",
        project="",
        project_id="",
        run="",
        hits=0,
        last_used=record.created,
        pinned=False,
        reason="",
    )


def passing(wanted: Filter) -> list[sa.ColumnElement[bool]]:
    """What is true of the models that pass a filter."""
    conditions = [models.c.state.in_(wanted.states), *visible(wanted.viewer)]
    exact = {name: getattr(wanted, name) for name in ("task", "data", "origin")}
    conditions += [models.c[name] == value for name, value in exact.items() if value is not None]
    conditions += passing_all(wanted.restrictions)
    conditions += [models.c.key.in_(sa.select(tags.c.key).where(tags.c.tag == tag)) for tag in wanted.tags]
    for name, bound in wanted.ranges.items():
        if bound is not None:
            column = models.c[name.partition("_")[2]]
            conditions.append(column >= bound if name.startswith("least") else column <= bound)
    if wanted.fingerprints is not None:
        # In the text of the query, since databases have limits to how many values go beside it.
        these: sa.BindParameter[list[str]] = sa.bindparam(
            "of", list(wanted.fingerprints), expanding=True, literal_execute=True, unique=True
        )
        conditions.append(models.c.fingerprint.in_(these))
    if wanted.text:
        conditions.append(models.c.name.contains(wanted.text, autoescape=True))
    return conditions


def record_row(record: Record) -> dict[str, Any]:
    """A record as a row of models; its key is given there."""
    values = {name: getattr(record, name) for name in KEPT_FIELDS if name != "key"}
    derived = {"seal": seal_of(record), "skeleton": skeleton(record.name)}
    return values | {name: list(values[name]) for name in _LISTED} | derived


def record_of(row: sa.Row[Any]) -> Record:
    """The record of a row of FIELDS, whatever its seal."""
    values = {name: value for name, value in row._mapping.items() if name != "seal"}
    listed = {name: tuple(values[name]) for name in _LISTED if isinstance(values[name], list)}
    return Record(**{**values, **listed})  # what is no list any more no seal holds


def records_of(rows: Iterable[sa.Row[Any]], damaged: "dict[str, float] | None" = None) -> list[Record]:
    """Records from rows of FIELDS. One that is not what was written is left out, logged and noted."""
    records = []
    for row in rows:
        record = record_of(row)
        if holds(record, row.seal):
            records.append(record)
            continue
        if damaged is None or record.id not in damaged:
            _log.warning("the record of model %.40r in the catalog is damaged: modelkeeper verify", record.id)
        if damaged is not None:
            damaged[record.id] = time.time()
    return records


def reseal(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> None:
    """Seal the records of which this is true, as they are now."""
    rows = connection.execute(sa.select(*FIELDS).where(*conditions)).all()
    sealed = [{"of": row.key, "as": seal_of(record_of(row))} for row in rows]
    if sealed:
        change = models.update().where(models.c.key == sa.bindparam("of")).values(seal=sa.bindparam("as"))
        connection.execute(change, sealed)


def seal_all(connection: sa.Connection) -> None:
    """Seal everything as it is."""
    reseal(connection)
    for digest in connection.execute(sa.select(graphs.c.digest)).scalars().all():
        prepared = connection.scalar(sa.select(graphs.c.prepared).where(graphs.c.digest == digest))
        seal = seal_of_bytes(prepared or b"")
        connection.execute(graphs.update().where(graphs.c.digest == digest).values(seal=seal))


def event_row(event: Event) -> dict[str, Any]:
    """An event as a row of events; its number is given there."""
    return {name: getattr(event, name) for name in event.__struct_fields__ if name != "number"}


def batches(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Values in lots that go into one IN (...)."""
    for at in range(0, len(values), MANY):
        yield values[at : at + MANY]
