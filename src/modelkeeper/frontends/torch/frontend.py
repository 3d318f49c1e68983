"""The PyTorch front end as one object: what `modelkeeper.frontends.protocol` asks for.

    FRONTEND.read(model), FRONTEND.load(model, weights) ...     required of every front end
    FRONTEND.runner                                             examples, programs, calibrating
    FRONTEND.trials                                             copies in training, for races

Everything is done by functions of this package; here they only come together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from torch import Tensor, nn

from modelkeeper.frontends.calibrating.examples import Examples
from modelkeeper.frontends.fit_tasks import Budget, Calibration, FitPlanner, Progress
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.programs.sandbox.rooms import prepare
from modelkeeper.frontends.torch.adapters import refuse_adapters
from modelkeeper.frontends.torch.behaviour import difference
from modelkeeper.frontends.torch.calibrate import calibrate, example_of
from modelkeeper.frontends.torch.describe import example, trace_model
from modelkeeper.frontends.torch.examples import collect
from modelkeeper.frontends.torch.frozen import frozen
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.materialise import is_deferred, materialise
from modelkeeper.frontends.torch.read_load import load, read
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.run_program import ENGINE
from modelkeeper.frontends.torch.side_effects import unwrap
from modelkeeper.frontends.torch.trained import trained
from modelkeeper.frontends.torch.trials import Labelled, Loss, TorchTrial, duplicate, labelled
from modelkeeper.tracing.trace import Trace
from modelkeeper.weights import Array

if TYPE_CHECKING:
    from modelkeeper.frontends.abilities import Choosy, Deferring, Freezing, Judging, Team, Teamed, Wrapped
    from modelkeeper.frontends.protocol import Frontend

M = TypeVar("M")
_MARK = "_modelkeeper"  # the attribute of a module that holds what was written on it


class TorchRunner:
    """Runs PyTorch models: see `protocol.Runner`."""

    def collect(self, batches: Any, labels: Any, most: int) -> Examples:
        """The first examples of tensors, pairs, dicts, a DataLoader."""
        return collect(batches, labels, most)

    def example_of(self, model: nn.Module, inputs: Inputs) -> Inputs:
        """Example inputs for a model: two of the examples."""
        return example_of(model, inputs)

    def record_program(self, model: nn.Module, example_inputs: Any = None) -> Program:
        """A program that computes what the model computes."""
        return record_program(model, example_inputs)

    engine = ENGINE  # runs programs

    def prepare(self) -> None:
        """Begin to load what runs programs from elsewhere, in a process of its own."""
        prepare(ENGINE.elsewhere)

    def read_program(self, data: bytes) -> Program:
        """A program from its bytes, checked."""
        return Program.from_bytes(data)

    def calibrate(
        self,
        child: nn.Module,
        planner: FitPlanner,
        parent: Program | nn.Module,
        tensors: Mapping[str, Array],
        examples: Any,
        *,
        budget: Budget,
        progress: Progress | None = None,
    ) -> Calibration:
        """Fit the layers of a child to what its parent computes, in place."""
        return calibrate(child, planner, parent, tensors, examples, budget=budget, progress=progress)

    def difference(
        self, first: nn.Module | Sequence[nn.Module], second: nn.Module, example_inputs: Any = None
    ) -> float:
        """By how much two models, or a mean of several and another one, differ on random inputs."""
        return difference(first, second, example_inputs)


class TorchTrials:
    """Trains copies of PyTorch models: see `protocol.Trials`."""

    def labelled(self, batches: Any, most: int) -> Sequence[Labelled]:
        """The first batches, with their labels."""
        return labelled(batches, most)

    def duplicate(self, model: nn.Module) -> nn.Module:
        """A copy of a model, without what wraps it."""
        return duplicate(model)

    def trial(
        self, model: nn.Module, weights: Mapping[str, Any], loss: Loss | None, optimizer: Any
    ) -> TorchTrial:
        """A copy of the model with these weights, ready to train."""
        return TorchTrial(model, weights, loss, optimizer)


class TorchFrontend:
    """Models are instances of torch.nn.Module: see `protocol.Frontend`."""

    name = "torch"
    runner = TorchRunner()
    trials = TorchTrials()

    def takes(self, model: object) -> bool:
        """Is it a torch.nn.Module?"""
        return isinstance(model, nn.Module)

    def trace(self, model: nn.Module, example_inputs: Any = None) -> Trace:
        """What the model does with its inputs, on shapes where that is possible."""
        return trace_model(model, example_inputs)

    def read(self, model: nn.Module) -> Iterator[tuple[str, Array]]:
        """Every stored tensor by name, sharing memory with those on the CPU."""
        return read(model)

    def load(self, model: M, weights: Mapping[str, Any]) -> M:
        """Write weights into a model, in place; the model that was given."""
        load(cast(nn.Module, model), weights)
        return model

    def frozen(self, model: nn.Module) -> frozenset[str]:
        """The names of tensors that do not require gradients."""
        return frozen(model)

    def trained(self, model: nn.Module) -> str:
        """The signs that a model is not fresh from its initialisation."""
        return trained(model)

    def materialise(self, model: nn.Module) -> None:
        """Memory and initial values for what is on the meta device."""
        if is_deferred(model):
            materialise(model)

    def team(self, model: nn.Module) -> "Team | None":
        """The processes of torch.distributed that train the model together."""
        from modelkeeper.frontends.torch.ranks import team

        return team(self, model)

    def refuse(self, model: nn.Module) -> None:
        """Refuse adapters: they are no models of their own."""
        refuse_adapters(model)

    def example(self, shape: Iterable[int], dtype: str = "float32") -> Tensor:
        """A tensor without numbers."""
        return example(shape, dtype)

    def behind(self, model: nn.Module) -> nn.Module:
        """The module behind wrappers."""
        return unwrap(model)

    def mark(self, model: nn.Module, mark: tuple[str, ...]) -> None:
        """Write words on a module, as an attribute of the instance: no part of its `state_dict`."""
        unwrap(model).__dict__[_MARK] = mark

    def mark_of(self, model: nn.Module) -> tuple[str, ...]:
        """What was written on a module, which `copy.deepcopy` and `pickle` hand on."""
        mark = unwrap(model).__dict__.get(_MARK, ())
        return mark if isinstance(mark, tuple) and all(isinstance(word, str) for word in mark) else ()


FRONTEND = TorchFrontend()

if TYPE_CHECKING:
    _deferring: Deferring = FRONTEND
    _freezing: Freezing = FRONTEND
    _judging: Judging = FRONTEND
    _teamed: Teamed = FRONTEND
    _typed: Frontend = FRONTEND  # it is what the protocol asks for, and a type checker says so
    _wrapped: Wrapped = FRONTEND
    _choosy: Choosy = FRONTEND
