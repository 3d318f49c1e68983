"""How is a file of a local store opened, whatever lies in its place?

    with open_regular(path) as file: ...      at once, or an OSError: a pipe or a device is not waited for

Who can write to a zoo's folder could put a pipe there that never ends, or a link to somewhere else.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO

_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # what this process lacks says nothing of a file


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    Raises:
        FileNotFoundError: There is none.
        OSError: It may not be read, or is no regular file.
    """
    handle = os.open(path, _FLAGS)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        raise OSError(
            errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL, "it is no regular file", str(path)
        )
    return os.fdopen(handle, "rb")


def is_of_file(problem: OSError) -> bool:
    """Does an error concern just the file, so that another one may well be read?"""
    return problem.errno not in _OURS
