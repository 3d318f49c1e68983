"""What does HTTP cost, and how much memory does a service take? `make service`

One run prints, and writes to benchmarks/results/service.json and service.md:
    queries per second and latencies at 1, 8 and 32 clients over a zoo of 10,000 models, embedded and over
    HTTP, with one worker and with one for each core, in turn; clients are threads of this process, and take
    their part of the same cores
    a query with a model that was never asked about before, so that no plan is remembered
    how fast a model of 1 GB goes up and down, beside a copy of the file and a plain static file server, with
    and without checksums; and gathered for a wider child
    how long a client waits for a coordinator whose packets are dropped, with the default timeout
    how much memory the service takes while 2 GB go through it, up, down and gathered; and a client, while it
    receives 2 GB and copies them into a model that is there already

Queries are dry runs (search, choice and plan; no weights). Transfers are the best of several, on loopback.
Before each of them a file of the same size is written and deleted: on a virtual machine, memory that nobody
has used for a while comes several times slower than the rest, and which way got it would else decide.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.helpers.soaking import network
from benchmarks.helpers.synthetic_zoo import make_zoo, resized
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import CoordinatorUnreachable
from modelkeeper.graph import Graph, from_json
from modelkeeper.meta import MOST_PARENTS, Query, read_registration
from modelkeeper.settings import Settings
from modelkeeper.weights import Array

RESULTS = Path(__file__).parent / "results"
CLIENTS = (1, 8, 32)
WORKERS = "http, a worker for each core"
FRESH = 48  # models that are asked about once
GB = 10**9


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description="How fast and how large is a service?")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each number of clients")
    parser.add_argument("--transfer", type=float, default=1.0, help="GB of the model that is timed")
    parser.add_argument(
        "--memory", type=float, default=2.0, help="GB of the model that memory is watched with"
    )
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelkeeper-service-") as folder:
        report = {
            "machine": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "load": os.getloadavg(),
            },
            "queries": measure_queries(Path(folder) / "queries", options.records, options.seconds),
            "transfer": measure_transfer(Path(folder) / "transfer", options.transfer, options.runs),
            "dropped": measure_dropped(Path(folder)),
            "memory": measure_memory(Path(folder) / "memory", options.memory),
        }
    text = summary(report)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "service.json").write_text(json.dumps(report, indent=1) + "\n")
    (RESULTS / "service.md").write_text(text)


class Service:
    """A `modelkeeper serve` in a process of its own."""

    def __init__(self, home: Path, workers: int = 1) -> None:
        command = [
            sys.executable,
            "-m",
            "modelkeeper",
            "serve",
            "--no-auth",
            "--home",
            str(home),
            "--port",
            "0",
            "--workers",
            str(workers),
        ]
        self._log = (home.parent / "service.log").open("w+")
        unlimited = {**os.environ, "MODELKEEPER_RATE": "1000000"}  # one user asks more often than users may
        self.process = subprocess.Popen(command, stderr=self._log, env=unlimited)
        for _ in range(600):
            said = Path(self._log.name).read_text()
            if found := re.search(r"listens at (\S+)", said):
                self.url = found[1]
                break
            time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(60)
        self._log.close()


def memory(process: int) -> int:
    """Bytes that a process holds, without files that are mapped."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"RssAnon:\s+([0-9]+)", status)[0]) * 1024


