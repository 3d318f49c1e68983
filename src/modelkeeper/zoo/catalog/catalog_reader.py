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
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from modelkeeper.errors import CorruptCatalog, InvalidGraph, UnknownModel
from modelkeeper.graph import Graph, from_json
from modelkeeper.graph.wire import MAX_BYTES
from modelkeeper.logs import logger
from modelkeeper.settings import CatalogLimits
from modelkeeper.zoo.catalog import totals
from modelkeeper.zoo.catalog.changes import Changes, changes_counted, changes_since
from modelkeeper.zoo.catalog.event_data import as_seen
from modelkeeper.zoo.catalog.events import read
from modelkeeper.zoo.catalog.naming import Names, meant
from modelkeeper.zoo.catalog.paging import Page, place_of, turned
from modelkeeper.zoo.catalog.stock import Stock, read_stock
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.recent import Recent
from modelkeeper.zoo.database.rows import FIELDS, batches, passing, records_of, shown, visible
from modelkeeper.zoo.database.schema import graphs, models, parents, tags
from modelkeeper.zoo.database.seals import seal_of_bytes
from modelkeeper.zoo.files.unusable import CORRUPT_ADVICE
from modelkeeper.zoo.records import (
    ACTIVE,
    MAX_NAME,
    STORED,
    Event,
    Filter,
    Record,
    Viewer,
    is_id,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from modelkeeper.policy.curves import Curve

_log = logger()
MOST_GRAPHS, MOST_GRAPH_BYTES = 256, 8 * 2**20  # that are remembered; as JSON, in memory ten times as much
AT_A_TIME = 1_000  # records that are read at once by who goes through all of them
NEWEST = 2_000  # models whose names are compared with one that is not there


class CatalogReader:
    """The records of a zoo, to be read. Safe to use from several threads."""

    def __init__(self, place: str | Path, limits: CatalogLimits | None = None) -> None:
        """Open a SQLite file, or a database by its SQLAlchemy URL, and bring its schema up to date.

        Raises:
            ZooUnusable: It cannot be reached, or a newer modelkeeper made it.
        """
        self.database = Database(place, limits)
        self.names = Names(self.database)
        self._graphs: Recent[str, Graph] = Recent(MOST_GRAPHS, MOST_GRAPH_BYTES)
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

        If no stored one has the name, it is the newest that had it: its state says that it is gone. What a
        bare name means depends on who asks: see `naming`. If another could have been meant, the record's
        notes say so.

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
            if not records and not is_id(name):
                named = meant(connection, name, viewer, gone=True)
                if named is not None:
                    chosen = sa.select(*FIELDS).where(named.condition).order_by(models.c.key.desc()).limit(1)
                    records = shown(connection, self._records(connection.execute(chosen)), viewer)
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
            known = totals.counted(connection, wanted)
            if known is not None:
                return known
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
        chosen = turned(wanted, order, limit=limit, offset=offset)
        with self.database.reading() as connection:
            return shown(connection, self._records(connection.execute(chosen)), wanted.viewer)

    def page(
        self,
        wanted: Filter,
        *,
        order: str,
        limit: int,
        after: str = "",
        before: str = "",
        last: bool = False,
    ) -> Page:
        """Records `after` or `before` the model of an id, the first or the last ones; `more`: further on.

        Raises:
            UnknownModel: There is no such id, or the viewer may not see it.
        """
        with self.database.reading() as connection:
            begins, ends = (
                place_of(connection, model, order, wanted.viewer) if model else None
                for model in (after, before)
            )
            chosen = turned(wanted, order, limit=limit + 1, after=begins, before=ends, last=last)
            rows = connection.execute(chosen).all()
            more = len(rows) > limit
            if more:
                rows = rows[1:] if last or ends is not None else rows[:-1]
            return Page(shown(connection, self._records(rows), wanted.viewer), more)

    def with_keys(self, keys: Collection[int], viewer: Viewer | None = None) -> dict[int, Record]:
        """Records by key, of those that the viewer may see."""
        by_key: dict[int, Record] = {}
        with self.database.reading() as connection:
            for batch in batches(list(keys)):
                chosen = sa.select(*FIELDS).where(models.c.key.in_(batch), *visible(viewer))
                rows = connection.execute(chosen)
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

    def expect_gone(self, without_graph: Collection[int], without_state: Collection[int]) -> None:
        """Note as damaged what of these keys is not gone: models without a graph, or in no known state."""
        for key, record in self.with_keys([*without_graph, *without_state]).items():
            if key in without_state or record.state == ACTIVE:
                _log.warning("the graph of model %s is missing in the catalog: modelkeeper verify", record.id)
                self.damaged[record.id] = time.time()

    def each(self, *conditions: sa.ColumnElement[bool]) -> Iterator[Record]:
        """All records of which these hold, in the order in which they came, of which few are in memory."""
        chosen, last = sa.select(*FIELDS).where(*conditions).order_by(models.c.key).limit(AT_A_TIME), 0
        while True:
            with self.database.reading() as connection:
                rows = connection.execute(chosen.where(models.c.key > last)).all()
            yield from self._records(rows)
            if len(rows) < AT_A_TIME:
                return
            last = rows[-1].key

    def each_stored(self) -> Iterator[Record]:
        """All records of models that are stored."""
        return self.each(models.c.state.in_(STORED))

    def damaged_records(self) -> list[str]:
        """The ids, as they read now, of all records that are not what was written."""
        for _ in self.each():
            pass  # reading them notes those that are not
        return sorted(self.damaged)

    # -- graphs and changes ---------------------------------------------------------------------

    def graph(self, digest: str) -> Graph:
        """A graph by its digest. The same graphs are asked for again and again, and are remembered."""
        graph = self._graphs.get(digest)
        if graph is None:
            text = self.graph_bytes(digest)
            graph = from_json(text)
            self._graphs.put(digest, graph, len(text))
        return graph

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

    def changes(self, since: int, *of: sa.ColumnElement[bool]) -> Changes:
        """What came, went or changed since the clock counted so far, `of` which models: see `changes`."""
        with self.database.reading() as connection:
            now = changes_counted(connection)
            if now == since:
                return Changes(now)
            latest = int(connection.scalar(sa.select(sa.func.max(models.c.changed))) or 0)
            if latest > max(now, changes_counted(connection)):  # others may have counted on meanwhile
                problem = f"it counts {now} changes, but a record is of change {latest}"
                raise CorruptCatalog(self.database.where, problem, CORRUPT_ADVICE)
            return changes_since(connection, since, now, *of)

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

    def curves(self, ids: Collection[str]) -> "dict[str, Curve]":
        """How the trainings of models went, by id; those of which nobody said it are left out."""
        from modelkeeper.zoo.catalog.curves import of_models

        with self.database.reading() as connection:
            return of_models(connection, ids)

    # -- counts and events ----------------------------------------------------------------------

    def kept_by(self, owner_id: str) -> tuple[int, int]:
        """How many models a user keeps, by their id, and how many bytes of weights they have."""
        with self.database.reading() as connection:
            return totals.kept_by(connection, owner_id)

    def bytes_stored(self) -> int:
        """How much room the weights of all stored models take."""
        with self.database.reading() as connection:
            return totals.bytes_stored(connection)

    def models_stored(self) -> int:
        """How many models are stored."""
        with self.database.reading() as connection:
            return totals.models_stored(connection)

    def stats(self, viewer: Viewer | None = None) -> dict[str, Any]:
        """Counts over all that the viewer may see."""
        with self.database.reading() as connection:
            return totals.stats(connection, viewer)

    def stock(self) -> Stock:
        """What of each stored model decides whether it stays, as arrays; see `stock`."""
        with self.database.reading() as connection:
            return read_stock(connection, self.damaged)

    def wrong_totals(self) -> list[str]:
        """What totals say otherwise than the records that they sum up."""
        with self.database.reading() as connection:
            return totals.differences(connection)

    def log(self, *, limit: int = 50, viewer: Viewer | None = None, **chosen: Any) -> list[Event]:
        """The newest events, the newest first, that the viewer may see: see `events.read`."""
        with self.database.reading() as connection:
            return as_seen(connection, read(connection, limit=limit, viewer=viewer, **chosen), viewer)
