"""Kill coordinators behind nginx in turn, restart or freeze PostgreSQL and S3, while clients train.

The topology is that of deploy/compose.yaml, as processes. What was acknowledged must be there with its bytes,
what was lent must be right, and every client must go on after every fault.
"""

import contextlib
import multiprocessing
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks.helpers.soaking import Fault, Honest, Tally, lost, users
from benchmarks.helpers.topology import Replica, Topology
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import CatalogLimits, Settings
from tests.helpers.parts import ObjectStore, Postgres, wait_until

T = TypeVar("T")
PROCESSES = 4  # that the clients are threads of
TIMEOUT = 10.0  # of a client, as it is unless somebody sets another
DOWN = (0.5, 3.0)  # seconds that a part stays away, at least and at most
LONGER = CatalogLimits().patience  # seconds that PostgreSQL hangs besides, so that coordinators say so


def set_environment(variables: dict[str, str]) -> None:
    """What processes begin with."""
    os.environ.update(variables)


def in_process(environment: dict[str, str], function: Callable[..., T], *arguments: Any) -> T:
    """What a function returns in a process of its own, with these variables."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), set_environment, (environment,)) as one:
        return one.submit(function, *arguments).result()


def soak_replicas(
    seconds: float,
    clients: int,
    folder: Path,
    seed: int = 0,
    *,
    replicas: int = 3,
    every: float = 10.0,
    timeout: float = TIMEOUT,
) -> Tally:
    """Run it, and check what is left. A coordinator is killed `every` so many seconds, others in between.

    A client waits for `timeout` in each step.
    """
    with Topology(folder, replicas) as topology:
        settings = Settings.read(topology.environment, home=str(folder / "administrator"))
        tokens = in_process(topology.environment, users, settings, clients)
        tally = Tally()
        with _clients(topology, tokens, folder, tally, timeout), _supervised(topology.replicas):
            _faults(topology, seconds, every, random.Random(seed), tally)
        tally.judge()
        os.environ["SSL_CERT_FILE"] = topology.trust  # for the clients of this process
        try:
            tally.wrong += lost(topology.url, folder, tokens, tally)
        finally:
            del os.environ["SSL_CERT_FILE"]
        tally.wrong += in_process(topology.environment, stored, settings, tally.acknowledged)
        tally.wrong += _standing_still(tally, clients)
        tally.wrong += _not_thought_of(topology.replicas)
        return tally


@contextlib.contextmanager
def _clients(
    topology: Topology, tokens: list[str], folder: Path, tally: Tally, timeout: float
) -> Iterator[None]:
    """Clients in several processes, who go on until a block has ended, and a little longer."""
    count, over = len(tokens) - 2, folder / "over"
    shares = [range(first, count, PROCESSES) for first in range(min(PROCESSES, count))]
    trusting = {"SSL_CERT_FILE": topology.trust}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(shares), context, set_environment, (trusting,)) as pool:
        working = [pool.submit(_crew, topology.url, tokens, folder, share, over, timeout) for share in shares]
        wait_until(lambda: len(list(folder.glob("crew*"))) == len(shares), "every client")
        try:
            yield
        finally:
            over.touch()
        for crew in working:
            tally.add(crew.result())


def _crew(url: str, tokens: list[str], folder: Path, numbers: range, over: Path, timeout: float) -> Tally:
    """Several clients, as threads of this process."""
    tally = Tally()
    (folder / f"crew{numbers.start}").touch()
    honest = [Honest(number, url, tokens[number], folder, tally, timeout) for number in numbers]
    threads = [threading.Thread(target=one.run, args=(over.exists,)) for one in honest]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tally


@contextlib.contextmanager
def _supervised(replicas: list[Replica]) -> Iterator[None]:
    """Whoever ends by itself, since it found no catalog or no store, is started again."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            for replica in replicas:
                replica.revive()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
        for replica in replicas:
            replica.wait(revived=True)
    finally:
        over.set()
        thread.join()


def _faults(topology: Topology, seconds: float, every: float, dice: random.Random, tally: Tally) -> None:
    """Every so many seconds a coordinator is killed, or told to stop; half-way between, what is behind it."""
    signs = cycle((signal.SIGKILL, signal.SIGTERM))
    behind = cycle(("postgres restarted", "s3 restarted", "postgres hangs", "s3 hangs"))
    order: list[Replica] = []
    start = time.monotonic()
    for turn in range(1, int(2 * seconds / every)):
        time.sleep(max(0.0, start + turn * every / 2 - time.monotonic()))
        begun, away = time.monotonic(), dice.uniform(*DOWN)
        if turn % 2:
            sign, order = next(signs), order or dice.sample(topology.replicas, len(topology.replicas))
            what = f"replica {sign.name}"
            with order.pop().down(sign):
                time.sleep(away)
        else:
            what = next(behind)
            _disturb(topology, what, away + (LONGER if what == "postgres hangs" else 0.0))
        tally.faults.append(Fault(what, begun, time.monotonic()))
        tally.counts[f"fault: {what}"] += 1


def _disturb(topology: Topology, what: str, seconds: float) -> None:
    """Take the catalog or the store away for a while."""
    part: Postgres | ObjectStore = topology.postgres if what.startswith("postgres") else topology.store
    if what.endswith("hangs"):
        with part.frozen():
            time.sleep(seconds)
    else:
        part.stop()
        time.sleep(seconds)
        part.start()


def stored(settings: Settings, acknowledged: dict[str, str]) -> list[str]:
    """What of all that was acknowledged is not in the store with its bytes: read back, past coordinators."""
    local = LocalCoordinator(settings)
    records = {record.id: record for record in local.models()}
    wrong = [
        f"{identity} is not in the store with the bytes that were acknowledged"
        for identity, checksum in acknowledged.items()
        if identity in records and local.zoo.blobs.checksum(records[identity].folder) != checksum
    ]
    local.close()
    return wrong


def recovery(tally: Tally, clients: int) -> dict[str, list[float]]:
    """Of each kind of fault: after how many seconds each client's next call that began after it succeeded."""
    found: dict[str, list[float]] = {}
    for fault in tally.faults:
        for client in range(clients):
            after = [
                call.ended - fault.begun
                for call in tally.calls
                if call.client == client and not call.problem and call.begun >= fault.begun
            ]
            found.setdefault(fault.what, []).append(min(after, default=float("inf")))
    return found


def _not_thought_of(replicas: list[Replica]) -> list[str]:
    """Requests that failed of something that nobody thought of, by the logs: which, and of what."""
    wrong = []
    for replica in replicas:
        text = replica.log.read_text(errors="replace")
        for request in re.findall(r'"request": "([0-9a-f]+)".*"status": 500', text):
            _, _, after = text.partition(f"request {request} failed\n")
            raised = re.findall(
                r"^[\w.]+(?:Error|Exception|Exit|Warning)?: .*", after.partition("\n{")[0], re.M
            )
            wrong.append(f"request {request} failed of a bug: {raised[-1] if raised else ''}")
    return wrong


def _standing_still(tally: Tally, clients: int) -> list[str]:
    """Clients that did not go on after a fault."""
    return [
        f"{sum(each == float('inf') for each in waited)} times a client did not go on after {what}"
        for what, waited in recovery(tally, clients).items()
        if float("inf") in waited
    ]


def waits(tally: Tally, clients: int) -> dict[str, dict[str, float]]:
    """How long clients had to wait after each kind of fault: half of them, and the longest."""
    return {
        what: {"half": round(median(waited), 2), "all": round(max(waited), 2)}
        for what, waited in sorted(recovery(tally, clients).items())
    }
