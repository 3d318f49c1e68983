"""Voices: each owner has one, however many values are theirs."""

from statistics import median, median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy import voices
from modelkeeper.policy.admission import admit
from modelkeeper.policy.quality import HUGE, Metric, Peers, standing

values = st.floats(0, 1, allow_subnormal=False)
claims = st.lists(st.tuples(st.sampled_from("abcd"), values), min_size=1, max_size=16)


def peers_of(said: list[tuple[str, float]], lower: bool = False) -> Peers:
    return Peers.of([value for _, value in said], lower, [owner for owner, _ in said])


@given(st.lists(values, min_size=1, max_size=30), st.booleans())
def test_one_owner_alone_and_one_value_each_are_judged_as_plain_values(
    given_values: list[float], lower: bool
) -> None:
    plain = Peers.of(given_values, lower)
    assert plain == Peers.of(given_values, lower, ["ann"] * len(given_values))
    assert plain == Peers.of(given_values, lower, [str(number) for number in range(len(given_values))])
    best_first = sorted(given_values, reverse=not lower)
    better = best_first[: max(1, len(best_first) // 2)]
    assert plain.middle == median(given_values)
    assert plain.deviation == median(abs(value - plain.middle) for value in given_values)
    assert plain.reached == better[len(better) // 2]
    assert plain.spread == median_low(abs(value - plain.reached) for value in better)
    assert plain.number == len(given_values)


@given(claims, st.lists(values, min_size=1, max_size=40), st.booleans())
def test_many_models_of_one_owner_move_no_more_than_one_model_may(
    said: list[tuple[str, float]], flood: list[float], lower: bool
) -> None:
    """Between what one more owner with the lowest and one with the highest value would make of it."""
    flooded = peers_of([*said, *(("eve", value) for value in flood)], lower)
    least, most = (peers_of([*said, ("eve", value)], lower) for value in (-HUGE, HUGE))
    assert least.middle <= flooded.middle <= most.middle
    assert least.reached <= flooded.reached <= most.reached


@given(claims, st.integers(2, 30), st.booleans())
def test_saying_it_again_says_nothing(said: list[tuple[str, float]], times: int, lower: bool) -> None:
    owner = said[0][0]
    louder = [each for each in said for _ in range(times if each[0] == owner else 1)]
    before, after = peers_of(said, lower), peers_of(louder, lower)
    assert (after.middle, after.deviation, after.reached) == (before.middle, before.deviation, before.reached)


@given(st.integers(1, 5000))
def test_a_flood_does_not_count_as_many_voices(number: int) -> None:
    honest = [(owner, 0.95) for owner in "abcd"]
    assert peers_of([*honest, *[("eve", 1.0)] * number]).number <= 6
    assert voices.effective(voices.weights(["a"] * number)) == number


def test_the_attack_an_honest_value_is_not_refused() -> None:
    """Nine models of one writer that claim 1.0 made 0.95 an outlier, five spreads below."""
    honest = [("ann", value) for value in (0.94, 0.945, 0.95, 0.95, 0.955, 0.96)]
    said = [*honest, *[("eve", 1.0)] * 9]
    numbers, owners = [value for _, value in said], [owner for owner, _ in said]
    metric = Metric("accuracy", 0.95)
    assert admit(metric, numbers).verdict == "refused"
    assert admit(metric, numbers, owners, owner="ann").verdict == "admitted"
    failed = Metric("accuracy", 0.1)
    assert admit(failed, numbers, owners, owner="ann").verdict == "refused"


def test_one_voice_alone_refuses_nobody_else() -> None:
    eves = [1.0] * 9
    said = admit(Metric("accuracy", 0.95), eves, ["eve"] * 9, owner="ann")
    assert said.verdict == "admitted"
    assert said.zscore == pytest.approx(-5)
    assert "one voice refuses nobody" in said.reason
    assert admit(Metric("accuracy", 0.95), eves, ["eve"] * 9, owner="eve").verdict == "refused"
    several = [*["eve"] * 5, "ann", "bob", "cat", "dan"]
    assert admit(Metric("accuracy", 0.95), eves, several, owner="zoe").verdict == "refused"


def test_of_four_owners_one_does_not_say_what_can_be_reached() -> None:
    honest = [(owner, 0.95) for owner in ("ann", "bob", "cat")]
    flooded = peers_of([*honest, *[("eve", 1.0)] * 100])
    assert flooded.reached == 0.95
    assert standing(Metric("accuracy", 0.95), flooded) == 0.5
