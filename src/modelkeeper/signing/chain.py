"""Has a log been rewritten? Each entry is bound to all before it by a digest.

    entry = following(head, at, kind, model, {"user": "ada"})     number and digest follow from the head
    for entry in entries: problem = broken(entry, head); head = entry.head
    Head.read("17:5f3c...")                                       as it is printed, and kept elsewhere

digest = SHA-256(previous digest || body), the digests as 32 bytes, the body as canonical JSON. The body holds
all that the entry says, also its number, so that nothing of it can be changed, left out, put in or moved
without the digest of every later entry being another. Whoever may write to the log can make all of them
anew; a head that is kept elsewhere shows that, too.
"""

import hashlib
import re
from typing import Any

from msgspec import Struct

from modelkeeper.errors import InvalidMeta
from modelkeeper.signing.canonical import canonical, number, parsed

_HEAD = re.compile(r"(0|[1-9][0-9]{0,17}):([0-9a-f]{64})")


class Head(Struct, frozen=True):
    """The last entry of a log: it stands for all before it."""

    number: int
    digest: str

    @classmethod
    def read(cls, text: str) -> "Head":
        """The head that was printed so.

        Raises:
            InvalidMeta: It is none.
        """
        parts = _HEAD.fullmatch(text.strip())
        if parts is None:
            raise InvalidMeta(
                "head", repr(text[:80]), "give it as `modelkeeper audit` prints it: NUMBER:DIGEST"
            )
        return cls(int(parts[1]), parts[2])

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


BEFORE = Head(-1, "0" * 64)  # what the first entry follows


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that happened."""

    number: int
    at: float
    kind: str
    model: str  # an id; "": it is about no model
    body: str  # canonical JSON of all of it
    previous: str
    digest: str

    @property
    def head(self) -> Head:
        """The log up to here."""
        return Head(self.number, self.digest)

    def said(self) -> dict[str, Any]:
        """What its body says."""
        plain: dict[str, Any] = parsed(self.body.encode())
        return plain


def following(head: Head, at: float, kind: str, model: str, more: dict[str, Any]) -> Entry:
    """The entry that comes after a head. `more` is plain data, numbers with fractions as texts."""
    place = {"number": head.number + 1, "at": number(at), "kind": kind, "model": model}
    body = canonical(more | place)
    return Entry(
        number=head.number + 1,
        at=at,
        kind=kind,
        model=model,
        body=body.decode(),
        previous=head.digest,
        digest=_digest(head.digest, body),
    )


def broken(entry: Entry, head: Head) -> str:
    """Why an entry cannot be what followed a head; "": it can."""
    if entry.number != head.number + 1:
        return f"entry {head.number + 1} is missing: {entry.number} comes after {head.number}"
    if entry.previous != head.digest:
        return "it does not follow the entry before it: one of both was changed"
    try:
        if entry.digest != _digest(entry.previous, entry.body.encode()):
            return "its digest is not that of what it says"
        said = entry.said()
        place = (said["number"], said["at"], said["kind"], said["model"])
        if place != (entry.number, number(entry.at), entry.kind, entry.model):
            return "its columns say something else than its body"
    except (ValueError, TypeError, KeyError):
        return "what it says cannot be read"
    return ""


def _digest(previous: str, body: bytes) -> str:
    return hashlib.sha256(bytes.fromhex(previous) + body).hexdigest()
