"""Do as many threads work at once as there are places, in order, and does nobody wait for ever?"""

import os
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from modelkeeper.coordinator import places as module
from modelkeeper.coordinator.places import Places
from modelkeeper.stepping_out import has_place, in_place, stepped_out


def started(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(30)
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_more_work_at_once_than_there_are_places(count: int) -> None:
    places, lock, now, most = Places(count), threading.Lock(), 0, 0

    def work(number: int) -> None:
        nonlocal now, most
        for _ in range(20):
            with places.one():
                with lock:
                    now += 1
                    most = max(most, now)
                time.sleep(0.0005)
                with lock:
                    now -= 1

    assert ended(started(12, work))
    assert most == count


def test_who_came_first_is_first() -> None:
    places, order = Places(1), list[int]()

    def work(number: int) -> None:
        with places.one():
            order.append(number)

    threads = []
    with places.one():
        for number in range(10):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while len(places._waiting) <= number:
                time.sleep(0.001)
    assert ended(threads)
    assert order == list(range(10))


def test_who_steps_out_lets_others_work_and_comes_back_before_them() -> None:
    places, order = Places(1), list[str]()
    out, back = threading.Event(), threading.Event()

    def waits(number: int) -> None:
        with places.one():
            with stepped_out():
                out.set()
                back.wait(30)
            order.append("back")

    def works(number: int) -> None:
        with places.one():
            order.append("beside")
            if number == 0:
                back.set()
                while not places._waiting:
                    time.sleep(0.001)

    first = started(1, waits)
    assert out.wait(30)
    assert ended(started(1, works))
    assert ended(first)
    assert order == ["beside", "back"]


def test_who_has_a_place_of_a_pool_needs_none() -> None:
    places = Places(1)
    with places.one(), places.one():  # within a query, too
        assert has_place()
        with in_place(lambda: True, lambda: None), places.one():
            assert has_place()
    assert not has_place()


def held(places: Places, over: threading.Event) -> list[threading.Thread]:
    """A thread that has a place until it is over."""
    taken = threading.Event()

    def holds(number: int) -> None:
        with places.one():
            taken.set()
            over.wait(30)

    threads = started(1, holds)
    assert taken.wait(30)
    return threads


def test_who_gives_up_waiting_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    places, over = Places(1), threading.Event()
    threads = held(places, over)
    with monkeypatch.context() as patched:
        patched.setattr(module, "threading", SimpleNamespace(Event=Interrupted))
        with pytest.raises(KeyboardInterrupt):
            places.one().__enter__()
    assert not has_place()
    over.set()
    assert ended(threads)
    with places.one():
        assert has_place()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_in_a_forked_child_all_places_are_free() -> None:
    places, over = Places(1), threading.Event()
    threads = held(places, over)
    child = os.fork()
    if child == 0:
        with places.one():
            os._exit(7)
    over.set()
    assert ended(threads)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
