"""What does Ray Serve's proxy cost? The same service by uvicorn alone and behind Serve, in one run.

    python -m benchmarks.ray_serve [--size 0.25] [--calls 200]         or `make ray-serve`

Both have a home of their own with the same models. In turn, so that what else the machine does meets both:
    GET /version    milliseconds, the median and the 95th percentile of many calls over one connection
    query           a dry run over a zoo of some models, likewise
    upload          a model of `size` GB is registered: MB/s, the best of several
    download        its file is fetched: likewise
    the same over an S3 server, through the service and straight, by URLs that the service signs
and how much the process that serves, Serve's proxy and shared memory have grown while a slow reader takes
that file: what is kept for it on the way.

Serve runs one replica, as the other service is one process. The loop of its proxy is said: without uvloop
each reply waits for an acknowledgement (Nagle). Written to results/ray_serve.json and .md.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.helpers.scale_tables import serving
from benchmarks.helpers.soaking import network, weights
from benchmarks.service import large, memory, service
from benchmarks.starting import a_store
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.meta import Query, read_registration
from modelkeeper.settings import ServiceSettings, Settings
from modelkeeper.zoo.files.blobs import WEIGHTS

RESULTS = Path(__file__).parent / "results"
META = {"data": "digits", "task": "classification", "metrics": {"accuracy": 0.9}}
MODELS = 50
WAYS = ("uvicorn", "Ray Serve")
Processes = Callable[[], dict[str, dict[str, int]]]


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description="What does Ray Serve's proxy cost?")
    parser.add_argument("--size", type=float, default=0.25, help="GB of the model that is sent")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3, help="of each transfer")
    parser.add_argument("--out", type=Path, default=RESULTS / "ray_serve.json")
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "load": os.getloadavg()[0]},
        "GB": arguments.size,
        "loop of the proxy": "uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
    }
    with tempfile.TemporaryDirectory(prefix="mk-ray-serve-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        with both(home / "files") as (urls, clients, processes):
            report |= latencies(urls, clients, arguments.calls)
            for way, client in clients.items():
                graph, tensors = large(arguments.size)
                client.register(graph, read_registration(META, "slow"), tensors)
                grown = report.setdefault("grown while a slow reader reads, MB", {})
                grown[way] = slow_reader(urls[way], client, processes()[way])
            report |= transfers(clients, home, arguments.size, arguments.runs)
        store = stack.enter_context(a_store(home, s3=True))
        with both(home / "objects", store) as (urls, clients, _):
            through = transfers(clients, home, arguments.size, arguments.runs)
            report |= {f"S3, through the service: {what}": said for what, said in through.items()}
            straight = {way: client_of(url, home, direct=True) for way, url in urls.items()}
            for client in straight.values():
                stack.enter_context(contextlib.closing(client))
            found = transfers(straight, home, arguments.size, arguments.runs)
            report |= {f"S3, straight by signed URLs: {what}": said for what, said in found.items()}
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(page(report))
    print(page(report))


def client_of(url: str, home: Path, *, direct: bool = False) -> RemoteCoordinator:
    """A client; large files go through the service unless it may go `direct`."""
    return RemoteCoordinator(url, spool=home / "spool", timeout=120, direct=direct)


@contextlib.contextmanager
def both(
    home: Path, blobs: str = ""
) -> Iterator[tuple[dict[str, str], dict[str, RemoteCoordinator], Processes]]:
    """Both services for a block: their URLs, a client of each, and how their processes are found."""
    with contextlib.ExitStack() as stack:
        if blobs:
            os.environ["MODELKEEPER_BLOBS"] = f"{blobs}/plain"
            stack.callback(os.environ.pop, "MODELKEEPER_BLOBS")
        plain = stack.enter_context(service(home / "plain"))
        ray = stack.enter_context(on_ray(home / "ray", f"{blobs}/ray" if blobs else ""))
        urls = dict(zip(WAYS, (plain.url, ray), strict=True))
        clients = {way: stack.enter_context(contextlib.closing(client_of(urls[way], home))) for way in WAYS}
        yield urls, clients, lambda: {WAYS[0]: {"service": plain.process.pid}, WAYS[1]: ray_processes()}


@contextlib.contextmanager
def on_ray(home: Path, blobs: str = "") -> Iterator[str]:
    """A service on a Ray Serve of its own; gives its URL."""
    import ray
    from ray import serve

    from modelkeeper.integrations.ray import deployment

    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        settings = Settings(home=str(home), blobs=blobs)
        keeper = deployment(settings, ServiceSettings(auth=False, rate=1e6), max_replicas=1)
        serve.run(keeper.bind(), name="keeper", route_prefix="/")
        yield f"http://127.0.0.1:{port}"
        serve.shutdown()
    finally:
        ray.shutdown()


def latencies(
    urls: Mapping[str, str], clients: Mapping[str, RemoteCoordinator], calls: int
) -> dict[str, Any]:
    """Small requests: milliseconds."""
    graph = network(8, 3)
    for client in clients.values():
        for number in range(MODELS):
            model = network(8 + number % 10, 2 + number % 4)
            client.register(model, read_registration(META, f"net{number}"), weights(model, number).items())
    asked = Query(data="digits", task="classification")
    lines: dict[str, Callable[[str], object]] = {}
    with contextlib.ExitStack() as stack:
        plain = {way: stack.enter_context(httpx.Client(base_url=url)) for way, url in urls.items()}
        lines["GET /version, ms"] = lambda way: plain[way].get("/version").raise_for_status()
        lines["query, ms"] = lambda way: clients[way].query(graph, asked, dry_run=True)
        found: dict[str, dict[str, list[float]]] = {what: {way: [] for way in WAYS} for what in lines}
        for what, call in lines.items():
            for _ in range(calls):
                for way in WAYS:  # in turn
                    began = time.perf_counter()
                    call(way)
                    found[what][way].append(1000 * (time.perf_counter() - began))
    return {
        what: {
            way: {
                "median": round(statistics.median(times), 2),
                "p95": round(float(np.percentile(times, 95)), 2),
            }
            for way, times in ways.items()
        }
        for what, ways in found.items()
    }


def transfers(clients: Mapping[str, RemoteCoordinator], home: Path, size: float, runs: int) -> dict[str, Any]:
    """Large requests: the best MB/s of several."""
    best: dict[str, dict[str, float]] = {"upload, MB/s": {}, "download, MB/s": {}}
    for run in range(runs):
        for way, client in clients.items():
            graph, tensors = large(size)
            began = time.perf_counter()
            record = client.register(graph, read_registration(META, f"large{run}"), tensors).record
            rates = {"upload, MB/s": record.bytes / 1e6 / (time.perf_counter() - began)}
            began = time.perf_counter()
            client.download(record, home / "file")
            rates["download, MB/s"] = record.bytes / 1e6 / (time.perf_counter() - began)
            for what, rate in rates.items():
                best[what][way] = round(max(best[what].get(way, 0.0), rate), 1)
    return dict(best)


def ray_processes() -> dict[str, int]:
    """The processes of the replica and of the proxy, of the Ray that this process has started."""
    found, pids = {}, {os.getpid()}
    children = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            children[int(entry.name)] = int(re.sub(r".*\) \S ", "", (entry / "stat").read_text()).split()[0])
    while more := {pid for pid, parent in children.items() if parent in pids} - pids:
        pids |= more
    for pid in pids:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            for what, name in (("replica", b"ray::ServeReplica"), ("proxy", b"ray::ProxyActor")):
                if command.startswith(name):
                    found[what] = pid
    return found


def slow_reader(url: str, client: RemoteCoordinator, processes: Mapping[str, int]) -> dict[str, float]:
    """How much each process grows while a model is read at a snail's pace."""
    record = next(record for record in client.models() if record.name == "slow")
    before = _sizes(processes)
    path = f"{url}/v1/models/{record.id}/{WEIGHTS}"
    with httpx.stream("GET", path, timeout=60) as reply:
        reply.raise_for_status()
        for number, _ in enumerate(reply.iter_raw(1 << 16)):
            time.sleep(0.1)
            if number == 50:
                break
        after = _sizes(processes)
    return {name: round((size - before[name]) / 1e6, 1) for name, size in after.items()}


def _sizes(processes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of each process, and of memory that processes share, where Ray keeps what is on its way."""
    shared = os.statvfs("/dev/shm")
    used = (shared.f_blocks - shared.f_bfree) * shared.f_frsize
    return {name: memory(pid) for name, pid in processes.items()} | {"shared memory": used}


def page(report: Mapping[str, Any]) -> str:
    """The report for people."""
    return f"""# A service of uvicorn alone, and behind Ray Serve's proxy

`make ray-serve`: one run, one process that serves in each.

{serving(report)}
"""


if __name__ == "__main__":
    main()
