"""Does noise on inserted identities help a deeper network to learn? `make deepening`

Parents are plain nets (convolution, batch norm, rectifier) with one block in each stage; a child has two.
What is inserted is an identity, to which noise of a given deviation is added, divided by the root of the
fan-in. For each deviation, over several seeds of parent, child and order of images: the accuracy right after
the transfer and after one epoch, beside a child that starts from scratch.
Writes benchmarks/results/deepening.json and deepening.md.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.helpers.small_nets import (
    EPOCH,
    INPUT,
    RATE,
    WARM,
    Data,
    accuracy,
    build,
    fashion_mnist,
    spread,
    train,
)
from modelkeeper import transfer

RESULTS = Path(__file__).parent / "results"
PARENT, CHILD = "V8-1", "V8-2"
NOISES = (None, 0.0, 0.01, 0.1, 0.5)  # None: from scratch
COLUMNS = "start", "after"


def measure(noise: float | None, parent: torch.nn.Module, data: Data, seed: int) -> list[float]:
    """One child: its accuracies, in the order of COLUMNS."""
    child = build(CHILD, seed=100 + seed)
    if noise is not None:
        transfer(parent, child, INPUT, noise=noise, seed=seed)
    rate = RATE if noise is None else WARM
    return [accuracy(child, data), accuracy(train(child, data, EPOCH, rate, 100 + seed), data)]


def main() -> None:
    """Train the parents, measure each noise, print and write the table."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--data", type=Path, help="folder of Fashion-MNIST's four files")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options.add_argument("--epochs", type=int, default=2, help="of the parents")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    data = fashion_mnist(chosen.data)
    parents = [train(build(PARENT, seed), data, chosen.epochs * EPOCH, RATE, seed) for seed in chosen.seeds]
    reached = spread([accuracy(parent, data) for parent in parents])
    rows: list[dict[str, Any]] = []
    for noise in NOISES:
        runs = [
            measure(noise, parent, data, seed) for seed, parent in zip(chosen.seeds, parents, strict=True)
        ]
        rows.append({"noise": noise, **dict(zip(COLUMNS, zip(*runs, strict=True), strict=True))})
        print(noise, {column: spread(rows[-1][column]) for column in COLUMNS}, flush=True)
    lines = ["# Noise on inserted identities", "", "Made by `make deepening`.", ""]
    lines += [
        f"{PARENT} (parent, {chosen.epochs * EPOCH} steps, {reached} %) to {CHILD}. Accuracy in percent on "
        "the test images of Fashion-MNIST, mean ± standard deviation over seeds "
        f"{', '.join(map(str, chosen.seeds))}; after: {EPOCH} steps.",
        "",
        "| noise | " + " | ".join(COLUMNS) + " |",
        "| --- |" + " ---: |" * len(COLUMNS),
    ]
    for row in rows:
        name = "from scratch" if row["noise"] is None else f"{row['noise']:g}"
        lines.append("| " + " | ".join([name, *(spread(row[column]) for column in COLUMNS)]) + " |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "deepening.json").write_text(json.dumps({"parent": reached, "rows": rows}, indent=1) + "\n")
    (RESULTS / "deepening.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
