"""A parent in a room: every attack on trainings that worked ends there, and what a room says is checked."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modelkeeper.errors import CannotCalibrate, InvalidProgram
from modelkeeper.frontends.calibrating.apart import ParentApart, parent_apart
from modelkeeper.frontends.calibrating.parent_run import ParentRun
from modelkeeper.frontends.fit_tasks import Budget
from modelkeeper.frontends.programs.passes import check_run
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.programs.sandbox.frames import Place
from modelkeeper.frontends.programs.sandbox.rooms import available
from modelkeeper.frontends.torch.record_program import record_program
from modelkeeper.frontends.torch.run_program import ENGINE
from modelkeeper.weights import Array
from tests.helpers.attacks import ATTACKS, ENDLESS, HONEST, KILLER

pytestmark = pytest.mark.skipif(not available(), reason="this system has no rooms")
X = np.linspace(-1, 1, 128, dtype=np.float32).reshape(16, 8)
SMALL = Budget(memory=2**26)


@contextlib.contextmanager
def apart(data: bytes, seconds: float = 60) -> Iterator[ParentApart]:
    with parent_apart(ENGINE, Program.from_bytes(data), {}, [X], SMALL) as parent:
        parent.ends(seconds)
        yield parent


def used(parent: ParentApart) -> Array:
    """All that a calibration asks of a parent; what it puts out."""
    last = parent.program.outputs[0]
    parent.try_out(16)
    parent.pivots(16, [("last", 0)])
    parent.begin([np.arange(9), np.arange(9, 16)])
    parent.keep([last])
    parent.shape(last)
    found = parent.value(0, last)
    assert parent.output(1).shape[:1] == (7,)
    parent.release(last)
    return found


def test_a_parent_apart_gives_what_one_in_this_process_gives() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)).eval()
    tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    program = record_program(model, torch.zeros(1, 8))
    here = ParentRun(ENGINE, program, {name: ENGINE.tensor(a) for name, a in tensors.items()}, [X])
    with parent_apart(ENGINE, program, tensors, [X], SMALL) as there:
        there.ends(60)
        assert there.try_out(4)[1] == here.try_out(4)[1]
        reads = [("0", 1), ("2", 2)]
        ranks = here.pivots(16, reads), there.pivots(16, reads)
        assert ranks[0].keys() == ranks[1].keys() != set()
        for space, rank in ranks[0].items():
            np.testing.assert_allclose(ranks[1][space], rank)
        parts = [np.arange(10), np.arange(10, 16)]
        for parent in (here, there):
            parent.begin(parts)
            parent.keep([program.layers["0"]])
        number = program.layers["0"]
        assert there.shape(number) == here.shape(number) == (10, 6)
        for part in range(2):
            np.testing.assert_allclose(there.value(part, number), here.value(part, number), rtol=1e-6)
            np.testing.assert_allclose(there.output(part), here.output(part), rtol=1e-6)


@pytest.mark.parametrize("data", ATTACKS.values(), ids=ATTACKS)
def test_no_attack_gets_out(data: bytes) -> None:
    """Each killed or hung a training, or took its memory. Now it is refused, in a line, and soon."""
    with pytest.raises(InvalidProgram) as problem, apart(data) as parent:
        used(parent)
    assert str(problem.value).isprintable()
    assert "took longer" not in str(problem.value)


@pytest.mark.parametrize("name", [name for name, data in ATTACKS.items() if data is not KILLER])
def test_attacks_are_found_out_by_shapes_alone(name: str) -> None:
    """Before anything runs."""
    with pytest.raises(InvalidProgram):
        check_run(ENGINE, Program.from_bytes(ATTACKS[name]), {}, [X], memory=3 * 2**30)


def test_what_no_look_at_shapes_finds_ends_its_own_process() -> None:
    check_run(ENGINE, Program.from_bytes(KILLER), {}, [X])
    with (
        pytest.raises(InvalidProgram, match=r"ended the process that ran it \(SIGFPE\)"),
        apart(KILLER) as parent,
    ):
        used(parent)
    with apart(HONEST) as parent:
        np.testing.assert_array_equal(used(parent), np.maximum(X[:9], 0))


def test_what_hangs_is_ended_within_a_pass() -> None:
    with pytest.raises(InvalidProgram, match="longer than the 2 s that it may"), apart(ENDLESS, 2) as parent:
        used(parent)


def test_what_the_batch_makes_too_large_is_refused_for_the_batch_that_runs() -> None:
    """It may run on one example; what counts are the examples of a part."""
    from tests.helpers.attacks import numbers, program

    data = program(
        ["mul.Tensor", [{"v": 1}, 2.0]],
        ["sum.default", [{"v": 2}]],
        ["add.Tensor", [{"v": 0}, {"v": 3}]],
        constants=[numbers(np.ones((1, 1), np.float32), [{"b": 2**11}, {"b": 2**12}])],
    )
    check_run(ENGINE, Program.from_bytes(data), {}, [X[:1]], memory=2**30)
    with pytest.raises(InvalidProgram, match="too large"):
        check_run(ENGINE, Program.from_bytes(data), {}, [X], memory=2**30)
    with apart(data) as parent, pytest.raises(InvalidProgram, match="too large"):
        parent.try_out(16)


def test_strict_holds_for_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from modelkeeper.frontends.torch.run_program import AtenEngine
    from tests.helpers.bad_rooms import UNCLOSED

    monkeypatch.setattr(AtenEngine, "elsewhere", UNCLOSED.elsewhere)
    budget = Budget(memory=2**26, sandbox="strict")
    with pytest.raises(CannotCalibrate, match="files"):
        parent_apart(ENGINE, Program.from_bytes(HONEST), {}, [X], budget).__enter__()


# -- what a room says -------------------------------------------------------------------------------


class Room:
    """A room that was taken over: it answers just this."""

    def __init__(self, answer: Any = None, array: Array | None = None) -> None:
        self.answer, self.made = answer, array

    def call(self, method: str, kind: Any, /, **arguments: Any) -> Any:
        return self.answer

    def array(self, place: Place) -> Array:
        assert self.made is not None
        return self.made


def lying(answer: Any = None, array: Array | None = None) -> ParentApart:
    parent = ParentApart(Room(answer, array), Program.from_bytes(HONEST), 16)  # type: ignore[arg-type]
    parent.begin([np.arange(9), np.arange(7)])
    return parent


PLACE = Place(0, "float32", (9, 8))


@pytest.mark.parametrize("said", [(math.nan, 1), (-1.0, 1), (math.inf, 1), (1e9, 1), (1.0, -1)])
def test_times_that_cannot_be_are_refused(said: tuple[float, int]) -> None:
    with pytest.raises(InvalidProgram):
        lying(said).try_out(16)


def test_no_time_at_all_divides_nothing_by_zero() -> None:
    assert lying((0.0, 0)).try_out(16)[0] > 0


@pytest.mark.parametrize("rank", [np.full(8, np.nan), np.ones((2, 4)), np.ones(8, np.int64)])
def test_ranks_that_cannot_be_are_refused(rank: Array) -> None:
    with pytest.raises(InvalidProgram):
        lying({3: PLACE}, rank).pivots(16, [("last", 3)])


def test_ranks_of_spaces_that_nobody_asked_for_are_left() -> None:
    assert lying({4: PLACE}, np.ones(8)).pivots(16, [("last", 3)]) == {}


@pytest.mark.parametrize("shape", [(-1, 8), (1,) * 17, (2**21, 2**21)])
def test_shapes_that_cannot_be_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidProgram):
        lying(shape).shape(1)


@pytest.mark.parametrize(
    "array",
    [np.ones((8, 8), np.float32), np.ones((7, 9), np.float32), np.ones(7), np.ones((7, 8), np.complex64)],
)
def test_values_of_other_shapes_are_refused(array: Array) -> None:
    parent = lying((9, 8))
    parent.shape(1)
    room: Any = parent._room
    room.answer, room.made = PLACE, array
    with pytest.raises(InvalidProgram):
        parent.value(1, 1)


def test_rows_of_all_examples_together_are_taken() -> None:
    """A layer may see a batch of sequences as one row of places: so many for each example."""
    parent = lying((9 * 5, 8))
    parent.shape(1)
    room: Any = parent._room
    room.answer, room.made = PLACE, np.ones((7 * 5, 8), np.float32)
    assert parent.value(1, 1).shape == (35, 8)
