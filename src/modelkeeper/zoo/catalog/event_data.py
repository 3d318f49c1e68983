"""What do events say to programs, and who may know it? The data of a loan, a refusal, a removal.

    about_loan(child, similarity, start)    to which architecture weights were lent
    refusal(record, size, reason)           what was not taken in, and whose it was
    as_seen(connection, events, viewer)     the same events, without what is not the viewer's business; loans
                                            with the model that was registered later, if that may be seen

Who may see a model is told that it was lent, when and to whom. What it was lent to is told only to whoever
asked and to administrators: the fingerprint of a private model would say which architecture it has.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from modelkeeper.zoo.catalog.starts import models_of
from modelkeeper.zoo.records import LENT, REFUSED, Event, Record, Viewer

_OPEN = {LENT: ("similarity",)}  # what all who see a model are told; of other events about it, everything


def about_loan(child: str, similarity: float | None, start: str) -> dict[str, Any]:
    """What a loan says besides its parent: to which architecture, how similar, and by which start."""
    return {"child": child, "similarity": similarity} | ({"start": start} if start else {})


def refusal(record: Record, size: int, reason: str) -> Event:
    """A refusal: which model it was, as far as it was told, whose it is, and why it is not here."""
    names = ("name", "owner", "owner_id", "project", "task", "data", "metric", "value", "fingerprint")
    data = {name: getattr(record, name) for name in names} | {"bytes": size, "reason": reason}
    detail = f"{record.name}: {reason}"
    return Event(at=time.time(), action=REFUSED, user=record.owner, detail=detail, data=data)


def done_to(record: Record, action: str, user: str) -> Event:
    """What somebody does to a model now, perhaps to another's."""
    data = about_model(record)
    return Event(at=time.time(), action=action, model=record.id, user=user, detail=record.name, data=data)


def about_model(record: Record) -> dict[str, Any]:
    """What an event says of the model that it happened to: its name, whose it is, and its size."""
    return {"name": record.name, "owner": record.owner, "bytes": record.bytes}


def as_seen(connection: sa.Connection, happened: Sequence[Event], viewer: Viewer | None) -> list[Event]:
    """Events that a viewer may see, with what they may know of each: of their own, all of it."""
    started = [event.data["start"] for event in happened if event.data.get("start")]
    registered = models_of(connection, started, viewer) if started else {}
    seen = []
    for event in happened:
        model = registered.get(event.data.get("start", ""))
        data = (event.data if _own(event, viewer) else _reduced(event)) | ({"model": model} if model else {})
        seen.append(msgspec.structs.replace(event, data=data) if data != event.data else event)
    return seen


def _own(event: Event, viewer: Viewer | None) -> bool:
    if viewer is None or viewer.all:
        return True
    return bool(viewer.name) and event.user == viewer.name and event.at >= viewer.since


def _reduced(event: Event) -> dict[str, Any]:
    if event.action not in _OPEN:
        return event.data
    return {name: event.data[name] for name in _OPEN[event.action] if name in event.data}
