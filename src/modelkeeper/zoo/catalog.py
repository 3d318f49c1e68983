"""Which models are there? The catalog: records, graphs and events in a SQL database.

    catalog = Catalog("sqlite:///zoo/catalog.db")
    catalog.add(record, graph, prepared)     one transaction; a reader sees all of it or nothing
    catalog.find(Filter(task="classification"))
    catalog.changes(since)                   which models came or went, by a number that only grows

Threads and processes may share one database. Writers of SQLite take turns from the start of a transaction
(BEGIN IMMEDIATE), readers are never kept waiting (WAL); what was committed survives a power cut. Elsewhere
whoever adds or retires models takes turns by the row that counts changes.
"""

import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from modelkeeper.errors import InvalidGraph, UnknownModel, ZooUnusable
from modelkeeper.graph import Graph, from_json
from modelkeeper.graph.wire import MAX_BYTES
from modelkeeper.zoo import schema
from modelkeeper.zoo.database import in_memory, open_engine
from modelkeeper.zoo.records import (
    DAMAGED,
    KEPT,
    MAX_NAME,
    PUBLIC,
    STORED,
    Event,
    Filter,
    Record,
    Viewer,
    is_id,
)
from modelkeeper.zoo.schema import clock, events, graphs, models, tags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MANY = 500  # values in one IN (...): databases have limits
NEWEST = 2_000  # models whose names are compared with one that is not there
_FIELDS = [models.c[name] for name in Record.__struct_fields__]


