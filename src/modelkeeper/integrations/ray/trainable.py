"""When has a trial of Tune ended, and was that its end? By a class derived from its trainable.

Code after the last report of a function never runs when a scheduler stops it, and a trial does not learn why
it ends. A derived class does: Tune calls its `stop` before the process goes, and waits for it.

    it returned, or said that it is done                             finished
    its budget is spent: ASHA's max_t, stop={"training_iteration": n}     finished
    a scheduler stopped or paused it, it failed                      what it reported stays, as unfinished
"""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from ray import tune
from ray.tune.result import DONE, RESULT_DUPLICATE
from ray.tune.trainable import FunctionTrainable, wrap_function
from ray.tune.utils import flatten_dict

from modelkeeper.errors import InvalidSetting
from modelkeeper.integrations.ray import process
from modelkeeper.integrations.ray.process import TIME, Sent

Budget = Mapping[str, float]


class _Kept(tune.Trainable):  # type: ignore[misc]  # Ray is not followed
    """What is added to a trainable."""

    sent: ClassVar[Sent] = Sent()
    budget: ClassVar[Budget] = {}
    reports_itself: ClassVar[bool] = False  # a function does, by `report`
    _seen: Mapping[str, Any] = {}  # the last result

    def setup(self, config: dict[str, Any]) -> None:
        """A process begins: with its first trial."""
        self._expect()
        super().setup(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """A process goes on: with another trial, or with other settings of the same."""
        self._end()
        self._expect()
        return bool(super().reset_config(new_config))

    def train(self) -> Any:
        """One step; its result."""
        try:
            result = super().train()
        except BaseException:
            process.end(finished=False)
            raise
        if RESULT_DUPLICATE not in result:
            self._seen = result
            if not self.reports_itself:
                process.note(result)
                result |= process.start_of()
        if RESULT_DUPLICATE in result or result.get(DONE):
            process.end(finished=True)
        return result

    def restore(self, checkpoint_path: Any) -> Any:
        """The trial goes on from a checkpoint."""
        restored = super().restore(checkpoint_path)
        if not self.reports_itself:  # a function begins later, and sees the checkpoint then
            process.resume()
        return restored

    def stop(self) -> None:
        """The process is about to end."""
        self._end()
        super().stop()

    def _expect(self) -> None:
        self._seen = {}
        experiment = getattr(getattr(self, "_storage", None), "experiment_dir_name", "")
        place = process.trial_place(experiment, self.trial_id)
        process.expect(self.sent, None if self.reports_itself else place)

    def _end(self) -> None:
        process.end(finished=spent(self.budget, self._seen))


def kept(trainable: Any, sent: Sent, budget: Budget) -> Any:
    """A trainable like this one, whose trials start warm and are registered.

    Raises:
        InvalidSetting: It is neither a function nor a class that derives from `tune.Trainable`.
    """
    base: Any = trainable
    if not inspect.isclass(trainable):
        if not callable(trainable):
            advice = "give a function of a config, or a class that derives from tune.Trainable"
            raise InvalidSetting("trainable", repr(trainable)[:80], advice)
        base = wrap_function(trainable)
    elif not issubclass(trainable, tune.Trainable):
        advice = "derive it from tune.Trainable; for a trainer of Ray Train use `WarmStart.loop`"
        raise InvalidSetting("trainable", trainable.__name__, advice)
    name = getattr(trainable, "__name__", base.__name__)
    itself = issubclass(base, FunctionTrainable)
    sent = msgspec.structs.replace(sent, longest=float(budget.get(TIME, 0.0)))
    added = {"sent": sent, "budget": dict(budget), "reports_itself": itself, "_name": name}
    return type(name, (_Kept, base), added)


def spent(budget: Budget, result: Mapping[str, Any]) -> bool:
    """Has a trial with this result had all that it could get?"""
    flat = flatten_dict(dict(result))
    return any(name in flat and flat[name] >= limit for name, limit in budget.items())


def budget_of(scheduler: Any, stop: Any) -> dict[str, float]:
    """At which results a trial has had all that it could get, by its scheduler and by what stops it."""
    limits = dict(stop) if isinstance(stop, Mapping) else {}
    longest = getattr(scheduler, "_max_t", None) or getattr(scheduler, "_max_t_attr", None)
    attribute = getattr(scheduler, "_time_attr", None)
    if longest is not None and attribute is not None:
        limits[attribute] = min(longest, limits.get(attribute, longest))
    return {name: limit for name, limit in limits.items() if isinstance(limit, int | float)}
