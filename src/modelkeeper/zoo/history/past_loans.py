"""To whom did a model lend, and what came of it? Its loans out of the log, with the starts behind them.

    loans_of(connection, model, viewer, limit=50, before=number)        the newest first

Who may see a model is told that it lent, when, to whom, and how similar that was. To what it lent, whether
the start was exact and what came of it are told to whoever may see the start: those who asked,
administrators, and who may see the model that was registered. A loan of which one may not see what came of it
looks as one of which nothing came.
"""

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from modelkeeper.warmstart.race.rules import COLD
from modelkeeper.zoo.catalog.events import read
from modelkeeper.zoo.catalog.starts import Start, by_ids
from modelkeeper.zoo.records import LENT, Event, Viewer


class PastLoan(Struct, frozen=True, kw_only=True):
    """A start from a model."""

    number: int  # in the order in which they were written
    at: float
    user: str  # who asked
    similarity: float | None
    start: str = ""  # its id; "": it may not be seen, or is forgotten
    child: str = ""  # the fingerprint of what it lent to
    exact: bool | None = None  # None: likewise
    lost: bool = False  # did a cold start win the race against it?
    model: str = ""  # id of what was registered; "": nothing that may be seen


def loans_of(
    connection: sa.Connection,
    model: str,
    viewer: Viewer | None = None,
    *,
    limit: int = 50,
    before: int | None = None,
) -> list[PastLoan]:
    """The loans of a model, the newest first; `before` one's number. The viewer may see the model."""
    events = read(connection, limit=limit, viewer=viewer, model=model, action=LENT, before=before)
    named = [event.data["start"] for event in events if event.data.get("start")]
    starts = by_ids(connection, named, viewer)
    return [_loan(event, starts.get(event.data.get("start", ""))) for event in events]


def _loan(event: Event, start: Start | None) -> PastLoan:
    told = PastLoan(
        number=event.number, at=event.at, user=event.user, similarity=event.data.get("similarity")
    )
    if start is None:
        return told
    return msgspec.structs.replace(
        told,
        start=start.id,
        child=start.child,
        exact=start.exact,
        lost=start.race is not None and start.race.winner == COLD,
        model=start.model,
    )
