"""Random generators go on as if nothing had been drawn, and threads that keep their states do not lock."""

import gc
import random
import threading

import numpy as np
import pytest
import torch

from modelkeeper.frontends.torch.random_state import keep_random_state


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def test_what_is_drawn_inside_does_not_show_outside() -> None:
    seed(3)
    expected = [draw(), draw()]
    seed(3)
    drawn = [draw()]
    with keep_random_state():
        draw()
    drawn.append(draw())
    assert drawn == expected


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


def test_no_garbage_is_collected_while_a_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would let go of the interpreter while torch holds its generator, and lock with who sets it next."""
    collecting, read = [], torch.get_rng_state

    def watched() -> torch.Tensor:
        collecting.append(gc.isenabled())
        return read()

    monkeypatch.setattr(torch, "get_rng_state", watched)
    with keep_random_state():
        assert gc.isenabled()
    gc.disable()
    with keep_random_state():
        assert not gc.isenabled()
    gc.enable()
    assert collecting == [False, False]


def test_threads_keep_states_at_once_and_garbage_is_collected_afterwards() -> None:
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
