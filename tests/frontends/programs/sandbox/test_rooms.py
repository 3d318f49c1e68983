"""Rooms: whatever happens in one, who opened it goes on, and is told in a line what it was."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkeeper.errors import CannotCalibrate, InvalidProgram
from modelkeeper.frontends.programs.sandbox import rooms
from modelkeeper.frontends.programs.sandbox.confinement import CLOSED, Terms
from modelkeeper.frontends.programs.sandbox.frames import Place
from modelkeeper.frontends.programs.sandbox.rooms import Room, available, open_room
from tests.helpers.bad_rooms import ENGINE, SERVICE, SILENT, STILLBORN, UNCLOSED, UNLOADABLE

pytestmark = pytest.mark.skipif(not available(), reason="this system has no rooms")
GIVEN = {"x": np.arange(6, dtype=np.float64)}
LINUX = sys.platform.startswith("linux")


@contextlib.contextmanager
def room(seconds: float = 60, engine: Any = ENGINE, memory: int = 2**28, **more: Any) -> Iterator[Room]:
    terms = Terms(memory, seconds)
    with open_room(engine.elsewhere, SERVICE, GIVEN, terms, largest=2**20, **more) as found:
        yield found


def refused(found: Room, method: str, kind: Any = None, /, **arguments: Any) -> str:
    with pytest.raises(InvalidProgram) as problem:
        found.call(method, kind, **arguments)
    assert str(problem.value).isprintable()
    assert len(str(problem.value)) < 3000
    return str(problem.value)


def usable() -> None:
    """Rooms that come after this one are as they should be."""
    with room() as found:
        assert found.call("total", float) == 15


# -- what it is for ---------------------------------------------------------------------------------


def test_a_room_works_on_what_it_is_given() -> None:
    with room() as found:
        assert found.call("total", float) == 15
        place = found.call("doubled", Place)
        np.testing.assert_array_equal(found.array(place), GIVEN["x"] * 2)
        assert found.call("threads", int) == 3


def test_rooms_are_open_side_by_side() -> None:
    with room() as one, room() as other:
        refused(one, "abort")
        assert other.call("total", float) == 15


# -- a room that dies, hangs, takes too much ----------------------------------------------------------


@pytest.mark.parametrize(("method", "word"), [("segfault", "SIGSEGV"), ("abort", "SIGABRT")])
def test_a_room_that_dies_is_told_by_its_signal(method: str, word: str) -> None:
    with room() as found:
        assert f"it ended the process that ran it ({word})" in refused(found, method)
        refused(found, "total", float)  # and it stays dead
    usable()


def test_a_room_that_leaves_is_told_by_its_code() -> None:
    with room() as found:
        assert "exit code 7" in refused(found, "leave", status=7)


@pytest.mark.parametrize("method", ["hang", "sleep", "trickles"])
def test_a_room_that_takes_too_long_is_ended(method: str) -> None:
    began = time.monotonic()
    with room(seconds=1) as found:
        assert "took longer than the 1 s that it may" in refused(found, method, float)
    assert time.monotonic() - began < 30
    usable()


def test_time_can_be_cut_but_not_given() -> None:
    with room(seconds=600) as found:
        found.ends(1)
        found.ends(600)
        assert "longer than the 1 s" in refused(found, "sleep")


@pytest.mark.skipif(not LINUX, reason="memory is bounded on Linux alone")
def test_a_room_takes_no_more_memory_than_it_may() -> None:
    with room() as found:
        assert "bounded memory" in found.holds
        problem = refused(found, "memory", int)
        assert "MemoryError" in problem or "more memory than it may take" in problem
    usable()


# -- a room that lies -------------------------------------------------------------------------------


NONSENSE = {
    "no JSON": "\x80\x04pickle",
    "no answer": "[1, 2]",
    "nothing": "",
    "deep nesting": "[" * 100_000,
    "a field of another type": '{"problem": 3}',
    "half a letter": '{"value": "\xff"}',
    "another value": '{"value": "many"}',
    "no value": "{}",
    "a number beyond all": '{"value": 1e999}',
    "no number": '{"value": NaN}',
}


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_no_answer(text: str) -> None:
    with room() as found:
        assert "answered nonsense" in refused(found, "says", float, text=text)
    usable()


@pytest.mark.parametrize("length", [2**22 + 1, 2**31, 2**32 - 1])
def test_a_message_that_is_too_long_is_not_waited_for(length: int) -> None:
    with room() as found:
        assert "answered nonsense" in refused(found, "claims", length=length)


def test_a_flood_is_not_drunk() -> None:
    with room() as found:
        refused(found, "floods")
    usable()


PLACES = {
    "beyond the end": (2**19, "float64", [2**17]),
    "before the beginning": (-8, "float64", [1]),
    "more than there is": (0, "float64", [2**60]),
    "more than can be counted": (0, "float64", [2**62, 2**62]),
    "a negative size": (0, "float64", [-1]),
    "objects": (0, "object", [1]),
    "too many axes": (0, "uint8", [1] * 40),
    "far away": (2**63, "float64", [1]),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_numbers_that_are_not_there_are_not_read(place: tuple[int, str, list[int]]) -> None:
    start, dtype, shape = place
    with room() as found, pytest.raises(InvalidProgram):
        found.array(found.call("place", Place, start=start, dtype=dtype, shape=shape))
    usable()


def test_an_area_that_is_cut_off_does_no_harm() -> None:
    """Where the kernel lets a room cut it off at all: reading comes short, where a mapping would fault."""
    with room() as found:
        place = found.call("shrinks", Place)
        with contextlib.suppress(InvalidProgram):
            found.array(place)
    usable()


def test_what_a_room_says_reaches_no_terminal_as_it_is() -> None:
    with room() as found:
        assert "\x1b" not in refused(found, "invalid")
        for kind in ("RecursionError", "ZeroDivisionError"):
            assert kind in refused(found, "raises", kind=kind)
        assert found.call("total", float) == 15  # that was no more than an answer


# -- what is out of reach ---------------------------------------------------------------------------


def test_files_network_and_others_are_out_of_reach(tmp_path: Path) -> None:
    """Every door, with the real kernel. Where it cannot close them, the room says so."""
    with socket.create_server(("127.0.0.1", 0)) as listening, room() as found:
        became = found.call("doors", dict[str, str], beside=listening.getsockname()[1])
        if CLOSED not in found.holds:
            pytest.skip("this kernel closes no doors")
        assert {name for name, ending in became.items() if ending == "done"} == set()
        assert became["read a file"] == became["call out"] == became["fork"] == "PermissionError"
        listening.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert not Path("/tmp/modelkeeper-was-here").exists()


@pytest.mark.skipif(not LINUX, reason="of Linux")
def test_what_holds_on_this_kernel_is_said() -> None:
    with room() as found:
        always = {"no core files", "no files written", "few files open", "bounded time", "bounded memory"}
        assert always <= set(found.holds)


def test_secrets_of_the_environment_do_not_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A porter that was started meanwhile has what it needs to find libraries, and nothing else."""
    monkeypatch.setenv("MODELKEEPER_TOKEN", "mk_secret")
    rooms._leave_all()
    with room() as found:
        process = found._porter._process
        if LINUX:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            assert b"mk_secret" not in environment
        assert found.call("total", float) == 15


