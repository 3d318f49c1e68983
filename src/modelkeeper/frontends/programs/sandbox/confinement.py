"""What does a process give up before it looks at a foreign program, and what of that holds on this system?

    limit(Terms(...))          in a room: memory, time, files, processes; a list of what holds from now on
    CLOSED                     what must be on that list where files and the network are to be out of reach

Everywhere a room is a process of its own, that was told nothing but a program, its numbers and examples.
"""

import contextlib
import os
import sys
from pathlib import Path

from msgspec import Struct

from modelkeeper._native import confine

CLOSED = "seccomp"
PER_THREAD = 16 * 2**20  # bytes of address space that a thread takes beside its work


class Terms(Struct, frozen=True):
    """How much a room may take."""

    memory: int  # bytes beside what it has when it begins
    seconds: float  # of the clock; who opened the room ends it then
    threads: int = 1


def limit(terms: Terms) -> list[str]:
    """Give up whatever can be given up, for good; what that was."""
    held = _limits(terms)
    with contextlib.suppress(OSError):  # if memory runs out on this machine, this process is to go first
        Path("/proc/self/oom_score_adj").write_text("1000")
    return [*held, *confine()]


def _limits(terms: Terms) -> list[str]:
    if sys.platform == "win32":
        return []
    import resource

    wanted = {
        "no core files": (resource.RLIMIT_CORE, 0),
        "no files written": (resource.RLIMIT_FSIZE, 0),
        "few files open": (resource.RLIMIT_NOFILE, 16),
        "bounded time": (resource.RLIMIT_CPU, int(terms.seconds * terms.threads) + 2),
        "bounded memory": (resource.RLIMIT_AS, _in_use() + terms.memory + terms.threads * PER_THREAD),
    }
    held = []
    for name, (what, most) in wanted.items():
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(what)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))
            held.append(name)
    if not sys.platform.startswith("linux"):
        held.remove("bounded memory")  # others take the limit, and do not keep it
    return held


def _in_use() -> int:
    """Bytes of address space that this process has."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 2**32
