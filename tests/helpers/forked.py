"""Run something in a forked child, and see what it gives; a child that hangs is killed, and the test fails.

in_child(lambda: coordinator.count(), seconds=60)   ->  what it gave in the child
"""

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def in_child(work: Callable[[], T], seconds: float) -> T:
    """What `work` gives in a child that is forked here and now; it must be done within so many seconds."""
    result: T = wait_for(begin(work), seconds)
    return result


def begin(work: Callable[[], object]) -> tuple[int, int]:
    """Fork a child that does this work: its process, and where its result will be read."""
    reads, writes = os.pipe()
    process = os.fork()
    if process:
        os.close(writes)
        return process, reads
    os.close(reads)
    try:
        try:
            result = (True, work())
        except BaseException:  # noqa: BLE001 (whatever it is, the test shows it)
            result = (False, traceback.format_exc())
        with os.fdopen(writes, "wb") as pipe:
            pickle.dump(result, pipe)
    finally:
        os._exit(0)


def wait_for(child: tuple[int, int], seconds: float) -> Any:
    """What a child gives."""
    process, reads = child
    end, parts = time.monotonic() + seconds, []
    with os.fdopen(reads, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                raise AssertionError(f"the child hangs: it was not done after {seconds:g} s")
            part = pipe.read(2**16)
            if not part:
                break
            parts.append(part)
    os.waitpid(process, 0)
    done, result = pickle.loads(b"".join(parts))
    assert done, result
    return result
