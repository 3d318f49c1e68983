"""Does a short race find the right start? `make probing`

Pairs of parents and children for which the right answer differs: a wider and a deeper child, half the width,
half the blocks, another family, a plain chain that loses layers, a parent that knows another data set, one
that memorised 600 pictures, and one that was hardly trained. For each

    cold, warm, shrunk and, where the transfer is not exact, calibrated

are trained as the evaluation trains (constant rate, averaged weights), with one rate, and it is counted after
how many steps each first reaches 99 % of the best that the cold start reaches. Then the child is made once
more with `transfer(..., probe=...)`: which start did the race choose, and how many steps more than the best
of them does that take (its regret)? A start that never gets there counts as the budget. The race's own steps,
and the cost of calibrating, are not in these counts but stated.

    python -m benchmarks.probing [--seeds 3 4] [--only half] [--kept FILE] [--rates 0.05]

The rule was found on seeds 0 to 2, in part with a calibration that has been changed since: seeds from 3 on
are fresh. Rows are kept in a file as they are made, and a run goes on where the last was stopped.
Writes benchmarks/results/probing.json and probing.md.
"""

import argparse
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.helpers.small_nets import build
from benchmarks.training.loop import train
from benchmarks.training.tasks import Task, task
from modelkeeper import transfer

RESULTS = Path(__file__).parent / "results"
INPUT = torch.zeros(2, 1, 14, 14)
PARENT, BUDGET = 600, 500  # steps
FEW, POOR = 600, 25  # pictures that a parent memorises; steps of one that is hardly trained
EXAMPLES = 1_024
CHOSEN_ON = (0, 1, 2)

# The parent, how it was trained and on what; the child, and on what it is trained.
CASES = {
    "wider": ("R8-1", "well", "fashion-mnist", "R12-1", "fashion-mnist"),
    "deeper": ("R8-1", "well", "fashion-mnist", "R8-2", "fashion-mnist"),
    "half the width": ("R16-1", "well", "fashion-mnist", "R8-1", "fashion-mnist"),
    "half the blocks": ("R8-2", "well", "fashion-mnist", "R8-1", "fashion-mnist"),
    "another family": ("R16-1", "well", "fashion-mnist", "V8-2", "fashion-mnist"),
    "fewer plain layers": ("V8-3", "well", "fashion-mnist", "V8-1", "fashion-mnist"),
    "another data set": ("R8-1", "well", "fashion-mnist", "R8-1", "mnist"),
    "memorised": ("R8-1", "memorised", "fashion-mnist", "R12-1", "fashion-mnist"),
    "poor": ("R8-1", "poor", "fashion-mnist", "R12-1", "fashion-mnist"),
}
STARTS = ("cold", "warm", "shrunk", "calibrated")


def trained_parent(case: str, seed: int, rate: float, known: dict[tuple[Any, ...], nn.Module]) -> nn.Module:
    """The parent of a case, trained once."""
    name, how, source, _, _ = CASES[case]
    key = name, how, source, seed
    if key not in known:
        whole = task(source)
        steps, data = PARENT, whole
        if how == "memorised":
            few = whole.inputs[:FEW], whole.targets[:FEW]
            data = Task(whole.name, *few, whole.held_out, whole.held_targets, whole.classes)
        if how == "poor":
            steps = POOR
        known[key] = train(build(name, seed), data, rate, seed, steps)[0].eval()
    return known[key]


