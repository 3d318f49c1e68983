"""What does it cost of a calibration that the parent's program runs in a process apart? `make sandbox`

    python -m benchmarks.sandbox [--times 7]

The same calibrations with MODELKEEPER_SANDBOX on and off, taking turns in one process, so that both meet the
same machine: pairs of a network and a narrower one, from a program, as out of a zoo. Times are those of the
processor, on one thread, of this process and of those apart, so that others on the machine do not count. The
ratio is that of the medians, with opening and closing the room. The first calibration of a process also loads
the framework apart; while a client asks for a parent, that happens beside it. Linux alone.

Writes benchmarks/results/sandbox.json.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from modelkeeper import transfer
from modelkeeper.frontends import describe
from modelkeeper.frontends.programs.sandbox import rooms
from modelkeeper.frontends.torch.frontend import FRONTEND
from modelkeeper.frontends.torch.record_program import record_program

RESULTS = Path(__file__).parent / "results" / "sandbox.json"
TARGET = 0.10


def mlp(width: int) -> tuple[nn.Module, torch.Tensor]:
    """A small network, for which a process costs most."""
    layers = nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    return nn.Sequential(*layers), torch.randn(2048, 32)


def cnn(width: int) -> tuple[nn.Module, torch.Tensor]:
    """Convolutions with batch norms on small images."""

    def block(taken: int, made: int) -> list[nn.Module]:
        return [nn.Conv2d(taken, made, 3, padding=1, bias=False), nn.BatchNorm2d(made), nn.ReLU()]

    layers = [*block(3, width), *block(width, width), nn.MaxPool2d(2), *block(width, 2 * width)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10)]
    return nn.Sequential(*layers, *head), torch.randn(1024, 3, 32, 32)


PAIRS: dict[str, tuple[Callable[[int], tuple[nn.Module, torch.Tensor]], int, int]] = {
    "MLP 256 to 128": (mlp, 256, 128),
    "CNN 32 to 16": (cnn, 32, 16),
}


def processor() -> float:
    """Seconds of the processor that this process has taken, and those that run programs for it."""
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    for porter in rooms._porters.values():
        fields = Path(f"/proc/{porter._process.pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / tick  # its own, and of rooms that have ended
    return total


def seconds(pair: str, sandbox: str) -> float:
    """How long one calibration takes."""
    make, wide, narrow = PAIRS[pair]
    torch.manual_seed(0)
    parent, examples = make(wide)
    program = record_program(parent.eval(), examples[:1])
    graph, weights = describe(FRONTEND, parent, examples[:1]), dict(FRONTEND.read(parent))
    child, _ = make(narrow)
    began = processor()
    report = transfer(
        graph, child, weights=weights, program=program, calibrate=examples, sandbox=sandbox, seconds=600
    )
    took = processor() - began
    assert report.calibration is not None
    return took


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--times", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    first = next(iter(PAIRS))
    found: dict[str, Any] = {"threads": 1, "times": options.times, "target": TARGET}
    warm = [seconds(first, "off"), seconds(first, "off")]
    found["first in a process"] = {"on": seconds(first, "on"), "off": warm[-1]}
    for pair in PAIRS:
        runs: dict[str, list[float]] = {"on": [], "off": []}
        for _ in range(options.times):
            for sandbox, taken in runs.items():
                taken.append(seconds(pair, sandbox))
        middle = {sandbox: median(taken) for sandbox, taken in runs.items()}
        found[pair] = {"on": runs["on"], "off": runs["off"], "costs": middle["on"] / middle["off"] - 1}
        print(pair, {name: round(value, 3) for name, value in middle.items()}, f"{found[pair]['costs']:+.1%}")
    print("first in a process", found["first in a process"])
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
