"""Standings of many models at once are, number for number, those of each model among its peers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy.quality import Metric, Peers, standing
from modelkeeper.policy.standings import peers_of, standing_of, standings

values = st.one_of(
    st.floats(0, 1), st.sampled_from([0.5, 0.9]), st.floats(allow_nan=False, allow_infinity=False)
)
METRICS = [("accuracy", False), ("loss", True), ("accuracy", True), ("elo", False)]
model = st.tuples(
    st.integers(0, 3), st.none() | values, st.integers(0, 4), st.sampled_from([True, True, True, False])
)


@given(st.lists(model, max_size=60))
def test_all_at_once_as_one_by_one(zoo: list[tuple[int, float | None, int, bool]]) -> None:
    columns = [[row[place] for row in zoo] for place in range(4)]
    found = standings(
        np.array(columns[0], np.int64),
        np.array(columns[1], np.float64),
        np.array(columns[2], np.int64),
        np.array(columns[3], np.bool_),
        np.array([lower for _, lower in METRICS]),
        np.array([name == "accuracy" for name, _ in METRICS]),
    )
    for (group, value, _, _), place in zip(zoo, found.tolist(), strict=True):
        name, lower = METRICS[group]
        said = [(row[1], str(row[2])) for row in zoo if row[0] == group and row[1] is not None and row[3]]
        peers = Peers.of([number for number, _ in said], lower, [voice for _, voice in said])
        expected = 0.5 if value is None else standing(Metric(name, value, lower), peers)
        assert place == expected


@given(
    st.lists(st.tuples(values, st.integers(0, 4)), max_size=30),
    st.lists(values, min_size=1, max_size=8),
    st.sampled_from(METRICS),
)
def test_those_of_one_metric_as_one_by_one(
    said: list[tuple[float, int]], asked: list[float], metric: tuple[str, bool]
) -> None:
    name, lower = metric
    numbers, voices = [value for value, _ in said], [voice for _, voice in said]
    peers = Peers.of(numbers, lower, [str(voice) for voice in voices])
    assert peers_of(np.array(numbers, np.float64), np.array(voices, np.int64), lower) == peers
    found = standing_of(np.array(asked), name, lower, peers).tolist()
    assert found == [standing(Metric(name, value, lower), peers) for value in asked]
