"""Admission of many at once is that of each."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelkeeper.policy.admission import admit
from modelkeeper.policy.admissions import ManyPeers, outliers
from modelkeeper.policy.quality import Metric

values = st.one_of(
    st.sampled_from([0.1, 0.5, 0.88, 0.9, 0.9, 0.91]),
    st.floats(0, 1),
    st.floats(-1e9, 1e9),
    st.floats(-1e300, 1e300),
)
model = st.tuples(st.integers(0, 2), values, st.sampled_from([0, 0, 0, 1, 2, 3]))


@given(
    st.lists(model, max_size=50),
    st.lists(model, max_size=12),
    st.sampled_from([("accuracy", False), ("accuracy", True), ("loss", True), ("elo", False)]),
    st.integers(1, 6),
)
def test_all_at_once_as_one_by_one(
    there: list[tuple[int, float, int]],
    coming: list[tuple[int, float, int]],
    metric: tuple[str, bool],
    minimum: int,
) -> None:
    def columns(models: list[tuple[int, float, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        kinds = (np.int64, np.float64, np.int64)
        group, value, voice = (np.array([each[n] for each in models], kind) for n, kind in enumerate(kinds))
        return group, value, voice

    name, lower = metric
    peers = ManyPeers.of(*columns(there), 3)
    found = outliers(*columns(coming), peers, fraction=name == "accuracy", lower=lower, minimum_peers=minimum)
    for (group, value, owner), outlier in zip(coming, found.tolist(), strict=True):
        same = [each for each in there if each[0] == group]
        said = admit(
            Metric(name, value, lower), [each[1] for each in same], [each[2] for each in same],
            owner=owner, minimum_peers=minimum,
        )  # fmt: skip
        assert outlier == (said.verdict == "refused")


def test_one_voice_alone_refuses_nobody_else() -> None:
    zeros = np.zeros(6, np.int64)
    value, low, voices = np.full(6, 0.9), np.full(3, 0.1), np.array([0, 1, 2])
    for whose, refused in ((zeros, [True, False, False]), (np.array([0, 0, 0, 2, 2, 2]), [True] * 3)):
        peers = ManyPeers.of(zeros, value, whose, 1)
        assert outliers(zeros[:3], low, voices, peers, fraction=True, minimum_peers=2).tolist() == refused
    nobody = ManyPeers.of(zeros[:0], value[:0], zeros[:0], 1)
    assert not outliers(zeros[:3], low, voices, nobody, fraction=True).any()
