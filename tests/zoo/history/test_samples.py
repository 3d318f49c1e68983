"""Counts by minute: sums of what all processes add, over any steps, in every database."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelkeeper.errors import InvalidMeta
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.history.samples import MINUTE, MOST_STEPS, add, forget, read

COUNTED = st.lists(
    st.tuples(st.integers(0, 300), st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), max_size=3)),
    max_size=12,
)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    place: str | Path = tmp_path / "catalog.db"
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres_url")
    with closing(Database(place)) as opened:
        yield opened


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(counted=COUNTED, minutes=st.integers(1, 90), since=st.integers(0, 200), length=st.integers(0, 200))
def test_what_is_read_is_the_sum_of_what_was_added(
    database: Database, counted: list[tuple[int, dict[str, float]]], minutes: int, since: int, length: int
) -> None:
    """Law: by whole steps from the one that the beginning lies in, each name the sum of its minutes."""
    with database.writing() as connection:
        forget(connection, 1e12)
        for minute, values in counted:
            add(connection, minute, values)
    until = since + length
    expected: dict[int, Counter[str]] = {}
    for minute, values in counted:
        if since // minutes * minutes <= minute < until and values:
            expected.setdefault(minute // minutes * minutes, Counter()).update(values)
    with database.reading() as connection:
        found = read(connection, since * MINUTE, until * MINUTE, minutes * MINUTE)
    assert [(sample.at, sample.values) for sample in found] == [
        (minute * MINUTE, dict(expected[minute])) for minute in sorted(expected)
    ]


def test_many_add_to_one_minute_at_once(database: Database) -> None:
    def count(number: int) -> None:
        with database.writing() as connection:
            names = ["x", "y", "z"] if number % 2 else ["z", "y", "x"]
            add(connection, 7, dict.fromkeys(names, 1.0))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(20)))
    with database.reading() as connection:
        [sample] = read(connection, 0.0, 600.0, 600.0)
    assert sample.values == {"x": 20.0, "y": 20.0, "z": 20.0}
    with database.writing() as connection:
        assert forget(connection, 7 * MINUTE) == 0
        assert forget(connection, 8 * MINUTE) == 3


@pytest.mark.parametrize(
    ("since", "until", "step"),
    [(0.0, 60.0, 61.0), (0.0, 60.0, 0.0), (60.0, 0.0, 60.0), (0.0, (MOST_STEPS + 1) * 60.0, 60.0)],
)
def test_what_no_reply_could_hold_is_refused(tmp_path: Path, since: float, until: float, step: float) -> None:
    with (
        closing(Database(tmp_path / "catalog.db")) as database,
        database.reading() as connection,
        pytest.raises(InvalidMeta, match=r"60 seconds|longer `step`"),
    ):
        read(connection, since, until, step)