def batches(data: Task, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Training examples, as a loader gives them."""
    order = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(seed))
    for chosen in torch.split(order, data.batch):
        yield data.inputs[chosen], data.targets[chosen]


def measure(case: str, seed: int, rate: float, known: dict[tuple[Any, ...], nn.Module]) -> dict[str, Any]:
    """One case: what each start needs, and what the race chose."""
    _, _, source, name, goal = CASES[case]
    parent, data, same = trained_parent(case, seed, rate, known), task(goal), source == goal
    starts = {label: build(name, 100 + seed) for label in STARTS}
    exact = transfer(parent, starts["warm"], INPUT, same_task=same).exact
    transfer(parent, starts["shrunk"], INPUT, same_task=same, shrink_perturb=(0.5, 0.2))
    fitted = None
    if not exact:
        given = [(data.inputs[-EXAMPLES:], data.targets[-EXAMPLES:])]
        found = transfer(parent, starts["calibrated"], calibrate=given, same_task=same, seconds=1e6)
        fitted = found.calibration
    if fitted is None or not fitted.kept:
        del starts["calibrated"]
    row: dict[str, Any] = {"case": case, "seed": seed, "rate": rate, "exact": exact, "steps": {}, "best": {}}
    target = 0.0
    for label, model in starts.items():
        _, curve = train(copy.deepcopy(model), data, rate, 100 + seed, BUDGET, target or None)
        if label == "cold":
            target = 0.99 * curve.best
        reached = [step for step, value in zip(curve.steps, curve.scores, strict=True) if value >= target]
        row["steps"][label], row["best"][label] = min(reached, default=None), curve.best
    child, begun = build(name, 100 + seed), time.process_time()
    report = transfer(
        parent,
        child,
        same_task=same,
        probe=batches(data, 500 + seed),
        loss=cross_entropy,
        optimizer=lambda given: torch.optim.SGD(given, rate, momentum=0.9, weight_decay=5e-4, nesterov=True),
    )
    assert report.race is not None
    row |= {"chosen": report.race.winner, "race": report.race.to_dict(), "cpu": time.process_time() - begun}
    return row


def needed(row: dict[str, Any], start: str) -> int:
    """Steps to the target; the budget if it is not reached, or if there is no such start the warm one's."""
    steps = row["steps"].get(start, row["steps"]["warm"])
    return BUDGET if steps is None else int(steps)


def page(rows: list[dict[str, Any]]) -> str:
    """The results for people."""
    lines = [
        "# Does a short race find the right start?",
        "",
        "Made by `make probing`; every race is in probing.json.",
        "",
        "Fashion-MNIST and MNIST, 4,000 pictures of 14 by 14, batches of 32, SGD at a constant rate with "
        f"averaged weights, {BUDGET} steps. Steps: when each start first reaches 99 % of the best accuracy "
        "of the cold start on 2,000 test pictures, looked at every 20 steps, later every 40. Regret: how "
        "many more the chosen start takes than the best of them. A race takes "
        f"{mean(row['race']['steps'] for row in rows):.0f} training steps.",
    ]
    for title, chosen in (("Seeds that the rule was found on", True), ("Fresh seeds", False)):
        group = [row for row in rows if (row["seed"] in CHOSEN_ON) == chosen]
        if group:
            lines += ["", f"## {title}", "", *_table(group)]
    return "\n".join(lines) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| pair | seed | rate | cold | warm | shrunk | calibrated | chosen | regret | of always warm |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    order = list(CASES)
    for row in sorted(rows, key=lambda each: (each["rate"], order.index(each["case"]), each["seed"])):
        cells = [
            ("never" if row["steps"][label] is None else str(row["steps"][label]))
            if label in row["steps"]
            else ""
            for label in STARTS
        ]
        best = min(needed(row, label) for label in row["steps"])
        regrets = [needed(row, label) - best for label in (row["chosen"], "warm")]
        lines.append(
            f"| {row['case']} | {row['seed']} | {row['rate']:g} | {' | '.join(cells)} | {row['chosen']} "
            f"| {regrets[0]} | {regrets[1]} |"
        )
    lines += ["", "| rule | mean steps | mean regret | slower than cold by more than 40 steps |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    for label in ("probe", "probe, with the steps of the race", *STARTS, "the best of them"):
        steps, least, slower = [], [], 0
        for row in rows:
            best = min(needed(row, each) for each in row["steps"])
            taken = row["chosen"] if label.startswith("probe") else label
            extra = row["race"]["steps"] if "race" in label else 0
            steps.append(best if label == "the best of them" else needed(row, taken) + extra)
            least.append(best)
            slower += steps[-1] > needed(row, "cold") + 40
        name = f"always {label}" if label in STARTS else label
        regret = mean(steps) - mean(least)
        lines.append(f"| {name} | {mean(steps):.0f} | {regret:.0f} | {slower} of {len(rows)} |")
    return lines


def main() -> None:
    """Measure everything, print and write the tables."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options.add_argument("--rates", type=float, nargs="+", default=[0.05])
    options.add_argument("--only", default="", help="only cases whose name contains this")
    options.add_argument("--kept", type=Path, help="a file of rows to add to")
    options.add_argument("--dry-run", action="store_true", help="print, and write no results")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    text = chosen.kept.read_text() if chosen.kept and chosen.kept.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    done = {(row["case"], row["seed"], row["rate"]) for row in rows}
    for rate in chosen.rates:
        for seed in chosen.seeds:
            known: dict[tuple[Any, ...], nn.Module] = {}
            for case in CASES:
                if chosen.only in case and (case, seed, rate) not in done:
                    rows.append(measure(case, seed, rate, known))
                    brief = {key: rows[-1][key] for key in ("case", "seed", "rate", "steps", "chosen", "cpu")}
                    print(json.dumps(brief), flush=True)
                    if chosen.kept:
                        with chosen.kept.open("a") as file:
                            file.write(json.dumps(rows[-1]) + "\n")
    found = page(rows)
    print(found)
    if not chosen.dry_run:
        (RESULTS / "probing.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "probing.md").write_text(found)


if __name__ == "__main__":
    main()
