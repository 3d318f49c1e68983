"""Which models are there? The catalog: records, graphs and events in a SQL database, and who writes them.

    catalog = Catalog("sqlite:///zoo/catalog.db")
    catalog.add(record, graph, prepared)     one transaction; a reader sees all of it or nothing
    catalog.retire({id: reason}, REMOVED)    what went keeps its record
    catalog.find(Filter(task="classification"))   and all that `CatalogReader` answers

Threads and processes may share one database (see `database`). Where writers do not take turns anyway,
whoever adds or retires models does so by the row that counts changes.
"""

import contextlib
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, overload

import msgspec
import sqlalchemy as sa

from modelkeeper.errors import QuotaExceeded
from modelkeeper.policy.curves import Curve
from modelkeeper.zoo.catalog import curves, totals
from modelkeeper.zoo.catalog.catalog_reader import CatalogReader
from modelkeeper.zoo.catalog.changes import FOLLOWED, changes_counted, tick
from modelkeeper.zoo.catalog.event_data import about_model
from modelkeeper.zoo.catalog.ledger import Note, append, coming
from modelkeeper.zoo.catalog.starts import became
from modelkeeper.zoo.catalog.totals import recounted
from modelkeeper.zoo.database.leases import confirm, end_if_over
from modelkeeper.zoo.database.rows import (
    FIELDS,
    batches,
    event_row,
    record_of,
    record_row,
    records_of,
    reseal,
)
from modelkeeper.zoo.database.schema import CHANGES, clock, events, facts, graphs, models, parents, tags
from modelkeeper.zoo.database.seals import holds, seal_of_bytes
from modelkeeper.zoo.records import DAMAGED, KEPT, LENT, REGISTERED, REPLACED, Event, Record, model_of


