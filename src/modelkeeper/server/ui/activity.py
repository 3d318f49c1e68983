"""How busy was a service, as lines over time? What was counted by minutes, without gaps.

    activity(coordinator, "day", time.time())       charts with lines of [moment, value], for a script

What nobody counted is 0; how long something took that nobody did is not known: None, a gap in its line.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from modelkeeper.coordinator.history import HOUR, History
from modelkeeper.settings import DAY
from modelkeeper.zoo.history.samples import MINUTE, Sample

STAGES = 6  # lines of one chart: those that took longest
Values = Mapping[str, float]


class Span(Struct, frozen=True):
    """How far back one looks, and in which steps."""

    name: str  # as people call it
    seconds: float
    step: float
    each: str  # a step, in words


SPANS = {
    "hour": Span("Hour", HOUR, MINUTE, "minute"),
    "day": Span("Day", DAY, 10 * MINUTE, "10 minutes"),
    "week": Span("Week", 7 * DAY, HOUR, "hour"),
    "quarter": Span("90 days", 90 * DAY, 12 * HOUR, "12 hours"),
}
USUAL = "day"


class Line(Struct, frozen=True):
    """One line: its name, and a value for every moment."""

    name: str
    points: list[tuple[float, float | None]]


class Lines(Struct, frozen=True):
    """What one chart shows."""

    title: str
    y: str
    unit: str
    lines: list[Line]


class Activity(Struct, frozen=True):
    """What a page draws."""

    each: str
    charts: list[Lines]


def activity(coordinator: History, span: str, now: float) -> Activity:
    """How busy the services of a zoo were up to now; of the minute that is not over nothing is known yet."""
    chosen = SPANS[span]
    until = now // MINUTE * MINUTE
    since = (until - chosen.seconds) // chosen.step * chosen.step
    return drawn(coordinator.samples(since, until, chosen.step), since, until, chosen)


def drawn(samples: Sequence[Sample], since: float, until: float, span: Span) -> Activity:
    """Lines out of what was counted from one moment to another."""
    counted: dict[float, Values] = {sample.at: sample.values for sample in samples}
    steps = math.ceil((until - since) / span.step)
    moments = [since + number * span.step for number in range(steps)]

    def line(name: str, value: Callable[[Values, float], float | None]) -> Line:
        """A line; the last step may not be over, and has fewer minutes than the others."""
        lengths = ((at, min(span.step, until - at) / MINUTE) for at in moments)
        return Line(name, [(at, value(counted.get(at, {}), minutes)) for at, minutes in lengths])

    def rate(key: str) -> Callable[[Values, float], float]:
        return lambda values, minutes: values.get(key, 0.0) / minutes

    def number(key: str) -> Callable[[Values, float], float]:
        return lambda values, _: values.get(key, 0.0)

    def latency(stage: str) -> Callable[[Values, float], float | None]:
        def mean(values: Values, _: float) -> float | None:
            times = values.get(f"count.{stage}", 0.0)
            return 1000 * values.get(f"seconds.{stage}", 0.0) / times if times else None

        return mean

    comings = ("registrations", "refusals", "evictions")
    charts = [
        Lines("Queries", "queries per minute", "", [line(n, rate(f"queries.{n}")) for n in ("warm", "cold")]),
        Lines("Latency", "mean time", "ms", [line(stage, latency(stage)) for stage in _stages(samples)]),
        Lines("Errors", "errors per minute", "", [line("errors", rate("errors"))]),
        Lines("Models", f"per {span.each}", "", [line(name, number(name)) for name in comings]),
    ]
    return Activity(span.each, charts)


def _stages(samples: Sequence[Sample]) -> list[str]:
    """The stages of queries that took longest, by name."""
    took: dict[str, float] = {}
    for sample in samples:
        for name, value in sample.values.items():
            kind, _, stage = name.partition(".")
            if kind == "seconds" and stage:
                took[stage] = took.get(stage, 0.0) + value
    return sorted(sorted(took, key=lambda stage: -took[stage])[:STAGES])


def spans(chosen: str) -> list[dict[str, Any]]:
    """The links of a page to look further back, or less far."""
    return [{"key": key, "name": span.name, "here": key == chosen} for key, span in SPANS.items()]
