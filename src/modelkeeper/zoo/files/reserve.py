"""What is left to give up when a disk is full, so that room can be made with the zoo's own tools?

    reserve = Reserve(Path("zoo/"))
    reserve.keep()          while there is room: a small file that holds some of it
    reserve.give_up()       on a full disk: now a record can say that a model went

To take a model out, its record has to be written: without a free byte nothing could ever be deleted.
"""

import contextlib
import os
import shutil
from pathlib import Path

from modelkeeper.zoo.files.rights import as_its_folder

SIZE = 2**20  # bytes: a transaction that retires some hundred models
PLENTY = 32 * SIZE  # it is made while so much is free
SHORT = SIZE // 16  # with less than this, whatever fails may fail for that
NAME = "reserve"


class Reserve:
    """A file beside a catalog that holds a little room on its disk."""

    def __init__(self, folder: Path | None) -> None:
        """None: there is no disk to keep room on."""
        self._folder = folder

    def keep(self) -> None:
        """Make the file if it is not there and there is plenty of room; otherwise later."""
        if self._folder is None or os.path.exists(self._folder / NAME):
            return
        with contextlib.suppress(OSError):  # it is for bad days; today goes on without it
            if shutil.disk_usage(self._folder).free < PLENTY:
                return
            scratch = self._folder / f"{NAME}-{os.getpid()}"
            try:
                with open(scratch, "xb", opener=as_its_folder) as file:
                    file.write(os.urandom(SIZE))  # what a file system can neither compress nor leave out
                scratch.replace(self._folder / NAME)
            finally:
                scratch.unlink(missing_ok=True)

    def give_up(self) -> None:
        """Delete the file, if it is there."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / NAME).unlink()

    @property
    def short(self) -> bool:
        """Is hardly anything free?"""
        if self._folder is None:
            return False
        try:
            return shutil.disk_usage(self._folder).free < SHORT
        except OSError:
            return False
