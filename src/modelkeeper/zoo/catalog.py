"""Which models are there? The catalog: records, graphs and events in a SQL database.

    catalog = Catalog("sqlite:///zoo/catalog.db")
    catalog.add(record, graph, prepared)     one transaction; a reader sees all of it or nothing
    catalog.find(Filter(task="classification"))
    catalog.changes(since)                   which models came or went, by a number that only grows

Threads and processes may share one database (see `database`). Where writers do not take turns anyway,
whoever adds or retires models does so by the row that counts changes.
"""

import contextlib
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

import msgspec
import sqlalchemy as sa

from modelkeeper.errors import InvalidGraph, UnknownModel, ZooUnusable
from modelkeeper.graph import Graph, from_json
from modelkeeper.graph.wire import MAX_BYTES
from modelkeeper.zoo.database import Database
from modelkeeper.zoo.records import (
    DAMAGED,
    KEPT,
    MAX_NAME,
    STORED,
    Event,
    Filter,
    Record,
    Viewer,
    is_id,
)
from modelkeeper.zoo.rows import FIELDS, batches, event_row, passing, record_row, records_of, shown, visible
from modelkeeper.zoo.schema import clock, events, graphs, models, tags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NEWEST = 2_000  # models whose names are compared with one that is not there


class Catalog:
    """The records of a zoo. Safe to use from several threads."""

    def __init__(self, url: str) -> None:
        """Open a database by its SQLAlchemy URL, and bring its schema up to date.

        Raises:
            ZooUnusable: It cannot be reached, or a newer modelkeeper made it.
        """
        self.database = Database(url)

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

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
        values = record_row(record)
        with self._taking_turns() as connection:
            same = records_of(connection.execute(sa.select(*FIELDS).where(models.c.id == record.id)))
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
                connection.execute(events.insert(), event_row(event))
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
            for batch in batches(list(reasons)):
                among = models.c.id.in_(batch) & models.c.state.in_(KEPT) & (models.c.state != state)
                if clock is not None:
                    among &= models.c.pinned.is_(False)
                gone += records_of(connection.execute(sa.select(*FIELDS).where(among)))
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
                        event_row(
                            Event(at=now, action=state, model=each.id, user=user, detail=reasons[each.id])
                        )
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
                connection.execute(events.insert(), event_row(event))
        return back

    def update(self, model: str, event: Event | None = None, **values: Any) -> None:
        """Change fields of a record that do not decide whether it can be searched."""
        with self.database.writing() as connection:
            connection.execute(models.update().where(models.c.id == model).values(**values))
            if event is not None:
                connection.execute(events.insert(), event_row(event))

    def lent(self, model: str, at: float, event: Event | None = None) -> None:
        """Count that a model lent its weights."""
        self.update(model, event, hits=models.c.hits + 1, last_used=at)

    def note(self, event: Event) -> None:
        """Write an event into the log."""
        with self.database.writing() as connection:
            connection.execute(events.insert(), event_row(event))

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

    @contextlib.contextmanager
    def _taking_turns(self) -> Iterator[sa.Connection]:
        """Write while nobody else adds or retires models."""
        with self.database.writing() as connection:
            connection.execute(sa.select(clock.c.value).with_for_update())  # SQLite's writers do so anyway
            yield connection

    # -- reading --------------------------------------------------------------------------------

    def get(self, name: str, viewer: Viewer | None = None) -> Record:
        """The record with this id, the only one whose id begins so, or the newest stored one of this name.

        Raises:
            UnknownModel: There is none, or several ids begin so. A model that the viewer may not see is
                not there.
        """
        with self.database.reading() as connection:
            whole = models.c.id == name
            if not is_id(name):
                prefix = models.c.id.startswith(name, autoescape=True) if len(name) >= 4 else sa.false()
                whole = prefix | ((models.c.name == name) & models.c.state.in_(STORED))
            chosen = sa.select(*FIELDS).where(whole, *visible(viewer)).order_by(models.c.key.desc())
            found = shown(connection, records_of(connection.execute(chosen.limit(20))), viewer)
        if not found:
            raise UnknownModel(name, near=self._near(name, viewer))
        named = [record for record in found if record.name == name]
        if not named and len(found) > 1:
            raise UnknownModel(name, tuple(record.id for record in found))
        return (named or found)[0]

    def _near(self, name: str, viewer: Viewer | None) -> tuple[str, ...]:
        """Names and ids that could be meant, among those of the newest models."""
        import difflib

        chosen = sa.select(models.c.id, models.c.name).where(models.c.state.in_(STORED), *visible(viewer))
        with self.database.reading() as connection:
            rows = connection.execute(chosen.order_by(models.c.key.desc()).limit(NEWEST)).all()
        known = dict.fromkeys(text for row in rows for text in row)
        return tuple(difflib.get_close_matches(name[:MAX_NAME], known, n=3, cutoff=0.7))

    def count(self, wanted: Filter) -> int:
        """How many records pass a filter."""
        with self.database.reading() as connection:
            chosen = sa.select(sa.func.count()).select_from(models).where(*passing(wanted))
            return int(connection.scalar(chosen) or 0)

    def find(
        self, wanted: Filter, *, order: str = "-created", limit: int | None = None, offset: int = 0
    ) -> list[Record]:
        """Records, in the order of a field (`-created`: the newest first)."""
        column = models.c[order.removeprefix("-")]
        ordered = [column.desc() if order.startswith("-") else column.asc(), models.c.key.desc()]
        chosen = sa.select(*FIELDS).where(*passing(wanted)).order_by(*ordered).limit(limit).offset(offset)
        with self.database.reading() as connection:
            return shown(connection, records_of(connection.execute(chosen)), wanted.viewer)

    def keys(self, wanted: Filter) -> "NDArray[np.int64]":
        """The keys of all records that pass a filter."""
        import numpy as np

        with self.database.reading() as connection:
            found = connection.execute(sa.select(models.c.key).where(*passing(wanted))).scalars().all()
        return np.array(found, np.int64)

    def with_keys(self, keys: Collection[int]) -> dict[int, Record]:
        """Records by key."""
        found: dict[int, Record] = {}
        with self.database.reading() as connection:
            for batch in batches(list(keys)):
                rows = connection.execute(sa.select(*FIELDS).where(models.c.key.in_(batch)))
                found.update((record.key, record) for record in records_of(rows))
        return found

    def with_ids(self, ids: Collection[str], viewer: Viewer | None = None) -> dict[str, Record]:
        """Records by id, of those that the viewer may see."""
        found: dict[str, Record] = {}
        with self.database.reading() as connection:
            for batch in batches(list(ids)):
                chosen = sa.select(*FIELDS).where(models.c.id.in_(batch), *visible(viewer))
                some = shown(connection, records_of(connection.execute(chosen)), viewer)
                found.update((record.id, record) for record in some)
        return found

    def keys_named(self, names: Collection[str]) -> "NDArray[np.int64]":
        """The keys of models that have one of these names or ids."""
        import numpy as np

        found: list[int] = []
        with self.database.reading() as connection:
            for batch in batches(list(names)):
                named = models.c.name.in_(batch) | models.c.id.in_(batch)
                found += connection.execute(sa.select(models.c.key).where(named)).scalars()
        return np.array(found, np.int64)

    def children(self, parents: Collection[str], viewer: Viewer | None = None) -> list[Record]:
        """The models that started from one of these, the oldest first, of those that the viewer may see."""
        found: list[Record] = []
        with self.database.reading() as connection:
            for batch in batches(list(parents)):
                chosen = sa.select(*FIELDS).where(models.c.parent.in_(batch), *visible(viewer))
                found += shown(connection, records_of(connection.execute(chosen)), viewer)
        return sorted(found, key=lambda record: record.key)

    def graph(self, digest: str) -> Graph:
        """A graph by its digest."""
        return from_json(self.graph_bytes(digest))

    def graph_bytes(self, digest: str) -> bytes:
        """A graph's JSON by its digest."""
        with self.database.reading() as connection:
            packed = connection.scalar(sa.select(graphs.c.graph).where(graphs.c.digest == digest))
        if packed is None:
            raise ZooUnusable(
                self.database.where, f"graph {digest} is missing", "Restore the catalog from a backup."
            )
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise InvalidGraph("catalog", f"a graph has more than {MAX_BYTES:,} bytes")
        return text

    def prepared(self, digests: Collection[str]) -> dict[str, bytes]:
        """What the matcher made of graphs, by their digests."""
        found: dict[str, bytes] = {}
        with self.database.reading() as connection:
            for batch in batches(list(dict.fromkeys(digests))):
                chosen = sa.select(graphs.c.digest, graphs.c.prepared).where(graphs.c.digest.in_(batch))
                found.update((digest, data) for digest, data in connection.execute(chosen))
        return found

    def set_prepared(self, digest: str, prepared: bytes) -> None:
        """Replace what another version of the matcher made of a graph."""
        with self.database.writing() as connection:
            connection.execute(graphs.update().where(graphs.c.digest == digest).values(prepared=prepared))

    def clock(self) -> int:
        """A number that grows whenever a model comes or goes."""
        with self.database.reading() as connection:
            return _now(connection)

    def changes(self, since: int) -> tuple[int, list[tuple[int, str, str]]]:
        """The clock, and of each model that came or went since: key, state and digest of its graph."""
        with self.database.reading() as connection:
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
            *visible(viewer),
        )
        with self.database.reading() as connection:
            return [float(value) for value in connection.execute(chosen).scalars()]

    def kept_by(self, owner: str) -> tuple[int, int]:
        """How many models a user keeps, and how many bytes of weights they have."""
        total = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(models.c.bytes), 0))
        with self.database.reading() as connection:
            count, size = connection.execute(
                total.where(models.c.owner == owner, models.c.state.in_(STORED))
            ).one()
        return int(count), int(size)

    def bytes_stored(self) -> int:
        """How much room the weights of all stored models take."""
        chosen = sa.select(sa.func.coalesce(sa.func.sum(models.c.bytes), 0)).where(models.c.state.in_(STORED))
        with self.database.reading() as connection:
            return int(connection.scalar(chosen) or 0)

    def stats(self, viewer: Viewer | None = None) -> dict[str, Any]:
        """Counts over all that the viewer may see."""
        seen = sa.and_(sa.true(), *visible(viewer))
        stored = models.c.state.in_(STORED) & seen
        total = (
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(models.c.bytes), 0),
            sa.func.coalesce(sa.func.sum(models.c.parameters), 0),
            sa.func.coalesce(sa.func.sum(models.c.hits), 0),
            sa.func.count(sa.distinct(models.c.fingerprint)),
        )
        with self.database.reading() as connection:
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
            seen = sa.select(models.c.id).where(*visible(viewer))
            chosen = chosen.where((events.c.user == viewer.user) | events.c.model.in_(seen))
        with self.database.reading() as connection:
            rows = connection.execute(chosen.order_by(events.c.number.desc()).limit(limit))
            return [Event(**row) for row in rows.mappings()]


def _tick(connection: sa.Connection) -> int:
    connection.execute(clock.update().values(value=clock.c.value + 1))
    return _now(connection)


def _now(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.select(clock.c.value)) or 0)
