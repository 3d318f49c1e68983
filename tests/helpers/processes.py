"""Several real processes that train together: torch.distributed over gloo, on this machine.

    run(check, tmp_path, "argument", size=2)   ->  what check("argument") returned, by rank

Processes are forked from a server that has imported torch, so that each takes a moment. Whatever hangs is
killed, and the test fails.
"""

import multiprocessing
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from queue import Empty
from typing import Any

SECONDS = 120.0  # after which processes are killed
# What a check is likely to import: forked processes have it at once.
PRELOADED = """
alembic.command pytest torch torch.distributed.fsdp torch.distributed.tensor.parallel modelkeeper.client
modelkeeper.coordinator.local modelkeeper.coordinator.search modelkeeper.frontends.torch.frontend
modelkeeper.frontends.torch.ranks modelkeeper.warmstart.pipeline modelkeeper.zoo.incoming
modelkeeper.zoo.card modelkeeper.zoo.index.index_sync alembic.config numpy.random sqlalchemy.dialects.sqlite
torch._dynamo torch.onnx tests.helpers.processes
""".split()


def run(check: Callable[..., Any], folder: Path, *arguments: Any, size: int = 2) -> list[Any]:
    """What a function returns in each of several processes that form a process group."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    results: Any = context.Queue()
    store = f"{folder}/store-{time.monotonic_ns()}"
    processes = [
        context.Process(target=_process, args=(rank, size, store, check, arguments, results))
        for rank in range(size)
    ]
    try:
        for process in processes:
            process.start()
        returned, end = dict[int, Any](), time.monotonic() + SECONDS
        while len(returned) < size:
            try:
                rank, error, result = results.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                missing = sorted(set(range(size)) - returned.keys())
                raise AssertionError(f"after {SECONDS:g} s ranks {missing} hang") from None
            assert error is None, f"rank {rank}: {error}"
            returned[rank] = result
        for process in processes:
            process.join(10)
        return [returned[rank] for rank in range(size)]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()


def _process(
    rank: int, size: int, store: str, check: Callable[..., Any], arguments: tuple[Any, ...], results: Any
) -> None:
    import torch
    import torch.distributed as dist

    torch.manual_seed(rank)
    torch.set_num_threads(1)
    limit = timedelta(seconds=SECONDS / 2)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=limit)
    try:
        results.put((rank, None, check(*arguments)))
    except BaseException:  # noqa: BLE001 (whatever it is, the test shows it)
        results.put((rank, traceback.format_exc(), None))
    finally:
        results.close()
        results.join_thread()
        dist.destroy_process_group()