class Catalog(CatalogReader):
    """The records of a zoo, to be read and written. Safe to use from several threads."""

    def add(
        self,
        record: Record,
        graph: bytes,
        prepared: bytes,
        event: Event | None = None,
        *,
        leased: bool = False,
        curve: Curve | None = None,
        start: str = "",
    ) -> Record:
        """Add a record with its graph (JSON), what the matcher made of it, and how it was trained.

        It gets its key here. Its files are there by now; with `leased`, a lease on their folder ends here
        (see `leases`). If a record has this id already, that one is returned, and nothing happens: the first
        one wins. Versions of the same run that are there are replaced; whoever calls deletes their files: see
        `replaced_by`. A version that is not the last one never replaces the last one: that is then returned.

        Raises:
            ZooUnusable: The lease had run out, and somebody has swept the files.
        """
        with self.taking_turns() as connection:
            if leased:
                confirm(connection, record.folder, self.database.where)
            present = self._records(connection.execute(sa.select(*FIELDS).where(models.c.id == record.id)))
            if present:
                return present[0]
            versions = _versions(connection, record)
            if versions and versions[-1].finished and not record.finished:
                return versions[-1]
            stored = connection.scalar(sa.select(graphs.c.digest).where(graphs.c.digest == record.graph))
            if stored is None:
                row = {"digest": record.graph, "graph": zlib.compress(graph), "prepared": prepared}
                connection.execute(graphs.insert(), row | {"seal": seal_of_bytes(prepared)})
            with recounted(connection, models.c.id.in_([record.id, *(version.id for version in versions)])):
                if versions:
                    record = _instead_of(connection, versions, record)
                values = record_row(record) | {"changed": tick(connection)}
                key = connection.scalar(models.insert().returning(models.c.key), values)
            if record.tags:
                connection.execute(tags.insert(), [{"key": key, "tag": tag} for tag in record.tags])
            if record.parents:
                lines = enumerate(record.parents)
                rows = [{"key": key, "place": place, "parent": parent} for place, parent in lines]
                connection.execute(parents.insert(), rows)
            curves.put(connection, int(key), curve, [version.key for version in versions])
            if start:
                became(connection, start, record)
            if event is not None:
                connection.execute(events.insert(), event_row(event))
            gone = [
                _note(record.created, REPLACED, version.id, record.owner, REPLACED) for version in versions
            ]
            action = REGISTERED if event is None else event.action
            append(connection, [*gone, coming(record, action, record.owner)])
        return msgspec.structs.replace(record, key=int(key))

    def replaced_by(self, record: Record) -> list[Record]:
        """The versions of its run that a model took the place of."""
        if not record.run:
            return []
        gone = models.c.state == REPLACED, models.c.reason == _replaces(record)
        with self.database.reading() as connection:
            return self._records(connection.execute(sa.select(*FIELDS).where(*_of_run(record), *gone)))

    @overload
    def retire(self, reasons: Mapping[str, str], state: str, user: str = "") -> list[Record]: ...
    @overload
    def retire(
        self,
        reasons: Mapping[str, str],
        state: str,
        user: str = "",
        *,
        clock: int,
        pinned: Collection[str] = (),
        over: int | None = None,
    ) -> list[Record] | None: ...
    def retire(
        self,
        reasons: Mapping[str, str],
        state: str,
        user: str = "",
        *,
        clock: int | None = None,
        pinned: Collection[str] = (),
        over: int | None = None,
    ) -> list[Record] | None:
        """Take models (id -> reason) out of what can be searched; their records stay. Which were there?

        With `clock`, nothing happens if a model came or went since it showed that (None), and those that
        were pinned since stay; `pinned` are the ids of those that go though they were pinned before. With
        `over` it happens all the same as long as what is stored takes more bytes than that.
        """
        gone: list[Record] = []
        with self.taking_turns() as connection:
            stale = clock is not None and changes_counted(connection) != clock
            if stale and (over is None or totals.bytes_stored(connection) <= over):
                return None
            for batch in batches(list(reasons)):
                among = models.c.id.in_(batch) & models.c.state.in_(KEPT) & (models.c.state != state)
                if clock is not None:
                    known = [identity for identity in batch if identity in pinned]
                    among &= models.c.pinned.is_(False) | models.c.id.in_(known)
                chosen = sa.select(*FIELDS).where(among).order_by(models.c.key).with_for_update()
                gone += self._records(connection.execute(chosen))
            if gone:
                now, changed = time.time(), tick(connection)
                change = (
                    models.update()
                    .where(models.c.key == sa.bindparam("of"))
                    .values(state=state, reason=sa.bindparam("why"), changed=changed)
                )
                for batch in batches(gone):
                    with recounted(connection, models.c.key.in_([record.key for record in batch])):
                        whys = [{"of": record.key, "why": reasons[record.id]} for record in batch]
                        connection.execute(change, whys)
                for batch in batches([record.key for record in gone]):
                    reseal(connection, models.c.key.in_(batch))
                happened = (
                    Event(
                        at=now,
                        action=state,
                        model=record.id,
                        user=user,
                        detail=reasons[record.id],
                        data=about_model(record),
                    )
                    for record in gone
                )
                connection.execute(events.insert(), [event_row(event) for event in happened])
                append(connection, [_note(now, state, record.id, user, state) for record in gone])
        return gone

    def restore(self, model: str, state: str, reason: str, event: Event) -> bool:
        """Take a damaged model back into what can be searched. Was it damaged, and is its graph there?"""
        has_graph = models.c.graph.in_(sa.select(graphs.c.digest))
        with self.taking_turns() as connection:
            change = models.update().where(models.c.id == model, models.c.state == DAMAGED, has_graph)
            values = {"state": state, "reason": reason, "changed": tick(connection)}
            with recounted(connection, models.c.id == model):
                back = connection.execute(change.values(**values)).rowcount > 0
            if back:
                reseal(connection, models.c.id == model)
                connection.execute(events.insert(), event_row(event))
                append(connection, [_note(event.at, event.action, model, event.user, state)])
        return back

    def update(self, model: str, event: Event | None = None, **values: Any) -> None:
        """Change fields of a record that do not decide whether it can be searched."""
        with self.database.writing() as connection:
            of_model = models.c.id == model
            if not values.keys().isdisjoint(FOLLOWED):
                values["changed"] = tick(connection)
            with recounted(connection, of_model):
                there = connection.execute(models.update().where(of_model).values(**values)).rowcount
            reseal(connection, models.c.id == model)
            if event is not None:
                connection.execute(events.insert(), event_row(event))
            if event is not None and there:
                append(connection, [_note(event.at, event.action, model, event.user)])

    def pin(self, record: Record, pinned: bool, event: Event, most: int | None = None) -> None:
        """Keep a model whatever it is worth, or no longer.

        Raises:
            QuotaExceeded: Its owner would have more than `most` pinned models.
        """
        with self.taking_turns() as connection:
            of_owner = models.c.owner_id == record.owner_id
            if not record.owner_id:
                of_owner &= models.c.owner == record.owner
            others = sa.select(sa.func.count()).where(
                of_owner, models.c.pinned.is_(True), models.c.state.in_(KEPT), models.c.id != record.id
            )
            count = int(connection.scalar(others) or 0)
            if pinned and most is not None and count >= most:
                advice = "Unpin some, or ask an administrator for more."
                raise QuotaExceeded(f"{count} models are pinned, {most} are allowed", advice)
            changes = models.c.id == record.id, models.c.pinned.is_(not pinned)
            if not connection.execute(models.update().where(*changes).values(pinned=pinned)).rowcount:
                return  # it was so before: nothing happened that a log could tell
            reseal(connection, models.c.id == record.id)
            connection.execute(events.insert(), event_row(event))
            append(connection, [_note(event.at, event.action, record.id, event.user)])

    def lent(self, model: str, at: float, event: Event | None = None) -> None:
        """Count that a model lent its weights."""
        event = event or Event(at=at, action=LENT, model=model)
        self.update(model, event, hits=models.c.hits + 1, last_used=at)

    def note(self, event: Event) -> None:
        """Write an event into the log."""
        with self.database.writing() as connection:
            connection.execute(events.insert(), event_row(event))

    def prune_events(self, before: float) -> int:
        """Delete events from before a time. How many? Lineage and quotas are in the records, and stay."""
        with self.database.writing() as connection:
            return connection.execute(events.delete().where(events.c.at < before)).rowcount

    def set_twins(self, twins: Mapping[str, tuple[str, float]]) -> None:
        """Remember for models (by id) which better model is most like them, and how much."""
        if twins:
            change = (
                models.update()
                .where(models.c.id == sa.bindparam("of"))
                .values(twin=sa.bindparam("by"), twin_similarity=sa.bindparam("much"))
            )
            with self.taking_turns() as connection:
                rows = [{"of": of, "by": by, "much": much} for of, (by, much) in twins.items()]
                connection.execute(change, rows)
                for batch in batches(list(twins)):
                    reseal(connection, models.c.id.in_(batch))

    def set_prepared(self, digest: str, prepared: bytes) -> None:
        """Replace what another version of the matcher made of a graph."""
        with self.database.writing() as connection:
            change = graphs.update().where(graphs.c.digest == digest)
            connection.execute(change.values(prepared=prepared, seal=seal_of_bytes(prepared)))

    def sweep_graphs(self) -> int:
        """Delete graphs that no record names. How many were there?

        Models that were removed keep theirs, as their records: what descends from them can still be compared.
        """
        used = sa.select(models.c.graph)
        with self.taking_turns() as connection:
            return connection.execute(graphs.delete().where(graphs.c.digest.not_in(used))).rowcount

    def abandoned(self, folder: str) -> bool:
        """Does no record name the folder of a model, and is nobody writing it? Then nobody ever will.

        A record that is damaged may have named it: then it is not abandoned.
        """
        with self.taking_turns() as connection:
            row = connection.execute(sa.select(*FIELDS).where(models.c.id == model_of(folder))).first()
            if row is not None:
                record = record_of(row)
                if not holds(record, row.seal) or (record.state in KEPT and record.folder == folder):
                    return False
            return end_if_over(connection, folder)

    def note_fact(self, name: str, value: str, *, unless_known: bool = False) -> str:
        """Write down what the catalog knows of itself; `unless_known`: the first decides. What holds now?"""
        with self.taking_turns() as connection:
            known = connection.scalar(sa.select(facts.c.value).where(facts.c.name == name))
            if known is not None and unless_known:
                return str(known)
            connection.execute(facts.delete().where(facts.c.name == name))
            connection.execute(facts.insert().values(name=name, value=value))
        return value

    def count_anew(self) -> list[str]:
        """Count all totals from the records. What was wrong?"""
        with self.taking_turns() as connection:
            wrong = totals.differences(connection)
            if wrong:
                totals.count_anew(connection)
        return wrong

    @contextlib.contextmanager
    def taking_turns(self) -> Iterator[sa.Connection]:
        """Write while nobody else adds or retires models."""
        with self.database.writing() as connection:
            turn = sa.select(clock.c.value).where(clock.c.name == CHANGES)
            connection.execute(turn.with_for_update())  # SQLite's writers do so anyway
            yield connection