def test_where_the_kernel_closes_nothing_strict_opens_none() -> None:
    with room(engine=UNCLOSED) as found:
        assert CLOSED not in found.holds
        assert found.call("total", float) == 15
    with (
        pytest.raises(CannotCalibrate, match="cannot keep a foreign program from files"),
        room(engine=UNCLOSED, strict=True),
    ):
        raise AssertionError("it was opened")


# -- when there are none ----------------------------------------------------------------------------


def test_an_engine_that_cannot_be_loaded_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotCalibrate, match=r"libmissing\.so") as problem, room(engine=UNLOADABLE):
        raise AssertionError("it was opened")
    assert "\x1b" not in str(problem.value)


def test_a_room_that_is_never_ready_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "OPENING", 2.0)
    with pytest.raises(InvalidProgram), room(engine=SILENT):
        raise AssertionError("it was opened")
    with pytest.raises(InvalidProgram, match="SIGABRT"), room(engine=STILLBORN):
        raise AssertionError("it was opened")


def test_without_rooms_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "available", lambda: False)
    with pytest.raises(CannotCalibrate, match="MODELKEEPER_SANDBOX"), room():
        raise AssertionError("it was opened")


def test_a_porter_that_was_killed_is_replaced() -> None:
    with room() as found:
        os.kill(found._porter._process.pid, signal.SIGKILL)
        assert "gone" in refused(found, "sleep") or "ended" in refused(found, "sleep")
    usable()


def test_after_a_fork_a_child_has_rooms_of_its_own() -> None:
    usable()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            usable()
            rooms._leave_all()
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    usable()


def test_nothing_is_left_behind() -> None:
    """Neither descriptors here, nor processes when who opened rooms ends, however that ends."""
    usable()
    before = len(os.listdir("/proc/self/fd")) if LINUX else 0
    for _ in range(5):
        with room() as found:
            refused(found, "abort")
    assert not LINUX or len(os.listdir("/proc/self/fd")) <= before
    code = (
        "import os, signal, sys; from tests.frontends.programs.sandbox.test_rooms import room\n"
        "with room() as found:\n"
        "    print(found._porter._process.pid, found._number, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(__file__).parents[4])
    given = os.environ | {"PYTHONPATH": root}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root, env=given
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    deadline = time.monotonic() + 30
    for process in map(int, run.stdout.split()):
        while alive(process):
            assert time.monotonic() < deadline, f"process {process} is still there"
            time.sleep(0.05)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")
