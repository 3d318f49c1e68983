"""What a race says of parents."""

from modelkeeper.warmstart.answer import Answer
from modelkeeper.warmstart.gains import LEAST, gains
from modelkeeper.warmstart.race.rules import COLD, Race, Runner
from modelkeeper.warmstart.race.starts import CALIBRATED, SECOND, WARM

FIRST, OTHER = Answer(parent="a" * 16), Answer(parent="b" * 16)


def race(winner: str, **losses: float | None) -> Race:
    names = {"warm": WARM, "second": SECOND, "cold": COLD, "calibrated": CALIBRATED}
    runners = tuple(Runner(names[start], "", 5, loss, loss, "") for start, loss in losses.items())
    return Race(winner, (*runners, Runner("shrunk", "", 0, None, None, "did not run")), 10, 0.1)


def test_who_won_gained_and_who_lost_did_not() -> None:
    assert gains(FIRST, None, race(WARM, warm=0.5, cold=1.0)) == {"a" * 16: 0.5}
    assert gains(FIRST, None, race(CALIBRATED, warm=0.9, calibrated=0.2, cold=1.0)) == {"a" * 16: 0.8}
    assert gains(FIRST, None, race(COLD, warm=2.0, cold=1.0)) == {"a" * 16: -0.5}
    assert gains(FIRST, None, race(COLD, warm=0.9, cold=1.0)) == {"a" * 16: 0.0}  # ahead, but not enough
    assert gains(FIRST, None, race(COLD, warm=None, cold=1.0)) == {"a" * 16: -1.0}
    assert gains(FIRST, None, race(WARM, warm=0.0, cold=0.0)) == {"a" * 16: LEAST}
    assert gains(FIRST, None, race(WARM, warm=0.3, cold=None)) == {"a" * 16: 1.0}


def test_of_two_parents_each_gets_its_own() -> None:
    assert gains(FIRST, OTHER, race(SECOND, warm=0.9, second=0.5, cold=1.0)) == {"b" * 16: 0.5}
    assert gains(FIRST, OTHER, race(WARM, warm=0.5, second=0.9, cold=1.0)) == {"a" * 16: 0.5}
    both = gains(FIRST, OTHER, race(COLD, warm=2.0, second=1.25, cold=1.0))
    assert both == {"a" * 16: -0.5, "b" * 16: -0.2}
