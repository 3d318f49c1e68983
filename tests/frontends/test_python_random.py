"""Generators that all threads share are put back where this is the only thread, and left alone otherwise."""

import random
import threading

import numpy as np
import pytest

from modelkeeper.frontends import python_random
from modelkeeper.frontends.python_random import alone, keep_python_random


def draw() -> tuple[float, float]:
    return random.random(), float(np.random.random())


def test_another_thread_is_company() -> None:
    leave = threading.Event()
    other = threading.Thread(target=leave.wait)
    other.start()
    assert not alone()
    leave.set()
    other.join()


def test_alone_a_seed_holds_inside_and_nothing_shows_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_random, "alone", lambda: True)
    random.seed(3)
    np.random.seed(3)
    expected = draw()
    random.seed(3)
    np.random.seed(3)
    inside = []
    for _ in range(2):
        with keep_python_random(7):
            inside.append(draw())
    assert inside[0] == inside[1]
    assert draw() == expected


def test_among_threads_what_was_drawn_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_random, "alone", lambda: False)
    random.seed(3)
    np.random.seed(3)
    expected = [draw(), draw()]
    random.seed(3)
    np.random.seed(3)
    with keep_python_random(7):
        first = draw()
    assert [first, draw()] == expected