def _note(at: float, kind: str, model: str, user: str, state: str = "") -> Note:
    """What the ledger says of a model that something was done to, and which state it then has."""
    return Note(at, kind, model, {"user": user} | ({"state": state} if state else {}))


def _of_run(record: Record) -> list[sa.ColumnElement[bool]]:
    """What is true of all versions of a record's run: nobody replaces the models of somebody else."""
    same_owner = models.c.owner_id == record.owner_id, models.c.owner == record.owner
    return [models.c.run == record.run, *same_owner]


def _replaces(record: Record) -> str:
    return f"{record.id} is a later version of the same training"


def _versions(connection: sa.Connection, record: Record) -> list[Record]:
    """The versions of a record's run that are there, the finished one last."""
    if not record.run:
        return []
    there = sa.select(*FIELDS).where(*_of_run(record), models.c.state.in_(KEPT))
    return records_of(connection.execute(there.order_by(models.c.finished, models.c.key)))


def _instead_of(connection: sa.Connection, versions: list[Record], record: Record) -> Record:
    """Replace versions of a run by a new one, which inherits what they have earned."""
    gone = models.c.key.in_([version.key for version in versions])
    values = {"state": REPLACED, "reason": _replaces(record), "changed": tick(connection)}
    connection.execute(models.update().where(gone).values(values))
    reseal(connection, gone)
    return msgspec.structs.replace(
        record,
        hits=sum(version.hits for version in versions),
        last_used=max(record.last_used, *(version.last_used for version in versions)),
        pinned=any(version.pinned for version in versions),
    )
