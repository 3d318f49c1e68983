"""What does the catalog know? All that can be asked of the records, graphs and events in its database.

    catalog.get("resnet"), catalog.find(Filter(task="classification"))
    catalog.changes(since)                   which models came or went, by a number that only grows
    catalog.stats(viewer), catalog.log()

Whoever asks with a viewer is told only of what that viewer may see.
"""

import contextlib
import hashlib
import time
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from modelkeeper.errors import CorruptCatalog, InvalidGraph, UnknownModel
from modelkeeper.graph import Graph, from_json
from modelkeeper.graph.wire import MAX_BYTES
from modelkeeper.logs import logger
from modelkeeper.zoo.database import Database
from modelkeeper.zoo.naming import Names, meant
from modelkeeper.zoo.records import (
    ACTIVE,
    ADMINISTERED,
    MAX_NAME,
    STORED,
    Event,
    Filter,
    Record,
    Viewer,
    is_id,
)
from modelkeeper.zoo.rows import FIELDS, batches, passing, records_of, shown, visible
from modelkeeper.zoo.schema import clock, events, graphs, models, parents, tags
from modelkeeper.zoo.seals import seal_of_bytes
from modelkeeper.zoo.unusable import CORRUPT_ADVICE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_GROUPS = 1_000  # tasks and data sets that are counted one by one: anybody may invent one
_log = logger()
NEWEST = 2_000  # models whose names are compared with one that is not there


