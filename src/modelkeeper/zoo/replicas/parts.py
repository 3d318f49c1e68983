"""Where do files lie that are being sent, when any of several machines may get the next bytes of them?

    parts.begin(Sent(...), seen, gone)         announce one; False: others have been announced meanwhile
    parts.add(identity, attempt, offset, data) the next bytes: True for whoever was first at this offset
    parts.all(identity)                        what lies where, in order
    parts.forget(identity), parts.sweep(grace)

Bytes are objects below `staging/`, under names that nobody uses twice; which of them count, in which order,
are rows of the catalog. A part is written first and counted then, in one transaction that moves the end of
its file from just where the part begins. So of two processes that are sent the same bytes one is first and
the other's are dropped, a process that dies leaves nothing that counts, and no lock is held while the store
is waited for. A row is made before the first object of it: an object without one is nobody's.
"""

import contextlib
import secrets
from collections.abc import Collection, Iterator, Sequence

import sqlalchemy as sa
from msgspec import Struct
from obstore.exceptions import BaseError as StoreError
from obstore.exceptions import NotFoundError

from modelkeeper.errors import UnknownModel, ZooUnusable
from modelkeeper.logs import logger
from modelkeeper.zoo.database.database import Database, one_at_a_time
from modelkeeper.zoo.database.leases import now
from modelkeeper.zoo.database.schema import upload_parts, uploads
from modelkeeper.zoo.files.blobs import PIECE, Blobs
from modelkeeper.zoo.files.folders import COPIED, STAGING
from modelkeeper.zoo.files.stores import Store, is_of_obstore, put_whole

IDLE = 10.0  # seconds after which a file that nobody works on is nobody's
_log = logger()
_BRIEF = (uploads.c.id, uploads.c.owner, uploads.c.attempt, uploads.c.bytes)


class Sent(Struct, frozen=True, kw_only=True):
    """A file that is being sent."""

    id: str
    owner: str
    attempt: str  # of announcements under one id, which: what an earlier one still sends does not count
    text: bytes = b""  # what was said of it
    arrived: int = 0  # how many bytes of it are there
    idle: float = 0.0  # seconds since anybody worked on it
    bytes: int  # that it takes up, all of it, whether it has come or not


class Part(Struct, frozen=True):
    """An object that holds some of the bytes."""

    offset: int
    size: int
    path: str


