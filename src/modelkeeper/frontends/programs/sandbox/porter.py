"""What does the process do that has an engine loaded, and opens a room for each foreign program?

    python -I -c "..." 5 '{"path": [...], "engine": "modelkeeper.frontends.torch.run_program:ENGINE"}'

The porter is a fresh process with an empty environment: none of the secrets of who started it are in its
memory. It loads the engine once, sees no foreign byte, and forks a room for each program, so that programs
cannot spoil each other. A room gives up all it can (`confinement`), reads the program, and then does what it
is asked by who opened it, until the line is closed. The porter ends rooms when it is told to, and ends itself
when it is left alone, or its line is closed.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from modelkeeper.errors import InvalidProgram
from modelkeeper.frontends.programs.sandbox.confinement import Terms, limit
from modelkeeper.frontends.programs.sandbox.frames import (
    Broken,
    Mapped,
    Place,
    receive,
    receive_with_files,
    send,
)
from modelkeeper.text import first_line
from modelkeeper.weights import Array

IDLE = 60.0  # seconds without a room, after which the porter goes


class Boot(Struct, frozen=True):
    """What a porter is told when it starts."""

    path: tuple[str, ...]  # where modules are
    engine: str  # where it is: "module:name"


class Open(Struct, frozen=True):
    """Open a room. With it come its line, the area of what it is given, and that of what it makes."""

    service: str  # what works there: "module:name", made of an engine and what was given
    terms: Terms
    given: dict[str, Place]


class End(Struct, frozen=True):
    """End a room."""

    room: int


class Order(Struct, frozen=True):
    """What a porter is told."""

    open: Open | None = None
    end: End | None = None


class Done(Struct, frozen=True):
    """What a porter answers."""

    room: int = 0  # the one that was opened
    status: int | None = (
        0  # how the one that was to end had ended: an exit code, or a signal if negative; None: not
    )
    problem: str = ""  # it cannot be done


class Call(Struct, frozen=True):
    """What a room is asked: a method of its service."""

    method: str
    arguments: dict[str, Any]


class Answer(Struct, frozen=True):
    """What a room answers. Arrays are in its area, and named by their places."""

    value: Any = None
    where: str = ""  # of what is wrong with the program
    problem: str = ""


def thing(address: str) -> Any:
    """What is named "module:name"."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


def main(line: int, boot: Boot) -> None:
    """Be a porter."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=line) as control:
        try:
            engine = thing(boot.engine)
            engine.load()
        except BaseException as problem:  # noqa: BLE001 (whatever a framework does when it is imported)
            send(control, Done(problem=f"{type(problem).__name__}: {problem}"[:500]))
            return
        send(control, Done())
        with contextlib.suppress(Broken):
            _Porter(control, engine).run()


class _Porter:
    def __init__(self, control: socket.socket, engine: Any) -> None:
        self._control, self._engine = control, engine
        self._rooms: set[int] = set()

    def run(self) -> None:
        """Do as told, until the line is closed or nobody says anything."""
        try:
            while True:
                waiting = select.select([self._control], [], [], None if self._rooms else IDLE)[0]
                if not waiting:
                    return
                order, files = receive_with_files(self._control, Order, 3)
                send(self._control, self._carried_out(order, files))
        finally:
            for room in list(self._rooms):
                self._end(room)

    def _carried_out(self, order: Order, files: list[int]) -> Done:
        if order.end is not None:
            return Done(status=self._end(order.end.room))
        assert order.open is not None
        try:
            room = os.fork()
        except OSError as problem:
            return Done(problem=str(problem))
        if room == 0:
            self._control.close()
            _live(self._engine, order.open, *files)
        for file in files:
            os.close(file)
        self._rooms.add(room)
        return Done(room=room)

    def _end(self, room: int) -> int | None:
        """End a room, and tell how it had ended before; None if it had not."""
        if room not in self._rooms:
            return 0
        self._rooms.discard(room)
        os.kill(
            room, signal.SIGKILL
        )  # nothing happens to one that has ended: until it was waited for it is there
        status = os.waitstatus_to_exitcode(os.waitpid(room, 0)[1])
        return None if status == -signal.SIGKILL else status


class Given(NamedTuple):
    """What a room works with: arrays by name, in memory that it shares with nobody."""

    engine: Any
    arrays: Mapping[str, Array]
    memory: int  # bytes that it may take


def _live(engine: Any, order: Open, line: int, given: int, made: int) -> NoReturn:
    """Be a room, to the end of this process."""
    try:
        with socket.socket(fileno=line) as caller:
            inside, outside = Mapped(given, shared=False), Mapped(made, shared=True)
            make = thing(order.service)
            engine.settle(order.terms.threads)
            send(caller, limit(order.terms))
            arrays = {name: inside.at(place) for name, place in order.given.items()}
            _serve(caller, lambda: make(Given(engine, arrays, order.terms.memory)), outside)
    except (Broken, MemoryError):
        os._exit(3)
    finally:
        os._exit(0)


def _serve(caller: socket.socket, make: Any, outside: Mapped) -> None:
    """Answer calls until the line is closed. The service is made by the first one, so that it may fail."""
    service = None
    while True:
        call = receive(caller, Call)
        outside.clear()
        try:
            service = make() if service is None else service
            answer = Answer(getattr(service, call.method)(**call.arguments))
            send(caller, answer, enc_hook=outside.put)
        except InvalidProgram as problem:
            send(
                caller, Answer(where=problem.where[:1000], problem=problem.problem[:1000] or "it is invalid")
            )
        except Exception as problem:
            if isinstance(problem, Broken):
                raise
            send(caller, Answer(where="program", problem=first_line(problem)))
