"""Why could the zoo not be used: is its disk full, is its catalog damaged, or is it something else?

    raise zoo_unusable(where, "writing failed", advice, problem) from problem

What the system, SQLite and PostgreSQL mean is read from their codes, never from their words.
"""

import errno
import sqlite3

from modelkeeper.errors import CorruptCatalog, DiskFull, ZooUnusable

CORRUPT_ADVICE = (
    "Run `modelkeeper verify` to see what is damaged, and restore it from a backup (`modelkeeper restore`)."
)
_POSTGRESQL_DISK_FULL, _POSTGRESQL_CORRUPTED = "53100", ("XX001", "XX002")  # SQLSTATEs
# What SQLite and Python's module say of a file in which the schema, or letters, are not what was written:
# tables and columns that every catalog of a known version has, text that was written as UTF-8.
_NO_LONGER_THERE = (
    "no such table",
    "no such column",
    "no such index",
    "has no column",
    "could not decode to utf-8",
)


def zoo_unusable(where: str, text: str, advice: str, cause: BaseException) -> ZooUnusable:
    """The error for a catalog, a store or a folder that failed: what kind of ZooUnusable is it?"""
    if _is_disk_full(cause):
        return DiskFull(where, text, advice)
    if _is_corrupt(cause):
        return CorruptCatalog(where, text, CORRUPT_ADVICE)
    return ZooUnusable(where, text, advice)


def cannot_open(cause: BaseException) -> bool:
    """Could SQLite not make or map the files that it needs beside its own?"""
    below = _below(cause)
    kinds = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY)
    return isinstance(below, sqlite3.Error) and _code(below) & 0xFF in kinds


def _below(cause: BaseException) -> BaseException:
    return getattr(cause, "orig", None) or cause  # what SQLAlchemy wraps


def _code(problem: sqlite3.Error) -> int:
    """The low byte is the code, the rest says more of it; 0: it is none of SQLite's own."""
    return int(getattr(problem, "sqlite_errorcode", 0))


def _is_disk_full(cause: BaseException) -> bool:
    """Was there no room left on a disk, or of a quota?"""
    below = _below(cause)
    if isinstance(below, OSError):
        return below.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(below, sqlite3.Error):
        return _code(below) & 0xFF == sqlite3.SQLITE_FULL or _code(below) == sqlite3.SQLITE_IOERR_SHMSIZE
    return getattr(below, "sqlstate", "") == _POSTGRESQL_DISK_FULL


def _is_corrupt(cause: BaseException) -> bool:
    """Does the database itself say that its bytes are not what it wrote?"""
    below = _below(cause)
    if isinstance(below, sqlite3.Error):
        if _code(below) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return True
        return any(words in str(below).lower() for words in _NO_LONGER_THERE)
    return getattr(below, "sqlstate", "") in _POSTGRESQL_CORRUPTED
