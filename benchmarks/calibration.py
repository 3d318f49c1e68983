"""What does fitting a child's layers on a few examples give, and what does it cost? `make calibration`

Parents are trained here for six epochs of Fashion-MNIST. A child that is narrower, shallower or of another
family starts

    scratch      as it was initialised
    plain        with `modelkeeper.transfer`
    calibrated   with `modelkeeper.transfer(..., calibrate=1,024 training images)`, without labels

and is trained as the evaluation trains: at a constant rate, judged by averaged weights, so that one run gives
a whole curve. A training from scratch takes PLATEAU steps, and its best score is its plateau. Counted are the
steps to 99 % of that, the cost of calibrating added. Costs are CPU time on one thread, as multiples of a
training step's, both the minimum of several measurements.

All arms have the same grid of rates. For each pair the rate of an arm is chosen on seeds 0 to 2 by one rule:
from scratch the one with the highest mean plateau, after a transfer the one with the fewest mean steps to
99 % (a run that does not get there counts as the whole budget; ties go to the higher rate). What is reported
are seeds 3 to 5, which served for nothing else.

Also a character model (GPT, on the source text of Python's standard library), half as wide and half as deep:
its perplexity at the start, and after 100 steps at the rate that it has from scratch.

    python -m benchmarks.calibration [--only half] [--kept FOLDER] [--no-text] [--no-images]

--kept keeps trained parents and every run, so that a run goes on where the last was stopped.
Writes benchmarks/results/calibration.json and calibration.md.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import nn

from benchmarks.helpers.characters import GPT, Text, corpus, perplexity, train_characters
from benchmarks.helpers.small_nets import BATCH, EPOCH, RATE, build, fashion_mnist, train
from benchmarks.training import loop
from benchmarks.training.tasks import Task
from modelkeeper import transfer
from modelkeeper.frontends.fit_tasks import Calibration

RESULTS = Path(__file__).parent / "results"
PAIRS = {
    "half the width": ("R16-1", "R8-1"),
    "half the blocks": ("R8-2", "R8-1"),
    "another family": ("R16-1", "V8-2"),
}
CHOOSE, REPORT = (0, 1, 2), (3, 4, 5)  # seeds
RATES = (0.1, 0.03, 0.01)
ARMS = ("plain", "calibrated")
EXAMPLES = 1_024
PARENT_EPOCHS = 6
BUDGET, PLATEAU = 600, 1_200  # steps after a transfer, and from scratch
JUDGED = 5_000  # test images
INPUT = torch.zeros(2, 1, 28, 28)
LONG = 1e6  # seconds: the budget of calibration is in examples here


class Pictures(Task):
    """Fashion-MNIST in batches of the size that costs are counted in."""

    @property
    def batch(self) -> int:
        """Examples to a step."""
        return BATCH


data = cache(fashion_mnist)


@cache
def pictures() -> Pictures:
    """12,032 images to train on, 5,000 to judge by."""
    found = data()
    held = found.test[:JUDGED], found.test_labels[:JUDGED]
    return Pictures("fashion-mnist", found.train, found.train_labels, *held, 10)


def cpu_seconds(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU time that some work takes."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


class Runs:
    """Trained parents and runs, kept in a folder if there is one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        file = folder / "runs.jsonl" if folder else None
        text = file.read_text() if file and file.exists() else ""
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def row(self, make: Callable[[], dict[str, Any]], **key: Any) -> dict[str, Any]:
        """A run by what it is a run of: as it was kept, or made now."""
        for row in self.rows:
            if all(row.get(name) == value for name, value in key.items()):
                return row
        found = key | make()
        print(json.dumps({name: value for name, value in found.items() if name != "curve"}), flush=True)
        self.rows.append(found)
        if self._folder:
            with (self._folder / "runs.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
        return found

    def parent(self, name: str, seed: int) -> nn.Module:
        """A trained parent."""
        model = build(name, seed)
        file = self._folder / f"{name}-{seed}-{PARENT_EPOCHS}.pt" if self._folder else None
        if file is not None and file.exists():
            model.load_state_dict(torch.load(file, weights_only=True))
            return model.eval()
        train(model, data(), PARENT_EPOCHS * EPOCH, RATE, seed)
        if file is not None:
            torch.save(model.state_dict(), file)
        return model

    def scratch(self, name: str, seed: int, rate: float) -> dict[str, Any]:
        """A child from scratch, to its plateau."""

        def make() -> dict[str, Any]:
            _, curve = loop.train(build(name, 100 + seed), pictures(), rate, 100 + seed, PLATEAU)
            return {"best": curve.best, "curve": [curve.steps, curve.scores]}

        return self.row(make, kind="scratch", child=name, seed=seed, rate=rate)

    def start(self, pair: str, seed: int) -> dict[str, Any]:
        """How both transfers start, and what calibrating costs."""

        def make() -> dict[str, Any]:
            parent, name, batch = self.parent(PAIRS[pair][0], seed), PAIRS[pair][1], images(seed)
            children = self._children(pair, seed)
            step = cpu_seconds(lambda: train(build(name, 0), data(), 10, 0.01, 0)) / 10
            took = cpu_seconds(lambda: transfer(parent, build(name, 0), calibrate=batch, seconds=LONG))
            found = {arm: pictures().score(model) for arm, model in children.items()}
            return {"parent": pictures().score(parent), "cost": took / step, "step_seconds": step} | found

        return self.row(make, kind="start", pair=pair, seed=seed)

    def after(self, pair: str, arm: str, seed: int, rate: float, target: float) -> dict[str, Any]:
        """A child after a transfer, until it reaches the target."""

        def make() -> dict[str, Any]:
            model = copy.deepcopy(self._children(pair, seed)[arm])
            _, curve = loop.train(model, pictures(), rate, 100 + seed, BUDGET, target)
            reached = curve.steps[-1] if curve.scores[-1] >= target else None
            return {"steps": reached, "curve": [curve.steps, curve.scores]}

        return self.row(make, kind="after", pair=pair, arm=arm, seed=seed, rate=rate, target=target)

    @cache  # noqa: B019 (lives as long as the program)
    def _children(self, pair: str, seed: int) -> dict[str, nn.Module]:
        lender, name = PAIRS[pair]
        parent = self.parent(lender, seed)
        plain, child = build(name, 100 + seed), build(name, 100 + seed)
        transfer(parent, plain, INPUT)
        transfer(parent, child, calibrate=images(seed), seconds=LONG)
        return {"plain": plain, "calibrated": child}


def images(seed: int) -> torch.Tensor:
    """Training images, without their labels."""
    found = pictures().inputs
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed))
    return found[order[:EXAMPLES]]


