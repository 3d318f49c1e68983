"""How does a training have a foreign program run, without being harmed by whatever it does?

    prepare(engine.elsewhere)                            load the engine in a process of its own, meanwhile
    with open_room(engine.elsewhere, SERVICE, given, terms) as room:
        room.call("method", kind, number=3)              the answer, as a value of that type
        room.array(place)                                an array that the answer names

What happens in a room stays there: if it dies, hangs or answers nonsense, the call raises InvalidProgram, and
the room is gone. Who opens one decides by `terms` how long it may take and how much memory.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from modelkeeper.errors import CannotCalibrate, InvalidProgram
from modelkeeper.frontends.programs.sandbox.confinement import CLOSED, Terms
from modelkeeper.frontends.programs.sandbox.elsewhere import Elsewhere
from modelkeeper.frontends.programs.sandbox.frames import (
    Broken,
    Late,
    Place,
    area,
    get,
    put,
    receive,
    room_for,
    send,
)
from modelkeeper.frontends.programs.sandbox.porter import Answer, Call, Done, End, Open, Order
from modelkeeper.text import printable
from modelkeeper.weights import Array

START = 120.0  # seconds in which an engine has to be loaded
OPENING = 60.0  # seconds in which a room has to be ready
WITHOUT = "The model starts uncalibrated; or trust programs of this zoo, by MODELKEEPER_SANDBOX=off"
# What a process needs of the environment to find its libraries; tokens and all else stay here.
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR", "TZ")
_SINGLE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX")
_BOOT = """import sys, json
line, boot = int(sys.argv[1]), json.loads(sys.argv[2])
sys.path[:] = boot["path"]
from modelkeeper.frontends.programs.sandbox.porter import Boot, main
main(line, Boot(tuple(boot["path"]), boot["engine"]))
"""
K = TypeVar("K")


class Room:
    """A process in which a foreign program runs."""

    def __init__(self, porter: "_Porter", number: int, line: socket.socket, made: int, terms: Terms) -> None:
        self._porter, self._number, self._line, self._made = porter, number, line, made
        self._terms, self._seconds = terms, terms.seconds
        self._end = time.monotonic() + terms.seconds
        self.holds: tuple[str, ...] = ()  # what it cannot do any more

    def ready(self) -> None:
        """Wait until it has given up what it can. Its time begins now."""
        holds = self._guarded(lambda: receive(self._line, list[str], time.monotonic() + OPENING))
        self.holds = tuple(holds)
        self._end = time.monotonic() + self._terms.seconds

    def ends(self, seconds: float) -> None:
        """Let it go on for so long, from now, and no longer than was said at first."""
        self._seconds = min(self._seconds, seconds)
        self._end = min(self._end, time.monotonic() + seconds)

    def call(self, method: str, kind: type[K], /, **arguments: Any) -> K:
        """Call a method of what works there.

        Raises:
            InvalidProgram: It says so; or it died, took too long, or answered what makes no sense.
        """

        def ask() -> K:
            send(self._line, Call(method, arguments))
            answer = receive(self._line, Answer, self._end)
            if answer.problem:
                raise InvalidProgram(printable(answer.where[:1000]), printable(answer.problem[:1000]))
            try:
                return msgspec.convert(answer.value, kind, str_keys=True)
            except (msgspec.ValidationError, RecursionError) as problem:
                raise Broken(str(problem)) from problem

        return self._guarded(ask)

    def array(self, place: Place) -> Array:
        """A copy of an array that an answer named.

        Raises:
            InvalidProgram: It is not there.
        """

        def read() -> Array:
            if place.size > self._terms.memory:
                raise Broken(f"an array of {place.size:,} bytes")
            return get(self._made, place)

        return self._guarded(read)

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(Broken, Late):
            self._porter.ended(self._number)
        self._line.close()
        os.close(self._made)

    def _guarded(self, work: Callable[[], K]) -> K:
        try:
            return work()
        except Late:
            took = f"it took longer than the {self._seconds:.0f} s that it may, and was ended"
            raise InvalidProgram("program", took) from None
        except Broken as problem:
            with contextlib.suppress(Broken, Late):
                self._line.shutdown(socket.SHUT_RDWR)
            raise InvalidProgram("program", self._porter.how_it_ended(self._number, str(problem))) from None


class _Porter:
    """The process that opens rooms, seen from here."""

    def __init__(self, elsewhere: Elsewhere) -> None:
        self._lock = threading.Lock()
        self._ready = False
        self._line, theirs = socket.socketpair()
        path = [os.path.abspath(folder) for folder in sys.path if folder]
        boot = json.dumps({"path": path, "engine": elsewhere.engine})
        environment = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        environment |= dict.fromkeys(_SINGLE, "1") | dict(elsewhere.environment)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    *(["-B"] if sys.dont_write_bytecode else []),
                    "-c",
                    _BOOT,
                    str(theirs.fileno()),
                    boot,
                ],
                env=environment,
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what the terminal sends is meant for the training
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def open(self, order: Open, files: list[int]) -> int:
        """The number of a new room.

        Raises:
            Broken, Late: There is none.
        """
        return self._ask(Order(open=order), files).room

    def ended(self, room: int) -> int | None:
        """End a room; how it had ended: an exit code, or a signal if negative; None if it was killed."""
        return self._ask(Order(end=End(room))).status

    def how_it_ended(self, room: int, problem: str) -> str:
        """The same in words, for a room that does not answer as it should."""
        try:
            status = self.ended(room)
        except (Broken, Late):
            return f"the process that ran it is gone: {printable(problem)}"
        if status is None:
            return f"it was ended, for it took more than it may, or answered nonsense: {printable(problem)}"
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        memory = ", having asked for more memory than it may take" if status == 3 else ""
        return f"it ended the process that ran it ({how}{memory})"

    def leave(self) -> None:
        """Let the process go."""
        self._line.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """After a fork: it belongs to the other process."""
        self._line.close()
        self._process.returncode = 0

    def _ask(self, order: Order, files: list[int] | None = None) -> Done:
        with self._lock:
            if not self._ready:
                self._answered(START)
                self._ready = True
            send(self._line, order, files or [])
            return self._answered(OPENING)

    def _answered(self, seconds: float) -> Done:
        done = receive(self._line, Done, time.monotonic() + seconds)
        self._line.settimeout(None)
        if done.problem:
            raise Broken(printable(done.problem))
        return done


_porters: dict[Elsewhere, _Porter] = {}
_lock = threading.Lock()


def prepare(elsewhere: Elsewhere) -> None:
    """Begin to load an engine in a process of its own, if there is none. Does not wait, and never raises."""
    with contextlib.suppress(OSError, ValueError):
        if available():
            _porter(elsewhere)


def available() -> bool:
    """Can this system open rooms at all?"""
    return hasattr(os, "fork") and hasattr(socket, "send_fds") and bool(sys.executable)


def _porter(elsewhere: Elsewhere) -> _Porter:
    with _lock:
        known = _porters.get(elsewhere)
        if known is None or not known.alive:
            if known is not None:
                known.leave()
            known = _porters[elsewhere] = _Porter(elsewhere)
        return known


@contextlib.contextmanager
def open_room(
    elsewhere: Elsewhere,
    service: str,
    given: Mapping[str, Array],
    terms: Terms,
    *,
    largest: int,
    strict: bool = False,
) -> Iterator[Room]:
    """A room with a service in it that works on these arrays; when the context is left, it is gone.

    Args:
        elsewhere: The engine.
        service: What works there, "module:name": it is called with a `porter.Given`.
        given: Copied into memory that the room gets.
        terms: How much it may take.
        largest: Bytes of the arrays that one answer may hold.
        strict: Open none where the kernel cannot keep it from files and the network.

    Raises:
        CannotCalibrate: None can be opened here.
    """
    if not available():
        raise CannotCalibrate("this system cannot run a foreign program in a process apart", WITHOUT)
    files: list[int] = []
    room = None
    try:
        ours, theirs = socket.socketpair()
        try:
            files += [area(room_for(list(given.values()))), area(largest)]
            places = dict(zip(given, put(files[0], list(given.values())), strict=True))
            porter = _porter(elsewhere)
            number = porter.open(Open(service, terms, places), [theirs.fileno(), *files])
            room = Room(porter, number, ours, files.pop(), terms)
        except (OSError, Broken, Late) as problem:
            ours.close()
            why = str(problem) or "it takes too long to start"
            raise CannotCalibrate(
                f"a foreign program needs a process apart, and none could be started: {why}", WITHOUT
            ) from problem
        finally:
            theirs.close()
            while files:
                os.close(files.pop())
        room.ready()
        if strict and CLOSED not in room.holds:
            raise CannotCalibrate("this kernel cannot keep a foreign program from files and network", WITHOUT)
        yield room
    finally:
        if room is not None:
            room.close()


def _leave_all() -> None:
    with _lock:
        for porter in _porters.values():
            porter.leave()
        _porters.clear()


def _forget_all() -> None:
    """In a process that was forked off: the porters are the other's."""
    global _lock
    _lock = threading.Lock()
    for porter in _porters.values():
        porter.forget()
    _porters.clear()


atexit.register(_leave_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
