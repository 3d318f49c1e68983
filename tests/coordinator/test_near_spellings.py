"""A query that nothing passes says how the zoo spells what it has."""

from pathlib import Path

from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.coordinator.near_spellings import said_otherwise


def test_near_words_come_first_and_others_are_named() -> None:
    tasks = {"classification": 12, "detection": 30}
    assert said_otherwise(tasks, {}, "image-classification", ()) == (
        "the zoo has task 'classification' (12 models); you asked for 'image-classification'"
    )
    assert "'detection' (30 models), 'classification'" in said_otherwise(tasks, {}, "zzz", ())
    assert said_otherwise(tasks, {}, "detection", ()) == ""
    assert said_otherwise({}, {}, "detection", ("x",)) == ""
    assert "tag 'nightly' (1 model); you asked for 'nightly-run'" in said_otherwise(
        tasks, {"nightly": 1}, "", ("nightly-run",)
    )


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))


def test_a_query_says_so(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo") as client:
        client.register_model(net(), {"task": "classification", "accuracy": 0.9})
        _, answer = client.query_for_model(net(), {"task": "image-classification"})
        assert answer.cold
        assert answer.reason == (
            "the zoo has task 'classification' (1 model); you asked for 'image-classification'"
        )
        assert not client.query_for_model(net(), {"task": "classification"})[1].cold
