"""Users' rates over several replicas, by a clock that the test holds."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import TooManyRequests
from modelkeeper.server import limits
from modelkeeper.server.limits import Rates
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.replicas import shared_rates
from modelkeeper.zoo.replicas.shared_rates import FORGOTTEN, Spent, forget, holds, settle


class Clock:
    """Time that passes when the test says so."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    held = Clock()
    monkeypatch.setattr(limits, "time", held)
    monkeypatch.setattr(shared_rates, "now", lambda connection: held.now)
    return held


def lets(rates: Rates, rate: float, tries: int) -> int:
    """How many of so many requests come through."""
    through = 0
    for _ in range(tries):
        try:
            rates.take("ada", rate)
            through += 1
        except TooManyRequests:
            pass
    return through


replicas = st.integers(1, 4)
asked = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.booleans()), min_size=1, max_size=40)


@given(replicas, st.sampled_from([1.0, 2.0, 10.0]), asked)
def test_all_together_let_through_what_one_would_but_for_one_interval(
    count: int, rate: float, steps: list[tuple[int, int, bool]]
) -> None:
    """In time T: at most a bucket and rate x T, and what the others let through before they settle, once."""
    database, held = Database("sqlite://"), Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "time", held)
        patch.setattr(shared_rates, "now", lambda connection: held.now)
        every, through, since = [Rates() for _ in range(count)], 0, held.now
        for which, tries, passes in steps:
            through += lets(every[which % count], rate, tries)
            if passes:  # half a second, at whose end all have settled
                held.now += 0.5
                for each in every:
                    if spent := each.spent():
                        each.settle(settle(database, spent))
        ahead = (count - 1) * (holds(rate) + 0.5 * rate)
        assert through <= holds(rate) + rate * (held.now - since) + ahead + 1e-6
    database.close()


def test_what_was_too_much_is_paid_back(clock: Clock) -> None:
    database, one, two = Database("sqlite://"), Rates(), Rates()
    assert [lets(each, 2.0, 10) for each in (one, two)] == [4, 4], "each has a bucket of its own at first"
    for each in (one, two):
        each.settle(settle(database, each.spent()))
    assert [lets(each, 2.0, 10) for each in (one, two)] == [0, 0]
    clock.now += 2.4  # 4 requests in debt, at 2 a second
    assert lets(two, 2.0, 10) == 0
    clock.now += 0.2
    assert lets(two, 2.0, 10) == 1
    database.close()


def test_what_could_not_be_settled_is_settled_later(clock: Clock) -> None:
    rates = Rates()
    assert lets(rates, 5.0, 7) == 7
    spent = rates.spent()
    assert lets(rates, 5.0, 1) == 1
    rates.unsettled(spent)
    assert rates.spent() == {"ada": Spent(5.0, 8.0)}
    assert rates.spent() == {}


def test_buckets_of_who_asks_no_more_are_forgotten(clock: Clock, tmp_path: Path) -> None:
    database = Database(tmp_path / "catalog.db")
    assert settle(database, {"ada": Spent(2.0, 3.0), "bob": Spent(2.0)}) == {"ada": 1.0, "bob": 4.0}
    clock.now += FORGOTTEN + 1
    assert settle(database, {"bob": Spent(2.0, 1.0)}) == {"bob": 3.0}
    forget(database)
    assert settle(database, {"ada": Spent(2.0)}) == {"ada": 4.0}
    assert settle(database, {"bob": Spent(2.0)}) == {"bob": 3.0}
    database.close()
