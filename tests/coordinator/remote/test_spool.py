"""Does a spool clean itself, is it its owner's alone, and who gets the token of what waits there?"""

import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.remote.spool import Spool, Waiting
from tests.helpers.service import network, tensors, told

GRAPH = network()
URL, EVIL = "http://keeper.example.org:7433", "http://evil.example.org:7433"


def keep(folder: Path, url: str = URL, token: str = "mk_secret", number: int = 1) -> Path:
    name = f"{number:016x}"
    return Spool(folder).keep(url, GRAPH, told("net"), tensors(GRAPH).items(), "ada", name, b"", token).folder


def left_behind(folder: Path, name: str, age: float = 3600.0) -> Path:
    """What a process left that was killed while it wrote."""
    scratch = folder / name
    scratch.mkdir(parents=True)
    (scratch / "model.safetensors").write_bytes(bytes(1000))
    then = time.time() - age
    os.utime(scratch, (then, then))
    return scratch


def test_what_a_dead_process_left_is_swept(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    dead = left_behind(tmp_path, ".0123456789abcdef-01234567")
    gone = left_behind(tmp_path, ".gone-01234567")
    young = left_behind(tmp_path, ".0123456789abcdef-11111111", age=1.0)
    writing = left_behind(tmp_path, ".0123456789abcdef-22222222")
    handle = os.open(writing, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    waits = keep(tmp_path)
    assert [entry.folder for entry in spool.entries()] == [waits]
    assert [path.exists() for path in (dead, gone, young, writing)] == [False, False, True, True]
    os.close(handle)
    assert spool.sweep() == 1
    assert not writing.exists()


def test_a_process_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    """Its folder is locked while it lives, and goes when it is dead."""
    code = (
        "import sys, time; sys.path.insert(0, '.')\n"
        "from pathlib import Path; from tests.coordinator.remote.test_spool import *\n"
        "def slow():\n"
        "    for pair in tensors(GRAPH).items():\n"
        "        yield pair; print('wrote', flush=True); time.sleep(600)\n"
        f"Spool(Path({str(tmp_path)!r})).keep(URL, GRAPH, told(), slow(), '', '')\n"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"wrote\n"
        [scratch] = tmp_path.iterdir()
        then = time.time() - 3600
        os.utime(scratch, (then, then))
        assert Spool(tmp_path).sweep() == 0
        process.kill()
    assert Spool(tmp_path).sweep() == 1
    assert list(tmp_path.iterdir()) == []


def test_nobody_else_sees_what_waits(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        place = keep(tmp_path / "new" / "spool")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    for folder in (place, place.parent, place.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def readdressed(place: Path, url: str) -> None:
    """Somebody who can write into the spool wants to have the token."""
    path = place / "request.json"
    waiting = msgspec.json.decode(path.read_bytes(), type=Waiting)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(waiting, url=url)))


def test_a_token_is_for_the_address_that_it_was_used_for(tmp_path: Path) -> None:
    place = keep(tmp_path)
    [entry] = Spool(tmp_path).entries()
    assert b"mk_secret" not in (place / "request.json").read_bytes()
    assert entry.may_get("mk_secret", ())
    assert not entry.may_get("mk_another", ())
    assert entry.may_get("mk_another", {URL})
    readdressed(place, EVIL)
    [entry] = Spool(tmp_path).entries()
    assert not entry.may_get("mk_secret", ())
    assert not entry.may_get("mk_secret", {URL})
    assert entry.may_get("mk_secret", {EVIL})  # who names it


@pytest.mark.parametrize(
    ("url", "sent"), [("http://127.0.0.1:7433", True), (EVIL, False), ("http://[", False), ("x", False)]
)
def test_without_a_token_models_go_to_this_machine_alone(tmp_path: Path, url: str, sent: bool) -> None:
    place = keep(tmp_path, token="")
    readdressed(place, url)
    [entry] = Spool(tmp_path).entries()
    assert entry.may_get("", ()) is sent


def test_a_link_is_not_sent(tmp_path: Path) -> None:
    place = keep(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (place / "model.safetensors").unlink()
    (place / "model.safetensors").symlink_to(tmp_path / "secret")
    [entry] = Spool(tmp_path).entries()
    with pytest.raises(OSError, match="symbolic"):
        entry.open()


def test_an_id_is_the_folders(tmp_path: Path) -> None:
    place = keep(tmp_path)
    place.rename(tmp_path / ("f" * 16))
    assert Spool(tmp_path).entries() == []
