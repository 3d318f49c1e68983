"""Can one user keep others waiting, or fill the memory of a service?"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.coordinator.local_loan import LocalLoan
from modelkeeper.errors import TooManyRequests
from modelkeeper.graph import Graph
from modelkeeper.meta import Query
from modelkeeper.server.limits import BodyRoom, FairThreads
from tests.helpers.service import Team, network, team, tensors, told
from tests.server.test_connections import HEAD, opened, turned_away


def test_users_take_turns() -> None:
    """Whoever has 250 queries waiting keeps another one's waiting for no more than one of them."""
    begun: list[str] = []
    release = threading.Event()

    def work(name: str) -> Callable[[], None]:
        def run() -> None:
            begun.append(name)
            release.wait(30)

        return run

    async def both() -> None:
        threads = FairThreads(2)
        heavy = [asyncio.create_task(threads.run("mallory", work("mallory"))) for _ in range(250)]
        await asyncio.sleep(0.1)
        light = [asyncio.create_task(threads.run(name, work(name))) for name in ("ada", "bob", "ada")]
        await asyncio.sleep(0.1)
        release.set()
        await asyncio.gather(*heavy, *light)

    asyncio.run(both())
    assert len(begun) == 253
    assert begun[0] == "mallory"
    assert begun[1] == "ada"  # mallory may not take the last thread
    assert begun.index("bob") < 6
    assert [place for place, name in enumerate(begun) if name == "ada"][1] < 10


def test_only_ones_own_queue_is_full() -> None:
    release = threading.Event()

    async def many() -> None:
        threads = FairThreads(2, most_waiting=10)
        tasks = [asyncio.create_task(threads.run("mallory", lambda: release.wait(30))) for _ in range(11)]
        await asyncio.sleep(0.05)
        with pytest.raises(TooManyRequests):
            await threads.run("mallory", release.is_set)
        assert await threads.run("ada", lambda: 7) == 7
        release.set()
        await asyncio.gather(*tasks)
        assert await threads.run("mallory", lambda: 8) == 8

    asyncio.run(many())


def test_who_has_gone_is_not_worked_for() -> None:
    async def gone() -> bool:
        return True

    async def ask() -> None:
        threads, ran = FairThreads(2), []
        with pytest.raises(ClientDisconnect):
            await threads.run("ada", lambda: ran.append(1), gone)
        assert ran == []
        waiting = [asyncio.create_task(threads.run("ada", threading.Event().is_set)) for _ in range(5)]
        for task in waiting[1:]:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await threads.run("", lambda: 1) == 1

    asyncio.run(ask())


def test_memory_of_bodies_is_bounded() -> None:
    room = BodyRoom(100 * 2**20)
    first = room.of("mallory")
    first.take(20 * 2**20)
    second = room.of("mallory")
    with pytest.raises(TooManyRequests):
        second.take(19 * 2**20)
    other = room.of("ada")
    other.take(20 * 2**20)
    first.release()
    second.take(19 * 2**20)
    second.take(10)  # it holds more already
    for held in (second, other):
        held.release()
    assert not room._held


def test_unfinished_bodies_of_one_reader_are_few(tmp_path: Path) -> None:
    """A hundred bodies of 19.9 MB that never end took 2 GB."""
    with team(tmp_path, body_memory=100 * 10**6) as keeper:
        ada, token = keeper.join("ada"), keeper.token("mallory", "read")
        head = HEAD + f"authorization: Bearer {token}\r\ncontent-length: 19900000\r\n\r\n".encode()
        with contextlib.ExitStack() as stack:
            lines = [stack.enter_context(opened(keeper.url, head)) for _ in range(30)]
            assert sum(map(turned_away, lines)) == 29
            assert ada.count() == 0


def test_a_body_is_refused_before_it_is_read(keeper: Team) -> None:
    token = keeper.token("mallory", "read")
    head = HEAD + f"authorization: Bearer {token}\r\ncontent-length: 99000000\r\n\r\n".encode()
    with opened(keeper.url, head) as line:
        assert b" 413 " in line.recv(200)


def test_memory_is_given_back(tmp_path: Path) -> None:
    with team(tmp_path, body_memory=1) as keeper:  # one body of the largest size, no more
        sent = {"authorization": f"Bearer {keeper.token('ada')}", "content-type": "application/json"}
        for _ in range(5):
            reply = httpx.post(f"{keeper.url}/v1/query", content=b"{" * 10**6, headers=sent, timeout=30)
            assert reply.status_code in (422, 429)


def test_heavy_queries_of_one_user_keep_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """290 queries that took 3 s each: others were told that there are too many."""
    release, heavy, answered = threading.Event(), threading.Semaphore(0), LocalCoordinator.query

    def query(self: LocalCoordinator, graph: Graph, asked: Query, **more: Any) -> LocalLoan:
        if asked.data == "heavy":
            heavy.release()
            release.wait(60)
        return answered(self, graph, asked, **more)

    monkeypatch.setattr(LocalCoordinator, "query", query)
    with team(tmp_path, rate=10_000.0) as keeper:
        ada, mallory = keeper.join("ada"), keeper.join("mallory", "read")
        with ThreadPoolExecutor(40) as pool:
            waiting = [pool.submit(mallory.query, network(), Query(data="heavy")) for _ in range(40)]
            try:
                assert heavy.acquire(timeout=30), "one of them is being answered, and the others wait"
                for _ in range(5):
                    assert ada.query(network(), Query()).answer.cold
                ada.register(network(), told(), tensors(network()).items())
            finally:
                release.set()
            assert all(each.result().answer.cold in (True, False) for each in waiting)
