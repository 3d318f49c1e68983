"""How did trainings start? One row for each query that was no dry run, cold ones too, and what came of it.

    starts = Starts(catalog.database)
    starts.add(start)                       what was asked and answered
    starts.raced(id, race, viewer)          what came of a race of that start, told later by who started
    became(connection, id, record)          in the transaction that makes the record of what was trained
    starts.listed(StartFilter(model=id), viewer, limit=50, before=number)      the newest first

Who started sees all of it, and so do administrators. Others see the start of a model that they may see,
without parents that they may not.
"""

from collections.abc import Collection
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.errors import InvalidMeta
from modelkeeper.warmstart.race.rules import Race
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.database.rows import batches, visible
from modelkeeper.zoo.database.schema import models, starts
from modelkeeper.zoo.records import MAX_NAME, Record, Viewer, is_id

MOST_RUNNERS = 16  # of a race
_COLUMNS = ("number", "id", "at", "user", "user_id", "child", "task", "data", "model")


class Start(Struct, frozen=True, kw_only=True):
    """What was asked for a model, and what it started from."""

    id: str
    number: int = 0  # in the order in which they were written; given by the catalog
    at: float
    user: str = ""  # a name, for people
    user_id: str = ""  # who that is; "": a zoo without users
    child: str  # the fingerprint of the model
    task: str = ""
    data: str = ""
    parents: tuple[str, ...] = ()  # ids of those that lend; (): a cold start
    similarity: float | None = None  # to the first of them
    benefit: dict[str, float] = {}  # that was expected of the first, and what that is made of
    exact: bool = False
    schedule: float = 1.0  # of the steps of a training from scratch, as advised
    actions: dict[str, dict[str, float]] = {}  # copied, widened ...: as in the answer
    seconds: dict[str, float] = {}  # by stage of the query
    race: Race | None = None  # what came of racing it against others; None: nobody told
    model: str = ""  # id of what it was registered as; "": nothing was, or not yet

    @property
    def cold(self) -> bool:
        """Did it start from its own initial values?"""
        return not self.parents

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain | {"cold": self.cold}


class _Body(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a start nothing is looked up by: one column, as JSON."""

    parents: tuple[str, ...] = ()
    similarity: float | None = None
    benefit: dict[str, float] = {}
    exact: bool = False
    schedule: float = 1.0
    actions: dict[str, dict[str, float]] = {}
    seconds: dict[str, float] = {}


class StartFilter(Struct, frozen=True, kw_only=True):
    """Which starts are meant. What is left out does not filter."""

    model: str | None = None  # id of what it was registered as
    parent: str | None = None  # id of the first that lends
    child: str | None = None  # a fingerprint
    task: str | None = None
    data: str | None = None
    user: str | None = None  # a name
    cold: bool | None = None
    project: str | None = None  # of the model that was registered
    since: float | None = None
    until: float | None = None


class Starts:
    """The starts of one zoo. Safe to use from several threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, start: Start) -> None:
        """Note a start."""
        body = _Body(**{name: getattr(start, name) for name in _Body.__struct_fields__})
        row = {name: getattr(start, name) for name in _COLUMNS if name != "number"}
        row |= {"parent": start.parents[0] if start.parents else "", "race": None}
        with self._database.writing() as connection:
            connection.execute(starts.insert(), row | {"body": msgspec.json.encode(body).decode()})

    def raced(self, start: str, race: Race, viewer: Viewer | None = None) -> None:
        """Note what came of a race, as who started says; the last word counts.

        Raises:
            InvalidMeta: There is no such start of theirs, or it cannot be what a race came to.
        """
        check_race(race)
        mine = [starts.c.id == start]
        if viewer is not None and not viewer.all:
            mine.append(starts.c.user_id == viewer.user)
        text = msgspec.json.encode(race).decode()
        with self._database.writing() as connection:
            if not connection.execute(starts.update().where(*mine).values(race=text)).rowcount:
                raise InvalidMeta("start", repr(start[:80]), "there is none of yours with this id")

    def listed(
        self,
        wanted: StartFilter,
        viewer: Viewer | None = None,
        *,
        limit: int | None = 50,
        before: int | None = None,
    ) -> list[Start]:
        """Starts that a viewer may see, the newest first; `before` the one of a number."""
        exact = {name: getattr(wanted, name) for name in ("model", "parent", "child", "task", "data", "user")}
        conditions = [starts.c[name] == value for name, value in exact.items() if value is not None]
        if wanted.cold is not None:
            conditions.append((starts.c.parent == "") if wanted.cold else (starts.c.parent != ""))
        if wanted.project is not None:
            of_project = sa.select(models.c.id).where(models.c.project == wanted.project, *visible(viewer))
            conditions.append(starts.c.model.in_(of_project))
        if wanted.since is not None:
            conditions.append(starts.c.at >= wanted.since)
        if wanted.until is not None:
            conditions.append(starts.c.at < wanted.until)
        if before is not None:
            conditions.append(starts.c.number < before)
        chosen = sa.select(starts).where(*conditions, *_seen(viewer)).order_by(starts.c.number.desc())
        with self._database.reading() as connection:
            found = [_start(row) for row in connection.execute(chosen.limit(limit))]
            return _shown(connection, found, viewer)

    def of_models(self, ids: Collection[str], viewer: Viewer | None = None) -> dict[str, Start]:
        """How models started, by their ids; the last start that was said to have become each."""
        with self._database.reading() as connection:
            found = _among(connection, starts.c.model, ids, viewer)
        return {start.model: start for start in found if start.model}

    def forget(self, before: float) -> int:
        """Delete starts from before a time. How many? Of models, their parents stay known."""
        with self._database.writing() as connection:
            return connection.execute(starts.delete().where(starts.c.at < before)).rowcount


