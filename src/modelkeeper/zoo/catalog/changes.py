"""What has changed in a catalog since it had counted so far? All that indexes and columns are made from.

    changes_since(connection, since, now)      the rows of models that came, went or changed, and their credit

What is asked of every model in every query lies in memory in each process (`columns`), and is kept in step by
these rows. So whoever changes one of the FOLLOWED fields, or what is known of a model by its outcomes, lets
the clock tick (`tick`) and notes its count beside the model.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa

from modelkeeper.policy.credit import Outcome, credit
from modelkeeper.zoo.database.notices import count
from modelkeeper.zoo.database.rows import VOICE
from modelkeeper.zoo.database.schema import CHANGES, clock, models, outcomes

TEXTS = (
    *("graph", "task", "data", "origin", "visibility", "owner", "owner_id", "project", "project_id"),
    *("signer", "licence", "metric"),
)
FLAGS = ("published", "lower_is_better", "finished")
FOLLOWED = ("key", "state", *TEXTS, *FLAGS, "value", "created", "parameters", "tags", "metrics")
MOST = 20_000  # models at a time, or as many as changed at once


class Changes(NamedTuple):
    """What changed up to a count of the clock."""

    now: int
    rows: Sequence[sa.Row[Any]] = ()  # of FOLLOWED, the oldest change first
    believed: Mapping[int, float] = MappingProxyType({})  # by key, the credit of models that have outcomes
    more: bool = False  # has the clock counted on from there?


def changes_since(connection: sa.Connection, since: int, now: int, *of: sa.ColumnElement[bool]) -> Changes:
    """What changed after the count `since`, up to `now` or as far as goes at a time, `of` which models."""
    changed = models.c.changed
    later = sa.select(changed).where(changed > since, changed <= now, *of).order_by(changed)
    edge = connection.scalar(later.offset(MOST).limit(1))
    end = now if edge is None else int(edge)
    between = changed > since, changed <= end, *of
    chosen = sa.select(*(models.c[name] for name in FOLLOWED)).where(*between)
    rows = list(connection.execute(chosen.order_by(changed, models.c.key)))
    fields = [outcomes.c[name] for name in Outcome.__struct_fields__]
    said = sa.select(models.c.key, VOICE.label("voice"), *fields).join(
        outcomes, outcomes.c.parent == models.c.id
    )
    found: dict[tuple[int, str], list[Outcome]] = {}
    for row in connection.execute(said.where(*between)).mappings():
        outcome = Outcome(**{name: row[name] for name in Outcome.__struct_fields__})
        found.setdefault((int(row["key"]), str(row["voice"])), []).append(outcome)
    believed = {key: credit(of_model, whose).factor for (key, whose), of_model in found.items()}
    return Changes(end, rows, believed, more=end < now)


def changes_counted(connection: sa.Connection) -> int:
    """How many changes the clock has counted up to now."""
    return int(connection.scalar(sa.select(clock.c.value).where(clock.c.name == CHANGES)) or 0)


def tick(connection: sa.Connection) -> int:
    """Count one more change, for `models.changed`."""
    count(connection, CHANGES)
    return changes_counted(connection)
