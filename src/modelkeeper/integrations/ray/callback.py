"""What becomes of trials whose processes could not register them?

A process that is killed (memory, a node that goes) leaves the last version that it wrote, which may be some
seconds old, or none. The driver looks after it: what a checkpoint of the trial holds, and the zoo does not,
is registered from there.
"""

from pathlib import Path
from typing import Any

import ray
from ray import tune

from modelkeeper.client import ModelKeeperClient
from modelkeeper.faults import warn
from modelkeeper.integrations.ray.checkpoint import folder_of, register, said_in
from modelkeeper.settings import is_address
from modelkeeper.zoo.records import Filter, Record, Registration


class KeepTrials(tune.Callback):  # type: ignore[misc]  # Ray is not followed
    """Registers from their checkpoints what trials could not register themselves.

    Args:
        client: Of the zoo that the trials register in.
    """

    def __init__(self, client: ModelKeeperClient) -> None:
        self.client = client

    def setup(self, *args: Any, **info: Any) -> None:
        """A search begins: can all its workers reach the zoo?"""
        listed: Any = ray.nodes  # it has no types
        nodes = sum(bool(node.get("Alive")) for node in listed())
        if nodes > 1 and not is_address(self.client.uri):
            warn(
                f"The zoo is a folder, {self.client.uri}, and the cluster has {nodes} nodes: trials on other "
                "nodes see a folder of their own there, unless all share it. Run `modelkeeper serve` and "
                "give its address."
            )

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """A trial has failed, for good."""
        self._look_after([trial])

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """All trials have ended, and their processes with them."""
        self._look_after(trials)

    def _look_after(self, trials: list[Any]) -> None:
        """Nothing of this may stop a search."""
        with self.client.faults.guard("What trials left behind is not registered", ()):
            for trial in trials:
                if trial.checkpoint is not None:
                    with folder_of(trial.checkpoint) as folder:
                        self._register(folder)

    def _register(self, folder: Path) -> None:
        said = said_in(folder)
        if said is not None and not holds(self._known(said), said):
            register(self.client, folder, said)

    def _known(self, said: Registration) -> Record | None:
        """The version of a training that is in the zoo."""
        wanted = Filter(data=said.data or None, task=said.task or None)
        return next((each for each in self.client.coordinator.models(wanted) if each.run == said.run), None)


def holds(record: Record | None, said: Registration) -> bool:
    """Is what the zoo has of a training as good as this, or its end?"""
    if record is None:
        return False
    if record.finished or said.metric is None or record.value is None:
        return True
    sign = -1 if said.metric.lower_is_better else 1
    return sign * record.value >= sign * said.metric.value
