"""Which keys sign? Ed25519: a private one in a file of its owner's alone, and a public one to hand around.

    key = new_key(); save_key(key, place("ada"))     ~/.modelkeeper/keys/ada.pem, PEM (PKCS8), 0600
    key = load_key(place("ada"))                     refused if others may read it
    key.public.line("Ada")                           ed25519:5f3c... Ada
    PublicKey.read("ed25519:5f3c... Ada")            the key, and whose it is said to be

A key is known by its id: the SHA-256 of the 32 bytes of the public key, in hexadecimal.
"""

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from modelkeeper.errors import InvalidKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_FILE = 10_000  # bytes; a key takes 119
_LINE = re.compile(r"ed25519:([0-9a-f]{64})(?:[ \t]+(\S.*))?")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_MAKE = "Make one: modelkeeper key new."


class PublicKey(Struct, frozen=True):
    """What signatures of a key are verified with."""

    raw: bytes

    @property
    def id(self) -> str:
        """What the key is known by."""
        return hashlib.sha256(self.raw).hexdigest()

    @classmethod
    def of_hex(cls, text: str) -> "PublicKey":
        """The key that is written so.

        Raises:
            InvalidKey: It is none.
        """
        if re.fullmatch(r"[0-9a-f]{64}", text) is None:
            raise InvalidKey(repr(text[:80]), "a public key has 64 hexadecimal digits", "Copy all of it.")
        return cls(bytes.fromhex(text))

    @classmethod
    def read(cls, line: str) -> tuple["PublicKey", str]:
        """The key of a line, and the words behind it: whose it is said to be.

        Raises:
            InvalidKey: It is no such line.
        """
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            advice = "Give the line that `modelkeeper key show` prints: ed25519:HEX NAME."
            raise InvalidKey(repr(line[:80]), "it is no public key", advice)
        return cls(bytes.fromhex(parts[1])), (parts[2] or "").strip()

    def line(self, name: str = "") -> str:
        """The key in one printable line, to hand around."""
        return f"ed25519:{self.raw.hex()} {name}".rstrip()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Did who holds the private key sign just this message?"""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class Key:
    """A private key. Its bytes are in no text that it prints."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private

    @property
    def public(self) -> PublicKey:
        """What its signatures are verified with."""
        return PublicKey(self._private.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """A signature, the same for the same message."""
        return self._private.sign(message)

    def to_pem(self) -> bytes:
        """The key as it lies in its file."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        return f"Key(id={self.public.id!r})"


def new_key() -> Key:
    """A key that nobody else has."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Key(Ed25519PrivateKey.generate())


def keys_folder() -> Path:
    """Where a user's keys are."""
    return Path.home() / ".modelkeeper" / "keys"


def place(name: str) -> Path:
    """The file of a key: a name is one in the folder of keys, whatever has a slash or ends in .pem is a path.

    Raises:
        InvalidKey: It cannot be a name.
    """
    if os.sep in name or name.endswith(".pem"):
        return Path(name).expanduser()
    if _NAME.fullmatch(name) is None:
        raise InvalidKey(repr(name[:80]), "it is no name of a key", "Use letters, digits, -, _ and dots.")
    return keys_folder() / f"{name}.pem"


def load_key(path: Path) -> Key:
    """The key in a file that its owner alone may read.

    Raises:
        InvalidKey: It is not there, others may read it, or it holds no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = _read_private(path)
    try:
        private = load_pem_private_key(text, password=None)
    except TypeError:
        raise InvalidKey(str(path), "it is protected by a password", "Give one without.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidKey(str(path), "it holds no private key in PEM", _MAKE) from None
    if not isinstance(private, Ed25519PrivateKey):
        raise InvalidKey(str(path), "its key is none of Ed25519", _MAKE)
    return Key(private)


def save_key(key: Key, path: Path) -> None:
    """Write a key into a new file that its owner alone may read.

    Raises:
        InvalidKey: There is such a file already, or it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            if hasattr(os, "fchmod"):
                os.fchmod(handle, 0o600)  # whatever the umask says
            file.write(key.to_pem())
            file.flush()
            os.fsync(handle)
    except FileExistsError:
        raise InvalidKey(str(path), "it is there already", "Give another name: keys are kept.") from None
    except OSError as problem:
        raise InvalidKey(str(path), problem.strerror or str(problem), "Check its folder.") from problem


def _read_private(path: Path) -> bytes:
    """The bytes of a file that its owner alone may read: asked of what is open, not of a name."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as problem:
        raise InvalidKey(str(path), problem.strerror or str(problem), _MAKE) from problem
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidKey(str(path), "it is no file", _MAKE)
        if os.name == "posix" and found.st_mode & 0o077:
            raise InvalidKey(str(path), "others may read it", f"Make it yours alone: chmod 600 {path}")
        return os.read(handle, MAX_FILE)
    except OSError as problem:
        raise InvalidKey(str(path), problem.strerror or str(problem), _MAKE) from problem
    finally:
        os.close(handle)
