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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks.helpers.hostile_clients import attacking
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import CoordinatorUnreachable, ModelKeeperError, ZooUnusable
from modelkeeper.graph import Axis, Edge, Fixed, Graph, Layer, Tensor
from modelkeeper.meta import Query, read_registration
from modelkeeper.settings import Settings
from modelkeeper.weights import Array
from modelkeeper.zoo.records import Record

TASK = "classification"
NEAR = 20.0  # seconds after a fault in which a call may still fail of it
LARGE = 0.03  # of all models
LONGER = 90.0  # seconds in which a client must succeed once nothing is wrong any more
# What a training starts cold of, and a model that is to be registered waits for.
WAITS = (CoordinatorUnreachable, ZooUnusable)


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


def seed_of(name: str) -> int:
    """What the numbers of a model were drawn from, by the name that a client gave it: `model-3-17`."""
    _, client, count = name.split("-")
    return int(client) * 10**6 + int(count)


@dataclass(frozen=True)
class Call:
    """A call of an honest client, and what became of it."""

    client: int
    what: str  # query, register or download
    begun: float  # by the clock that all processes of a machine share
    ended: float
    problem: str = ""  # "": it did what it should
    waits: bool = False  # a problem that is no refusal: the training starts cold, or its model waits


@dataclass(frozen=True)
class Fault:
    """Something that was done to the service, until it was whole again."""

    what: str
    begun: float
    ended: float


@dataclass
class Tally:
    """What the clients saw."""

    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, str] = field(default_factory=dict)  # id -> checksum
    wrong: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)  # clients that went on to the end
    memory: int = 0  # the most that a service took up, in bytes

    def add(self, other: "Tally") -> None:
        """Take in what the clients of another process saw."""
        self.counts += other.counts
        self.acknowledged |= other.acknowledged
        self.wrong += other.wrong
        self.calls += other.calls
        self.finished += other.finished

    def seconds(self, what: str) -> list[float]:
        """How long calls of a kind took that did what they should."""
        return [call.ended - call.begun for call in self.calls if call.what == what and not call.problem]

    def judge(self) -> None:
        """A fault may be the reason why a call failed; somebody else, or nothing, must not be."""
        for call in self.calls:
            near = any(
                fault.begun <= call.ended and call.begun <= fault.ended + NEAR for fault in self.faults
            )
            if call.problem and call.waits and near:
                self.counts[f"{call.what}: unreachable in a fault"] += 1
            elif call.problem:
                self.counts["refused"] += 1
                self.wrong.append(f"an honest client was refused a {call.what}: {call.problem}"[:300])


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