@contextlib.contextmanager
def watched(process: int) -> Iterator[dict[str, int]]:
    """How much memory a process had at the beginning of a block, and at most."""
    found = {"before": memory(process), "most": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            found["most"] = max(found["most"], memory(process))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def service(home: Path, workers: int = 1) -> Iterator[Service]:
    """A service for a block."""
    home.mkdir(parents=True, exist_ok=True)
    made = Service(home, workers)
    try:
        yield made
    finally:
        made.stop()


# -- queries ------------------------------------------------------------------------------------


def measure_queries(folder: Path, records: int, seconds: float) -> dict[str, Any]:
    """Embedded and over HTTP, at several numbers of clients."""
    import random

    folder.mkdir(parents=True)
    make_zoo(folder, records, max(1, records // 5))
    rng = random.Random(1)
    base = from_json((folder / "relative.json").read_bytes())
    asked = [resized(base, rng.uniform(0.7, 1.4), rng) for _ in range(32)]
    fresh = [resized(base, rng.uniform(0.7, 1.4), rng) for _ in range(FRESH)]
    embedded = LocalCoordinator(Settings(home=str(folder / "zoo")))
    wanted = Query(data="CIFAR-10", most_parents=MOST_PARENTS)
    found: dict[str, Any] = {"records": records}

    def ask(coordinator: LocalCoordinator | RemoteCoordinator, number: int) -> None:
        coordinator.query(asked[number % len(asked)], wanted, dry_run=True)

    for number in range(len(asked)):  # the index is made, plans are remembered
        ask(embedded, number)
    found["never asked before"] = measure_once(embedded, fresh, wanted)
    cores = os.cpu_count() or 1
    for way, workers in (("http", 1), (WORKERS, cores)):
        with service(folder / "zoo", workers) as running:
            remote = RemoteCoordinator(running.url, timeout=300, spool=folder / "spool")
            for number in range(workers * len(asked)):
                ask(remote, number)
            if workers == 1:
                found["pairs"] = measure_pairs(partial(ask, embedded), partial(ask, remote), 2 * seconds)
                found["memory"] = memory(running.process.pid)
            for clients in CLIENTS:
                ways = found.setdefault(str(clients), {})
                if workers == 1:
                    ways["embedded"] = measure_clients(partial(ask, embedded), clients, seconds)
                ways[way] = measure_clients(partial(ask, remote), clients, seconds)
            remote.close()
    embedded.close()
    return found


def measure_once(embedded: LocalCoordinator, fresh: list[Graph], wanted: Query) -> dict[str, float]:
    """Each of some models once, by one client, in milliseconds."""
    spent = []
    for graph in fresh:
        begun = time.perf_counter()
        embedded.query(graph, wanted, dry_run=True)
        spent.append(1000 * (time.perf_counter() - begun))
    p50, p99 = np.percentile(spent, (50, 99))
    return {"queries": len(spent), "p50": round(float(p50), 1), "p99": round(float(p99), 1)}


def measure_pairs(
    first: Callable[[int], None], second: Callable[[int], None], seconds: float
) -> dict[str, float]:
    """Both in turn with the same question, by one client: what the second takes longer, in milliseconds."""
    here: list[float] = []
    there: list[float] = []
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for call, into in ((first, here), (second, there)):
            begun = time.perf_counter()
            call(number)
            into.append(1000 * (time.perf_counter() - begun))
        number += 1
    gap = [b - a for a, b in zip(here, there, strict=True)]
    return {
        "embedded p50": round(statistics.median(here), 2),
        "http p50": round(statistics.median(there), 2),
        "added p50": round(statistics.median(gap), 2),
        "added, of medians": round(statistics.median(there) - statistics.median(here), 2),
        "queries": number,
    }


def measure_clients(call: Callable[[int], None], clients: int, seconds: float) -> dict[str, float]:
    """Queries per second, and latencies in milliseconds."""
    spent: list[float] = []
    until = time.monotonic() + seconds

    def work(number: int) -> None:
        while time.monotonic() < until:
            begun = time.perf_counter()
            call(number)
            spent.append(1000 * (time.perf_counter() - begun))
            number += clients

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begun
    p50, p99 = np.percentile(spent, (50, 99))
    return {
        "per second": round(len(spent) / took, 1),
        "p50": round(float(p50), 1),
        "p99": round(float(p99), 1),
    }


# -- transfers ----------------------------------------------------------------------------------


def large(size: float, width: int = 2048) -> tuple[Graph, Iterator[tuple[str, Array]]]:
    """A model of about so many GB, and its weights one by one."""
    graph = network(width, max(1, round(size * GB / (4 * width * width))))
    one = np.random.default_rng(0).standard_normal((width, width), np.float32)
    return graph, ((name, one) for name in graph.tensors)


def told() -> Any:
    """What is said of a model."""
    return read_registration({"data": "none", "task": "t", "accuracy": 0.9, "name": "large"}, "large")


def measure_transfer(folder: Path, size: float, runs: int) -> dict[str, Any]:
    """MB per second of each way to move a model; the best of several."""
    graph, tensors = large(size)
    found: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], object]) -> None:
        used_and_freed(folder / "scratch", whole)
        begun = time.perf_counter()
        work()
        found.setdefault(what, []).append(time.perf_counter() - begun)

    with service(folder / "zoo") as running:
        remote = RemoteCoordinator(running.url, timeout=120, spool=folder / "spool")
        entry = remote.spool.keep(running.url, graph, told(), tensors, "", "")
        whole = entry.weights.stat().st_size
        kept = folder / "model.safetensors"
        shutil.copyfile(entry.weights, kept)
        entry.forget()
        with static_server(folder) as url:
            for number in range(runs):
                timed("copy of the file, flushed", lambda: copied(kept, folder / "copy"))
                timed("static server, to a file", lambda: fetched(f"{url}/{kept.name}", folder / "copy"))
                graph, tensors = large(size)
                waiting = remote.spool.keep(running.url, graph, told(), tensors, "", "")
                done: list[Any] = []
                timed("upload from the spool, registered", lambda: done.append(remote.send(waiting)))  # noqa: B023
                record = done[0].record
                path = f"{running.url}/v1/models/{record.id}/model.safetensors"
                timed("download to a file, unchecked", lambda: fetched(path, folder / "copy"))  # noqa: B023
                timed("download to a file, checked", lambda: remote.download(record, folder / "copy"))  # noqa: B023
                answer = remote.query(graph, Query(task="t"))
                timed("the same model's weights, gathered", lambda: [0 for _ in answer.weights()])  # noqa: B023
                wider = network(2112, len(graph.tensors))
                answer = remote.query(wider, Query(task="t"))
                timed("a wider model's weights, gathered", lambda: [0 for _ in answer.weights()])  # noqa: B023
                remote.remove(record.id)
                del number
        remote.close()
    return {
        "bytes": whole,
        "MB/s": {what: round(whole / 1e6 / min(spent)) for what, spent in found.items()},
        "seconds": {what: [round(each, 2) for each in spent] for what, spent in found.items()},
    }


