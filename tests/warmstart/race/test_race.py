"""A race knows no framework: these trials are lists of losses."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from modelkeeper.errors import CannotProbe
from modelkeeper.frontends import protocol
from modelkeeper.warmstart.race.race import Terms, race
from modelkeeper.warmstart.race.rules import Race

Losses = Mapping[str, Sequence[float]]


class Batch(NamedTuple):
    inputs: int
    labels: int


class Scripted:
    """A start whose losses are known beforehand."""

    def __init__(self, losses: Sequence[float], log: list[str], name: str) -> None:
        self._losses, self._log, self._name, self._steps = losses, log, name, 0

    def step(self, batch: protocol.Batch) -> float:
        assert batch.inputs == self._steps, "the same batches in the same order for all"
        self._steps += 1
        self._log.append(f"{self._name} {batch.inputs}")
        return float(self._losses[batch.inputs % len(self._losses)])


class Script:
    """Trials that follow a script. A start's weights are its name."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self.log: list[str] = []

    def labelled(self, batches: Any, most: int) -> Sequence[Batch]:
        raise NotImplementedError

    def duplicate(self, model: Any) -> Any:
        raise NotImplementedError

    def trial(self, model: Any, weights: Mapping[str, Any], loss: Any, optimizer: Any) -> Scripted:
        assert (model, loss, optimizer) == ("model", "loss", "optimizer")
        (name,) = weights
        return Scripted(self._losses[name], self.log, name)


def run(
    losses: Losses, *, batches: int = 40, steps: int = 100, seconds: float | None = None
) -> tuple[Race, Script]:
    script = Script(losses)
    terms = Terms("loss", "optimizer", steps, seconds)
    starts = {name: {name: None} for name in losses}
    given = [Batch(number, 0) for number in range(batches)]
    return race(script, "model", starts, given, terms, parents={"warm": "resnet20"}), script


def test_the_start_that_is_ahead_wins_and_everyone_gets_a_verdict() -> None:
    found, script = run({"warm": [0.2], "shrunk": [0.5], "cold": [2.0, 1.5]})
    assert found.winner == "warm"
    assert [(each.start, each.verdict) for each in found.runners] == [
        ("warm", "taken"),
        ("cold", "not taken"),
        ("shrunk", "out in heat 1"),
    ]
    assert [each.parent for each in found.runners] == ["resnet20", "", ""]
    assert found.steps == len(script.log) == sum(each.steps for each in found.runners) <= 100
    assert script.log[:3] == ["warm 0", "shrunk 0", "cold 0"]
    assert msgspec.convert(found.to_dict(), Race) == found


def test_a_small_lead_is_not_enough() -> None:
    found, _ = run({"warm": [0.95], "cold": [3.0] + [1.0] * 39})
    assert found.winner == "cold"
    assert {each.start: each.verdict for each in found.runners} == {
        "cold": "taken",
        "warm": "not ahead of a cold start by enough",
    }


def test_what_is_no_number_loses_and_is_no_number_in_the_report() -> None:
    found, _ = run({"warm": [float("nan")], "shrunk": [0.1], "cold": [1.0]})
    assert found.winner == "shrunk"
    (broken,) = [each for each in found.runners if each.start == "warm"]
    assert (broken.first, broken.loss, broken.verdict) == (None, None, "its loss is no number")
    with pytest.raises(CannotProbe, match="no start has a loss that is a number"):
        run({"warm": [float("inf")], "cold": [float("nan")]})


def test_time_cuts_all_alike() -> None:
    found, _ = run({"warm": [0.1], "cold": [1.0]}, seconds=1e-9)
    assert {each.steps for each in found.runners} == {4}
    assert found.winner == "warm"