class Honest:
    """One honest client: it registers, asks and downloads, and compares what it gets with what it must be."""

    def __init__(self, number: int, url: str, token: str, folder: Path, tally: Tally, timeout: float) -> None:
        self._number, self._tally, self._dice = number, tally, random.Random(number)
        self._spool = folder / f"spool{number}"
        self._coordinator = RemoteCoordinator(url, token=token, timeout=timeout, spool=self._spool)
        self._count = 0
        self._own: list[tuple[Record, Graph]] = []  # acknowledged

    def run(self, over: Callable[[], bool]) -> None:
        """Go on until it is over, and then until a call succeeds, which must not take long."""
        end: float | None = None
        while end is None or time.monotonic() < end:
            at_the_end = over()
            if at_the_end and end is None:
                end = time.monotonic() + LONGER
            if self._call(self._choice()) and at_the_end:
                self._tally.finished.append(self._number)
                break
        self._coordinator.close()

    def _choice(self) -> Callable[[], None]:
        if self._own and self._dice.random() < 0.1:
            return self.download
        return self.register if self._dice.random() < 0.5 else self.query

    def _call(self, what: Callable[[], None]) -> bool:
        begun, problem, waits = time.monotonic(), "", False
        try:
            what()
        except ModelKeeperError as failed:
            problem, waits = f"{type(failed).__name__}: {failed}", isinstance(failed, WAITS)
        self._tally.calls.append(Call(self._number, what.__name__, begun, time.monotonic(), problem, waits))
        return not problem

    def _graph(self) -> Graph:
        if self._dice.random() < LARGE:  # 8 MiB: more than one part of an upload to S3
            return network(1024, 2)
        return network(self._dice.choice((16, 32, 64)), self._dice.choice((2, 3, 4)))

    def register(self) -> None:
        """Register a model with numbers that tell which it is."""
        graph, name = self._graph(), f"model-{self._number}-{self._count}"
        self._count += 1
        told = read_registration({"data": name, "task": TASK, "accuracy": 0.9, "name": name}, name)
        record = self._coordinator.register(graph, told, weights(graph, seed_of(name)).items()).record
        self._tally.acknowledged[record.id] = record.checksum
        self._own.append((record, graph))
        self._tally.counts["registered"] += 1

    def query(self) -> None:
        """Ask for a parent, and compare its weights if they are lent as they are."""
        graph = self._graph()
        found = self._coordinator.query(graph, Query(task=TASK))
        lent = dict(found.weights())
        self._tally.counts["cold" if found.answer.cold else "warm"] += 1
        if found.answer.similarity == 1.0:
            self._compare(found.answer.parent_name, graph, lent)

    def download(self) -> None:
        """Fetch a model of one's own, and compare all of it."""
        record, graph = self._dice.choice(self._own)
        path = self._spool.with_suffix(".safetensors")
        self._coordinator.download(record, path)
        self._compare(record.name, graph, load_file(path))
        self._tally.counts["downloaded"] += 1

    def _compare(self, name: str, graph: Graph, got: Mapping[str, Array]) -> None:
        expected = weights(graph, seed_of(name))
        if got.keys() != expected.keys() or any(not np.array_equal(got[key], expected[key]) for key in got):
            self._tally.wrong.append(f"wrong bytes in the weights of {name}")
        self._tally.counts["compared"] += 1


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
    tokens = users(Settings(home=str(folder / "zoo")), clients)
    service = Service(folder / "zoo")
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(
            target=Honest(number, service.url, tokens[number], folder, tally, 20.0).run,
            args=(lambda: time.monotonic() >= until,),
            daemon=True,
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
                killed = time.monotonic()
                service.stop(signal.SIGKILL)
                tally.counts["kills"] += 1
                time.sleep(dice.uniform(0.0, 0.5))
                service.start()
                tally.faults.append(Fault("kill", killed, time.monotonic()))
    for thread in threads:
        thread.join(2 * LONGER)
    tally.memory = max(tally.memory, service.memory())
    tally.judge()
    tally.wrong += lost(service.url, folder, tokens, tally)
    service.stop(signal.SIGTERM)
    tally.counts["lines in the log"] = len((folder / "service.log").read_text().splitlines())
    return tally


def users(settings: Settings, clients: int) -> list[str]:
    """Tokens of honest users, of one who means harm (the last but one), and of an administrator."""
    local = LocalCoordinator(settings)
    tokens = []
    for name in (*(f"user{number}" for number in range(clients)), "mallory", "root"):
        # Honest ones ask as fast as they can, which is no crime here.
        local.accounts.add_user(name, rate=None if name == "mallory" else 10_000.0)
        tokens.append(local.accounts.add_token(name, "admin" if name == "root" else "write"))
    local.close()
    return tokens


def lost(url: str, folder: Path, tokens: list[str], tally: Tally) -> Iterator[str]:
    """What is wrong at the end, when what waits has been sent."""
    clients = len(tokens) - 2
    if missing := sorted(set(range(clients)) - set(tally.finished)):
        yield f"clients {missing} did not go on to the end"
    for number in range(clients):
        token, spool = tokens[number], folder / f"spool{number}"
        coordinator = RemoteCoordinator(url, token=token, timeout=60, spool=spool)
        for entry, result in coordinator.sync():
            if isinstance(result, ModelKeeperError):
                yield f"{entry.waiting.request.id} cannot be sent: {result}"
            else:
                tally.acknowledged[result.record.id] = result.record.checksum
                tally.counts["sent later"] += 1
        coordinator.close()
    coordinator = RemoteCoordinator(url, token=tokens[-1], timeout=60, spool=folder / "spool")
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
