"""Why could the zoo not be used: is its disk full, or is it something else?

    raise zoo_unusable(where, "writing failed", advice, problem) from problem

What the system, SQLite and PostgreSQL mean is read from their codes, never from their words.
"""

import errno
import sqlite3

from modelkeeper.errors import DiskFull, ZooUnusable

_POSTGRESQL_DISK_FULL = "53100"  # an SQLSTATE


def zoo_unusable(where: str, text: str, advice: str, cause: BaseException) -> ZooUnusable:
    """The error for a catalog, a store or a folder that failed: DiskFull if that is why, else ZooUnusable."""
    return (DiskFull if _is_disk_full(cause) else ZooUnusable)(where, text, advice)


def _is_disk_full(cause: BaseException) -> bool:
    """Was there no room left on a disk, or of a quota?"""
    below = getattr(cause, "orig", None) or cause  # what SQLAlchemy wraps
    if isinstance(below, OSError):
        return below.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(below, sqlite3.Error):  # the low byte is the code, the rest says more of it
        return getattr(below, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return getattr(below, "sqlstate", "") == _POSTGRESQL_DISK_FULL
