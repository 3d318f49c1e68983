"""When is a trial finished, and what can be a trainable?"""

from typing import Any

import pytest

pytest.importorskip("ray")

from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler

from modelkeeper.errors import InvalidSetting
from modelkeeper.integrations.ray.process import TIME, Sent
from modelkeeper.integrations.ray.trainable import budget_of, kept, spent


@pytest.mark.parametrize(
    ("scheduler", "stop", "budget"),
    [
        (None, None, {}),
        (None, {"training_iteration": 5}, {"training_iteration": 5}),
        (ASHAScheduler(max_t=8), None, {"training_iteration": 8}),
        (ASHAScheduler(max_t=8), {"training_iteration": 5}, {"training_iteration": 5}),
        (ASHAScheduler(max_t=8, time_attr=TIME), {"accuracy": 0.9}, {TIME: 8, "accuracy": 0.9}),
        (HyperBandScheduler(max_t=9), lambda trial, result: True, {"training_iteration": 9}),
    ],
)
def test_what_a_trial_can_get(scheduler: Any, stop: Any, budget: dict[str, float]) -> None:
    if isinstance(scheduler, HyperBandScheduler):
        budget = {scheduler._time_attr: 9}
    assert budget_of(scheduler, stop) == budget


def test_a_budget_is_spent_by_any_of_its_limits() -> None:
    assert spent({"training_iteration": 3, "accuracy": 0.9}, {"training_iteration": 1, "accuracy": 0.95})
    assert spent({TIME: 8}, {"modelkeeper": {"time": 8.0}})
    assert not spent({"training_iteration": 3}, {"training_iteration": 2})
    assert not spent({}, {"training_iteration": 2})


@pytest.mark.parametrize("wrong", ["PPO", int])
def test_what_is_no_trainable_is_said(wrong: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"derive|function"):
        kept(wrong, Sent(), {})


def test_a_trainable_keeps_its_name_and_its_resources() -> None:
    def train(config: dict[str, Any]) -> None:
        pass

    made = kept(train, Sent(), {TIME: 8})
    assert (made.__name__, made.sent.longest, made.reports_itself) == ("train", 8.0, True)