class Catalog:
    """The records of a zoo. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        """Open a database by its SQLAlchemy URL, and bring its schema up to date.

        Raises:
            ZooUnusable: It cannot be reached, or a newer modelkeeper made it.
        """
        self.url = url
        self._engine = open_engine(url)
        self._where = self._engine.url.render_as_string(hide_password=True)
        # A database in memory is one connection: threads take turns.
        self._turn: contextlib.AbstractContextManager[Any] = (
            threading.RLock() if in_memory(url) else contextlib.nullcontext()
        )
        try:
            self._prepare_schema()
        except ZooUnusable:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    # -- writing --------------------------------------------------------------------------------

    def add(
        self,
        record: Record,
        graph: bytes,
        prepared: bytes,
        event: Event | None = None,
        publish: Callable[[], None] = lambda: None,
    ) -> Record:
        """Add a record with its graph (JSON) and what the matcher made of it. Gives it its key.

        `publish` puts its files in place; no model comes or goes meanwhile, nor is swept. If a record has
        this id already, that one is returned, and nothing happens.
        """
        values = _values(record)
        with self._taking_turns() as connection:
            same = _records(connection.execute(sa.select(*_FIELDS).where(models.c.id == record.id)))
            if same:
                return same[0]
            publish()
            known = connection.scalar(sa.select(graphs.c.digest).where(graphs.c.digest == record.graph))
            if known is None:
                row = {"digest": record.graph, "graph": zlib.compress(graph), "prepared": prepared}
                connection.execute(graphs.insert(), row)
            values["changed"] = _tick(connection)
            key = connection.scalar(models.insert().returning(models.c.key), values)
            if record.tags:
                connection.execute(tags.insert(), [{"key": key, "tag": tag} for tag in record.tags])
            if event is not None:
                connection.execute(events.insert(), _event(event))
        return msgspec.structs.replace(record, key=int(key))

    @overload
    def retire(self, reasons: Mapping[str, str], state: str, user: str = "") -> list[Record]: ...
    @overload
    def retire(
        self, reasons: Mapping[str, str], state: str, user: str = "", *, clock: int
    ) -> list[Record] | None: ...
    def retire(
        self, reasons: Mapping[str, str], state: str, user: str = "", *, clock: int | None = None
    ) -> list[Record] | None:
        """Take models (id -> reason) out of what can be searched; their records stay. Which were there?

        With `clock`, nothing happens if a model came or went since it showed that (None), and those that
        were pinned since stay.
        """
        gone: list[Record] = []
        with self._taking_turns() as connection:
            if clock is not None and _now(connection) != clock:
                return None
            for batch in _batches(list(reasons)):
                among = models.c.id.in_(batch) & models.c.state.in_(KEPT) & (models.c.state != state)
                if clock is not None:
                    among &= models.c.pinned.is_(False)
                gone += _records(connection.execute(sa.select(*_FIELDS).where(among)))
            if gone:
                now, changed = time.time(), _tick(connection)
                change = (
                    models.update()
                    .where(models.c.key == sa.bindparam("of"))
                    .values(state=state, reason=sa.bindparam("why"), changed=changed)
                )
                connection.execute(change, [{"of": each.key, "why": reasons[each.id]} for each in gone])
                connection.execute(
                    events.insert(),
                    [
                        _event(Event(at=now, action=state, model=each.id, user=user, detail=reasons[each.id]))
                        for each in gone
                    ],
                )
        return gone

    def restore(self, model: str, state: str, reason: str, event: Event) -> bool:
        """Take a damaged model back into what can be searched. Was it damaged, and is its graph there?"""
        known = models.c.graph.in_(sa.select(graphs.c.digest))
        with self._taking_turns() as connection:
            change = models.update().where(models.c.id == model, models.c.state == DAMAGED, known)
            values = {"state": state, "reason": reason, "changed": _tick(connection)}
            back = connection.execute(change.values(**values)).rowcount > 0
            if back:
                connection.execute(events.insert(), _event(event))
        return back

    def update(self, model: str, event: Event | None = None, **values: Any) -> None:
        """Change fields of a record that do not decide whether it can be searched."""
        with self._writing() as connection:
            connection.execute(models.update().where(models.c.id == model).values(**values))
            if event is not None:
                connection.execute(events.insert(), _event(event))

    def lent(self, model: str, at: float, event: Event | None = None) -> None:
        """Count that a model lent its weights."""
        self.update(model, event, hits=models.c.hits + 1, last_used=at)

    def note(self, event: Event) -> None:
        """Write an event into the log."""
        with self._writing() as connection:
            connection.execute(events.insert(), _event(event))

    def set_twins(self, twins: Mapping[str, tuple[str, float]]) -> None:
        """Remember for models (by id) which better model is most like them, and how much."""
        if twins:
            change = (
                models.update()
                .where(models.c.id == sa.bindparam("of"))
                .values(twin=sa.bindparam("by"), twin_similarity=sa.bindparam("much"))
            )
            with self._taking_turns() as connection:
                rows = [{"of": of, "by": by, "much": much} for of, (by, much) in twins.items()]
                connection.execute(change, rows)

    def sweep_graphs(self) -> int:
        """Delete graphs that no model with files has. How many were there?"""
        used = sa.select(models.c.graph).where(models.c.state.in_(KEPT))
        with self._taking_turns() as connection:
            return connection.execute(graphs.delete().where(graphs.c.digest.not_in(used))).rowcount

    @contextlib.contextmanager
    def holding(self, model: str) -> Iterator[bool]:
        """Are files of a model kept under this id? While the block runs, that stays so."""
        stored = sa.select(models.c.key).where(models.c.id == model, models.c.state.in_(KEPT))
        with self._taking_turns() as connection:
            yield connection.scalar(stored) is not None

    # -- reading --------------------------------------------------------------------------------

    def get(self, name: str, viewer: Viewer | None = None) -> Record:
        """The record with this id, the only one whose id begins so, or the newest stored one of this name.

        Raises:
            UnknownModel: There is none, or several ids begin so. A model that the viewer may not see is
                not there.
        """
        with self._reading() as connection:
            whole = models.c.id == name
            if not is_id(name):
                prefix = models.c.id.startswith(name, autoescape=True) if len(name) >= 4 else sa.false()
                whole = prefix | ((models.c.name == name) & models.c.state.in_(STORED))
            chosen = sa.select(*_FIELDS).where(whole, *_visible(viewer)).order_by(models.c.key.desc())
            found = _shown(connection, _records(connection.execute(chosen.limit(20))), viewer)
        if not found:
            raise UnknownModel(name, near=self._near(name, viewer))
        named = [record for record in found if record.name == name]
        if not named and len(found) > 1:
            raise UnknownModel(name, tuple(record.id for record in found))
        return (named or found)[0]

    def _near(self, name: str, viewer: Viewer | None) -> tuple[str, ...]:
        """Names and ids that could be meant, among those of the newest models."""
        import difflib

        chosen = sa.select(models.c.id, models.c.name).where(models.c.state.in_(STORED), *_visible(viewer))
        with self._reading() as connection:
            rows = connection.execute(chosen.order_by(models.c.key.desc()).limit(NEWEST)).all()
        known = dict.fromkeys(text for row in rows for text in row)
        return tuple(difflib.get_close_matches(name[:MAX_NAME], known, n=3, cutoff=0.7))

    def count(self, wanted: Filter) -> int:
        """How many records pass a filter."""
        with self._reading() as connection:
            chosen = sa.select(sa.func.count()).select_from(models).where(*_where(wanted))
            return int(connection.scalar(chosen) or 0)

    def find(
        self, wanted: Filter, *, order: str = "-created", limit: int | None = None, offset: int = 0
    ) -> list[Record]:
        """Records, in the order of a field (`-created`: the newest first)."""
        column = models.c[order.removeprefix("-")]
        ordered = [column.desc() if order.startswith("-") else column.asc(), models.c.key.desc()]
        chosen = sa.select(*_FIELDS).where(*_where(wanted)).order_by(*ordered).limit(limit).offset(offset)
        with self._reading() as connection:
            return _shown(connection, _records(connection.execute(chosen)), wanted.viewer)

    def keys(self, wanted: Filter) -> "NDArray[np.int64]":
        """The keys of all records that pass a filter."""
        import numpy as np

        with self._reading() as connection:
            found = connection.execute(sa.select(models.c.key).where(*_where(wanted))).scalars().all()
        return np.array(found, np.int64)

    def with_keys(self, keys: Collection[int]) -> dict[int, Record]:
        """Records by key."""
        found: dict[int, Record] = {}
        with self._reading() as connection:
            for batch in _batches(list(keys)):
                rows = connection.execute(sa.select(*_FIELDS).where(models.c.key.in_(batch)))
                found.update((record.key, record) for record in _records(rows))
        return found

    def with_ids(self, ids: Collection[str], viewer: Viewer | None = None) -> dict[str, Record]:
        """Records by id, of those that the viewer may see."""
        found: dict[str, Record] = {}
        with self._reading() as connection:
            for batch in _batches(list(ids)):
                chosen = sa.select(*_FIELDS).where(models.c.id.in_(batch), *_visible(viewer))
                some = _shown(connection, _records(connection.execute(chosen)), viewer)
                found.update((record.id, record) for record in some)
        return found

    def keys_named(self, names: Collection[str]) -> "NDArray[np.int64]":
        """The keys of models that have one of these names or ids."""
        import numpy as np

        found: list[int] = []
        with self._reading() as connection:
            for batch in _batches(list(names)):
                named = models.c.name.in_(batch) | models.c.id.in_(batch)
                found += connection.execute(sa.select(models.c.key).where(named)).scalars()
        return np.array(found, np.int64)

    def children(self, parents: Collection[str], viewer: Viewer | None = None) -> list[Record]:
        """The models that started from one of these, the oldest first, of those that the viewer may see."""
        found: list[Record] = []
        with self._reading() as connection:
            for batch in _batches(list(parents)):
                chosen = sa.select(*_FIELDS).where(models.c.parent.in_(batch), *_visible(viewer))
                found += _shown(connection, _records(connection.execute(chosen)), viewer)
        return sorted(found, key=lambda record: record.key)

    def graph(self, digest: str) -> Graph:
        """A graph by its digest."""
        return from_json(self.graph_bytes(digest))

    def graph_bytes(self, digest: str) -> bytes:
        """A graph's JSON by its digest."""
        with self._reading() as connection:
            packed = connection.scalar(sa.select(graphs.c.graph).where(graphs.c.digest == digest))
        if packed is None:
            raise ZooUnusable(self._where, f"graph {digest} is missing", "Restore the catalog from a backup.")
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise InvalidGraph("catalog", f"a graph has more than {MAX_BYTES:,} bytes")
        return text

    def prepared(self, digests: Collection[str]) -> dict[str, bytes]:
        """What the matcher made of graphs, by their digests."""
        found: dict[str, bytes] = {}
        with self._reading() as connection:
            for batch in _batches(list(dict.fromkeys(digests))):
                chosen = sa.select(graphs.c.digest, graphs.c.prepared).where(graphs.c.digest.in_(batch))
                found.update((digest, data) for digest, data in connection.execute(chosen))
        return found

    def set_prepared(self, digest: str, prepared: bytes) -> None:
        """Replace what another version of the matcher made of a graph."""
        with self._writing() as connection:
            connection.execute(graphs.update().where(graphs.c.digest == digest).values(prepared=prepared))

    def clock(self) -> int:
        """A number that grows whenever a model comes or goes."""
        with self._reading() as connection:
            return _now(connection)

    def changes(self, since: int) -> tuple[int, list[tuple[int, str, str]]]:
        """The clock, and of each model that came or went since: key, state and digest of its graph."""
        with self._reading() as connection:
            now = _now(connection)
            if now == since:
                return now, []
            chosen = (
                sa.select(models.c.key, models.c.state, models.c.graph)
                .where(models.c.changed > since, models.c.changed <= now)
                .order_by(models.c.changed, models.c.key)
            )
            return now, [(int(key), state, graph) for key, state, graph in connection.execute(chosen)]

    def peers(self, task: str, data: str, metric: str, viewer: Viewer | None = None) -> list[float]:
        """The values of one metric of the stored models of a task on a data set that the viewer may see."""
        chosen = sa.select(models.c.value).where(
            models.c.task == task,
            models.c.data == data,
            models.c.metric == metric,
            models.c.value.is_not(None),
            models.c.state.in_(STORED),
            *_visible(viewer),
        )
        with self._reading() as connection:
            return [float(value) for value in connection.execute(chosen).scalars()]

    def kept_by(self, owner: str) -> tuple[int, int]:
        """How many models a user keeps, and how many bytes of weights they have."""
        total = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(models.c.bytes), 0))
        with self._reading() as connection:
            count, size = connection.execute(
                total.where(models.c.owner == owner, models.c.state.in_(STORED))
            ).one()
        return int(count), int(size)

    def bytes_stored(self) -> int:
        """How much room the weights of all stored models take."""
        chosen = sa.select(sa.func.coalesce(sa.func.sum(models.c.bytes), 0)).where(models.c.state.in_(STORED))
        with self._reading() as connection:
            return int(connection.scalar(chosen) or 0)

    def stats(self, viewer: Viewer | None = None) -> dict[str, Any]:
        """Counts over all that the viewer may see."""
        seen = sa.and_(sa.true(), *_visible(viewer))
        stored = models.c.state.in_(STORED) & seen
        total = (
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(models.c.bytes), 0),
            sa.func.coalesce(sa.func.sum(models.c.parameters), 0),
            sa.func.coalesce(sa.func.sum(models.c.hits), 0),
            sa.func.count(sa.distinct(models.c.fingerprint)),
        )
        with self._reading() as connection:
            count, size, parameters, hits, kinds = connection.execute(sa.select(*total).where(stored)).one()
            by_state = sa.select(models.c.state, sa.func.count()).where(seen).group_by(models.c.state)
            states = {state: int(number) for state, number in connection.execute(by_state)}
            by_task = (
                sa.select(models.c.task, models.c.data, sa.func.count(), sa.func.sum(models.c.hits))
                .where(stored)
                .group_by(models.c.task, models.c.data)
                .order_by(sa.func.count().desc(), models.c.task, models.c.data)
            )
            groups = [
                {"task": task, "data": data, "models": number, "hits": int(used)}
                for task, data, number, used in connection.execute(by_task)
            ]
        return {
            "models": int(count),
            "architectures": int(kinds),
            "bytes": int(size),
            "parameters": int(parameters),
            "hits": int(hits),
            "states": states,
            "groups": groups,
        }

    def log(
        self,
        *,
        limit: int = 50,
        model: str | None = None,
        action: str | None = None,
        viewer: Viewer | None = None,
    ) -> list[Event]:
        """The newest events, the newest first: the viewer's own, and those of models that it may see."""
        chosen = sa.select(events.c.at, events.c.action, events.c.model, events.c.user, events.c.detail)
        if model is not None:
            chosen = chosen.where(events.c.model == model)
        if action is not None:
            chosen = chosen.where(events.c.action == action)
        if viewer is not None:
            seen = sa.select(models.c.id).where(*_visible(viewer))
            chosen = chosen.where((events.c.user == viewer.user) | events.c.model.in_(seen))
        with self._reading() as connection:
            rows = connection.execute(chosen.order_by(events.c.number.desc()).limit(limit))
            return [Event(**row) for row in rows.mappings()]

    # -- connections ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._turn, self._translated(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._turn, self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(modelkeeper_begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    # For those who keep other tables in the same database.
    reading, writing = _reading, _writing

    @contextlib.contextmanager
    def _taking_turns(self) -> Iterator[sa.Connection]:
        """Write while nobody else adds or retires models."""
        with self._writing() as connection:
            connection.execute(sa.select(clock.c.value).with_for_update())  # SQLite's writers do so anyway
            yield connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as problem:
            text = str(getattr(problem, "orig", None) or problem).strip().partition("\n")[0]
            advice = "Check that it is reachable, that its disk is not full, and that you may write to it."
            if isinstance(problem, IntegrityError):
                advice = "Another process may have written the same record."
            raise ZooUnusable(self._where, text, advice) from problem

    def _prepare_schema(self) -> None:
        if self._version() == schema.VERSION:
            return
        from modelkeeper.zoo.migrations import upgrade

        with self._writing() as connection:
            if connection.dialect.name == "postgresql":  # as BEGIN IMMEDIATE: one process at a time
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x6D6F64656C)))
            found = _schema_version(connection)
            if found is not None and found > schema.VERSION:
                problem = f"its schema is version {found}, this modelkeeper knows {schema.VERSION}"
                raise ZooUnusable(self._where, problem, "Upgrade modelkeeper.")
            if found != schema.VERSION:
                upgrade(connection)

    def _version(self) -> str | None:
        with self._reading() as connection:
            return _schema_version(connection)


