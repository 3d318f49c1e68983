"""Credit: how far a claim is believed, by what others found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy.credit import CHECKED, KINDS, RACED, REFUTED, Credit, Outcome, credit, factors

OWNER = "owner"
gains = st.floats(-1, 1)
users = st.sampled_from([OWNER, "ann", "bob", "cat", "dan"])


def found(user: str, kind: str = RACED, gain: float = -1.0) -> Outcome:
    return Outcome(parent="m", user=user, kind=kind, gain=gain)


some = st.lists(st.builds(found, users, st.sampled_from(KINDS), gains), max_size=20)


@given(some, st.builds(found, users, st.sampled_from(KINDS), st.floats(-1, 0)))
def test_a_bad_outcome_never_raises_it(outcomes: list[Outcome], bad: Outcome) -> None:
    assert 0 < credit([*outcomes, bad], OWNER).factor <= credit(outcomes, OWNER).factor <= 1


@given(some, st.builds(found, users, st.sampled_from(KINDS), st.floats(0.001, 1)))
def test_a_good_outcome_never_lowers_it(outcomes: list[Outcome], good: Outcome) -> None:
    assert credit([*outcomes, good], OWNER).factor >= credit(outcomes, OWNER).factor


@given(some, st.lists(st.builds(found, st.just("eve"), st.sampled_from(KINDS), gains), max_size=40))
def test_one_user_moves_it_by_half_at_most(outcomes: list[Outcome], flood: list[Outcome]) -> None:
    before, after = credit(outcomes, OWNER).factor, credit([*outcomes, *flood], OWNER).factor
    assert before / 2 < after <= min(1.0, 2 * before)


@given(some, st.lists(st.builds(found, st.just(OWNER), st.sampled_from(KINDS), gains), max_size=20))
def test_nobody_praises_himself(outcomes: list[Outcome], own: list[Outcome]) -> None:
    assert credit([*outcomes, *own], OWNER) == credit(outcomes, OWNER)


@given(some, st.randoms())
def test_the_order_does_not_matter(outcomes: list[Outcome], random: st.DataObject) -> None:
    shuffled = random.sample(outcomes, len(outcomes))  # type: ignore[attr-defined]
    assert credit(shuffled, OWNER) == credit(outcomes, OWNER)


counts = st.tuples(st.integers(0, 5), st.integers(0, 5))


@given(st.lists(st.lists(counts, max_size=4), max_size=6))
def test_all_at_once_as_one_by_one(zoo: list[list[tuple[int, int]]]) -> None:
    """Of each model, how often each of its users found good and bad."""
    rows = np.array([(n, *found) for n, users in enumerate(zoo) for found in users], np.int64).reshape(-1, 3)
    expected = [
        credit((found(str(n), RACED, gain) for n, (good, bad) in enumerate(users)
                for gain in [1.0] * good + [-1.0] * bad), OWNER).factor
        for users in zoo
    ]  # fmt: skip
    assert factors(rows[:, 0], rows[:, 1], rows[:, 2], len(zoo)).tolist() == expected


def test_by_hand() -> None:
    assert credit([], OWNER) == Credit()
    assert credit([found("ann")], OWNER).factor == pytest.approx(2 / 3)
    failed = credit([found("ann", CHECKED)], OWNER)
    assert failed.factor == pytest.approx(4 / 7)
    assert not failed.refuted
    assert str(failed) == "claim checked by 1, failed for 1"
    assert not credit([found("ann", CHECKED)] * 1000, OWNER).refuted
    both = credit([found("ann"), found("bob")], OWNER)
    assert both.factor == REFUTED
    assert both.refuted
    assert str(both) == "claim not checked; starts from it helped 0 and failed 2 of its users; refuted"
    mixed = credit([found("ann", gain=0.3), found("bob"), found("cat", CHECKED, 1.0)], OWNER)
    assert (mixed.held, mixed.failed, mixed.gained, mixed.lost) == (1, 0, 1, 1)
    with pytest.raises(ValueError, match="no outcome can be like this"):
        found("ann", "praised")
    with pytest.raises(ValueError, match="no outcome can be like this"):
        found("ann", gain=float("nan"))
