"""How do files lie one behind the other in a plain tar, written and read without going back?

    header(name, size), padding(size), END        what stands before, behind and at the end
    for member in members(file): ...              what stands there; each is read, or passed over

What is written is the same for the same files: no times, no owners. What is read is a stranger's: only plain
files are taken; links, devices, long names and everything else that archives may hold are refused by their
type, before a byte of theirs is read.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from modelkeeper.errors import InvalidBundle

BLOCK = 512
END = bytes(2 * BLOCK)
PIECE = 2**20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


def header(name: str, size: int) -> bytes:
    """What stands before a file."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    block = info.tobuf(tarfile.GNU_FORMAT, "ascii", "strict")
    assert len(block) == BLOCK, name  # a longer name would need a second one
    return block


def padding(size: int) -> bytes:
    """What stands behind a file of this size."""
    return bytes(-size % BLOCK)


@dataclass
class Member:
    """One file of an archive."""

    name: str
    size: int
    file: BinaryIO
    left: int  # of its bytes, and what stands behind them

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, once.

        Raises:
            InvalidBundle: They end too soon.
        """
        behind = self.left - self.size
        while self.left > behind:
            piece = self.file.read(min(PIECE, self.left - behind))
            if not piece:
                raise _ends()
            self.left -= len(piece)
            yield piece

    def pass_over(self) -> None:
        """Go on behind it."""
        while self.left:
            piece = self.file.read(min(PIECE, self.left))
            if not piece:
                raise _ends()
            self.left -= len(piece)


def members(file: BinaryIO) -> Iterator[Member]:
    """The files of an archive, in order; each must be read before the next is asked for.

    Raises:
        InvalidBundle: It is no archive, holds something else than plain files, or ends too soon.
    """
    while True:
        block = file.read(BLOCK)
        if len(block) != BLOCK:
            raise _ends()
        if block == bytes(BLOCK):
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, UnicodeError, ValueError) as problem:
            raise InvalidBundle("it", f"is no tar archive ({problem})", "Export it again.") from problem
        if info.type not in _PLAIN or info.size < 0:
            raise InvalidBundle(repr(info.name[:80]), "is no plain file", "Do not use it; ask who made it.")
        member = Member(info.name, info.size, file, info.size + -info.size % BLOCK)
        yield member
        member.pass_over()


def _ends() -> InvalidBundle:
    return InvalidBundle("it", "ends too soon", "Fetch it again; what was imported stays, and is skipped.")
