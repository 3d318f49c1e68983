"""What runs Keras models, on the active backend: examples, programs, calibrating."""

from collections.abc import Mapping
from typing import Any

from modelkeeper.frontends.calibrating.examples import Examples
from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, Progress
from modelkeeper.frontends.keras.behaviour import difference
from modelkeeper.frontends.keras.calibrate import calibrate
from modelkeeper.frontends.keras.examples import collect, example_of
from modelkeeper.frontends.keras.record_program import record_program
from modelkeeper.frontends.keras.run_program import ENGINE
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.programs.sandbox.rooms import prepare
from modelkeeper.weights import Array


class KerasRunner:
    """Runs Keras models: see `protocol.Runner`."""

    def collect(self, batches: Any, labels: Any, most: int) -> Examples:
        """The first examples of arrays, pairs, dicts, a tf.data.Dataset, a PyDataset."""
        return collect(batches, labels, most)

    def example_of(self, model: Any, inputs: Any) -> Any:
        """Example inputs for a model: two of the examples."""
        return example_of(model, inputs)

    def record_program(self, model: Any, example_inputs: Any = None) -> Program:
        """A program that computes what the model computes."""
        return record_program(model, example_inputs)

    def prepare(self) -> None:
        """Begin to load what runs programs from elsewhere, in a process of its own."""
        prepare(ENGINE.elsewhere)

    def read_program(self, data: bytes) -> Program:
        """A program from its bytes, checked."""
        return Program.from_bytes(data)

    def calibrate(
        self,
        child: Any,
        planner: FitPlanner,
        parent: Any,
        tensors: Mapping[str, Array],
        examples: Any,
        *,
        budget: Budget,
        progress: Progress | None = None,
    ) -> Calibration:
        """Fit the layers of a child to what its parent computes, in place."""
        return calibrate(child, planner, parent, tensors, examples, budget=budget, progress=progress)

    def difference(self, first: Any, second: Any, example_inputs: Any = None) -> float:
        """By how much two models, or a mean of several and another one, differ on random inputs."""
        return difference(first, second, example_inputs)
