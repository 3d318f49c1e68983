"""Advice: what it says follows from what is known of the start, and the client hands it over."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.transform.plan import Entry
from modelkeeper.warmstart.advice import Advice, advise, lent_share, once_calibrated

META = {"data": "digits", "task": "classification"}


standings = st.none() | st.floats(0, 1)


@given(st.booleans(), st.floats(0, 1), st.booleans(), standings, st.booleans(), st.floats(0, 1))
def test_the_more_survives_the_shorter_the_schedule(
    exact: bool, similarity: float, same: bool, standing: float | None, finished: bool, lent: float
) -> None:
    known = {"exact": exact, "similarity": similarity, "same_data": same} | {
        "standing": standing,
        "finished": finished,
        "lent": lent,
    }
    given_ = advise(**known)  # type: ignore[arg-type]
    assert 0 < given_.rate <= 1
    assert 0 < given_.schedule <= 1
    assert given_.cost >= 0
    assert given_.why
    improvements: list[dict[str, bool | float]] = [
        {"exact": True},
        {"standing": 0.5},
        {"finished": True},
        {"lent": 1.0},
    ]
    for better in improvements:
        assert advise(**known | better).schedule <= given_.schedule, better  # type: ignore[arg-type]
    assert given_.schedule <= advise(**known | {"same_data": False}).schedule == 1  # type: ignore[arg-type]
    assert once_calibrated(given_).schedule <= given_.schedule


GOOD = {"same_data": True, "standing": 0.5}


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"exact": True, "similarity": 0.5}, "0.25 of the steps: it starts where"),
        ({"exact": False, "similarity": 0.9}, "0.5 of the steps: most of what"),
        ({"exact": False, "similarity": 0.6}, "as from scratch: too little of what"),
        ({"exact": True, "similarity": 1.0, "same_data": False}, "as from scratch: the parent was trained"),
        ({"exact": True, "similarity": 1.0, "standing": 0.1}, "as from scratch: the parent is far below"),
        ({"exact": True, "similarity": 1.0, "standing": 0.25}, "0.5 of the steps: it starts where"),
        ({"exact": True, "similarity": 1.0, "standing": None}, "its quality is not known"),
        ({"exact": True, "similarity": 1.0, "finished": False}, "0.5 of the steps: it starts where"),
        (
            {"exact": False, "similarity": 0.95, "lent": 0.01},
            "as from scratch: most of what is trained is new",
        ),
    ],
)
def test_in_words(start: dict[str, bool | float], words: str) -> None:
    assert words in str(advise(**GOOD | start))  # type: ignore[arg-type]
    assert str(Advice()) == "train as from scratch: a cold start"


def test_a_calibrated_start_takes_half_of_the_schedule_and_says_what_that_costs() -> None:
    plain = advise(exact=False, similarity=0.6, same_data=True, standing=0.5)
    fitted = once_calibrated(plain)
    assert (plain.schedule, fitted.schedule) == (1, 0.5)
    assert "expected to cost" in str(fitted)
    for other in (advise(exact=False, similarity=0.6, same_data=False), Advice()):
        assert once_calibrated(other) == other


def test_what_is_frozen_is_not_trained() -> None:
    entries = [
        Entry(tensor="body", layer="body", action="copied", parameters=90, source="body"),
        Entry(tensor="adapter", layer="adapter", action="kept", parameters=10),
    ]
    assert lent_share(entries, ()) == 0.9
    assert lent_share(entries, {"body"}) == 0
    assert lent_share([], ()) == 0


def test_a_client_hands_it_over(tmp_path: Path) -> None:
    def net(width: int) -> nn.Module:
        torch.manual_seed(width)
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))

    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        _, cold = client.query_for_model(net(8), META)
        assert cold["advice"] == Advice()
        client.register_model(net(8), META | {"accuracy": 0.9})
        _, warm = client.query_for_model(net(16), META)
        similarity = warm.similarity or 0
        assert warm["advice"] == advise(exact=True, similarity=similarity, same_data=True, standing=0.5)
        assert "Advice:" in str(warm)
        assert warm.to_dict()["advice"]["schedule"] == 0.25
        _, other = client.query_for_model(net(16), META | {"data": "letters", "minimum_similarity": 0.1})
        assert other["advice"].schedule == 1
        client.register_model(net(8), META | {"accuracy": 0.98})
        _, poor = client.query_for_model(net(16), META | {"parents": [warm.parent]})
        assert poor["advice"].schedule > 0.25, "a parent far below its peers"
