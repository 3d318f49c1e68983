"""How did a training go, step by step? A curve of at most 200 points, however often was reported.

    drawing.add(metric, seconds, step)      after each report
    drawing.curve("accuracy")               what is kept: the first, the last, the best, the others evenly
    curve.reaches(0.9)                      the first point that is so good, or None
    curve.plot({"cold": other})             a picture, beside others
    resumed(before, after)                  of a training that went on in another process: one curve

Nothing here has a clock: who draws says how many seconds have passed.
"""

import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from modelkeeper.drawings import Picture, lines
from modelkeeper.errors import InvalidMeta
from modelkeeper.policy.quality import Metric

MOST = 200  # points of a curve
_EVENLY = MOST - 2  # of which the last and the best are none
MOST_METRICS = 8  # that one training is drawn by
MOST_STEPS = 2**53  # beyond, JSON knows no whole numbers


class Point(Struct, frozen=True, array_like=True):
    """How good a model was after so many steps (or epochs) and seconds."""

    step: int
    seconds: float
    score: float


class Curve(Struct, frozen=True, kw_only=True):
    """How a training went, by one metric, in the order of its reports."""

    metric: str
    lower_is_better: bool = False
    points: tuple[Point, ...] = ()

    def check(self) -> None:
        """Look at a curve that came from outside.

        Raises:
            InvalidMeta: It has too many points, or one that cannot be so.
        """
        if not 1 <= len(self.points) <= MOST:
            raise InvalidMeta("curve", f"{len(self.points)} points", f"give from 1 to {MOST}")
        passed = 0.0
        for point in self.points:
            if not _possible(point) or point.seconds < passed:
                advice = "give a step of 0 or more, seconds that do not decrease, and a finite score"
                raise InvalidMeta("curve", f"{tuple(msgspec.structs.astuple(point))!r}"[:80], advice)
            passed = point.seconds

    def goodness(self, point: Point) -> float:
        """Grows with quality, whatever the direction of the metric."""
        return -point.score if self.lower_is_better else point.score

    @property
    def best(self) -> Point:
        """The first of the best points."""
        return max(self.points, key=self.goodness)

    def reaches(self, score: float) -> Point | None:
        """The first point that is at least so good; None: it never was."""
        wanted = -score if self.lower_is_better else score
        return next((point for point in self.points if self.goodness(point) >= wanted), None)

    def plot(
        self, beside: "Mapping[str, Curve] | None" = None, *, by: str = "step", name: str = "this"
    ) -> Picture:
        """A picture of it, beside others by name; `by` step or seconds. An SVG; see `Picture`."""
        if by not in ("step", "seconds"):
            raise InvalidMeta("by", repr(by)[:80], "give step or seconds")
        both = {name: self, **(beside or {})}
        drawn = {
            label: [(getattr(point, by), point.score) for point in curve.points]
            for label, curve in both.items()
        }
        return lines(drawn, by, self.metric, dashed=beside or ())

    def _repr_svg_(self) -> str:
        return self.plot().svg


class _Line:
    """The points of one metric: every n-th, n doubling whenever there are too many, and the last and best."""

    def __init__(self, lower_is_better: bool) -> None:
        self.lower_is_better = lower_is_better
        self.reports = 0
        self._evenly: list[Point] = []
        self._every = 1
        self._best = self._last = (-1, Point(0, 0.0, 0.0))  # with which report it was

    @property
    def last(self) -> Point:
        return self._last[1]

    def add(self, point: Point) -> None:
        if self.reports % self._every == 0:
            self._evenly.append(point)
        if len(self._evenly) > _EVENLY:
            self._every *= 2
            del self._evenly[1::2]
        sign, (number, best) = -1 if self.lower_is_better else 1, self._best
        if number < 0 or sign * point.score > sign * best.score:
            self._best = self.reports, point
        self._last = self.reports, point
        self.reports += 1

    def points(self) -> tuple[Point, ...]:
        numbered = {place * self._every: point for place, point in enumerate(self._evenly)}
        numbered |= dict((self._best, self._last))
        return tuple(numbered[number] for number in sorted(numbered))


class Drawing:
    """The curves of one training while it goes on: one for each metric that it is compared by."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def add(self, metric: Metric, seconds: float, step: float | None = None) -> None:
        """Note a report; without a step, they are counted. What cannot be so is left out."""
        line = self._lines.get(metric.name)
        if line is None:
            if len(self._lines) == MOST_METRICS:
                return
            line = self._lines[metric.name] = _Line(metric.lower_is_better)
        number = line.last.step + 1 if step is None else step
        if math.isfinite(number) and _possible(point := Point(int(number), seconds, metric.value)):
            line.add(point)

    def curve(self, metric: str) -> Curve | None:
        """What was drawn by a metric; None: nothing was."""
        line = self._lines.get(metric)
        if line is None or not line.reports:
            return None
        return Curve(metric=metric, lower_is_better=line.lower_is_better, points=line.points())


def thinned(points: tuple[Point, ...], lower_is_better: bool) -> tuple[Point, ...]:
    """As many points as a curve has room for: the first, the last, the best, the others evenly."""
    line = _Line(lower_is_better)
    for point in points:
        line.add(point)
    return line.points()


def resumed(before: Curve | None, after: Curve) -> Curve:
    """The curve of a training that went on where it had been at an earlier step, with what it was before.

    A curve that begins where the one before began is of the same process, and says all of it.
    """
    if before is None or (before.metric, before.lower_is_better) != (after.metric, after.lower_is_better):
        return after
    earlier = tuple(point for point in before.points if point.step < after.points[0].step)
    if not earlier:
        return after
    since = earlier[-1].seconds
    later = (msgspec.structs.replace(point, seconds=point.seconds + since) for point in after.points)
    points = thinned((*earlier, *later), after.lower_is_better)
    return msgspec.structs.replace(after, points=points)


def _possible(point: Point) -> bool:
    finite = math.isfinite(point.seconds) and math.isfinite(point.score)
    return finite and 0 <= point.step <= MOST_STEPS and point.seconds >= 0
