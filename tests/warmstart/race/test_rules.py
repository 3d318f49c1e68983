"""The rules of a race: its length, who is ahead, and by how much that has to be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.warmstart.race.rules import FURTHER, LEAD, heats, ranked, score, worthwhile

losses = st.lists(st.floats(-5, 5), min_size=4, max_size=30)


@given(st.integers(1, 6), st.integers(4, 80), st.integers(10, 300))
def test_a_race_keeps_to_its_batches_and_steps(rivals: int, batches: int, steps: int) -> None:
    plan = heats(rivals, batches, steps)
    ends = [end for end, _ in plan]
    assert ends == sorted(ends)
    assert 1 <= ends[-1] <= batches
    assert plan[-1][1] == 1
    running, at, spent = rivals, 0, 0
    for end, going_on in plan:
        spent += (end - at) * (running + 1)
        running, at = going_on, end
        assert going_on >= 1
    assert spent <= max(steps, 8 * len(plan))  # a heat has one batch at least


@given(losses, st.floats(0.1, 10))
def test_equal_rivals_leave_the_favourite_first_and_scale_does_not_matter(
    run: list[float], scale: float
) -> None:
    assert ranked({"warm": run, "other": list(run)})[0] == "warm"
    ahead = [loss - 1 for loss in run]
    assert ranked({"warm": run, "other": ahead})[0] == "other"
    assert ranked({"warm": ahead, "other": run})[0] == "warm"
    scaled = {"warm": [scale * each for each in run], "other": [scale * each for each in ahead]}
    assert ranked(scaled) == ["other", "warm"]


@given(losses, st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 29))
def test_a_loss_that_is_no_number_loses(run: list[float], bad: float, place: int) -> None:
    broken = list(run)
    broken[place % len(run)] = bad
    assert score(broken) == math.inf
    assert ranked({"warm": broken, "other": run}) == ["other", "warm"]
    assert ranked({"warm": run, "other": broken}) == ["warm", "other"]
    assert worthwhile(run, broken)
    assert not worthwhile(broken, run)
    with pytest.raises(ValueError, match="no loss"):
        worthwhile(broken, broken)


@given(st.floats(0.5, 5), st.floats(0.05, 1))
def test_a_small_lead_over_a_cold_start_is_not_enough(first: float, left: float) -> None:
    cold = [first] + [left * first] * 10
    level = cold[-1]
    learned = first - level
    bar = max(LEAD * level, level - (FURTHER - 1) * learned)
    assert not worthwhile([level] * 11, cold)
    assert worthwhile([bar - 1e-6] * 11, cold) == (bar - 1e-6 < level)
    assert not worthwhile([min(level, bar + 1e-6)] * 11, cold)
