"""A short run of the fuzzers, the same things every time: nothing but refusals and results comes of them.

`make fuzz` goes on for longer; benchmarks/results/fuzz.json says how far it came.
"""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.fuzz import FAULT, RESULTS, add
from benchmarks.helpers.fuzzed import TARGETS
from benchmarks.helpers.hostile_programs import OPERATIONS, hostile_program

COUNTS = {"programs": len(OPERATIONS), "graphs": 400, "safetensors": 300, "bodies": 60, "replies": 300}


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_hostile_does_harm(target: str) -> None:
    became: dict[str, int] = {}
    with TARGETS[target]() as one:
        for number in range(COUNTS[target]):
            outcome = one(number)
            became[outcome] = became.get(outcome, 0) + 1
    assert sum(became.values()) == COUNTS[target]
    assert len(became) > 1, "all ended alike: nothing was tried"


def test_programs_cover_every_operation() -> None:
    tried = {json.loads(hostile_program(number))["steps"][-1][0] for number in range(len(OPERATIONS))}
    assert tried == set(OPERATIONS)


def test_the_same_number_is_the_same_program() -> None:
    assert hostile_program(7) == hostile_program(7) != hostile_program(7, seed=1)


def test_a_process_that_dies_is_a_fault_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What watches is no use if it does not see a death."""
    code = (
        "import os, sys; first, end = int(sys.argv[-2]), int(sys.argv[-1]); print('ready', flush=True)\n"
        "for n in range(first, end):\n"
        "    os.abort() if n == 3 else print('refused', flush=True)\n"
    )
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess,
        "Popen",
        lambda command, **more: real([command[0], "-c", code, *command[-2:]], **more),
    )
    found = {"count": 0, "seconds": 0.0, "became": {}, "faults": []}
    add(found, "programs", 6)
    assert found["became"] == {"refused": 5, FAULT: 1}
    assert "3: fault: died" in str(found["faults"])


def test_what_was_reached_had_no_faults() -> None:
    found = json.loads(Path(RESULTS).read_text())["targets"]
    assert found["programs"]["count"] >= 100_000
    assert {name: each["faults"] for name, each in found.items()} == {name: [] for name in found}
