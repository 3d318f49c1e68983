"""Can a claimed accuracy be true?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy.plausible import plausible

claims = st.floats(0, 1)


@given(claims, claims, st.integers(1, 400), st.integers(0, 400))
def test_more_right_answers_or_a_lower_claim_never_fail(
    claim: float, lower: float, examples: int, right: int
) -> None:
    right = min(right, examples)
    if plausible(claim, right, examples):
        assert plausible(min(claim, lower), right, examples)
        assert plausible(claim, min(examples, right + 1), examples)
    assert plausible(claim, examples, examples)


@given(claims, st.integers(1, 2000))
def test_who_does_what_was_claimed_is_believed(claim: float, examples: int) -> None:
    assert plausible(claim, int(claim * examples), examples)


def test_by_hand() -> None:
    assert plausible(0.93, 450, 500)
    assert not plausible(0.93, 411, 500)
    assert not plausible(1.0, 25, 100)  # garbage that claims to be perfect
    assert plausible(1.0, 99, 100)
    with pytest.raises(ValueError, match="3 of 2 examples"):
        plausible(0.5, 3, 2)
