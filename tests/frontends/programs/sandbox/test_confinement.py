"""Confinement: what was given up stays given up, for good, in the process that gave it up and no other."""

import subprocess
import sys

import pytest

from modelkeeper.frontends.programs.sandbox.confinement import CLOSED

LINUX = sys.platform.startswith("linux")
CODE = """
import json, os, resource, socket, threading
from modelkeeper.frontends.programs.sandbox.confinement import Terms, limit
before = threading.Thread(target=threading.Event().wait, args=(1.0,), daemon=True)
before.start()
held = limit(Terms(2**28, 3.0, 2))

def tried(work):
    try:
        work()
    except (OSError, ValueError) as problem:
        return type(problem).__name__
    except MemoryError:
        return "MemoryError"
    return "done"

elsewhere = []
late = threading.Thread(target=lambda: elsewhere.append(tried(lambda: open("/etc/hostname"))))
late.start()
late.join()
found = {
    "held": held,
    "again": limit(Terms(2**40, 1e6, 2)) if %(twice)r else [],
    "open": tried(lambda: open("/etc/hostname")),
    "in a thread": elsewhere[0],
    "socket": tried(lambda: socket.socket()),
    "memory": tried(lambda: bytearray(2**30)),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "time": resource.getrlimit(resource.RLIMIT_CPU),
}
os.write(1, json.dumps(found).encode())
os._exit(0)
"""


def confined(twice: bool = False) -> dict[str, object]:
    import json

    run = subprocess.run([sys.executable, "-c", CODE % {"twice": twice}], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    found: dict[str, object] = json.loads(run.stdout)
    return found


@pytest.mark.skipif(not LINUX, reason="of Linux")
def test_what_is_said_to_hold_holds() -> None:
    found = confined()
    held = found["held"]
    assert isinstance(held, list)
    if CLOSED in held:
        assert found["open"] == found["socket"] == found["in a thread"] == "PermissionError"
    if "landlock" in held:
        assert found["open"] == "PermissionError"
    assert "bounded memory" in held
    assert found["memory"] == "MemoryError"
    assert found["core"] == [0, 0]
    assert found["time"] == [8, 8]


@pytest.mark.skipif(not LINUX, reason="of Linux")
def test_limits_can_be_lowered_but_not_raised() -> None:
    assert confined(twice=True)["memory"] == "MemoryError"


def test_nothing_of_this_process_is_given_up() -> None:
    confined() if LINUX else None
    with open(__file__) as file:
        assert file.read(3) == '"""'
