"""Admission: outliers below, and nobody else."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from modelkeeper.errors import InvalidSetting
from modelkeeper.policy.admission import MINIMUM_PEERS, Admission, admit
from modelkeeper.policy.quality import Metric, metric

values = st.floats(-1e6, 1e6)
peers = st.lists(values, max_size=9)


@given(values, values, peers, st.booleans(), st.sampled_from(["refuse", "not_a_parent"]))
def test_a_better_model_never_gets_a_worse_verdict(
    one: float, other: float, peers: list[float], lower: bool, mode: str
) -> None:
    worse, better = sorted((Metric("m", one, lower), Metric("m", other, lower)), key=lambda m: m.goodness)
    if admit(worse, peers, mode=mode).verdict == "admitted":
        assert admit(better, peers, mode=mode).verdict == "admitted"


@given(values, st.lists(values, min_size=1, max_size=9), st.booleans())
def test_who_is_not_below_the_median_is_admitted(value: float, peers: list[float], lower: bool) -> None:
    one = Metric("m", value, lower)
    assume(2 * sum(Metric("m", peer, lower).goodness <= one.goodness for peer in peers) > len(peers))
    assert admit(one, peers, minimum_peers=1).verdict == "admitted"


@given(values, peers, st.floats(0.1, 10), st.floats(0, 10), st.booleans())
def test_a_higher_threshold_admits_more(
    value: float, peers: list[float], threshold: float, more: float, lower: bool
) -> None:
    one = Metric("m", value, lower)
    if admit(one, peers, threshold=threshold).verdict == "admitted":
        assert admit(one, peers, threshold=threshold + more).verdict == "admitted"


@given(values, st.lists(values, max_size=MINIMUM_PEERS - 1))
def test_with_few_peers_nobody_can_tell(value: float, peers: list[float]) -> None:
    admission = admit(Metric("m", value), peers)
    assert admission.verdict == "admitted"
    assert admission.reason == f"{len(peers)} peers are too few to judge by (minimum 5)"


@given(values, peers)
def test_off_admits_everyone(value: float, peers: list[float]) -> None:
    assert admit(Metric("m", value), peers, mode="off").verdict == "admitted"


@pytest.mark.parametrize(
    ("name", "value", "peers", "verdict"),
    [
        ("accuracy", 0.88, [0.9] * 5, "admitted"),  # 2 points below equal peers
        ("accuracy", 0.86, [0.9] * 5, "refused"),
        ("accuracy", 0.99, [0.1] * 5, "admitted"),
        ("accuracy", 10.0, [0.90, 0.88, 0.91, 0.85, 0.89], "refused"),  # 10 percent: it guesses
        (
            "accuracy",
            0.10,
            [0.90, 0.10, 0.50, 0.20, 0.70],
            "admitted",
        ),  # among such peers it is nothing special
        ("loss", 2.3, [0.30, 0.32, 0.29, 0.35, 0.31], "refused"),
        ("loss", 0.01, [0.30, 0.32, 0.29, 0.35, 0.31], "admitted"),
        ("perplexity", 21.0, [20.0] * 6, "admitted"),
    ],
)
def test_by_hand(name: str, value: float, peers: list[float], verdict: str) -> None:
    admission = admit(metric(name, value), peers)
    assert admission.verdict == verdict
    assert admission.zscore is not None
    assert (admission.zscore < -3.5) == (verdict == "refused")
    assert msgspec.json.decode(msgspec.json.encode(admission), type=Admission) == admission


def test_reasons_in_words() -> None:
    refused = admit(metric("accuracy", 0.5), [0.9] * 5, mode="not_a_parent")
    assert refused.verdict == "not_a_parent"
    assert refused.reason == "accuracy 0.5 is 40 spreads worse than the median of 5 peers, more than 3.5"
    assert admit(metric("loss", 1), [1.0] * 5).reason == "loss 1 is the median of 5 peers"
    assert "better" in admit(metric("loss", 0.5), [1.0] * 5).reason


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "on"}, "admission cannot be 'on': choose one of refuse, not_a_parent, off"),
        ({"threshold": 0}, "threshold cannot be 0"),
        ({"threshold": float("nan")}, "threshold cannot be nan"),
        ({"minimum_peers": 0}, "minimum_peers cannot be 0"),
    ],
)
def test_wrong_settings_are_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        admit(metric("loss", 1), [], **wrong)