class CatalogReader:
    """The records of a zoo, to be read. Safe to use from several threads."""

    def __init__(self, place: str | Path) -> None:
        """Open a SQLite file, or a database by its SQLAlchemy URL, and bring its schema up to date.

        Raises:
            ZooUnusable: It cannot be reached, or a newer modelkeeper made it.
        """
        self.database = Database(place)
        self.names = Names(self.database)
        self.damaged: dict[str, float] = {}  # records that are not what was written, and when that was seen

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def _records(self, rows: Iterable[sa.Row[Any]]) -> list[Record]:
        """The records of rows that are what was written; the ids of others are noted."""
        return records_of(rows, self.damaged)

    # -- records --------------------------------------------------------------------------------

    def get(self, name: str, viewer: Viewer | None = None) -> Record:
        """The record with this id, the newest stored one of this name, or the only one whose id begins so.

        What a bare name means depends on who asks: see `naming`. If another could have been meant, the
        record's notes say so.

        Raises:
            UnknownModel: There is none, or several ids begin so. A model that the viewer may not see is
                not there.
        """
        with self.database.reading() as connection:
            named = None if is_id(name) else meant(connection, name, viewer)
            whole = models.c.id == name
            if named is not None:
                whole = named.condition
            elif not is_id(name):
                whole = models.c.id.startswith(name, autoescape=True) if len(name) >= 4 else sa.false()
            chosen = sa.select(*FIELDS).where(whole, *visible(viewer)).order_by(models.c.key.desc())
            records = shown(connection, self._records(connection.execute(chosen.limit(20))), viewer)
        if not records:
            self._expect_whole(name)
            raise UnknownModel(name, near=self._near(name, viewer))
        if named is None and len(records) > 1:
            raise UnknownModel(name, tuple(record.id for record in records))
        notes = (named.note,) if named is not None and named.note else ()
        return msgspec.structs.replace(records[0], notes=notes) if notes else records[0]

    def _expect_whole(self, model: str) -> None:
        """Raise CorruptCatalog if the record with this id is there, but not what was written."""
        if model in self.damaged:
            problem = f"the record of model {model} is not what was written"
            raise CorruptCatalog(self.database.where, problem, CORRUPT_ADVICE)

    def _near(self, name: str, viewer: Viewer | None) -> tuple[str, ...]:
        """Names and ids that could be meant, among those of the newest models."""
        import difflib

        chosen = sa.select(models.c.id, models.c.name).where(models.c.state.in_(STORED), *visible(viewer))
        with self.database.reading() as connection:
            rows = connection.execute(chosen.order_by(models.c.key.desc()).limit(NEWEST)).all()
        names_and_ids = dict.fromkeys(text for row in rows for text in row)
        return tuple(difflib.get_close_matches(name[:MAX_NAME], names_and_ids, n=3, cutoff=0.7))

    def count(self, wanted: Filter) -> int:
        """How many records pass a filter."""
        with self.database.reading() as connection:
            chosen = sa.select(sa.func.count()).select_from(models).where(*passing(wanted))
            return int(connection.scalar(chosen) or 0)

    def count_all(self) -> int:
        """How many records there are, in whatever state."""
        with self.database.reading() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(models)) or 0)

    def find(
        self, wanted: Filter, *, order: str = "-created", limit: int | None = None, offset: int = 0
    ) -> list[Record]:
        """Records, in the order of a field (`-created`: the newest first; `-value`: the best)."""
        name = order.removeprefix("-")
        column: sa.ColumnElement[Any] = models.c[name]
        if name == "value":
            column = sa.case((models.c.lower_is_better, -models.c.value), else_=models.c.value)
        ordered = [
            (column.desc() if order.startswith("-") else column.asc()).nulls_last(),
            models.c.key.desc(),
        ]
        chosen = sa.select(*FIELDS).where(*passing(wanted)).order_by(*ordered).limit(limit).offset(offset)
        with self.database.reading() as connection:
            return shown(connection, self._records(connection.execute(chosen)), wanted.viewer)

    def keys(self, wanted: Filter) -> "NDArray[np.int64]":
        """The keys of all records that pass a filter."""
        import numpy as np

        with self.database.reading() as connection:
            keys = connection.execute(sa.select(models.c.key).where(*passing(wanted))).scalars().all()
        return np.array(keys, np.int64)

    def with_keys(self, keys: Collection[int]) -> dict[int, Record]:
        """Records by key."""
        by_key: dict[int, Record] = {}
        with self.database.reading() as connection:
            for batch in batches(list(keys)):
                rows = connection.execute(sa.select(*FIELDS).where(models.c.key.in_(batch)))
                by_key.update((record.key, record) for record in self._records(rows))
        return by_key

    def with_ids(self, ids: Collection[str], viewer: Viewer | None = None) -> dict[str, Record]:
        """Records by id, of those that the viewer may see."""
        by_id: dict[str, Record] = {}
        with self.database.reading() as connection:
            for batch in batches(list(ids)):
                chosen = sa.select(*FIELDS).where(models.c.id.in_(batch), *visible(viewer))
                records = shown(connection, self._records(connection.execute(chosen)), viewer)
                by_id.update((record.id, record) for record in records)
        return by_id

    def keys_beyond_fold(self, data: str, fold: str) -> "NDArray[np.int64]":
        """The keys of models that may have been trained on what a fold of a data set is validated on.

        These are the models of other folds of the data set, those of no fold, and all that descend from one
        by any of their parents.
        """
        import numpy as np

        leaking = (
            sa.select(models.c.id, models.c.key)
            .where(models.c.data == data, models.c.fold != fold)
            .cte("leaking", recursive=True)
        )
        child = models.alias("child")
        heirs = (
            sa.select(child.c.id, child.c.key)
            .join(parents, parents.c.key == child.c.key)
            .join(leaking, parents.c.parent == leaking.c.id)
        )
        chosen = sa.select(leaking.union(heirs).c.key)
        with self.database.reading() as connection:
            return np.array(list(connection.execute(chosen).scalars()), np.int64)

    def children(self, of: Collection[str], viewer: Viewer | None = None) -> list[Record]:
        """The models that started from any of these, the oldest first, of those that the viewer may see."""
        by_key: dict[int, Record] = {}
        with self.database.reading() as connection:
            for batch in batches(list(of)):
                started = sa.select(parents.c.key).where(parents.c.parent.in_(batch))
                chosen = sa.select(*FIELDS).where(models.c.key.in_(started), *visible(viewer))
                records = shown(connection, self._records(connection.execute(chosen)), viewer)
                by_key.update((record.key, record) for record in records)
        return [by_key[key] for key in sorted(by_key)]

    def expect_gone(self, without_graph: Collection[int], without_state: Collection[int]) -> None:
        """Note as damaged what of these keys is not gone: models without a graph, or in no known state."""
        for key, record in self.with_keys([*without_graph, *without_state]).items():
            if key in without_state or record.state == ACTIVE:
                _log.warning("the graph of model %s is missing in the catalog: modelkeeper verify", record.id)
                self.damaged[record.id] = time.time()

    def damaged_records(self) -> list[str]:
        """The ids, as they read now, of all records that are not what was written."""
        with self.database.reading() as connection:
            for row in connection.execute(sa.select(*FIELDS)):
                self._records([row])
        return sorted(self.damaged)

    # -- graphs and changes ---------------------------------------------------------------------

    def graph(self, digest: str) -> Graph:
        """A graph by its digest."""
        return from_json(self.graph_bytes(digest))

    def graph_bytes(self, digest: str) -> bytes:
        """A graph's JSON by its digest."""
        with self.database.reading() as connection:
            packed = connection.scalar(sa.select(graphs.c.graph).where(graphs.c.digest == digest))
        if packed is None:
            raise CorruptCatalog(self.database.where, f"graph {digest} is missing", CORRUPT_ADVICE)
        unpacker = zlib.decompressobj()
        text = b""
        with contextlib.suppress(zlib.error, TypeError):  # then it has another digest
            text = unpacker.decompress(packed, MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise InvalidGraph("catalog", f"a graph has more than {MAX_BYTES:,} bytes")
        if hashlib.sha256(text).hexdigest() != digest:
            problem = f"graph {digest} is not what was written"
            raise CorruptCatalog(self.database.where, problem, CORRUPT_ADVICE)
        return text

    def prepared(self, digests: Collection[str]) -> dict[str, bytes]:
        """What the matcher made of graphs, by their digests; b"" where it is not what was written."""
        by_digest: dict[str, bytes] = {}
        with self.database.reading() as connection:
            for batch in batches(list(dict.fromkeys(digests))):
                columns = graphs.c.digest, graphs.c.prepared, graphs.c.seal
                for digest, data, seal in connection.execute(
                    sa.select(*columns).where(graphs.c.digest.in_(batch))
                ):
                    whole = isinstance(data, bytes) and seal_of_bytes(data) == seal
                    by_digest[digest] = data if whole else b""
        return by_digest

    def clock(self) -> int:
        """A number that grows whenever a model comes or goes."""
        with self.database.reading() as connection:
            return changes_counted(connection)

    def changes(self, since: int) -> tuple[int, list[tuple[int, str, str]]]:
        """The clock, and of each model that came or went since: key, state and digest of its graph."""
        with self.database.reading() as connection:
            now = changes_counted(connection)
            if now == since:
                return now, []
            latest = int(connection.scalar(sa.select(sa.func.max(models.c.changed))) or 0)
            if latest > max(now, changes_counted(connection)):  # others may have counted on meanwhile
                problem = f"it counts {now} changes, but a record is of change {latest}"
                raise CorruptCatalog(self.database.where, problem, CORRUPT_ADVICE)
            chosen = (
                sa.select(models.c.key, models.c.state, models.c.graph)
                .where(models.c.changed > since, models.c.changed <= now)
                .order_by(models.c.changed, models.c.key)
            )
            return now, [(int(key), state, graph) for key, state, graph in connection.execute(chosen)]

    def peers(
        self,
        task: str,
        data: str,
        metric: str,
        viewer: Viewer | None = None,
        *,
        without: Collection[str] = (),
    ) -> list[tuple[str, float]]:
        """The values of one metric of the models of a task on a data set that the viewer may see, and whose.

        Of the stored ones that are trained to their end: others say little of what can be reached. Those
        with the ids `without` are left out.
        """
        owner = sa.case((models.c.owner_id != "", models.c.owner_id), else_=models.c.owner)
        chosen = sa.select(models.c.id, owner, models.c.value).where(
            models.c.task == task,
            models.c.data == data,
            models.c.metric == metric,
            models.c.value.is_not(None),
            models.c.state.in_(STORED),
            models.c.finished.is_(True),
            *visible(viewer),
        )
        with self.database.reading() as connection:
            rows = connection.execute(chosen)
            return [(whose, float(value)) for identity, whose, value in rows if identity not in without]

    def words(self, wanted: Filter) -> tuple[dict[str, int], dict[str, int]]:
        """The tasks and the tags of the models that pass a filter, each with how many have it."""
        passed = passing(wanted)
        by_task = sa.select(models.c.task, sa.func.count()).where(*passed).group_by(models.c.task)
        keys = sa.select(models.c.key).where(*passed)
        by_tag = sa.select(tags.c.tag, sa.func.count()).where(tags.c.key.in_(keys)).group_by(tags.c.tag)
        with self.database.reading() as connection:
            return tuple(  # type: ignore[return-value]
                {str(word): int(number) for word, number in connection.execute(chosen) if word}
                for chosen in (by_task, by_tag)
            )

    # -- counts and events ----------------------------------------------------------------------

    def kept_by(self, owner_id: str) -> tuple[int, int]:
        """How many models a user keeps, by their id, and how many bytes of weights they have."""
        total = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(models.c.bytes), 0))
        with self.database.reading() as connection:
            count, size = connection.execute(
                total.where(models.c.owner_id == owner_id, models.c.state.in_(STORED))
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
        used = models.c.hits if viewer is None or not viewer.partner else sa.literal(0)
        total = (
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(models.c.bytes), 0),
            sa.func.coalesce(sa.func.sum(models.c.parameters), 0),
            sa.func.coalesce(sa.func.sum(used), 0),
            sa.func.count(sa.distinct(models.c.fingerprint)),
        )
        with self.database.reading() as connection:
            count, size, parameters, hits, kinds = connection.execute(sa.select(*total).where(stored)).one()
            by_state = sa.select(models.c.state, sa.func.count()).where(seen).group_by(models.c.state)
            states = {state: int(number) for state, number in connection.execute(by_state)}
            by_task = (
                sa.select(models.c.task, models.c.data, sa.func.count(), sa.func.sum(used))
                .where(stored)
                .group_by(models.c.task, models.c.data)
                .order_by(sa.func.count().desc(), models.c.task, models.c.data)
                .limit(MOST_GROUPS)
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
        if viewer is not None and not viewer.all:
            seen = sa.select(models.c.id).where(*visible(viewer))
            own = (events.c.user == viewer.name) & (events.c.at >= viewer.since) & (events.c.user != "")
            own &= events.c.action != ADMINISTERED  # by who has the machine, whatever they are called there
            named = events.c.model.in_(seen)
            chosen = chosen.where(own & named if viewer.partner else own | named)
        with self.database.reading() as connection:
            rows = connection.execute(chosen.order_by(events.c.number.desc()).limit(limit))
            return [Event(**row) for row in rows.mappings()]


def changes_counted(connection: sa.Connection) -> int:
    """How many changes the clock has counted up to now."""
    return int(connection.scalar(sa.select(clock.c.value)) or 0)