def became(connection: sa.Connection, start: str, record: Record) -> None:
    """Note what a start was registered as; where there are users, only who started can have trained it."""
    mine = starts.c.id == start, starts.c.user_id == record.owner_id
    connection.execute(starts.update().where(*mine).values(model=record.id))


def models_of(connection: sa.Connection, ids: list[str], viewer: Viewer | None) -> dict[str, str]:
    """What starts were registered as, by their ids, of models that the viewer may see."""
    found: dict[str, str] = {}
    for batch in batches(ids):
        chosen = sa.select(starts.c.id, starts.c.model).join(models, models.c.id == starts.c.model)
        rows = connection.execute(chosen.where(starts.c.id.in_(batch), *visible(viewer)))
        found |= {row.id: row.model for row in rows}
    return found


def by_ids(connection: sa.Connection, ids: Collection[str], viewer: Viewer | None) -> dict[str, Start]:
    """Starts by their ids, of those that the viewer may see."""
    return {start.id: start for start in _among(connection, starts.c.id, ids, viewer)}


def check_race(race: Race) -> None:
    """Look at what somebody says came of a race.

    Raises:
        InvalidMeta: It cannot be so.
    """
    words = [
        race.winner,
        *(text for each in race.runners for text in (each.start, each.parent, each.verdict)),
    ]
    counts = [race.steps, *(runner.steps for runner in race.runners)]
    losses = [loss for runner in race.runners for loss in (runner.first, runner.loss) if loss is not None]
    numbers = [race.seconds, *losses, *counts]
    sound = len(race.runners) <= MOST_RUNNERS and all(len(word) <= MAX_NAME for word in words)
    sound = sound and all(abs(number) < 1e15 for number in numbers)
    if not sound or min(counts) < 0 or not race.seconds >= 0:
        advice = f"at most {MOST_RUNNERS} starts, with finite numbers and short words"
        raise InvalidMeta("the race", f"of {len(race.runners)} starts", advice)


def _seen(viewer: Viewer | None) -> list[sa.ColumnElement[bool]]:
    """What is true of the starts that a viewer may see."""
    if viewer is None or viewer.all:
        return []
    own = (starts.c.user_id == viewer.user) & (starts.c.user_id != "")
    if viewer.partner:
        return [own]
    return [own | starts.c.model.in_(sa.select(models.c.id).where(*visible(viewer)))]


def _among(
    connection: sa.Connection, column: "sa.Column[str]", values: Collection[str], viewer: Viewer | None
) -> list[Start]:
    """The starts with one of these values, as far as the viewer may see them, the oldest first."""
    found = []
    for batch in batches(sorted(values)):
        chosen = sa.select(starts).where(column.in_(batch), *_seen(viewer)).order_by(starts.c.number)
        found += [_start(row) for row in connection.execute(chosen)]
    return _shown(connection, found, viewer)


def _shown(connection: sa.Connection, found: list[Start], viewer: Viewer | None) -> list[Start]:
    """The same starts without the ids of models that the viewer may not see."""
    if viewer is None or viewer.all:
        return found
    named = sorted({model for start in found for model in (*start.parents, start.model) if is_id(model)})
    seen: set[str] = set()
    for batch in batches(named):
        chosen = sa.select(models.c.id).where(models.c.id.in_(batch), *visible(viewer))
        seen |= set(connection.execute(chosen).scalars())
    shown = []
    for start in found:
        parents = tuple(parent for parent in start.parents if parent in seen)
        if parents != start.parents and start.user_id != viewer.user:
            start = msgspec.structs.replace(
                start, parents=parents, similarity=None, benefit={}, actions={}, race=None
            )
        shown.append(msgspec.structs.replace(start, model=start.model if start.model in seen else ""))
    return shown


def _start(row: "sa.Row[Any]") -> Start:
    """A start of a row; what is no JSON any more is a ValueError."""
    body = msgspec.json.decode(row.body, type=_Body)
    race = None if row.race is None else msgspec.json.decode(row.race, type=Race)
    fixed = {name: getattr(row, name) for name in _COLUMNS}
    return Start(**fixed, race=race, **msgspec.structs.asdict(body))
