"""Whose signatures count for this user? Public keys that they pinned: a file with one line for each.

    pinned = Trusted.of(settings.trusted)     ~/.modelkeeper/keys/trusted, unless another is named
    pinned.add(public, "Ada of Partner")      its line is written behind the others
    pinned.name_of(key_id)                    as this user calls them; None: the key is not trusted

A line is as `modelkeeper key show` prints it; what follows # is a remark. A file that others may write to is
refused: whoever adds a line decides what is trusted.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from modelkeeper.errors import InvalidKey
from modelkeeper.signing.keys import PublicKey, keys_folder

MAX_FILE = 2**20  # bytes


class Trusted:
    """The keys that one user has pinned."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, path: str) -> "Trusted":
        """The keys in a file; of whoever does not say which, the one in ~/.modelkeeper/keys."""
        return cls(Path(path).expanduser() if path else keys_folder() / "trusted")

    def keys(self) -> dict[str, tuple[PublicKey, str]]:
        """All keys with the names that they were pinned by, by id.

        Raises:
            InvalidKey: Others may write to the file, it cannot be read, or a line of it is no key.
        """
        found = {}
        for line in self._lines():
            text = line.partition("#")[0].strip()
            if text:
                public, name = PublicKey.read(text)
                found[public.id] = public, name
        return found

    def name_of(self, key_id: str) -> str | None:
        """What the owner of a key is called here; None: it is not trusted."""
        known = self.keys().get(key_id)
        return None if known is None else known[1] or key_id[:16]

    def add(self, public: PublicKey, name: str) -> None:
        """Trust a key, by this name."""
        rest = [line for line in self._lines() if _id_of(line) != public.id]
        self._write([*rest, public.line(name.replace("#", " "))])

    def remove(self, key_id: str) -> bool:
        """Trust a key no more. Was it trusted?"""
        lines = list(self._lines())
        rest = [line for line in lines if _id_of(line) != key_id]
        if len(rest) < len(lines):
            self._write(rest)
        return len(rest) < len(lines)

    def _lines(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if os.name == "posix" and mode & 0o022:
                    advice = f"Make it yours alone: chmod 600 {self.path}"
                    raise InvalidKey(str(self.path), "others may write to it", advice)
                text = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise InvalidKey(str(self.path), problem.strerror or str(problem), "Check it.") from problem
        if len(text) > MAX_FILE:
            raise InvalidKey(str(self.path), f"it has more than {MAX_FILE:,} bytes", "Check it.")
        yield from text.decode(errors="replace").splitlines()

    def _write(self, lines: list[str]) -> None:
        """Write the file anew: as it was, or as it is to be."""
        scratch = self.path.with_name(f".{self.path.name}-{secrets.token_hex(4)}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write("".join(f"{line}\n" for line in lines))
            scratch.replace(self.path)
        except OSError as problem:
            scratch.unlink(missing_ok=True)
            raise InvalidKey(str(self.path), problem.strerror or str(problem), "Check it.") from problem


def _id_of(line: str) -> str:
    """The id of the key of a line; "": it is a remark, or damaged."""
    try:
        return PublicKey.read(line.partition("#")[0])[0].id
    except InvalidKey:
        return ""
