"""After a fork, with threads in the middle of everything: children open the zoo anew, and none hangs."""

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.database import forks
from tests.helpers import zoos
from tests.helpers.forked import begin, in_child, wait_for

GRAPH = zoos.net(8, 16)
CHILDREN, THREADS = 12, 4
SECONDS = 60.0
GATE = threading.Event()


@contextmanager
def threads_that(work: Callable[[], object]) -> Iterator[None]:
    """Threads that do something again and again, while the block runs."""
    ended, failed = threading.Event(), []

    def run() -> None:
        try:
            while not ended.is_set():
                work()
        except BaseException as problem:  # noqa: BLE001 (it is raised again)
            failed.append(problem)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(SECONDS)
    for problem in failed:
        raise problem


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[LocalCoordinator]:
    """A zoo of a few models, one of them with a program."""
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), admission="off"))
    for number in range(3):
        zoos.register(coordinator, zoos.net(8, 16 + number), f"net {number}", 0.9)
    tensors = zoos.weights(GRAPH).items()
    coordinator.register(GRAPH, zoos.told("runs", 0.95), tensors, program=b"{}")
    yield coordinator
    coordinator.close()


def test_children_of_a_process_that_queries_do_not_hang(coordinator: LocalCoordinator) -> None:
    """Forked at whatever moment, they query, register and read programs in the zoo that they have."""

    def use() -> tuple[str, bytes | None]:
        loan = coordinator.query(GRAPH, Query(task=zoos.TASK))
        assert dict(loan.weights())
        zoos.register(coordinator, zoos.net(4), f"of {os.getpid()}", 0.5)
        return loan.answer.parents[0].name, coordinator.program(coordinator.show("runs"))

    with threads_that(lambda: coordinator.query(GRAPH, Query(task=zoos.TASK))):
        children = [begin(use) for _ in range(CHILDREN)]
        assert [wait_for(child, SECONDS) for child in children] == [("runs", b"{}")] * CHILDREN
    assert coordinator.count() == 4 + CHILDREN
    assert coordinator.gc(grace=0, verify=True).damaged == ()


def test_children_of_a_process_that_registers_do_not_hang(coordinator: LocalCoordinator) -> None:
    with threads_that(lambda: zoos.register(coordinator, zoos.net(4), "by a thread", 0.5)):
        children = [begin(lambda: not coordinator.query(GRAPH, Query()).answer.cold) for _ in range(6)]
        assert all(wait_for(child, SECONDS) for child in children)


def test_children_of_children_do_not_hang(coordinator: LocalCoordinator) -> None:
    def use() -> int:
        with threads_that(coordinator.count):
            return in_child(coordinator.count, SECONDS)

    with threads_that(coordinator.count):
        assert in_child(use, SECONDS) == 4


def test_a_zoo_in_memory_is_copied_by_a_fork() -> None:
    coordinator = LocalCoordinator(Settings(home=":memory:"))
    with threads_that(coordinator.count):
        assert in_child(coordinator.count, SECONDS) == 0
    coordinator.close()


def test_a_fork_within_a_transaction_does_not_wait_for_itself(coordinator: LocalCoordinator) -> None:
    """A thread that forks inside of a transaction: neither parent nor child waits, nor is anything lost."""
    with coordinator.zoo.catalog.database.reading():
        assert in_child(coordinator.count, SECONDS) == 4
    zoos.register(coordinator, zoos.net(4), "after")
    assert coordinator.count() == 5


def test_a_fork_waits_for_those_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread inside SQLite holds its locks: a fork comes after it, or after a while."""
    monkeypatch.setattr(forks, "PATIENCE", SECONDS)
    inside, leave, forked = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def stay() -> None:
        with forks.passing():
            inside.set()
            assert leave.wait(SECONDS)
            order.append("left")

    def fork() -> None:
        in_child(lambda: None, SECONDS)
        order.append("forked")
        forked.set()

    for work in (stay, fork):
        threading.Thread(target=work, daemon=True).start()
        assert inside.wait(SECONDS)
    assert not forked.wait(0.1)
    leave.set()
    assert forked.wait(SECONDS)
    assert order == ["left", "forked"]


def test_only_what_is_alive_is_renewed() -> None:
    class Owner:
        renewed = 0

        def renew(self) -> None:
            self.renewed += 1

    owner, gone = Owner(), Owner()
    for each in (owner, gone):
        forks.renew_after_fork(each, Owner.renew)
    del gone, each
    assert in_child(lambda: owner.renewed, SECONDS) == 1
    assert owner.renewed == 0


def test_an_object_store_in_a_child_is_refused_at_once(bucket: str, tmp_path: Path) -> None:
    """Its threads are gone there, and a call would never return."""
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), blobs=bucket))
    record = zoos.register(coordinator, GRAPH)
    said = in_child(lambda: error_of(lambda: coordinator.zoo.weights(record)), SECONDS)
    assert "forked from one that used it" in said
    assert "spawn" in said
    assert in_child(coordinator.count, SECONDS) == 1, "the catalog can be asked there"
    assert dict(coordinator.query(GRAPH, Query()).weights())
    coordinator.close()


def error_of(work: Callable[[], object]) -> str:
    try:
        work()
    except ZooUnusable as problem:
        return str(problem)
    return ""


def test_a_fork_waits_for_modules_that_others_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the child, which has not the thread that imports it, would wait for the module for ever."""
    (tmp_path / "slow_module.py").write_text(
        "from tests.zoo.database.test_forks import GATE\nGATE.wait(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    threading.Thread(target=importlib.import_module, args=("slow_module",), daemon=True).start()
    while "slow_module" not in sys.modules:
        time.sleep(0.001)
    threading.Timer(0.2, GATE.set).start()
    assert in_child(lambda: importlib.import_module("slow_module").__name__, SECONDS) == "slow_module"
