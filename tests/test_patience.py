"""Does a loop end when whoever waits for it has lost patience, and never else?"""

import threading

import pytest

from modelkeeper.patience import OutOfPatience, go_on, waiting


def test_without_anybody_who_waits_it_goes_on() -> None:
    go_on()
    with waiting(lambda: False):
        go_on()


def test_it_ends_when_it_is_late_and_only_inside() -> None:
    asked: list[int] = []

    def late() -> bool:
        asked.append(1)
        return len(asked) > 3

    with waiting(late):
        for _ in range(3):
            go_on()
        with pytest.raises(OutOfPatience):
            go_on()
    go_on()


def test_threads_have_their_own_patience() -> None:
    other: list[str] = []

    def elsewhere() -> None:
        go_on()
        other.append("went on")

    with waiting(lambda: True):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert other == ["went on"]