def _schema_version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return str(found) if found is not None else None


def _tick(connection: sa.Connection) -> int:
    connection.execute(clock.update().values(value=clock.c.value + 1))
    return _now(connection)


def _now(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(clock.c.value)) or 0)


def _visible(viewer: Viewer | None) -> list[sa.ColumnElement[bool]]:
    if viewer is None:
        return []
    mine = (models.c.visibility == PUBLIC) | (models.c.owner == viewer.user)
    if viewer.projects:
        mine |= (models.c.visibility == "project") & models.c.project.in_(viewer.projects)
    return [mine]


def _shown(connection: sa.Connection, records: list[Record], viewer: Viewer | None) -> list[Record]:
    """The same records without the ids of models that the viewer may not see."""
    if viewer is None:
        return records
    named = {other for record in records for other in (record.parent, record.twin) if other}
    hidden: set[str] = set()
    for batch in _batches(sorted(named)):
        seen = sa.select(models.c.id).where(models.c.id.in_(batch), *_visible(viewer))
        hidden |= set(batch) - set(connection.execute(seen).scalars())
    shown = []
    for record in records:
        if record.parent in hidden:
            record = msgspec.structs.replace(record, parent="", similarity=None)
        if record.twin in hidden:
            record = msgspec.structs.replace(record, twin="", twin_similarity=0.0)
        shown.append(record)
    return shown


def _where(wanted: Filter) -> list[sa.ColumnElement[bool]]:
    found = [models.c.state.in_(wanted.states), *_visible(wanted.viewer)]
    exact = {name: getattr(wanted, name) for name in ("task", "data", "owner")}
    found += [models.c[name] == value for name, value in exact.items() if value is not None]
    found += [models.c.key.in_(sa.select(tags.c.key).where(tags.c.tag == tag)) for tag in wanted.tags]
    if wanted.text:
        found.append(models.c.name.contains(wanted.text, autoescape=True))
    return found


def _values(record: Record) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in record.__struct_fields__ if name != "key"}
    return values | {"tags": list(record.tags)}


def _records(rows: Iterable[sa.Row[Any]]) -> list[Record]:
    return [Record(**{**row._mapping, "tags": tuple(row._mapping["tags"])}) for row in rows]


def _event(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _batches(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(values), MANY):
        yield values[at : at + MANY]