def first(curve: list[list[float]], target: float) -> float | None:
    """The first step of a curve that reaches a target."""
    return next((step for step, value in zip(*curve, strict=True) if value >= target), None)


def study(pair: str, runs: Runs) -> dict[str, Any]:
    """One pair: the rates that are chosen, and what they give on fresh seeds."""
    name = PAIRS[pair][1]
    cold = max(RATES, key=lambda rate: mean(runs.scratch(name, seed, rate)["best"] for seed in CHOOSE))

    def target(seed: int) -> float:
        return 0.99 * float(runs.scratch(name, seed, cold)["best"])

    def cost(arm: str, rate: float) -> float:
        found = [runs.after(pair, arm, seed, rate, target(seed))["steps"] for seed in CHOOSE]
        return mean(BUDGET if each is None else each for each in found)

    rates = {arm: min(RATES, key=lambda rate: cost(arm, rate)) for arm in ARMS}
    row: dict[str, Any] = {"pair": pair, "rates": {"scratch": cold, **rates}, "seeds": []}
    for seed in REPORT:
        start, scratch = runs.start(pair, seed), runs.scratch(name, seed, cold)
        found: dict[str, Any] = {"seed": seed, "plateau": scratch["best"], **start}
        found["scratch_steps"] = first(scratch["curve"], target(seed))
        for arm in ARMS:
            steps = runs.after(pair, arm, seed, rates[arm], target(seed))["steps"]
            extra = start["cost"] if arm == "calibrated" else 0.0
            found[f"{arm}_steps"] = None if steps is None else steps + extra
        row["seeds"].append(found)
    return row


