"""What happened in a zoo, as far as somebody may know? Events out of the catalog, the newest first.

read(connection, limit=50, model=..., action=..., user=...)
read(connection, limit=50, before=events[-1].number)              those that come after, in a long log
"""

import sqlalchemy as sa

from modelkeeper.zoo.database.rows import visible
from modelkeeper.zoo.database.schema import events, models
from modelkeeper.zoo.records import ADMINISTERED, Event, Viewer


def read(
    connection: sa.Connection,
    *,
    limit: int,
    viewer: Viewer | None = None,
    model: str | None = None,
    action: str | None = None,
    user: str | None = None,
    before: int | None = None,
) -> list[Event]:
    """The newest events: the viewer's own, and those of models that it may see; `before` one's number."""
    chosen = sa.select(*(events.c[name] for name in Event.__struct_fields__))
    exact = {"model": model, "action": action, "user": user}
    chosen = chosen.where(*(events.c[name] == value for name, value in exact.items() if value is not None))
    if before is not None:
        chosen = chosen.where(events.c.number < before)
    if viewer is not None and not viewer.all:
        # Asked event by event, since the newest that may be seen are usually among the first; as a number,
        # which no database makes a list of all models of.
        named = sa.select(models.c.key).where(models.c.id == events.c.model, *visible(viewer))
        seen = named.limit(1).scalar_subquery().is_not(None)
        own = (events.c.user == viewer.name) & (events.c.at >= viewer.since) & (events.c.user != "")
        own &= events.c.action != ADMINISTERED  # by who has the machine, whatever they are called there
        chosen = chosen.where(own & seen if viewer.partner else own | seen)
    rows = connection.execute(chosen.order_by(events.c.number.desc()).limit(limit))
    return [Event(**row) for row in rows.mappings()]
