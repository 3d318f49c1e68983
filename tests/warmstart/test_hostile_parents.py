"""What can a parent's program do to a training? A colleague's service, a hostile model in it, a client that
calibrates or probes: the child starts warm, uncalibrated, with a warning, and trains on.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.errors import InvalidSetting
from modelkeeper.faults import KeeperWarning
from modelkeeper.frontends.calibrating import calibrate as calibrating
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.programs.sandbox import rooms
from modelkeeper.frontends.programs.sandbox.rooms import available
from modelkeeper.frontends.torch.frontend import TorchRunner
from modelkeeper.frontends.torch.record_program import record_program
from tests.helpers.attacks import KILLER, MINUS_ONE, SMALLEST
from tests.helpers.service import team

META = {"data": "Flowers102", "task": "classification"}
X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(64) % 5
rooms_here = pytest.mark.skipif(not available(), reason="this system has no rooms")


def net(width: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5)
    )


def spoilt(data: bytes, how: str) -> bytes:
    """The program of the honest parent, that now does something else beside."""
    document = json.loads(data)
    before = len(document["inputs"]) + len(document["tensors"]) + len(document["constants"])
    constants, steps, made = _DEEDS[how]

    def moved(item: Any, by: int) -> Any:
        if isinstance(item, list):
            return [moved(each, by) for each in item]
        if isinstance(item, dict) and "v" in item:
            return {"v": item["v"] + (by if item["v"] >= before else 0)}
        return item

    shift = len(constants) + made
    known = [[step[0], moved(step[1], shift), *step[2:]] for step in document["steps"]]
    own = [[name, _named(given, before), *rest] for name, given, *rest in steps]
    document["constants"] += constants
    document["steps"] = own + known
    document["outputs"] = [value + (shift if value >= before else 0) for value in document["outputs"]]
    document["layers"] = {n: v + (shift if v >= before else 0) for n, v in document["layers"].items()}
    return json.dumps(document).encode()


def _named(item: Any, first: int) -> Any:
    """Arguments with "#n" for the n-th value of the deed."""
    if isinstance(item, list):
        return [_named(each, first) for each in item]
    if isinstance(item, str) and item.startswith("#"):
        return {"v": first + int(item[1:])}
    return item


_DEEDS: dict[str, tuple[list[Any], list[Any], int]] = {
    "kills": ([SMALLEST, MINUS_ONE], [["div.Tensor_mode", ["#0", "#1", "trunc"]]], 1),
    "takes 16 GiB": ([], [["full.default", [[2**32], 1.0]]], 1),
    "hangs": (
        [],
        [["full.default", [[2**25], 1.0]], *(["cumsum.default", [f"#{n}", 0]] for n in range(1500))],
        1501,
    ),
    "says it in colour": ([], [["einsum.default", ["\x1b[2J\x07", [{"v": 0}]]]], 1),
}


_ENDINGS = {
    "another": "SIGFPE",
    "kills": r"it ended the process that ran it \(SIGFPE\)",
    "takes 16 GiB": "too large",
    "hangs": "it took longer than",
    "says it in colour": "einsum",
}


@contextlib.contextmanager
def zoo(tmp_path: Path, how: str, **settings: Any) -> Iterator[ModelKeeperClient]:
    """A team's service with one model, of somebody else, whose program was written by hand."""

    def written(runner: TorchRunner, model: nn.Module, example_inputs: Any = None) -> Program:
        data = record_program(model, example_inputs).to_bytes()
        return Program.from_bytes(KILLER if how == "another" else spoilt(data, how))

    with team(tmp_path) as service:
        with (
            pytest.MonkeyPatch.context() as patch,
            ModelKeeperClient(service.url, token=service.token("mallory"), spool=tmp_path / "m") as other,
        ):
            patch.setattr(TorchRunner, "record_program", written)
            other.register_model(net(16), META | {"accuracy": 0.9}, example_inputs=X[:1])
        token = service.token("ann")
        with ModelKeeperClient(service.url, token=token, spool=tmp_path / "a", **settings) as client:
            yield client


def trains(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    nn.functional.cross_entropy(model(X), Y).backward()
    optimizer.step()
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


@rooms_here
@pytest.mark.parametrize("how", ["another", *_DEEDS])
def test_a_training_goes_on_warm_but_uncalibrated(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "PATIENCE", 3.0)  # so long it waits beside what its own passes take
    with zoo(tmp_path, how) as client:
        plain, _ = client.query_for_model(net(8, seed=3), META)
        with pytest.warns(KeeperWarning, match=f"warm, but uncalibrated.*{_ENDINGS[how]}") as warned:
            model, answer = client.query_for_model(net(8, seed=3), META, calibrate=[X])
        assert (answer.cold, answer.calibration) == (False, None)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain.parameters(), strict=True))
        for text in [str(answer), *answer.warnings, *(str(each.message) for each in warned)]:
            assert "\x1b" not in text
            assert "\x07" not in text
        trains(model)


@rooms_here
@pytest.mark.parametrize("how", ["kills", "takes 16 GiB"])
def test_a_race_goes_on_without_the_calibrated_start(tmp_path: Path, how: str) -> None:
    with zoo(tmp_path, how) as client:
        batches = [(X[n : n + 16], Y[n : n + 16]) for n in range(0, 64, 16)]
        model, answer = client.query_for_model(
            net(8, seed=3), META, probe=batches, loss=nn.functional.cross_entropy, probe_steps=12
        )
        race = answer.probe
        assert race is not None
        (calibrated,) = (run for run in race.runners if run.start == "calibrated")
        assert (calibrated.steps, "invalid program" in calibrated.verdict) == (0, True)
        trains(model)


@rooms_here
def test_only_who_trusts_a_zoo_runs_its_programs_in_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever registered it: what came as a program runs apart, unless the setting says otherwise."""
    opened: list[str] = []
    real = rooms.open_room

    def counted(elsewhere: Any, service: str, *given: Any, **more: Any) -> Any:
        opened.append(service)
        return real(elsewhere, service, *given, **more)

    monkeypatch.setattr("modelkeeper.frontends.calibrating.apart.open_room", counted)
    for sandbox, there in (("on", 1), ("strict", 1), ("off", 0)):
        opened.clear()
        with ModelKeeperClient(tmp_path / sandbox, sandbox=sandbox) as client:
            client.register_model(net(16), META | {"accuracy": 0.9}, example_inputs=X[:1])
            _, answer = client.query_for_model(net(8, seed=3), META, calibrate=[X])
        assert (answer.warnings, len(opened)) == ((), there)
        assert answer.calibration is not None


def test_where_there_are_no_rooms_nothing_foreign_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "available", lambda: False)
    with ModelKeeperClient(tmp_path) as client:
        client.register_model(net(16), META | {"accuracy": 0.9}, example_inputs=X[:1])
        with pytest.warns(KeeperWarning, match="MODELKEEPER_SANDBOX=off"):
            _, answer = client.query_for_model(net(8, seed=3), META, calibrate=[X])
    assert (answer.cold, answer.calibration) == (False, None)


def test_a_setting_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="on, strict, off"):
        ModelKeeperClient(tmp_path, sandbox="maybe").settings
