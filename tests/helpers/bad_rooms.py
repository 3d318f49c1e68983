"""What may work in a room, and does not do as it should: loaded by the porter, by name."""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.programs.sandbox import porter
from modelkeeper.frontends.programs.sandbox.elsewhere import Elsewhere
from modelkeeper.frontends.programs.sandbox.frames import Place
from modelkeeper.frontends.programs.sandbox.porter import Given

line = -1  # of this room
SERVICE = "tests.helpers.bad_rooms:Bad"


class Engine:
    """One that computes nothing, and so is there at once."""

    def __init__(self, name: str) -> None:
        self.elsewhere = Elsewhere(f"tests.helpers.bad_rooms:{name}")

    def load(self) -> None:
        """Nothing."""

    def settle(self, threads: int) -> None:
        """Look for what is hidden later."""
        global line
        line = find_line()


class Unclosed(Engine):
    """On a kernel that can close nothing: as the room finds it, which says so."""

    def settle(self, threads: int) -> None:
        vars(porter)["limit"] = lambda terms: ["bounded memory"]


class Unloadable(Engine):
    """A framework that cannot be imported."""

    def load(self) -> None:
        raise ImportError("libmissing.so: \x1b[31mcannot open")


class Silent(Engine):
    """Rooms of it never come to be ready."""

    def settle(self, threads: int) -> None:
        time.sleep(600)


class Stillborn(Engine):
    """Rooms of it die before they are ready."""

    def settle(self, threads: int) -> None:
        os.abort()


ENGINE, UNCLOSED, UNLOADABLE = Engine("ENGINE"), Unclosed("UNCLOSED"), Unloadable("UNLOADABLE")
SILENT, STILLBORN = Silent("SILENT"), Stillborn("STILLBORN")


def find_line() -> int:
    """The descriptor of the line of this room; once it is confined it can no longer look."""
    for file in range(3, 16):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(file).st_mode):
                return file
    raise AssertionError("no line")


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + text


class Bad:
    """Does whatever a program could make of its process."""

    def __init__(self, given: Given) -> None:
        self._given = given

    def total(self) -> float:
        """What an honest one does: the sum of an array that was given."""
        return float(self._given.arrays["x"].sum())

    def doubled(self) -> Any:
        """An array that was made."""
        return self._given.arrays["x"] * 2

    def segfault(self) -> None:
        ctypes.string_at(0)

    def abort(self) -> None:
        os.abort()

    def leave(self, status: int) -> None:
        os._exit(status)

    def hang(self) -> None:
        while True:
            pass

    def sleep(self) -> None:
        time.sleep(600)

    def invalid(self) -> None:
        raise InvalidProgram("step \x1b[31m3", "it is\x07 wrong" * 1000)

    def raises(self, kind: str) -> None:
        raise {"RecursionError": RecursionError, "ZeroDivisionError": ZeroDivisionError}[kind]("of its own")

    def memory(self) -> int:
        """Take 64 MiB at a time, and use them, as long as there are any."""
        held: list[Any] = []
        while True:
            held.append(np.ones(2**23))

    def says(self, text: str, times: int = 1) -> None:
        """Write a frame of its own instead of an answer."""
        for _ in range(times):
            os.write(line, framed(text.encode("latin-1")))
        time.sleep(600)

    def claims(self, length: int) -> None:
        """Announce so many bytes, and send a few."""
        os.write(line, length.to_bytes(4, "little") + b"{}")
        time.sleep(600)

    def floods(self) -> None:
        """Write without end."""
        data = bytes(65536)
        while True:
            os.write(line, data)

    def trickles(self) -> None:
        """A byte now and then, of a frame that would be in order."""
        for byte in framed(b'{"value": 1.0}' + b" " * 100_000):
            os.write(line, bytes([byte]))
            time.sleep(0.02)

    def place(self, start: int, dtype: str, shape: list[int]) -> Place:
        return Place(start, dtype, tuple(shape))

    def shrinks(self) -> Place:
        """Say that numbers are in an area that was cut off meanwhile."""
        for file in range(3, 16):
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
        return Place(0, "float64", (2**17,))

    def doors(self, beside: int) -> dict[str, str]:
        """Try to get at files, the network and others; what became of each."""
        tries: dict[str, Callable[[], Any]] = {
            "read a file": lambda: open("/etc/passwd").read(),  # noqa: SIM115
            "list a folder": lambda: os.listdir("/"),
            "write a file": lambda: open("/tmp/modelkeeper-was-here", "w").write("x"),  # noqa: SIM115
            "remove a file": lambda: os.unlink("/tmp/modelkeeper-was-there"),
            "change rights": lambda: os.chmod("/tmp", 0o777),
            "call out": lambda: socket.socket().connect(("127.0.0.1", beside)),
            "listen": lambda: socket.socket().listen(),
            "local sockets": lambda: socket.socket(socket.AF_UNIX),
            "fork": os.fork,
            "start a program": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
            "replace itself": lambda: os.execv("/bin/true", ["true"]),
            "end who started it": lambda: os.kill(os.getppid(), signal.SIGTERM),
            "end all others": lambda: os.kill(-1, 0),
            "read another's memory": lambda: open(f"/proc/{os.getppid()}/maps").read(),  # noqa: SIM115
            "become someone": lambda: os.setuid(0),
            "take back a limit": _unlimited,
            "map a file": lambda: os.memfd_create("more"),
        }
        return {name: _tried(work) for name, work in tries.items()}

    def threads(self) -> int:
        """What it may still do: run threads."""
        made: list[int] = []
        running = [threading.Thread(target=made.append, args=(n,)) for n in range(3)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return sum(made)


def _unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (2**30, 2**30))


def _tried(work: Callable[[], Any]) -> str:
    try:
        work()
    except OSError as problem:
        return type(problem).__name__
    except ValueError:
        return "ValueError"
    return "done"
