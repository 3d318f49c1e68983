"""Curves: bounded whatever is reported, with the first, the last and the best, the others evenly."""

import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.curves import MOST, MOST_METRICS, Curve, Drawing, Point, resumed, thinned
from modelkeeper.policy.quality import Metric

scores = st.floats(-1e6, 1e6)


def drawn(values: list[float], *, lower: bool = False) -> Curve:
    drawing = Drawing()
    for number, value in enumerate(values):
        drawing.add(Metric("m", value, lower), seconds=float(number), step=number)
    curve = drawing.curve("m")
    assert curve is not None
    return curve


@given(values=st.lists(scores, min_size=1, max_size=900), lower=st.booleans())
def test_a_curve_is_bounded_and_keeps_first_last_and_best(values: list[float], lower: bool) -> None:
    """Law: at most MOST points, all of them reported, in order, none of the gaps above what is even."""
    curve = drawn(values, lower=lower)
    curve.check()
    steps = [point.step for point in curve.points]
    assert len(steps) <= MOST
    assert steps == sorted(set(steps))
    assert all(values[point.step] == point.score == values[int(point.seconds)] for point in curve.points)
    assert (steps[0], steps[-1]) == (0, len(values) - 1)
    assert curve.best.score == (min(values) if lower else max(values))
    even = 1 if len(values) < MOST - 1 else 2 ** math.ceil(math.log2(len(values) / (MOST - 2)) + 1e-9)
    assert all(after - before <= even for before, after in pairwise(steps))
    if len(values) >= MOST:
        assert len(steps) >= MOST // 2 - 1
    assert msgspec.json.decode(msgspec.json.encode(curve), type=Curve) == curve


@given(values=st.lists(scores, min_size=1, max_size=300), wanted=scores, lower=st.booleans())
def test_what_is_reached_is_the_first_that_is_so_good(
    values: list[float], wanted: float, lower: bool
) -> None:
    curve = Curve(
        metric="m",
        lower_is_better=lower,
        points=tuple(Point(number, 1.0, value) for number, value in enumerate(values)),
    )
    good = [number for number, value in enumerate(values) if (value <= wanted if lower else value >= wanted)]
    reached = curve.reaches(wanted)
    assert (reached.step if reached else None) == (good[0] if good else None)


@given(values=st.lists(scores, min_size=2, max_size=500), cut=st.integers(1, 400))
def test_a_training_that_went_on_elsewhere_has_one_curve(values: list[float], cut: int) -> None:
    cut = min(cut, len(values) - 1)
    before, whole = drawn(values[:cut]), drawn(values)
    later = tuple(Point(cut + number, float(number), value) for number, value in enumerate(values[cut:]))
    after = Curve(metric="m", points=thinned(later, False))
    both = resumed(before, after)
    both.check()
    assert (both.points[0], both.points[-1].step) == (before.points[0], len(values) - 1)
    assert both.best.score == max(values)
    assert resumed(before, whole) == whole, "of the same process: the later one says all of it"
    assert resumed(None, after) == after
    other = msgspec.structs.replace(before, metric="other")
    assert resumed(other, after) == after


def test_reports_without_a_step_are_counted_and_those_that_cannot_be_are_left_out() -> None:
    drawing = Drawing()
    for step in (None, None, -1, math.nan, 2**60, 7, None):
        drawing.add(Metric("accuracy", 0.5), 1.0, step)
    curve = drawing.curve("accuracy")
    assert curve is not None
    assert [point.step for point in curve.points] == [1, 2, 7, 8]
    drawing.add(Metric("loss", math.inf, True), 1.0, 1)
    assert drawing.curve("loss") is None
    assert drawing.curve("nothing") is None
    for number in range(2 * MOST_METRICS):
        drawing.add(Metric(f"m{number}", 0.5), 1.0, 1)
    assert drawing.curve(f"m{2 * MOST_METRICS - 1}") is None, "who names each report otherwise has no end"


@pytest.mark.parametrize(
    "points",
    [
        (),
        tuple(Point(number, 0.0, 0.0) for number in range(MOST + 1)),
        (Point(-1, 0.0, 0.0),),
        (Point(2**60, 0.0, 0.0),),
        (Point(1, -1.0, 0.0),),
        (Point(1, math.nan, 0.0),),
        (Point(1, 0.0, math.inf),),
        (Point(1, 2.0, 0.0), Point(2, 1.0, 0.0)),
    ],
)
def test_a_curve_from_outside_is_looked_at(points: tuple[Point, ...]) -> None:
    with pytest.raises(InvalidMeta, match="curve"):
        Curve(metric="m", points=points).check()


@pytest.mark.parametrize("count", [1, MOST])
def test_a_curve_of_one_point_and_one_of_as_many_as_may_be_are_taken(count: int) -> None:
    Curve(metric="m", points=tuple(Point(0, 0.0, 0.0) for _ in range(count))).check()
