"""Which units should a narrower network keep? Operators compared, before and after training. `make narrowing`

Parents are trained here, for six epochs; a child of the same kind, but narrower, starts

    from scratch   as it was initialised
    prefix         with the first units of every space
    group L1       with the units of the largest absolute weights, summed over all tensors of the space
    modelkeeper    with `modelkeeper.transfer`

and for each, over several seeds of parent, child and order of images, the table says how accurate it is right
after the transfer, after `recalibrate` on 8 unlabelled batches, and after one epoch. (Training re-estimates
the statistics itself: the epoch ends the same with and without `recalibrate`.)
The rate is that of a warm start, 0.3 of the peak, for all but "from scratch", which takes the peak.
Seeds 0 to 2 served to choose among some dozen operators; the table is of others.
Writes benchmarks/results/narrowing.json and narrowing.md.
"""

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.helpers.small_nets import (
    BATCH,
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
from benchmarks.helpers.unit_rules import Weights, group_l1, prefix
from modelkeeper import transfer
from modelkeeper.frontends.torch import describe, load, read, recalibrate
from modelkeeper.graph import Graph
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.transform import apply, make_plan
from modelkeeper.transform.units import Shares

RESULTS = Path(__file__).parent / "results"
PAIRS = (("R16-1", "R8-1"), ("R24-1", "R16-1"), ("V16-1", "V8-1"))
PARENT_EPOCHS = 6
COLUMNS = ("start", "recalibrated", "after")
Operator = Callable[[nn.Module, nn.Module], object]


def chosen_by(rule: Callable[[Graph, Weights, int], Shares]) -> Operator:
    """A transfer that keeps other units than `modelkeeper.transfer` would."""

    def operator(parent: nn.Module, child: nn.Module) -> None:
        ours, theirs, weights = describe(child, INPUT), describe(parent, INPUT), dict(read(parent))
        pairs = twin_pairs(theirs, ours)
        assert pairs is not None
        made = apply(
            make_plan(theirs, ours, pairs), weights, importance=lambda space: rule(theirs, weights, space)
        )
        load(child, dict(made))

    return operator


OPERATORS: dict[str, Operator | None] = {
    "from scratch": None,
    "prefix": chosen_by(prefix),
    "group L1": chosen_by(group_l1),
    "modelkeeper": lambda parent, child: transfer(parent, child, INPUT, same_task=True, seed=0),
}


def measure(operator: Operator | None, parent: nn.Module, name: str, data: Data, seed: int) -> list[float]:
    """One child: its accuracies, in the order of COLUMNS."""
    child = build(name, seed=100 + seed)
    if operator is not None:
        operator(parent, child)
    fresh = copy.deepcopy(child)
    recalibrate(fresh, unlabelled(data, seed))
    found = [accuracy(child, data), accuracy(fresh, data)]
    rate = RATE if operator is None else WARM
    return [*found, accuracy(train(child, data, EPOCH, rate, 100 + seed), data)]


def unlabelled(data: Data, seed: int) -> list[Tensor]:
    """Eight batches of training images."""
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    return [data.train[chosen] for chosen in order[: 8 * BATCH].reshape(8, BATCH)]


def main() -> None:
    """Train the parents, measure every operator, print and write the table."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--data", type=Path, help="folder of Fashion-MNIST's four files")
    options.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    chosen = options.parse_args()
    torch.set_num_threads(1)
    data = fashion_mnist(chosen.data)
    rows = []
    for lender, name in PAIRS:
        steps = PARENT_EPOCHS * EPOCH
        parents = [train(build(lender, seed), data, steps, RATE, seed) for seed in chosen.seeds]
        reached = [accuracy(parent, data) for parent in parents]
        print(f"{lender}: {spread(reached)}", flush=True)
        for label, operator in OPERATORS.items():
            runs = [
                measure(operator, parent, name, data, seed)
                for seed, parent in zip(chosen.seeds, parents, strict=True)
            ]
            by_column = dict(zip(COLUMNS, zip(*runs, strict=True), strict=True))
            rows.append({"pair": f"{lender} to {name}", "parent": reached, "operator": label, **by_column})
            print(label, {column: spread(by_column[column]) for column in COLUMNS}, flush=True)
    write(rows, chosen.seeds)


def write(rows: list[dict[str, Any]], seeds: list[int]) -> None:
    """The table, for people and for programs."""
    lines = ["# Narrowing trained networks", "", "Made by `make narrowing`.", ""]
    lines += [
        "Accuracy in percent on the 10,000 test images of Fashion-MNIST, mean ± standard deviation over "
        f"seeds {', '.join(map(str, seeds))}. Parents: {PARENT_EPOCHS * EPOCH} steps; after: {EPOCH} steps "
        f"of {BATCH} images. "
        f"Recalibrated: statistics of batch norms from {8 * BATCH} unlabelled images.",
        "",
        "| pair (parent) | operator | " + " | ".join(COLUMNS) + " |",
        "| --- | --- |" + " ---: |" * len(COLUMNS),
    ]
    for row in rows:
        cells = [f"{row['pair']} ({spread(row['parent'])})", row["operator"]]
        lines.append("| " + " | ".join(cells + [spread(row[column]) for column in COLUMNS]) + " |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "narrowing.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS / "narrowing.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
