"""Who besides their owner may see the files of a zoo? Nobody; in a folder that others may write to, they too.

    make_home(path)                               a folder that is not there yet is its owner's alone
    make_folder(path)                             one inside of a zoo, as the folder says that it lies in
    open(path, "xb", opener=as_its_folder)        a file likewise
    give_to_folder(path)                          a file that is there, likewise

A zoo that a group shares lies in a folder that the group may write to, or whose group is passed on (`chmod
g+rwxs`): the group may then read and write what lies in it. What the umask says does not matter.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

OWNER = 0o700


def make_home(path: Path) -> None:
    """Make a folder, and those above it, for its owner alone; one that is there stays as it is."""
    for folder in (*reversed(path.parents), path):
        if folder.is_dir():
            continue
        try:
            folder.mkdir(mode=OWNER)
        except FileExistsError:
            if not folder.is_dir():  # else another process was quicker
                raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(folder)) from None


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder for those who may write to the one that it lies in."""
    try:
        path.mkdir(mode=OWNER)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
    else:
        rights = _rights_below(path.parent)
        if rights != OWNER:
            path.chmod(rights)


def as_its_folder(path: str, flags: int) -> int:
    """Open a file; a new one is for those who may write to its folder. Goes to `open` as its opener."""
    handle = os.open(path, flags, 0o600)
    if flags & os.O_CREAT:
        rights = _rights_below(Path(path).parent) & 0o666
        if rights != 0o600 and hasattr(os, "fchmod"):
            with contextlib.suppress(PermissionError):  # it was there, and is somebody else's
                os.fchmod(handle, rights)
    return handle


def give_to_folder(path: Path) -> None:
    """Let those see a file who may write to the folder that it lies in, and nobody else."""
    path.chmod(_rights_below(path.parent) & 0o666)


def _rights_below(folder: Path) -> int:
    """The rights of a new folder in this one."""
    mode = folder.stat().st_mode
    rights = OWNER
    if mode & (stat.S_IWGRP | stat.S_ISGID):
        rights |= mode & (stat.S_IRWXG | stat.S_ISGID)
    if mode & stat.S_IWOTH:
        rights |= mode & stat.S_IRWXO
    return rights
