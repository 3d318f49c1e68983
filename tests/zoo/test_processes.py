"""Many processes share one home: nothing is lost, and each sees what the others have registered."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.optimize  # noqa: F401  # what evicting needs is imported once, before the forks

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.records import Filter
from tests.helpers import zoos

fork = multiprocessing.get_context("fork")
PROCESSES, EACH = 8, 5
GRAPHS = [zoos.net(*widths) for widths in ((4,), (8,), (8, 16), (4, 8, 16))]


def together(work: Callable[..., Any], *arguments: Any, processes: int = PROCESSES) -> list[Any]:
    """Run the same work in many processes at once: work(number, barrier, ...). What did each return?"""
    results, barrier = fork.Queue(), fork.Barrier(processes)

    def run(number: int) -> None:
        results.put(work(number, barrier, *arguments))

    running = [fork.Process(target=run, args=(number,)) for number in range(processes)]
    for process in running:
        process.start()
    found = [results.get(timeout=90) for _ in running]
    for process in running:
        process.join(30)
        assert process.exitcode == 0
    return found


def registering(number: int, barrier: Any, home: str) -> tuple[set[str], bool, bool]:
    """Register and query with all others; then look at once whether all of theirs can be found."""
    coordinator = LocalCoordinator(Settings(home=home, threads=1, admission="off"))
    barrier.wait(60)
    mine = set()
    for turn in range(EACH):
        graph = GRAPHS[(number + turn) % len(GRAPHS)]
        mine.add(zoos.register(coordinator, graph, f"{number}-{turn}", 0.5 + number / 1000).id)
        found = coordinator.query(graph, Query(task=zoos.TASK, data=zoos.DATA))
        assert (found.answer.similarity or 0) >= 0.9
        assert dict(found.weights()).keys() == dict(zoos.weights(graph)).keys()
    barrier.wait(60)
    index = coordinator.zoo.follower.index()
    every = coordinator.zoo.catalog.find(Filter())
    return mine, len(every) == PROCESSES * EACH, all(record.key in index for record in every)


def test_eight_processes_lose_nothing_and_see_each_other(tmp_path: Path) -> None:
    found = together(registering, str(tmp_path))
    acknowledged = set().union(*(mine for mine, _, _ in found))
    assert len(acknowledged) == PROCESSES * EACH
    assert all(complete and searchable for _, complete, searchable in found)
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    records = coordinator.models()
    assert {record.id for record in records} == acknowledged
    assert sum(record.hits for record in records) == PROCESSES * EACH, "every loan is counted"
    assert all(coordinator.zoo.weights(record) for record in records)
    assert coordinator.gc(grace=0, verify=True).damaged == ()
    coordinator.close()


def watching(number: int, barrier: Any, home: str) -> list[float]:
    """The first registers; the second looks all the time. When did each know of each model?"""
    coordinator = LocalCoordinator(Settings(home=home, threads=1))
    times: list[float] = []
    barrier.wait(60)
    if number == 0:
        for turn in range(10):
            zoos.register(coordinator, GRAPHS[turn % len(GRAPHS)], str(turn))
            times.append(time.monotonic())
            time.sleep(0.02)
    end = time.monotonic() + 30
    while number and len(times) < 10 and time.monotonic() < end:
        known = len(coordinator.zoo.follower.index())
        times += [time.monotonic()] * (known - len(times))
        time.sleep(0.001)
    return [float(number), *times]


def test_what_one_registers_another_sees_within_a_second(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    said, seen = (times[1:] for times in sorted(together(watching, str(tmp_path), processes=2)))
    assert len(seen) == 10
    delays = sorted(late - early for early, late in zip(said, seen, strict=True))
    record_property("delays", delays)
    print("delays in ms:", [round(1000 * delay, 1) for delay in delays])
    assert delays[5] < 1, "the median, so that one pause of a busy machine is no failure"


def crowding(number: int, barrier: Any, home: str, capacity: int) -> None:
    coordinator = LocalCoordinator(Settings(home=home, capacity=capacity, threads=1, admission="off"))
    barrier.wait(60)
    for turn in range(EACH):
        zoos.register(coordinator, GRAPHS[1], f"{number}-{turn}", 0.5 + number / 100 + turn / 1000)


@pytest.mark.parametrize("room", [1, 6])
def test_many_at_the_capacity_neither_exceed_it_nor_evict_too_much(tmp_path: Path, room: int) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path), admission="off"))
    size = zoos.register(coordinator, GRAPHS[1]).bytes
    capacity = room * size + size // 2
    together(crowding, str(tmp_path), capacity, processes=4)
    records = coordinator.models()
    assert len(records) == room, "as many as fit, no more and no fewer"
    assert {path.name for path in (tmp_path / "models").iterdir()} == {record.id for record in records}
    evicted = coordinator.log(action="evicted", limit=1000)
    assert len(evicted) == 4 * EACH + 1 - room
    assert all("worth more" in event.detail or "fit" in event.detail for event in evicted)
    coordinator.close()
