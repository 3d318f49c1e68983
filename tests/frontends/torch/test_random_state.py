"""Random generators go on as if nothing had been drawn, alone and among other threads."""

import gc
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from modelkeeper.frontends import python_random
from modelkeeper.frontends.torch import random_state
from modelkeeper.frontends.torch.random_state import keep_random_state


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


@pytest.fixture
def only_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program without threads; those who run the tests may have some."""
    for module in (python_random, random_state):
        monkeypatch.setattr(module, "alone", lambda: True)


@pytest.fixture
def company() -> Iterator[None]:
    """Another thread."""
    leave = threading.Event()
    other = threading.Thread(target=leave.wait)
    other.start()
    yield
    leave.set()
    other.join()


@pytest.mark.usefixtures("only_thread")
def test_what_is_drawn_inside_does_not_show_outside() -> None:
    seed(3)
    expected = [draw(), draw()]
    seed(3)
    drawn = [draw()]
    with keep_random_state():
        draw()
    drawn.append(draw())
    assert drawn == expected


@pytest.mark.usefixtures("only_thread")
def test_a_seed_holds_inside_alone_and_also_after_an_error() -> None:
    seed(3)
    expected = draw()
    seed(3)
    inside = []

    def failing() -> None:
        with keep_random_state(7):
            inside.append(draw())
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            failing()
    assert inside[0] == inside[1]
    assert draw() == expected


@pytest.mark.usefixtures("company")
def test_among_threads_a_seed_holds_for_torch_and_no_shared_generator_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with keep_random_state():
        torch.rand(3)  # torch loads parts of itself, which import what is taken away below
    seed(3)
    torch_state, python, numpy = torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False)
    for name in ("get_rng_state", "set_rng_state", "manual_seed"):
        monkeypatch.delattr(torch, name)
    inside = []
    for number in (7, 7, None, None):
        with keep_random_state(number):
            inside.append(float(torch.rand(())))
    monkeypatch.undo()
    assert inside[0] == inside[1] != inside[2] == inside[3]
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python
    assert repr(np.random.get_state(legacy=False)) == repr(numpy)


@pytest.mark.usefixtures("company")
def test_among_threads_what_others_drew_meanwhile_is_not_drawn_again() -> None:
    seed(3)
    expected = [draw(), draw()]
    seed(3)
    drawn = []
    other = threading.Thread(target=lambda: drawn.append(draw()))
    with keep_random_state(7):
        torch.rand(3)
        other.start()
        other.join()
    drawn.append(draw())
    assert drawn == expected


def test_threads_keep_states_at_once() -> None:
    def work() -> None:
        for number in range(50):
            torch.manual_seed(number)
            with keep_random_state(number):
                torch.rand(3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert gc.isenabled()
