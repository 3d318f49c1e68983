"""Processes that use one zoo until they are killed. Run by test_durability and benchmarks/kills.

    python -m tests.helpers.nursery HOME ACKNOWLEDGED KILLS [SEED]

Everything is imported once; children are forked from here, open the zoo and register in a loop, and sooner
or later are killed with SIGKILL, at any moment. What a child writes to the file ACKNOWLEDGED, it was told
by the zoo before:

    + ID SHA256      the model was registered
    ? ID             the model is about to be removed
    - ID             the model was removed

Backups go into a folder `backup` beside HOME. What each was doing when it was killed is printed as JSON.
"""

import json
import mmap
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidBackup, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.care.backup import backup
from modelkeeper.zoo.index import index_sync
from tests.helpers import zoos

CHILDREN = 4
DOING = ("opening", "registering", "removing", "sweeping", "querying", "backing up")
LIFE = 12  # registrations that a child would have the time for, at most, if it were alone
GRAPHS = [zoos.net(*widths) for widths in ((4,), (8,), (8, 16), (16, 32, 64), (64, 128, 128))]
WEIGHTS = [zoos.weights(graph) for graph in GRAPHS]

index_sync.SAVE_AFTER = 5  # so that saving the index is interrupted, too


def child(home: str, acknowledged: int, begun: int, doing: mmap.mmap) -> None:
    """Register, query, remove, sweep and back up, for ever."""
    rng = random.Random(os.urandom(8))

    def tell(*words: str) -> None:
        os.write(acknowledged, (" ".join(words) + "\n").encode())  # O_APPEND: whole lines

    coordinator = LocalCoordinator(Settings(home=home))
    os.write(begun, b"!")

    def now(what: str) -> None:
        doing[0] = DOING.index(what)

    registered: list[str] = []
    while True:
        kind = rng.randrange(len(GRAPHS))
        graph, tensors = GRAPHS[kind], WEIGHTS[kind]
        try:
            now("registering")
            name = next(iter(tensors))
            tensors = tensors | {name: tensors[name] + rng.random()}
            record = coordinator.register(graph, zoos.told(accuracy=0.9), tensors.items()).record
            tell("+", record.id, record.checksum)
            registered.append(record.id)
            lot = rng.random()
            if lot < 0.1:
                now("removing")
                tell("?", registered[0])
                coordinator.remove(registered[0])
                tell("-", registered.pop(0))
            elif lot < 0.2:
                now("sweeping")
                coordinator.gc(grace=0 if lot < 0.12 else None)
            elif lot < 0.3:
                now("querying")
                coordinator.query(graph, Query(task=zoos.TASK))
            elif lot < 0.4:
                now("backing up")
                backup(coordinator.zoo, Path(home).parent / "backup", keep=2)
        except (ZooUnusable, InvalidBackup):
            pass  # somebody swept what was being written, or is backing up; it was not acknowledged


def main(home: str, path: str, kills: int, seed: int = 0) -> None:
    """Keep some children going, and kill them one after the other."""
    with tempfile.TemporaryDirectory(dir=Path(home).parent) as warm:
        coordinator = LocalCoordinator(Settings(home=warm))
        zoos.register(coordinator, GRAPHS[0])  # what is imported late is imported here, once
        start = time.monotonic()
        for graph in GRAPHS:
            zoos.register(coordinator, graph)
        longest = min(1.2, CHILDREN * LIFE * (time.monotonic() - start) / len(GRAPHS))
    acknowledged = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    rng = random.Random(seed)
    killed: Counter[str] = Counter()
    alive: dict[int, tuple[int, float]] = {}  # process -> where it says that it has begun, end of its life
    activities: dict[int, mmap.mmap] = {}
    while kills > 0:
        while len(alive) < CHILDREN:
            said, begun = os.pipe()
            doing = mmap.mmap(-1, 1)
            process = os.fork()
            if not process:
                os.close(said)
                try:
                    child(home, acknowledged, begun, doing)
                finally:
                    os._exit(1)
            os.close(begun)
            alive[process], activities[process] = (said, 0.0), doing
        for process, (said, end) in list(alive.items()):
            if not end:
                # Most are killed some time after they have opened the zoo, the others on the way there.
                ready = select.select([said], [], [], 0 if rng.random() < 0.9 else 0.02)[0]
                if ready or rng.random() < 0.02:
                    alive[process] = said, time.monotonic() + rng.random() * longest
            elif end <= time.monotonic():
                os.kill(process, signal.SIGKILL)
                _, status = os.waitpid(process, 0)
                if not os.WIFSIGNALED(status):
                    sys.exit(f"a child ended by itself: {status}")
                os.close(said)
                killed[DOING[activities.pop(process)[0]]] += 1
                del alive[process]
                kills -= 1
        time.sleep(0.005)
    for process in alive:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    print(json.dumps(killed))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
