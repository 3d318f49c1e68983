"""The suite for front ends finds what is wrong with one: each of these breaks one promise."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.torch import TorchFrontend
from modelkeeper.testing import FrontendTests
from modelkeeper.tracing.trace import Trace
from modelkeeper.weights import Array


class TakesAnything(TorchFrontend):
    def takes(self, model: object) -> bool:
        return True


class ReadsTooLittle(TorchFrontend):
    def read(self, model: nn.Module) -> Iterator[tuple[str, Array]]:
        return iter(list(super().read(model))[1:])


class LoadsHalf(TorchFrontend):
    """It writes what it can before it looks at the rest."""

    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        for name, array in weights.items():
            super().load(model, {name: array})
        return model


class LoadsWhatItDoesNotKnow(TorchFrontend):
    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        known = dict(self.read(model))
        return super().load(model, {name: array for name, array in weights.items() if name in known})


class KeepsTheArrays(TorchFrontend):
    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        super().load(model, weights)
        for name, parameter in model.named_parameters():
            if name in weights:
                parameter.data = torch.from_numpy(weights[name])
        return model


class LeavesTraces(TorchFrontend):
    def trace(self, model: nn.Module, example_inputs: Any = None) -> Trace:
        with torch.no_grad():
            next(model.parameters()).add_(1)
        return super().trace(model, example_inputs)


class Draws(TorchFrontend):
    def read(self, model: nn.Module) -> Iterator[tuple[str, Array]]:
        np.random.random()
        return super().read(model)


class RaisesOtherErrors(TorchFrontend):
    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        try:
            return super().load(model, weights)
        except InvalidWeights as problem:
            raise KeyError(str(problem)) from problem


BROKEN: list[tuple[type[TorchFrontend], Callable[[FrontendTests], None]]] = [
    (TakesAnything, FrontendTests.test_it_takes_its_models_and_nothing_else),
    (ReadsTooLittle, FrontendTests.test_reading_gives_every_stored_tensor_once_as_the_graph_says),
    (LoadsHalf, lambda suite: suite.test_what_does_not_fit_is_refused_and_changes_nothing("a wrong shape")),
    (
        LoadsWhatItDoesNotKnow,
        lambda suite: suite.test_what_does_not_fit_is_refused_and_changes_nothing("an unknown name"),
    ),
    (KeepsTheArrays, FrontendTests.test_loading_gives_the_model_just_these_weights),
    (LeavesTraces, FrontendTests.test_describing_and_reading_leave_no_trace),
    (Draws, FrontendTests.test_describing_and_reading_leave_no_trace),
    (
        RaisesOtherErrors,
        lambda suite: suite.test_what_does_not_fit_is_refused_and_changes_nothing("an unknown name"),
    ),
]


class Suite(FrontendTests):
    input_shape = (2, 5)

    def make(self, width: int, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))


@pytest.mark.parametrize(("kind", "test"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
def test_a_broken_promise_is_found(
    kind: type[TorchFrontend], test: Callable[[FrontendTests], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Suite, "frontend", kind(), raising=False)
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        test(Suite())
