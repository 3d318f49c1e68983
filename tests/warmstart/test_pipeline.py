"""One way from a model to its start: what is asked of a loan, and what holds after a fault."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from modelkeeper.errors import CannotCalibrate, CannotProbe, CoordinatorUnreachable
from modelkeeper.frontends.torch import FRONTEND
from modelkeeper.graph import Graph
from modelkeeper.layouts import Laid, Layout
from modelkeeper.warmstart.answer import Answer, Rival
from modelkeeper.warmstart.lender import Lender
from modelkeeper.warmstart.model_source import ModelLoan, ModelSource
from modelkeeper.warmstart.pipeline import Raised, Request, start
from modelkeeper.warmstart.race.starts import Probe
from modelkeeper.weights import Array

X = torch.randn(320, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)
BATCHES = list(zip(torch.split(X, 16), torch.split(Y, 16), strict=True))


def net(width: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    )


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(model: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())


class Watched:
    """A loan that counts what is asked of it, and may refuse."""

    def __init__(self, loan: ModelLoan, broken: bool, program: bytes | None) -> None:
        self._loan, self._broken, self._program = loan, broken, program
        self.asked: list[str] = []
        rival = Rival(id="other", name="other", similarity=1.0)
        self.answer = msgspec.structs.replace(loan.answer, parent="p", parent_name="p", runners_up=(rival,))

    def weights(self) -> Iterator[tuple[str, Array]]:
        self.asked.append("weights")
        return self._loan.weights()

    def stored_weights(self, layouts: Mapping[str, Layout]) -> Iterator[tuple[str, Array | Laid]]:
        self.asked.append("weights")
        return self._loan.stored_weights(layouts)

    @contextmanager
    def lender(self) -> Iterator[Lender | None]:
        self.asked.append("lender")
        if self._broken:
            raise CoordinatorUnreachable("http://zoo", "it is down", "Wait.")
        with self._loan.lender() as lender:
            assert lender is not None
            yield lender if self._program is None else replace(lender, parent=None, program=self._program)
        self.asked.append("closed")


class Zoo:
    """A source with one parent, and a second one that cannot be had."""

    def __init__(self, parent: nn.Module, broken: bool = False, program: bytes | None = None) -> None:
        self._source = ModelSource(parent, FRONTEND, parent=parent)
        self._broken, self._program = broken, program
        self.another_asked = 0

    def loan(self, graph: Graph) -> Watched:
        return Watched(self._source.loan(graph), self._broken, self._program)

    def another(self, graph: Graph, than: Answer) -> None:
        self.another_asked += 1
        raise CoordinatorUnreachable("http://zoo", f"nothing but {than.parent}", "Wait.")


class Noted:
    """Every fault becomes a warning."""

    @contextmanager
    def guard(self, consequence: str) -> Iterator[list[str]]:
        trouble: list[str] = []
        try:
            yield trouble
        except Exception as problem:  # noqa: BLE001 (as the client does)
            trouble.append(f"{consequence}: {problem}")


def test_plain_weights_are_asked_for_alone() -> None:
    outcome = start(Request(FRONTEND, child := net(5, 1)), Zoo(net(8)), Raised())
    assert outcome.loan.asked == ["weights"]
    assert outcome.model is child
    assert outcome.final.calibration is None
    assert list(outcome.final.seconds) == ["describe", "load"]


def test_a_parent_that_comes_to_be_run_gives_the_plain_weights_too() -> None:
    """Over HTTP it is downloaded, and there is a plan for it: neither is needed a second time."""
    plain = start(Request(FRONTEND, net(5, 1)), Zoo(net(8)), Raised())
    outcome = start(Request(FRONTEND, net(5, 1), calibrate=X), Zoo(net(8)), Raised())
    assert outcome.loan.asked == ["lender", "closed"]
    assert outcome.calibration is not None
    assert outcome.calibration.kept
    assert outcome.final.calibration is outcome.calibration
    assert outcome.final["calibration"]["fitted"] == outcome.calibration.fitted
    assert not same(plain.model, outcome.model)
    outcome = start(Request(FRONTEND, net(12, 1), calibrate=X), Zoo(net(8)), Raised())
    assert outcome.final.exact
    assert outcome.loan.asked == ["weights"]


def test_a_parent_that_does_not_come_leaves_the_plain_weights() -> None:
    plain = start(Request(FRONTEND, net(5, 1)), Zoo(net(8)), Raised())
    request = Request(FRONTEND, net(5, 1), calibrate=X)
    outcome = start(request, Zoo(net(8), broken=True), Noted())
    assert outcome.loan.asked == ["lender", "weights"]
    assert same(plain.model, outcome.model)
    (warning,) = outcome.final.warnings
    assert warning.startswith("The model starts warm, but uncalibrated: the coordinator")
    with pytest.raises(CoordinatorUnreachable):
        start(Request(FRONTEND, net(5, 1), calibrate=X), Zoo(net(8), broken=True), Raised())


def test_examples_and_programs_that_do_not_serve_leave_the_plain_weights() -> None:
    plain = start(Request(FRONTEND, net(5, 1)), Zoo(net(8)), Raised())
    for examples, program in ((X[:1], None), (X, b"no program")):
        request = Request(FRONTEND, net(5, 1), calibrate=examples)
        outcome = start(request, Zoo(net(8), program=program), Noted())
        assert same(plain.model, outcome.model)
        assert outcome.final.calibration is None
        assert len(outcome.final.warnings) == 1
    with pytest.raises(CannotCalibrate, match="1 examples"):
        start(Request(FRONTEND, net(5, 1), calibrate=X[:1]), Zoo(net(8)), Raised())


def test_starts_race_though_a_second_parent_does_not_come() -> None:
    probe = Probe(BATCHES, cross_entropy, steps=20)
    zoo = Zoo(net(8))
    outcome = start(Request(FRONTEND, net(5, 1), probe=probe), zoo, Noted())
    assert zoo.another_asked == 1
    assert outcome.race is not None
    assert outcome.final.probe is outcome.race
    assert outcome.final.warnings[0].startswith("No second parent races")
    assert {"calibrated", "warm", "shrunk", "cold"} == {run.start for run in outcome.race.runners}
    assert list(outcome.final.seconds) == ["describe", "calibrate", "probe"]
    with pytest.raises(CoordinatorUnreachable):
        start(Request(FRONTEND, net(5, 1), probe=probe), Zoo(net(8)), Raised())


def test_what_cannot_race_starts_warm() -> None:
    plain = start(Request(FRONTEND, net(5, 1)), Zoo(net(8)), Raised())
    request = Request(FRONTEND, child := net(5, 1), probe=Probe(BATCHES[:2], cross_entropy))
    outcome = start(request, Zoo(net(8)), Noted())
    assert (outcome.race, outcome.model) == (None, child)
    assert same(plain.model, child)
    assert outcome.final.warnings[0].startswith(
        "The model starts warm, but unprobed: cannot probe: there are 2"
    )
    before = state(child := net(5, 1))
    with pytest.raises(CannotProbe):
        start(replace(request, model=child), Zoo(net(8)), Raised())
    assert all(torch.equal(before[name], tensor) for name, tensor in child.state_dict().items())


def test_a_progress_bar_can_be_asked_for() -> None:
    steps: list[tuple[int, int, str]] = []

    def told(done: int, total: int, layer: str) -> None:
        steps.append((done, total, layer))

    for progress in (True, told):
        request: Any = Request(FRONTEND, net(5, 1), calibrate=X, progress=progress)
        start(request, Zoo(net(8)), Raised())
    assert steps[-1] == (len(steps) - 1, len(steps) - 1, "")
