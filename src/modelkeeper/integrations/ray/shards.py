"""How does the search index of a zoo lie in a Ray cluster? As actors, one for each copy of each shard.

    shards = open_shards(Spread.read("ray://head:10001?shards=4&replicas=2"), settings)
    SpreadIndex(shards).search(...)

Actors are detached and have names, so that all coordinators of a zoo use the same. Ray starts one that died
again, which opens what it saved; until then its copies answer. While a coordinator lives it calls them now
and then; those that nobody has called for long end by themselves. Nothing here waits for Ray longer than
whoever asks does: calls are made in threads, and who has not answered in time is missing from the answer.
"""

import contextlib
import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import ray
from ray.exceptions import ActorDiedError

import modelkeeper
from modelkeeper.errors import ModelKeeperError, ShardsUnreachable
from modelkeeper.integrations.ray.sharing import NAMESPACE, expect_shared, nodes
from modelkeeper.logs import logger
from modelkeeper.matching.sharded import Asked, Told, Turn
from modelkeeper.matching.similarity import VERSION
from modelkeeper.settings import Settings, is_loopback
from modelkeeper.zoo.index.shards import Shard, Spread

AUTO, LOCAL = "auto", "local"
CLIENT = "127.0.0.1:10001"  # where `ray start --head` listens for clients
CONNECTING = 5.0  # seconds to wait for an answer at that address
ANSWER = 10.0  # seconds for one turn, if a shard has one copy
HEDGE = 2.0  # seconds after which another copy is asked
DOWN = 5.0  # seconds for which a copy that failed is not asked
KEEP = 10.0  # seconds between two calls that keep shards alive
IDLE = 900.0  # seconds without a call after which a shard ends
SLICE = 0.05  # seconds between two looks at the clock
SHARING = 60.0  # seconds between two looks whether enough has changed to save it in the store
CALLS = 32  # to Ray at a time, at least
_log = logger()


class ShardActor:
    """One copy of one shard, in a process of its own."""

    def __init__(self, settings: Settings, number: int, count: int, copy: int) -> None:
        self._shard, self._copy = Shard(settings, number, count), copy
        self._called = time.monotonic()
        threading.Thread(target=self._live, name="modelkeeper-shard", daemon=True).start()

    def turn(self, search: str, asked: Asked | None, turn: Turn) -> Told | None:
        """Take a turn in a search: see `Shard`."""
        self._called = time.monotonic()
        return self._shard.turn(search, asked, turn)

    def follow(self) -> int:
        """Read all that is in the catalog by now: see `Shard`."""
        self._called = time.monotonic()
        return self._shard.follow()

    def forget(self, search: str) -> None:
        """Nobody goes on with a search."""
        self._shard.forget(search)

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()

    def _live(self) -> None:
        """Open what was saved before anybody asks; save; end when nobody has asked for long."""
        with contextlib.suppress(Exception):  # whoever asks hears of it
            self._shard.follow()
        while time.monotonic() - self._called < IDLE:
            if not self._copy:  # one saves for all
                try:
                    self._shard.share()
                except ModelKeeperError as problem:
                    _log.warning("the index of a shard could not be saved in the store: %s", problem)
            time.sleep(min(IDLE / 4, SHARING))
        ray.kill(ray.get_runtime_context().current_actor)


def open_shards(spread: Spread, settings: Settings) -> "RayShards":
    """The shards of a zoo in a Ray cluster, started if they are not there.

    Raises:
        InvalidSetting: They could not read the zoo.
        ShardsUnreachable: There is no cluster where the setting says.
    """
    expect_shared(settings, 1, blobs=False, what="shards")
    connected = connect(spread.place)
    elsewhere = spread.place not in ("", AUTO, LOCAL) and not is_loopback(_host(spread.place)[0])
    machines = max(nodes(), 2 if elsewhere else 1)
    expect_shared(settings, machines, blobs=False, what="shards")
    return RayShards(spread, settings, connected)