def used_and_freed(scratch: Path, size: int) -> None:
    """Have as much memory at hand as a file of this size takes, and some more."""
    piece = bytes(2**22)
    with scratch.open("wb", buffering=0) as file:
        for _ in range(size * 5 // 4 // len(piece)):
            file.write(piece)
    scratch.unlink()


def copied(source: Path, target: Path) -> None:
    """Copy a file, and wait for the disk."""
    target.unlink(missing_ok=True)
    with source.open("rb") as file, target.open("wb") as into:
        shutil.copyfileobj(file, into, 2**20)
        into.flush()
        os.fsync(into.fileno())


def fetched(url: str, target: Path) -> None:
    """What a plain HTTP client does."""
    target.unlink(missing_ok=True)
    with httpx.stream("GET", url, timeout=120) as reply, target.open("wb") as into:
        for chunk in reply.iter_raw():
            into.write(chunk)


@contextlib.contextmanager
def static_server(folder: Path) -> Iterator[str]:
    """Python's own, in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(100):
        with contextlib.suppress(httpx.HTTPError):
            httpx.head(url)
            break
        time.sleep(0.1)
    try:
        yield url
    finally:
        process.terminate()
        process.wait()


def measure_dropped(folder: Path) -> float:
    """Seconds until a query gives up; the queue of connections is full, so the system drops what knocks."""
    graph, lines = network(16, 2), [socket.socket() for _ in range(2)]
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for line in lines:
            line.setblocking(False)
            line.connect_ex(hole.getsockname())
        remote = RemoteCoordinator(f"http://127.0.0.1:{hole.getsockname()[1]}", spool=folder / "spool")
        begun = time.perf_counter()
        with contextlib.suppress(CoordinatorUnreachable):
            remote.query(graph, Query())
            raise RuntimeError("a coordinator that is not there has answered")
        spent = time.perf_counter() - begun
        remote.close()
    for line in lines:
        line.close()
    return round(spent, 2)


def measure_memory(folder: Path, size: float) -> dict[str, Any]:
    """Bytes that service and client take more than before, while a model goes through them."""
    with service(folder / "zoo") as running:
        remote = RemoteCoordinator(running.url, timeout=120, spool=folder / "spool")
        small, tensors = large(0.02)
        remote.register(small, told(), tensors)
        dict(remote.query(small, Query(task="t")).weights())  # what comes with the first of each
        process = running.process.pid
        with watched(process) as up:
            graph, tensors = large(size)
            record = remote.register(graph, told(), tensors).record
        with watched(process) as down:
            remote.download(record, folder / "copy")
        wider = network(2112, len(graph.tensors))
        model = {name: np.ones(tensor.shape, np.float32) for name, tensor in wider.tensors.items()}
        with watched(process) as gathered, watched(os.getpid()) as client:
            for name, array in dict(remote.query(wider, Query(task="t")).weights()).items():
                model[name][:] = array
        remote.close()
    taken = {"upload": up, "download": down, "gathered": gathered}
    return {
        "bytes": record.bytes,
        "before": up["before"],
        "more": {what: max(0, each["most"] - up["before"]) for what, each in taken.items()},
        "client": client["most"] - client["before"],
    }


def summary(report: dict[str, Any]) -> str:
    """The report as a page."""
    queries, transfer, taken = report["queries"], report["transfer"], report["memory"]
    lines = [
        "# A coordinator behind HTTP",
        "",
        f"`make service`, on {report['machine']['cores']} cores that others used, too "
        f"(load {report['machine']['load'][0]:.1f} at the start).",
        "",
        f"Queries over {queries['records']:,} models (dry runs), milliseconds:",
        "",
        "| clients | embedded: queries/s | p50 | p99 | HTTP: queries/s | p50 | p99 "
        "| HTTP, a worker for each core: queries/s | p50 | p99 |",
        "| ---: " * 10 + "|",
    ]
    for clients in map(str, CLIENTS):
        rows = [queries[clients][way] for way in ("embedded", "http", WORKERS)]
        cells = [f"{row[key]:,.1f}" for row in rows for key in ("per second", "p50", "p99")]
        lines.append(f"| {clients} | {' | '.join(cells)} |")
    pairs, once = queries["pairs"], queries["never asked before"]
    lines += [
        "",
        "They ask about the same 32 models again and again, so that plans are remembered. About "
        f"{once['queries']} others, each once, embedded, one client: p50 {once['p50']:.1f}, "
        f"p99 {once['p99']:.1f}.",
        "",
        f"One client, the same question embedded and over HTTP in turn ({pairs['queries']} times): p50 "
        f"{pairs['embedded p50']:.1f} and {pairs['http p50']:.1f} ms; HTTP adds {pairs['added p50']:.1f} ms.",
        "",
        f"A model of {transfer['bytes'] / GB:.2f} GB, the best of several runs. What goes up is checked, and "
        "on the disk when it is registered; what a static server sends is neither:",
        "",
        "| way | MB/s |",
        "| --- | ---: |",
        *(f"| {what} | {rate:,} |" for what, rate in transfer["MB/s"].items()),
        "",
        f"A coordinator whose packets are dropped: a query gives up after {report['dropped']:.1f} s.",
        "",
        f"Memory of the service while a model of {taken['bytes'] / GB:.2f} GB goes through it: "
        f"{taken['before'] / 1e6:.0f} MB before, and at most so much more:",
        "",
        "| way | MB |",
        "| --- | ---: |",
        *(f"| {what} | {more / 1e6:.0f} |" for what, more in taken["more"].items()),
        "",
        f"A client that receives as much and copies it into a model takes {taken['client'] / 1e6:.0f} MB "
        "more for it: the weights lie in a temporary file until their checksum is known.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
