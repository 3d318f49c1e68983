"""Kill a service again and again while clients register and query; what was acknowledged must be there.

With hostile clients beside them, honest ones must not be refused: what they see of a kill is a cold start or
a model that waits, and of the others nothing.
"""

import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.helpers.hostile_clients import attacking
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import CoordinatorUnreachable, ModelKeeperError
from modelkeeper.graph import Axis, Edge, Fixed, Graph, Layer, Tensor
from modelkeeper.meta import Query, read_registration
from modelkeeper.settings import Settings
from modelkeeper.weights import Array

TASK = "classification"
NEAR = 20.0  # seconds after a kill in which a service may still be starting, or a call be under way


def network(width: int, depth: int) -> Graph:
    """Linear layers one after another."""
    layers = [Layer("input", "input")]
    for number in range(depth):
        axes = (Axis("out", Fixed(width, "soak")), Axis("in", Fixed(width, "soak")))
        weight = Tensor(f"fc{number}.weight", "weight", "float32", axes)
        layers.append(Layer(f"fc{number}", "linear", (Edge(number, ("relu",)),), (weight,)))
    layers.append(Layer("output", "output", (Edge(depth),)))
    return Graph("soak", tuple(layers))


def weights(graph: Graph, seed: int) -> dict[str, Array]:
    """Numbers that tell which model they belong to."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(t.shape, np.float32) for name, t in graph.tensors.items()}


@dataclass
class Tally:
    """What the clients saw."""

    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, str] = field(default_factory=dict)  # id -> checksum
    seeds: dict[str, int] = field(default_factory=dict)  # by name
    wrong: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"query": [], "register": []})
    memory: int = 0  # the most that a service took up, in bytes
    killed: float = -1e9  # when it was killed last
    lock: threading.Lock = field(default_factory=threading.Lock)


class Service:
    """A service that can be killed and comes back at the same port."""

    def __init__(self, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url, self._home = f"http://127.0.0.1:{self.port}", home
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [sys.executable, "-m", "modelkeeper", "serve", "--home", str(self._home)]
        log = (self._home.parent / "service.log").open("a")
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stderr=log)
        log.close()
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        raise RuntimeError("the service does not start")

    def memory(self) -> int:
        """The most memory that it has had so far, in bytes; 0: this system does not tell."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) * 1024
        return 0

    def stop(self, sign: int) -> None:
        """End it."""
        self.process.send_signal(sign)
        self.process.wait(120)


def client(number: int, url: str, token: str, folder: Path, until: float, tally: Tally) -> None:
    """One honest client: register and query until the time is over."""
    dice = random.Random(number)
    coordinator = RemoteCoordinator(url, token=token, timeout=20.0, spool=folder / f"spool{number}")
    count = 0
    while time.monotonic() < until:
        graph = network(dice.choice((16, 32, 64)), dice.choice((2, 3, 4)))
        begun = time.monotonic()
        try:
            if dice.random() < 0.5:
                name, seed = f"model-{number}-{count}", number * 10**6 + count
                count += 1
                tally.seeds[name] = seed
                told = read_registration({"data": name, "task": TASK, "accuracy": 0.9, "name": name}, name)
                done = coordinator.register(graph, told, weights(graph, seed).items())
                with tally.lock:
                    tally.acknowledged[done.record.id] = done.record.checksum
                tally.counts["registered"] += 1
                tally.seconds["register"].append(time.monotonic() - begun)
            else:
                _query(coordinator, graph, tally)
                tally.seconds["query"].append(time.monotonic() - begun)
        except ModelKeeperError as problem:
            _failed(problem, begun, tally)
    coordinator.close()
    tally.counts["clients that went on to the end"] += 1


def _query(coordinator: RemoteCoordinator, graph: Graph, tally: Tally) -> None:
    found = coordinator.query(graph, Query(task=TASK))
    lent = dict(found.weights())
    tally.counts["cold" if found.answer.cold else "warm"] += 1
    if found.answer.similarity == 1.0:  # the weights of the parent as they are
        expected = weights(graph, tally.seeds[found.answer.parent_name])
        if any(not np.array_equal(lent[name], expected[name]) for name in lent):
            tally.wrong.append(f"weights of {found.answer.parent_name}")
        tally.counts["compared"] += 1


