"""Advice: what it says follows from what is known of the start, and the client hands it over."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.warmstart.advice import Advice, advise

META = {"data": "digits", "task": "classification"}


@given(st.booleans(), st.floats(0, 1), st.booleans())
def test_the_more_survives_the_shorter_the_schedule(exact: bool, similarity: float, same: bool) -> None:
    given_ = advise(exact=exact, similarity=similarity, same_data=same)
    assert 0 < given_.rate <= 1
    assert 0 < given_.schedule <= 1
    assert given_.why
    best = advise(exact=True, similarity=similarity, same_data=same)
    assert best.schedule <= given_.schedule
    assert given_.schedule <= advise(exact=exact, similarity=similarity, same_data=False).schedule == 1


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"exact": True, "similarity": 0.5, "same_data": True}, "0.25 of the steps: it starts where"),
        ({"exact": False, "similarity": 0.9, "same_data": True}, "0.25 of the steps: most of what"),
        ({"exact": False, "similarity": 0.6, "same_data": True}, "as from scratch: too little of what"),
        ({"exact": True, "similarity": 1.0, "same_data": False}, "as from scratch: the parent was trained"),
    ],
)
def test_in_words(start: dict[str, bool | float], words: str) -> None:
    assert words in str(advise(**start))  # type: ignore[arg-type]
    assert str(Advice()) == "train as from scratch: a cold start"


def test_a_client_hands_it_over(tmp_path: Path) -> None:
    def net(width: int) -> nn.Module:
        torch.manual_seed(width)
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))

    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        _, cold = client.query_for_model(net(8), META)
        assert cold["advice"] == Advice()
        client.register_model(net(8), META | {"accuracy": 0.9})
        _, warm = client.query_for_model(net(16), META)
        assert warm["advice"] == advise(exact=True, similarity=warm.similarity or 0, same_data=True)
        assert "Advice:" in str(warm)
        assert warm.to_dict()["advice"]["schedule"] == 0.25
        _, other = client.query_for_model(net(16), META | {"data": "letters", "minimum_similarity": 0.1})
        assert other["advice"].schedule == 1
