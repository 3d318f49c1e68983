"""Can a coordinator mean what it says? What becomes part of a path is looked at before it is used."""

import re
from collections.abc import Iterator
from typing import Any

from modelkeeper.coordinator.lineage import Lineage
from modelkeeper.coordinator.wire import UploadState
from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.curves import Curve
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.catalog.starts import Start
from modelkeeper.zoo.foresight import Foreseen
from modelkeeper.zoo.records import MAX_PARENTS, Event, Record, is_id

_CHECKSUM = re.compile(r"[0-9a-f]{64}")


def wrong_with(reply: Any) -> str:
    """What cannot be meant in a reply; "" if all of it can."""
    return next(_wrong(reply), "")


def _wrong(reply: Any) -> Iterator[str]:  # noqa: C901  # a case for each kind of reply
    match reply:
        case Answer():
            lenders = [parent.id for parent in reply.parents]
            yield from _no_ids([*lenders, *(rival.id for rival in reply.runners_up)])
            if lenders[:1] != ([] if reply.parent is None else [reply.parent]):
                yield f"the parent {str(reply.parent)[:80]!r}, which is not the first that lends"
            if len(reply.parents) > MAX_PARENTS:
                yield f"{len(reply.parents)} parents"
        case Record():
            named = [*reply.parents, *([reply.twin] if reply.twin else [])]
            yield from _no_ids([reply.id, *named])
            if reply.bytes < 0 or _CHECKSUM.fullmatch(reply.checksum) is None:
                yield f"weights of {reply.bytes:,} bytes with the checksum {reply.checksum[:80]!r}"
        case Lineage():
            for part in (reply.record, *reply.ancestors, *reply.descendants):
                yield from _wrong(part)
        case Foreseen():
            for record, _ in reply.leaving:
                yield from _wrong(record)
        case Event():
            yield from _no_ids([reply.model] if reply.model else [])
        case Start():
            yield from _no_ids([reply.id, *reply.parents, *([reply.model] if reply.model else [])])
        case Curve():
            try:
                reply.check()
            except InvalidMeta as problem:
                yield str(problem)
        case UploadState():
            yield from _no_ids([reply.id])
            if not 0 <= reply.offset <= reply.size:
                yield f"{reply.offset:,} of {reply.size:,} bytes"
            if reply.registered is not None:
                yield from _wrong(reply.registered.record)
        case list():
            for part in reply:
                yield from _wrong(part)


def _no_ids(texts: list[str]) -> Iterator[str]:
    for text in texts:
        if not is_id(text):
            yield f"the id {text[:80]!r}"