def _failed(problem: ModelKeeperError, begun: float, tally: Tally) -> None:
    """A call of an honest client failed: a kill may be the reason, somebody else must not be."""
    if isinstance(problem, CoordinatorUnreachable) and begun - tally.killed < NEAR:
        tally.counts["unreachable after a kill"] += 1
    else:
        tally.counts["refused"] += 1
        tally.wrong.append(f"an honest client was refused: {problem}"[:300])


def soak(
    seconds: float,
    clients: int,
    folder: Path,
    seed: int = 0,
    *,
    hostile: bool = True,
    idle: int = 1_100,
    between_kills: tuple[float, float] = (1.0, 6.0),
) -> Tally:
    """Run it, and check what is left. What is wrong is in `wrong`."""
    tally, dice = Tally(), random.Random(seed)
    tokens = _users(folder / "zoo", clients)
    service = Service(folder / "zoo")
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(
            target=client, args=(number, service.url, tokens[number], folder, until, tally), daemon=True
        )
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    harm = (
        attacking(service.url, tokens[-2], until, tally.counts, idle) if hostile else contextlib.nullcontext()
    )
    with harm:
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(dice.uniform(*between_kills), left))
            tally.memory = max(tally.memory, service.memory())
            if time.monotonic() < until:
                tally.killed = time.monotonic()
                service.stop(signal.SIGKILL)
                tally.counts["kills"] += 1
                time.sleep(dice.uniform(0.0, 0.5))
                service.start()
    for thread in threads:
        thread.join(120)
    tally.memory = max(tally.memory, service.memory())
    for problem in _left(service, folder, tokens, tally):
        tally.wrong.append(problem)
    service.stop(signal.SIGTERM)
    tally.counts["lines in the log"] = len((folder / "service.log").read_text().splitlines())
    return tally


def _users(home: Path, clients: int) -> list[str]:
    """Tokens of honest users, of one who means harm (the last but one), and of an administrator."""
    local = LocalCoordinator(Settings(home=str(home)))
    tokens = []
    for name in (*(f"user{number}" for number in range(clients)), "mallory", "root"):
        # Honest ones ask as fast as they can, which is no crime here.
        local.accounts.add_user(name, rate=None if name == "mallory" else 10_000.0)
        tokens.append(local.accounts.add_token(name, "admin" if name == "root" else "write"))
    local.close()
    return tokens


def _left(service: Service, folder: Path, tokens: list[str], tally: Tally) -> Iterator[str]:
    clients = len(tokens) - 2
    if tally.counts["clients that went on to the end"] != clients:
        yield f"only {tally.counts['clients that went on to the end']} of {clients} clients went on"
    for number in range(clients):
        token, spool = tokens[number], folder / f"spool{number}"
        coordinator = RemoteCoordinator(service.url, token=token, timeout=60, spool=spool)
        for entry, result in coordinator.sync():
            if isinstance(result, ModelKeeperError):
                yield f"{entry.waiting.request.id} cannot be sent: {result}"
            else:
                tally.acknowledged[result.record.id] = result.record.checksum
                tally.counts["sent later"] += 1
        coordinator.close()
    coordinator = RemoteCoordinator(service.url, token=tokens[-1], timeout=60, spool=folder / "spool")
    records = {record.id: record for record in coordinator.models()}
    for identity, checksum in tally.acknowledged.items():
        record = records.get(identity)
        if record is None:
            yield f"{identity} was acknowledged and is lost"
        elif record.checksum != checksum:
            yield f"{identity} has other weights than were acknowledged"
    swept = coordinator.gc(verify=True)
    if swept.damaged:
        yield f"damaged: {swept.damaged}"
    names = Counter(record.name for record in records.values())
    yield from (f"{name} is there {count} times" for name, count in names.items() if count > 1)
    tally.counts["models at the end"] = len(records)
    coordinator.close()