class Parts:
    """The files that are being sent to one zoo. Safe to use from several threads and processes."""

    def __init__(self, database: Database, blobs: Blobs, store: Store) -> None:
        self._database, self._blobs, self._store = database, blobs, store

    # -- rows -----------------------------------------------------------------------------------

    def open(self, owner: str | None = None) -> list[Sent]:
        """All files, or those of one owner, without what was said of them."""
        with self._database.reading() as connection:
            rows = sa.select(*_BRIEF, now(connection) - uploads.c.touched)
            if owner is not None:
                rows = rows.where(uploads.c.owner == owner)
            return [
                Sent(id=identity, owner=whose, attempt=attempt, bytes=size, idle=idle)
                for identity, whose, attempt, size, idle in connection.execute(rows)
            ]

    def find(self, identity: str) -> Sent | None:
        """One file."""
        rows = sa.select(*_BRIEF, uploads.c.text, uploads.c.arrived).where(uploads.c.id == identity)
        with self._database.reading() as connection:
            row = connection.execute(rows).mappings().first()
        return None if row is None else Sent(**row)

    def begin(self, new: Sent, seen: Collection[tuple[str, str]], gone: Sequence[Sent]) -> bool:
        """Announce a file, instead of those that are `gone`; True: that is done.

        `seen` are ids and attempts of all that its owner has under way, by which it was judged that there is
        room. If these are no longer what is there, or what should go is worked on, nothing is done.

        Raises:
            UnknownModel: Another sends a file under this id.
        """
        with self._database.writing() as connection:
            one_at_a_time(connection, new.owner)
            idle = uploads.c.touched < now(connection) - IDLE
            rows = sa.select(uploads.c.id, uploads.c.attempt, idle)
            theirs = {
                (identity, attempt): is_idle
                for identity, attempt, is_idle in connection.execute(rows.where(uploads.c.owner == new.owner))
            }
            leaving = [(each.id, each.attempt) for each in gone]
            if theirs.keys() != set(seen) or not all(theirs[each] for each in leaving):
                return False
            others = sa.select(uploads.c.id).where(uploads.c.id == new.id, uploads.c.owner != new.owner)
            if connection.scalar(others) is not None:
                raise UnknownModel(new.id)
            leaving += [each for each in theirs if each[0] == new.id]
            connection.execute(uploads.delete().where(uploads.c.id.in_([each for each, _ in leaving])))
            row = {name: getattr(new, name) for name in ("id", "owner", "attempt", "bytes", "text")}
            connection.execute(uploads.insert().values(row | {"arrived": 0, "touched": now(connection)}))
        for identity, attempt in leaving:
            self._drop(identity, attempt)
        return True

    def touch(self, identities: Collection[str]) -> None:
        """Somebody works on these files."""
        with self._database.writing() as connection:
            rows = uploads.update().where(uploads.c.id.in_(sorted(identities)))
            connection.execute(rows.values(touched=now(connection)))

    # -- bytes ----------------------------------------------------------------------------------

    def add(self, identity: str, attempt: str, offset: int, data: bytes | memoryview) -> bool:
        """Add bytes at the end of a file, which must be at `offset`. False: it is elsewhere, or nowhere."""
        path = f"{_folder(identity, attempt)}/{offset:020d}-{secrets.token_hex(8)}"
        with self._translated(f"writing {path}"):
            put_whole(self._store, path, data)
        return self._count(identity, attempt, Part(offset, len(data), path))

    def _count(self, identity: str, attempt: str, part: Part) -> bool:
        """Let an object count as the next part of a file; if it is not, it goes."""
        with self._database.writing() as connection:
            end = (uploads.c.id == identity, uploads.c.attempt == attempt, uploads.c.arrived == part.offset)
            moved = uploads.update().where(*end)
            moved = moved.values(arrived=part.offset + part.size, touched=now(connection))
            first = connection.execute(moved).rowcount == 1
            if first:
                row = {"upload": identity, "offset": part.offset, "size": part.size, "path": part.path}
                connection.execute(upload_parts.insert().values(row))
        if not first:
            self._delete([part.path])
        return first

    def direct(self, identity: str, attempt: str) -> str:
        """A URL to which whoever sends a file may put all of it; "": the store gives none."""
        return self._blobs.sign("PUT", _direct(identity, attempt))

    def take_direct(self, identity: str, attempt: str, size: int) -> bool:
        """Let what was put to the store itself count, if it is of this size. Did it?

        Its URL may still be good: it is copied to where nobody else can write. One that is too large for that
        is copied when it has been read and checked.
        """
        source = _direct(identity, attempt)
        path = f"{_folder(identity, attempt)}/{0:020d}-{secrets.token_hex(8)}" if size <= COPIED else source
        with self._translated(f"taking {source}"):
            try:
                if not is_of_obstore(self._store) or self._store.head(source)["size"] != size:
                    return False
                if path != source:
                    self._store.copy(source, path)  # type: ignore[attr-defined]
                    if self._store.head(path)["size"] != size:
                        return False
            except (NotFoundError, FileNotFoundError):
                return False
        return self._count(identity, attempt, Part(0, size, path))

    def all(self, identity: str) -> list[Part]:
        """The parts of a file, in order."""
        rows = sa.select(upload_parts.c.offset, upload_parts.c.size, upload_parts.c.path)
        rows = rows.where(upload_parts.c.upload == identity).order_by(upload_parts.c.offset)
        with self._database.reading() as connection:
            return [Part(*row) for row in connection.execute(rows)]

    def read(self, identity: str, part: Part) -> Iterator[memoryview]:
        """The bytes of a part, piece by piece.

        Raises:
            UnknownModel: It is no longer there: who sent it was quicker, elsewhere, or gave up.
        """
        for at in range(0, part.size, PIECE):
            with self._translated(f"reading {part.path}"):
                try:
                    length = min(PIECE, part.size - at)
                    piece = memoryview(self._store.get_range(part.path, start=at, length=length))
                except (NotFoundError, FileNotFoundError):
                    raise UnknownModel(identity) from None
            yield piece

    # -- going ----------------------------------------------------------------------------------

    def forget(self, identity: str) -> None:
        """Delete a file; one that is not there is no error. Objects that cannot be deleted now are swept."""
        with self._database.writing() as connection:
            found = sa.select(uploads.c.attempt).where(uploads.c.id == identity)
            attempt = connection.scalar(found)
            connection.execute(uploads.delete().where(uploads.c.id == identity))
        if attempt is not None:
            self._drop(identity, attempt)

    def sweep(self, grace: float) -> int:
        """Delete files that nobody has worked on for so many seconds, and objects without one. How many?"""
        with self._translated("listing what is staged"):
            there = [str(item["path"]) for batch in self._store.list(STAGING + "/") for item in batch]
        with self._database.writing() as connection:
            old = uploads.c.touched < now(connection) - max(grace, IDLE)
            swept = connection.execute(uploads.delete().where(old)).rowcount
            rows = connection.execute(sa.select(uploads.c.id, uploads.c.attempt))
            live = {_folder(identity, attempt) for identity, attempt in rows}
        self._delete([path for path in there if path.rpartition("/")[0] not in live])
        return swept

    def _drop(self, identity: str, attempt: str) -> None:
        """Delete the objects of a file that has no row any more."""
        try:
            with self._translated(f"listing {identity}"):
                found = self._store.list(_folder(identity, attempt) + "/")
                paths = [str(item["path"]) for batch in found for item in batch]
        except ZooUnusable as problem:
            _log.warning("left to be swept: %s", problem)
        else:
            self._delete(paths)

    def _delete(self, paths: Sequence[str]) -> None:
        try:
            with self._translated("deleting what was sent"):
                if paths:
                    self._store.delete(paths)
        except ZooUnusable as problem:
            _log.warning("left to be swept: %s", problem)

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """A call to the store: it takes nobody's place, and what goes wrong with it is a ZooUnusable."""
        try:
            with self._blobs.waiting():
                yield
        except (StoreError, OSError) as problem:
            raise self._blobs.failed(what, problem) from problem


def _direct(identity: str, attempt: str) -> str:
    return f"{_folder(identity, attempt)}/whole"


def _folder(identity: str, attempt: str) -> str:
    return f"{STAGING}/{identity}-{attempt}"
