"""Real small disks, and disks that may only be read: file systems in memory, mounted for one test.

with disk(tmp_path, size="48m") as folder: fill(folder)
with read_only(folder): ...
"""

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def _mount(*arguments: str) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting file systems takes root, on Linux")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr}")


@contextlib.contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size in memory, mounted below a folder."""
    place = folder / "disk"
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """While the block runs, nobody writes to a folder, not even root."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave not a byte free on a disk; gives the file that takes it all."""
    path = folder / "filler"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(_Full):
                while True:
                    _append(handle, size)
    finally:
        os.close(handle)
    return path


class _Full(Exception):
    pass


def _append(handle: int, size: int) -> None:
    try:
        os.write(handle, b"x" * size)
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise
        raise _Full from problem
