"""Does a row of the catalog say what was written into it? A seal is a checksum over what decides.

    seal_of(record)           stands beside the record's row
    holds(record, seal)       False: the row is not what was written

A database does not notice a bit that flips on its disk. Seals are compared whenever records are read, which
costs microseconds; they are no signature, since whoever may write to the catalog can make them. `SEALED` is
what version 1 covers: columns that are added later belong to a later version.
"""

import hashlib
from typing import Any

import msgspec

from modelkeeper.zoo.records import Record

VERSION = "1"
_TEXTS = (
    *(
        "id",
        "attempt",
        "name",
        "owner",
        "owner_id",
        "project",
        "project_id",
        "visibility",
        "data",
        "fold",
        "task",
    ),
    *("metric", "framework", "fingerprint", "graph", "checksum", "program", "evidence", "signer", "licence"),
    *("origin", "parent", "run", "state", "reason", "twin"),
)
_NUMBERS = ("value", "similarity", "created", "last_used", "twin_similarity")
_COUNTS = ("parameters", "bytes", "hits", "lower_is_better", "finished", "pinned", "published")
SEALED = (*_TEXTS, *_NUMBERS, *_COUNTS, "tags", "more_parents", "metrics")
_encoder = msgspec.json.Encoder()


def seal_of(record: Record) -> str:
    """The seal of a record, the same whichever database it was in."""
    values: list[Any] = [getattr(record, name) for name in _TEXTS]
    for name in _NUMBERS:
        number = getattr(record, name)
        values.append(None if number is None else float(number))
    values += [int(getattr(record, name)) for name in _COUNTS]
    values += [record.tags, record.more_parents, {name: float(said) for name, said in record.metrics.items()}]
    return seal_of_bytes(_encoder.encode(values))


def seal_of_bytes(data: bytes) -> str:
    """The seal of bytes."""
    return f"{VERSION}:{hashlib.blake2b(data, digest_size=16).hexdigest()}"


def holds(record: Record, seal: object) -> bool:
    """Is it the record that was sealed so?"""
    try:
        return seal_of(record) == seal
    except (ValueError, TypeError, AttributeError):  # it is not even a record any more
        return False