def connect(place: str) -> bool:
    """Connect this process to a cluster, unless it is; was it not?

    Raises:
        ShardsUnreachable: There is none.
    """
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False}
    address = place if place in (AUTO, LOCAL) else f"ray://{place or CLIENT}"
    try:
        if place == LOCAL:
            options |= {"include_dashboard": False}
        elif place != AUTO:
            socket.create_connection(_host(place or CLIENT), CONNECTING).close()
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as problem:
        advice = (
            "Check that it runs (`ray start --head`) and that its port for clients, 10001 unless set "
            "otherwise, can be reached from here; or leave out shards (MODELKEEPER_SHARDS)."
        )
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise ShardsUnreachable(address, f"there is no Ray: {reason}", advice) from problem
    return True


def _host(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() and host else (place.strip("[]"), 10001)


class RayShards:
    """The shards of one zoo as actors: see `Shards`."""

    def __init__(self, spread: Spread, settings: Settings, connected: bool) -> None:
        self.count, self.replicas = spread.shards, spread.replicas
        self._place, self._settings, self._connected = spread.place, settings, connected
        place = f"{settings.catalog_place} {modelkeeper.__version__} {VERSION}"
        self._zoo = hashlib.blake2b(place.encode(), digest_size=8).hexdigest()
        self._actors: dict[tuple[int, int], Any] = {}  # by number of shard and copy
        self._down: dict[tuple[int, int], float] = {}  # those that failed, and until when they are not asked
        self._making, self._closed = threading.Lock(), threading.Event()
        self.pool = ThreadPoolExecutor(max(CALLS, 2 * self.count * self.replicas), "modelkeeper-ray")
        for number in range(self.count):
            for copy in range(self.replicas):
                self.actor(number, copy)
        self._keeper = threading.Thread(target=self._keep, name="modelkeeper-shards", daemon=True)
        self._keeper.start()

    def scatter(self, asked: Asked) -> "RayScatter":
        """Begin a search in all shards."""
        return RayScatter(self, asked)

    def behind(self) -> list[int]:
        """The numbers of shards of which no copy has read the catalog, or can be asked."""
        futures = {number: self.pool.submit(self._follow_any, number) for number in range(self.count)}
        wait(futures.values(), ANSWER)
        return [number for number, future in futures.items() if not (future.done() and future.result())]

    def actor(self, number: int, copy: int) -> Any:
        """One copy of a shard; made if there is none of its name."""
        with self._making:
            known = self._actors.get((number, copy))
            if known is None:
                made = ray.remote(ShardActor).options(
                    name=f"{self._zoo}-{number}-of-{self.count}-{copy}",
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    max_restarts=-1,
                    max_concurrency=16,
                    num_cpus=0,
                    scheduling_strategy="SPREAD",
                )
                settings = _of_shard(self._settings)
                known = self._actors[(number, copy)] = made.remote(settings, number, self.count, copy)
            return known

    def copies(self, number: int) -> list[int]:
        """The copies of a shard that can be asked, those that failed lately last."""
        now = time.monotonic()
        return sorted(range(self.replicas), key=lambda copy: self._down.get((number, copy), 0.0) > now)

    def is_down(self, number: int, copy: int) -> bool:
        """Has it just failed?"""
        return self._down.get((number, copy), 0.0) > time.monotonic()

    def failed(self, number: int, copy: int, problem: Exception) -> None:
        """Note that a copy did not answer: it is left alone for some seconds."""
        if not self.is_down(number, copy):
            _log.warning("copy %d of shard %d does not answer: %s", copy, number, _first_line(problem))
        self._down[(number, copy)] = time.monotonic() + DOWN
        if isinstance(problem, ActorDiedError):  # for good: Ray has not started it again
            self._actors.pop((number, copy), None)

    def close(self) -> None:
        """Let go of the shards, which end when nobody calls them; of a cluster of this process at once."""
        self._closed.set()
        self.pool.shutdown(wait=False, cancel_futures=True)
        if self._connected and ray.is_initialized():
            ray.shutdown()

    def _follow_any(self, number: int) -> bool:
        for copy in self.copies(number):
            try:
                ray.get(self.actor(number, copy).follow.remote(), timeout=ANSWER)
            except Exception as problem:  # noqa: BLE001 (Ray, its transport and the catalog fail in many ways)
                self.failed(number, copy, problem)
            else:
                self._down.pop((number, copy), None)
                return True
        return False

    def _keep(self) -> None:
        """Call all copies now and then: they live on, follow the catalog, and come back after a fault."""
        while not self._closed.wait(KEEP):
            if not ray.is_initialized():
                self._actors.clear()
                with contextlib.suppress(
                    ShardsUnreachable
                ):  # it is tried again; searches say what is missing
                    self._connected = connect(self._place) or self._connected
                continue
            for number in range(self.count):
                for copy in range(self.replicas):
                    with contextlib.suppress(Exception):  # a search says what is missing
                        ray.get(self.actor(number, copy).follow.remote(), timeout=ANSWER)
                        self._down.pop((number, copy), None)


class RayScatter:
    """One search in the shards of a cluster."""

    def __init__(self, shards: RayShards, asked: Asked) -> None:
        self.numbers = range(shards.count)
        self._shards, self._asked = shards, asked
        self._once = threading.Lock()
        self._put: Any = None  # what is asked, where Ray keeps it for all shards
        self._name = secrets.token_hex(8)
        self._at: dict[int, int] = {}  # the copy that each shard is searched in

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        """Let shards take their turns, all at the same time."""
        futures: dict[int, Future[Told | None]] = {
            number: self._shards.pool.submit(self._ask, number, turn) for number, turn in turns.items()
        }
        waiting = set(futures.values())
        while waiting and not (stop is not None and stop()):
            waiting = wait(waiting, SLICE).not_done
        told = {number: future.result() for number, future in futures.items() if future.done()}
        return {number: answer for number, answer in told.items() if answer is not None}

    def close(self) -> None:
        """The search is over."""
        for number, copy in self._at.items():
            with contextlib.suppress(Exception):  # it is forgotten in time
                self._shards.actor(number, copy).forget.remote(self._name)

    def _ask(self, number: int, turn: Turn) -> Told | None:
        """What one shard tells: the copy that is at it, or the first other one that answers."""
        present = self._at.get(number)
        others = [copy for copy in self._shards.copies(number) if copy != present]
        for copy in others if present is None else [present, *others]:
            if self._shards.is_down(number, copy):
                continue
            patience = HEDGE if self._shards.replicas > 1 and copy != (others or [copy])[-1] else ANSWER
            try:
                told = self._call(number, copy, turn, patience)
            except Exception as problem:  # noqa: BLE001 (Ray and its transport fail in many ways)
                self._shards.failed(number, copy, problem)
            else:
                self._at[number] = copy
                return told
        return None

    def _call(self, number: int, copy: int, turn: Turn, patience: float) -> Told:
        """One turn of one copy; where the search is unknown, it begins."""
        actor, told = self._shards.actor(number, copy), None
        if self._at.get(number) == copy:
            told = ray.get(actor.turn.remote(self._name, None, turn), timeout=patience)
        if told is None:
            with self._once:
                self._put = ray.put(self._asked) if self._put is None else self._put
            told = ray.get(actor.turn.remote(self._name, self._put, turn), timeout=patience)
        assert isinstance(told, Told)
        return told


def _of_shard(settings: Settings) -> Settings:
    """What a shard needs to know of a zoo."""
    return Settings(
        home=str(settings.folder.absolute()),
        catalog=settings.catalog,
        blobs=settings.blobs if "://" in settings.blobs else "",
        threads=settings.threads,
    )


def _first_line(problem: Exception) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:300]
