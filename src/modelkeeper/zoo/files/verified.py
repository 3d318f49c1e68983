"""Was a file compared with its checksum lately, and has nobody written to it since?

    seen = state(path)                      before its bytes are read
    remember(note, checksum, path, seen)    they have this checksum
    holds(note, checksum, path)             True: as far as the file system tells, they still have

A note is a small file that names the checksum, and the file's inode, size and times. Every write changes the
time of the last change, which nobody can set back, so that a file that was written to is compared again.
What a disk loses by itself is not seen from outside: a note counts for a day, and `gc --verify` asks none.
"""

import contextlib
import os
import time
from pathlib import Path

from modelkeeper.zoo.files.rights import as_its_folder, make_folder

TRUSTED = 24 * 3600.0  # seconds for which a note counts
SETTLED = 0.1  # seconds; within one tick of the clock two writes leave the same time


def state(path: Path) -> str:
    """Changes with every write to a file; empty if there is none, or if it was written to just now."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    if time.time() - max(found.st_mtime, found.st_ctime) < SETTLED:
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def remember(note: Path, checksum: str, path: Path, seen: str) -> None:
    """Note that a file has this checksum, if it is as it was `seen`; in a folder that is not ours, do not."""
    if seen and state(path) == seen:
        with contextlib.suppress(OSError):  # without a note the file is compared again, that is all
            make_folder(note.parent, exist_ok=True)
            with open(note, "w", opener=as_its_folder) as file:
                file.write(f"{checksum} {seen}\n")


def holds(note: Path, checksum: str, path: Path) -> bool:
    """Is there a note that counts, of this checksum and of the file as it is now?"""
    try:
        age = time.time() - note.stat().st_mtime
        noted = note.read_text()
    except (OSError, ValueError):
        return False
    seen = state(path)
    return seen != "" and 0 <= age < TRUSTED and noted == f"{checksum} {seen}\n"
