"""Keys: made, kept for their owner alone, handed around in a line."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from modelkeeper.errors import InvalidKey
from modelkeeper.signing import Key, PublicKey, load_key, new_key, save_key
from modelkeeper.signing.keys import place

SEED = bytes(range(32))


def test_a_key_comes_back_from_its_file_which_is_its_owners_alone(tmp_path: Path) -> None:
    key, path = new_key(), tmp_path / "keys" / "ada.pem"
    umask = os.umask(0)
    try:
        save_key(key, path)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_key(path).public == key.public
    with pytest.raises(InvalidKey, match="already"):
        save_key(new_key(), path)
    assert load_key(path).public == key.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_key_that_others_may_read_is_not_used(tmp_path: Path, mode: int) -> None:
    save_key(new_key(), tmp_path / "ada.pem")
    (tmp_path / "ada.pem").chmod(mode)
    with pytest.raises(InvalidKey, match="chmod 600"):
        load_key(tmp_path / "ada.pem")


def test_what_is_no_key_is_said_to_be_none(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    pem, pkcs8 = Encoding.PEM, PrivateFormat.PKCS8
    files = {
        "no private key": b"hello",
        "none of Ed25519": X25519PrivateKey.generate().private_bytes(pem, pkcs8, NoEncryption()),
        "password": Ed25519PrivateKey.generate().private_bytes(pem, pkcs8, BestAvailableEncryption(b"x")),
    }
    for problem, content in files.items():
        path = tmp_path / "key.pem"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(InvalidKey, match=problem):
            load_key(path)
    for missing in (tmp_path / "nowhere.pem", tmp_path):
        with pytest.raises(InvalidKey, match="key new"):
            load_key(missing)


def test_a_fifo_in_the_place_of_a_key_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key.pem", 0o600)
    with pytest.raises(InvalidKey, match="no file"):
        load_key(tmp_path / "key.pem")


def test_the_id_and_the_line_of_a_key_are_what_they_always_were() -> None:
    public = Key(Ed25519PrivateKey.from_private_bytes(SEED)).public
    raw = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert public.raw.hex() == raw
    assert public.id == hashlib.sha256(bytes.fromhex(raw)).hexdigest()
    assert public.line("Ada of Partner") == f"ed25519:{raw} Ada of Partner"
    assert PublicKey.read(f"  ed25519:{raw}   Ada of Partner\n") == (public, "Ada of Partner")
    assert PublicKey.read(public.line()) == (public, "")


@pytest.mark.parametrize("line", ["", "ed25519:12", "rsa:" + "0" * 64, "ed25519:" + "G" * 64, "0" * 64])
def test_other_lines_are_no_keys(line: str) -> None:
    with pytest.raises(InvalidKey):
        PublicKey.read(line)


def test_a_private_key_is_in_no_text() -> None:
    key = Key(Ed25519PrivateKey.from_private_bytes(SEED))
    assert SEED.hex() not in repr(key)
    assert key.public.id in repr(key)


def test_names_lie_in_the_folder_of_keys_and_paths_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert place("work") == Path("/home/ada/.modelkeeper/keys/work.pem")
    assert place("~/work.pem") == Path("/home/ada/work.pem")
    assert place("keys/work") == Path("keys/work")
    for name in ("", "..", ".hidden", "a b", "x" * 200):
        with pytest.raises(InvalidKey):
            place(name)


def test_the_command_line_starts_without_cryptography() -> None:
    code = "import sys, modelkeeper.cli, modelkeeper.signing; assert 'cryptography' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