def language(seeds: list[int], folder: Path | None) -> list[dict[str, Any]]:
    """A character model of half the width and depth."""
    rows = []
    for seed in seeds:
        text = corpus()
        parent = _characters(text, seed, folder)
        scratch, plain, child = (_fresh(seed) for _ in range(3))
        transfer(parent, plain, text.train[:2])
        batch = text.windows(EXAMPLES, seed)
        report: Calibration | None = transfer(parent, child, calibrate=batch, seconds=LONG).calibration
        assert report is not None
        rows.append(
            {
                "seed": seed,
                "parent": perplexity(parent, text),
                "scratch": perplexity(scratch, text),
                "plain": perplexity(plain, text),
                "calibrated": perplexity(child, text),
                "plain_after": perplexity(train_characters(plain, text, 100, seed), text),
                "calibrated_after": perplexity(train_characters(child, text, 100, seed), text),
                "scratch_after": perplexity(train_characters(scratch, text, 100, seed), text),
                "fitted": report.fitted,
                "layers": len(report.layers),
                "kept": report.kept,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _characters(text: Text, seed: int, folder: Path | None) -> GPT:
    torch.manual_seed(seed)
    model = GPT(96, 4, 4)
    file = folder / f"GPT-{seed}.pt" if folder else None
    if file is not None and file.exists():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.eval()
    train_characters(model, text, 600, seed)
    if file is not None:
        torch.save(model.state_dict(), file)
    return model


def _fresh(seed: int) -> GPT:
    torch.manual_seed(100 + seed)
    return GPT(48, 2, 2)


def spread(values: list[float], scale: float = 100) -> str:
    """Mean ± standard deviation."""
    return f"{scale * mean(values):.1f} ± {scale * (stdev(values) if len(values) > 1 else 0):.1f}"


def steps(values: list[float | None]) -> str:
    """The number of steps for each seed, and their mean; what is not reached counts as the budget."""
    each = ", ".join("never" if value is None else f"{value:.0f}" for value in values)
    return f"{mean(BUDGET if value is None else value for value in values):.0f} ({each})"


def page(studies: list[dict[str, Any]], texts: list[dict[str, Any]]) -> str:
    """The results for people."""
    lines = ["# Calibrated transfer", "", "Made by `make calibration`; every run is in calibration.json.", ""]
    lines += [
        f"Fashion-MNIST, accuracy in percent on {JUDGED:,} test images, mean ± standard deviation over seeds "
        f"{', '.join(map(str, REPORT))}. Calibrated on {EXAMPLES:,} unlabelled training images. Constant "
        "rate, averaged weights. Steps: when 99 % of the plateau from scratch is first reached, judged as "
        "in the evaluation; the cost of calibration is included. Mean, and each seed; what is never "
        f"reached counts as the budget, {BUDGET}. One grid of rates for all ({', '.join(map(str, RATES))}); "
        f"the rate of each arm was chosen on seeds {', '.join(map(str, CHOOSE))}.",
        "",
        "| pair | parent | plateau | init | rate | start | steps to 99 % | cost in steps |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in studies:
        pair, seeds, rates = row["pair"], row["seeds"], row["rates"]
        both = " | ".join(spread([each[key] for each in seeds]) for key in ("parent", "plateau"))
        title = f"{pair}: {' to '.join(PAIRS[pair])}"
        cost = f"{mean(each['cost'] for each in seeds):.0f}"
        cells = {arm: spread([each[arm] for each in seeds]) for arm in ARMS} | {"scratch": ""}
        for arm in ("scratch", *ARMS):
            reached = steps([each[f"{arm}_steps"] for each in seeds])
            lines.append(
                f"| {title} | {both} | {arm} | {rates[arm]:g} | {cells[arm]} | {reached} "
                f"| {cost if arm == 'calibrated' else ''} |"
            )
    if texts:
        lines += ["", "## Characters", ""]
        lines += [
            "Perplexity per character on held-out source text of Python's standard library. Parent: a GPT 96 "
            "wide and 4 layers deep, 600 steps; child: 48 wide, 2 layers. "
            f"Calibrated on {EXAMPLES:,} windows of 64 characters. One rate for all. "
            f"Seeds {', '.join(str(row['seed']) for row in texts)}.",
            "",
            "| init | start | after 100 steps |",
            "| --- | ---: | ---: |",
            f"| parent | {spread([row['parent'] for row in texts], 1)} | |",
        ]
        for label in ("scratch", "plain", "calibrated"):
            both = " | ".join(spread([row[key] for row in texts], 1) for key in (label, f"{label}_after"))
            lines.append(f"| {label} | {both} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything, print and write the tables."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--only", default="", help="only pairs whose name contains this")
    options.add_argument("--kept", type=Path, help="folder to keep trained networks and runs in")
    options.add_argument("--no-text", action="store_true")
    options.add_argument("--no-images", action="store_true")
    options.add_argument("--dry-run", action="store_true", help="print, and write no files")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    runs = Runs(chosen.kept)
    pairs = [] if chosen.no_images else [pair for pair in PAIRS if chosen.only in pair]
    studies = [study(pair, runs) for pair in pairs]
    texts = [] if chosen.no_text else language(list(REPORT), chosen.kept)
    text = page(studies, texts)
    print(text)
    if not chosen.dry_run:
        RESULTS.mkdir(exist_ok=True)
        everything = {"pairs": studies, "characters": texts, "runs": runs.rows}
        (RESULTS / "calibration.json").write_text(json.dumps(everything, indent=1) + "\n")
        (RESULTS / "calibration.md").write_text(text)


if __name__ == "__main__":
    main()
