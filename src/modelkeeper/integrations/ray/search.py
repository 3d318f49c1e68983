"""How does a search of Ray Tune, or a TorchTrainer, learn where the zoo is? By its trainable.

    warm = WarmStart("http://keeper:7070", {"data": "digits", "task": "classification"})
    tuner = warm.tuner(train, param_space=..., tune_config=..., run_config=...)         as tune.Tuner
    trainer = TorchTrainer(warm.loop(train), ...)

What is said here goes to the workers with the function or class that they run; they need no variable, and no
argument of their own.
"""

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ray import tune

from modelkeeper.faults import warn
from modelkeeper.integrations.ray import process
from modelkeeper.integrations.ray.callback import KeepTrials
from modelkeeper.integrations.ray.process import Sent
from modelkeeper.integrations.ray.trainable import budget_of, kept
from modelkeeper.integrations.warm_training import WarmTraining, Where


class WarmStart:
    """Warm starts for the trials of a search, and registrations of what they became.

    Args:
        client: Of the zoo, or where it is: a folder, an address. Default: as for `ModelKeeperClient`. A
            folder is one of this node: for workers on others give the address of a coordinator
            (`modelkeeper serve`), or a folder that all nodes share.
        meta: data, task, tags, fold; project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        arguments: Of `WarmTraining`: monitor, mode, keep, every, register, calibrate ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so.
    """

    def __init__(self, client: Where = None, meta: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        said = WarmTraining(client, meta, **arguments)  # what cannot be so is said here
        if " " in sys.executable:
            warn(f"Ray starts no workers from {sys.executable}, and waits for them: its path has a space.")
        self.client = said.client
        self._sent = Sent(said.client, said.meta, arguments)

    def trainable(self, trainable: Any, budget: Mapping[str, float] | None = None) -> Any:
        """A trainable like this one, whose trials start warm and are registered.

        Args:
            trainable: A function that calls `warm_start` and `report`; or a class that calls `warm_start`
                where it builds its model: what its `step` returns is reported.
            budget: Results at which a trial has had all that it could get, e.g. {"training_iteration": 8}:
                a trial that is stopped there is finished. `tuner` finds them by itself.

        Raises:
            InvalidSetting: It is neither.
        """
        return kept(trainable, self._sent, budget or {})

    def run_config(self, run_config: tune.RunConfig | None = None, **arguments: Any) -> tune.RunConfig:
        """A RunConfig like this one, with the callback that registers what trials left behind."""
        config = copy.copy(run_config) if run_config is not None else tune.RunConfig(**arguments)
        callbacks = list(config.callbacks or [])
        if not any(isinstance(callback, KeepTrials) for callback in callbacks):
            callbacks.append(KeepTrials(self.client))
        config.callbacks = callbacks
        return config

    def tuner(
        self,
        trainable: Any,
        *,
        tune_config: tune.TuneConfig | None = None,
        run_config: tune.RunConfig | None = None,
        **arguments: Any,
    ) -> tune.Tuner:
        """A `tune.Tuner` whose trials start warm and are registered; arguments are its own."""
        scheduler = tune_config.scheduler if tune_config is not None else None
        budget = budget_of(scheduler, run_config.stop if run_config is not None else None)
        chosen = self.run_config(run_config)
        return tune.Tuner(
            self.trainable(trainable, budget), tune_config=tune_config, run_config=chosen, **arguments
        )

    def loop(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """What a TorchTrainer runs on each worker: a function that calls `warm_start` and `report`."""
        sent = self._sent

        @functools.wraps(train)
        def run(*config: Any) -> Any:
            process.expect(sent)
            try:
                result = train(*config)
            except BaseException:
                process.end(finished=False)
                raise
            process.end(finished=True)
            return result

        run.__signature__ = inspect.signature(train)  # type: ignore[attr-defined]  # Ray counts parameters
        return run
