"""How busy a service was, as lines: nothing counted is 0, nothing timed a gap, rates are per minute."""

from contextlib import closing

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.server.ui.activity import SPANS, STAGES, Lines, activity, drawn, spans
from modelkeeper.settings import Settings
from modelkeeper.zoo.history.samples import MINUTE, Sample

NOW = 1_800_000_030.0  # half a minute into a minute


def chart(charts: list[Lines], title: str) -> dict[str, list[float | None]]:
    [found] = [one for one in charts if one.title == title]
    return {line.name: [value for _, value in line.points] for line in found.lines}


def test_gaps_are_filled_and_the_last_step_is_as_long_as_it_lasts() -> None:
    day = SPANS["day"]
    until = 1_800_000_000.0 + 4 * MINUTE  # four minutes of the last step
    first = 1_800_000_000.0 - 20 * MINUTE
    counted = [
        Sample(first, {"queries.warm": 30.0, "seconds.plan": 0.5, "count.plan": 10.0, "refusals": 3.0}),
        Sample(1_800_000_000.0, {"queries.warm": 8.0, "queries.cold": 2.0, "errors": 1.0}),
    ]
    found = drawn(counted, first, until, day)
    assert found.each == "10 minutes"
    assert chart(found.charts, "Queries") == {"warm": [3.0, 0.0, 2.0], "cold": [0.0, 0.0, 0.5]}
    assert chart(found.charts, "Latency") == {"plan": [50.0, None, None]}
    assert chart(found.charts, "Errors") == {"errors": [0.0, 0.0, 0.25]}
    came = chart(found.charts, "Models")
    assert came == {"registrations": [0, 0, 0], "refusals": [3.0, 0, 0], "evictions": [0, 0, 0]}


def test_of_many_stages_the_longest_are_drawn() -> None:
    values = {f"seconds.s{number}": float(number) for number in range(9)}
    values |= {f"count.s{number}": 1.0 for number in range(9)}
    found = drawn([Sample(0.0, values)], 0.0, MINUTE, SPANS["hour"])
    assert list(chart(found.charts, "Latency")) == [f"s{number}" for number in range(9 - STAGES, 9)]


@pytest.mark.parametrize("span", SPANS)
def test_every_span_can_be_read_and_ends_with_the_last_whole_minute(span: str) -> None:
    with closing(LocalCoordinator(Settings(home=":memory:"))) as coordinator:
        last = int(NOW // MINUTE) - 1
        coordinator.add_samples(last, {"queries.warm": 5.0})
        coordinator.add_samples(last + 1, {"queries.warm": 99.0})  # not over yet
        found = activity(coordinator, span, NOW)
        [queries] = [one for one in found.charts if one.title == "Queries"]
        points = queries.lines[0].points
        length = SPANS[span]
        assert abs(len(points) - length.seconds / length.step) <= 1
        known = [(at, value) for at, value in points if value]
        assert [at for at, _ in known] == [last * MINUTE // length.step * length.step]
        minutes = min(length.step, NOW // MINUTE * MINUTE - known[0][0]) / MINUTE
        assert known[0][1] == pytest.approx(5.0 / minutes)
    assert [one["key"] for one in spans(span) if one["here"]] == [span]
