"""What does `run.report(model=model)` cost a training? `python -m benchmarks.reporting`

The same training, without and with reports after every epoch, one after the other in one process, several
times; the minimum of each counts. Reports keep each state, since each is better than the one before: the
worst case. Counted is the training from its first step to its last, with what is written meanwhile in the
background; not the warm start and not `finish`, whose seconds stand beside it. `held_up`: what the training's
own thread computed in reports, as a share; `cpu_ratio`: of the work of all threads, which a busy machine does
not blur as it does time. Writes benchmarks/results/reporting.json.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from modelkeeper import ModelKeeperClient

RESULTS = Path(__file__).parent / "results"
META = {"data": "noise", "task": "classification"}
EPOCHS = 8


def small_cnn() -> nn.Module:
    """A convolutional network of about 100,000 parameters."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def wide_mlp() -> nn.Module:
    """A perceptron of about 25 million parameters: many bytes for little computing, the worst case."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in ((3072, 3072), (3072, 3072), (3072, 2048)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, 10))


def train(make: Callable[[], nn.Module], steps: int, folder: str | None) -> dict[str, float]:
    """Train once, with reports if there is a folder for them."""
    torch.manual_seed(0)
    model, held_up, run = make(), 0.0, None
    x, y = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    if folder is not None:
        client = ModelKeeperClient(folder, on_error="raise")
        run = client.start(model, META, example_inputs=x[:2])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    begun, worked = time.perf_counter(), time.process_time()
    for epoch in range(EPOCHS):
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if run is not None:
            before = time.thread_time()
            run.report(accuracy=0.1 + epoch / 100, step=epoch, model=model)
            held_up += time.thread_time() - before
    seconds, cpu = time.perf_counter() - begun, time.process_time() - worked
    begun = time.perf_counter()
    if run is not None:
        run.finish()
        client.stop()
    return {"seconds": seconds, "cpu": cpu, "held_up": held_up, "finish": time.perf_counter() - begun}


def compare(name: str, make: Callable[[], nn.Module], steps: int, times: int) -> dict[str, Any]:
    """Both kinds of training, in turn."""
    plain, reporting = [], []
    train(make, 1, None)  # warm up
    with tempfile.TemporaryDirectory() as folder:
        train(make, 1, folder)
    for _ in range(times):
        plain.append(train(make, steps, None))
        with tempfile.TemporaryDirectory() as folder:
            reporting.append(train(make, steps, folder))
    best = min(reporting, key=lambda result: result["seconds"])
    alone = min(result["seconds"] for result in plain)
    result: dict[str, Any] = {
        "parameters": sum(tensor.numel() for tensor in make().parameters()),
        "seconds_without": alone,
        "seconds_with": best["seconds"],
        "ratio": best["seconds"] / alone,
        "cpu_ratio": min(r["cpu"] for r in reporting) / min(r["cpu"] for r in plain),
        "held_up": min(result["held_up"] for result in reporting) / alone,
        "finish_seconds": min(result["finish"] for result in reporting),
        "all_without": [result["seconds"] for result in plain],
        "all_with": [result["seconds"] for result in reporting],
    }
    print(
        name,
        json.dumps({key: round(value, 4) for key, value in result.items() if not isinstance(value, list)}),
    )
    return result


def main() -> None:
    """Compare, print, write."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--times", type=int, default=4)
    options.add_argument("--seconds", type=float, default=10.0, help="about how long a training takes")
    options.add_argument("--output", type=Path, default=RESULTS / "reporting.json")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for name, make in (("small CNN", small_cnn), ("wide MLP", wide_mlp)):
        train(make, 1, None)  # the first steps of a process are slow
        step = train(make, 4, None)["seconds"] / EPOCHS / 4
        steps = max(1, round(chosen.seconds / EPOCHS / step))
        results[name] = compare(name, make, steps, chosen.times) | {
            "steps": steps * EPOCHS,
            "reports": EPOCHS,
        }
    machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], "torch": torch.__version__}
    chosen.output.write_text(json.dumps({"machine": machine, "trainings": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
