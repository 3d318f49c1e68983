"""Make the page from the records: docs/evaluation.md and its plots. `make evaluation-page`

    python -m benchmarks.training.report [--records FOLDER] [--page docs/evaluation.md]

Nothing is trained here. Whatever has been run so far is reported, and how much of the whole that is. The
words around the tables are in page.md; {{name}} there is where a table of that name goes.
"""

import argparse
import json
import os
import platform
import re
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks.training import figures, findings
from benchmarks.training.arms import ARMS
from benchmarks.training.measures import Outcome, Record, best_rate, outcome
from benchmarks.training.run import RESULTS, SCREENED, records
from benchmarks.training.workloads import WORKLOADS

PAGE = Path(__file__).parent.parent.parent / "docs" / "evaluation.md"
TEMPLATE = Path(__file__).parent / "page.md"
TITLES = {
    "keeper": "ModelKeeper",
    "calibrated": "ModelKeeper, calibrated",
    "paper": "paper's operators",
    "copy": "name-and-shape copy",
}


def outcomes(found: list[Record]) -> dict[str, list[Outcome]]:
    """By arm: each job of one workload against the same job from scratch, at each arm's own rate."""
    rates = WORKLOADS[found[0]["workload"]].rates
    screened = [each for each in found if each["seed"] == 0 and each["job"] < SCREENED]
    run = [arm for arm in ARMS if any(each["arm"] == arm for each in screened)]
    chosen = {arm: best_rate(screened, arm, rates) for arm in run}
    cold = {
        (each["seed"], each["job"]): each
        for each in found
        if each["arm"] == "scratch" and each["rate"] == chosen["scratch"]
    }
    by: dict[str, list[Outcome]] = {arm: [] for arm in run if arm != "scratch"}
    for key, base in sorted(cold.items()):
        for each in found:
            mine = each["arm"] in by and (each["seed"], each["job"]) == key
            if mine and each["rate"] == own_rate(each, chosen):
                by[each["arm"]].append(outcome(each, base))
    return by


def own_rate(record: Record, chosen: dict[str, float]) -> float:
    """A cold start takes the rate from scratch; what needs no calibrating takes that of the plain start."""
    if record["parent"] is None:
        return chosen["scratch"]
    return chosen["keeper" if record["arm"] == "calibrated" and record["exact"] else record["arm"]]


def summary(these: list[Outcome], share: float = 0.99) -> dict[str, Any]:
    """Of several jobs with one arm."""
    speedups = [each.speedup(share) for each in these]
    gains = [100 * each.gain for each in these if each.gain is not None] or [float("nan")]
    return {
        "jobs": len(these),
        "cold": sum(each.record["parent"] is None for each in these),
        "never": sum(not each.reached[share] for each in these),
        "total": sum(e.cold_steps[share] for e in these) / sum(e.steps[share] for e in these),
        "seconds": sum(e.cold_seconds[share] for e in these) / sum(e.seconds[share] for e in these),
        "mean": mean(speedups),
        "median": median(speedups),
        "worst": min(speedups),
        "gain": mean(gains),
        "error": stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0,
    }


def main_table(by_workload: dict[str, dict[str, list[Outcome]]], share: float) -> str:
    """The paper's table 1."""
    lines = [
        "| workload | arm | jobs (cold) | all steps | all seconds | mean | median | worst | never "
        "| after the budget, points |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    every = {arm: [o for by in by_workload.values() for o in by.get(arm, [])] for arm in TITLES}
    for title, by in [*((WORKLOADS[name].title, by) for name, by in by_workload.items()), ("all", every)]:
        shared = {_job(each) for each in by.get("paper", [])}
        rows = [(TITLES["keeper"], by.get("keeper", []))]
        rows.append(
            (
                "ModelKeeper, jobs of the others",
                [each for each in by.get("keeper", []) if _job(each) in shared],
            )
        )
        rows += [(TITLES[arm], by.get(arm, [])) for arm in ("calibrated", "paper", "copy")]
        lines += [_row(title, arm, these, share) for arm, these in rows if these]
    return "\n".join(lines)


def _job(one: Outcome) -> tuple[str, int, int]:
    return one.record["workload"], one.record["seed"], one.record["job"]


def _row(workload: str, title: str, these: list[Outcome], share: float) -> str:
    found = summary(these, share)
    complete = all(each.gain is not None for each in these)
    return (
        f"| {workload} | {title} | {found['jobs']} ({found['cold']}) | {found['total']:.2f} | "
        f"{found['seconds']:.2f} | {found['mean']:.2f} | {found['median']:.2f} | {found['worst']:.2f} | "
        f"{found['never']} | " + (f"{found['gain']:+.2f} ± {found['error']:.2f} |" if complete else "|")
    )


def cluster_table(by_workload: dict[str, dict[str, list[Outcome]]]) -> str:
    """What a whole arrival sequence takes, until every job is at 99 %."""
    lines = [
        "| workload | seed | jobs | from scratch, s | ModelKeeper, s | saved |",
        "| --- |" + " ---: |" * 5,
    ]
    for name, by in by_workload.items():
        for seed in sorted({o.record["seed"] for o in by.get("keeper", [])}):
            these = [o for o in by["keeper"] if o.record["seed"] == seed]
            cold, warm = sum(o.cold_seconds[0.99] for o in these), sum(o.seconds[0.99] for o in these)
            lines.append(
                f"| {WORKLOADS[name].title} | {seed} | {len(these)} | {cold:.0f} | {warm:.0f} | "
                f"{100 * (1 - warm / cold):.0f} % |"
            )
    return "\n".join(lines)


def kind_table(by_workload: dict[str, dict[str, list[Outcome]]], found: dict[str, list[Record]]) -> str:
    """Which warm starts help? By what the keeper knew, and by the score right after the transfer."""
    kinds: dict[str, list[Outcome]] = {}
    for name, by in by_workload.items():
        data = {(each["seed"], each["job"]): each["data"] for each in found[name]}
        for each in by.get("keeper", []):
            record = each.record
            if record["parent"] is None:
                continue
            start = record["scores"][0] / max(each.scratch["scores"])
            if data[record["seed"], record["parent"]] != record["data"]:
                kind = "parent of another data set"
            elif record["exact"]:
                kind = "exact"
            else:
                kind = f"approximate, starts {'above' if start >= 0.5 else 'below'} half of the plateau"
            kinds.setdefault(f"{kind}, {WORKLOADS[name].title.lower()}", []).append(each)
    lines = [
        "| start | jobs | speed-up, job by job | after the budget, points |",
        "| --- | ---: | --- | ---: |",
    ]
    for kind, these in sorted(kinds.items()):
        speedups = ", ".join(f"{value:.2g}" for value in sorted(each.speedup() for each in these))
        gain = 100 * mean(each.gain for each in these if each.gain is not None)
        lines.append(f"| {kind} | {len(these)} | {speedups} | {gain:+.2f} |")
    return "\n".join(lines)


def calibrated_table(by_workload: dict[str, dict[str, list[Outcome]]]) -> str:
    """Plain against calibrated, where there is something to calibrate: the same jobs, the same parents."""
    lines = [
        "| workload | jobs | start, plain | start, calibrated | steps from scratch | plain | calibrated "
        "| sooner, as soon, later | seconds, plain | calibrated |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | :---: | ---: | ---: |",
    ]
    every: list[tuple[Outcome, Outcome]] = []
    rows = []
    for name, by in by_workload.items():
        plain = {_job(each): each for each in by.get("keeper", [])}
        pairs = [
            (plain[_job(each)], each)
            for each in by.get("calibrated", [])
            if _job(each) in plain and each.record["parent"] is not None and not each.record["exact"]
        ]
        rows.append((WORKLOADS[name].title, pairs))
        every += pairs
    for title, pairs in [*rows, ("all", every)]:
        if not pairs:
            continue
        starts = [mean(p[n].record["scores"][0] / max(p[n].scratch["scores"]) for p in pairs) for n in (0, 1)]
        steps = [sum(p[n].steps[0.99] for p in pairs) for n in (0, 1)]
        seconds = [sum(p[n].seconds[0.99] for p in pairs) for n in (0, 1)]
        counts = [sum(compare(a.steps[0.99], b.steps[0.99]) == sign for a, b in pairs) for sign in (1, 0, -1)]
        lines.append(
            f"| {title} | {len(pairs)} | {starts[0]:.0%} | {starts[1]:.0%} "
            f"| {sum(a.cold_steps[0.99] for a, _ in pairs):,} | {steps[0]:,} | {steps[1]:,} "
            f"| {', '.join(map(str, counts))} | {seconds[0]:.0f} | {seconds[1]:.0f} |"
        )
    return "\n".join(lines)


def compare(one: int, other: int) -> int:
    """1, 0 or -1: is the first one larger, the same, or smaller?"""
    return (one > other) - (one < other)


def rate_table(by_workload: dict[str, dict[str, list[Outcome]]], all_records: dict[str, list[Record]]) -> str:
    """Which learning rate each arm was given."""
    lines = [
        "| workload | grid | scratch | " + " | ".join(TITLES.values()) + " |",
        "| --- | --- |" + " ---: |" * (1 + len(TITLES)),
    ]
    for name in by_workload:
        screened = [e for e in all_records[name] if e["seed"] == 0 and e["job"] < SCREENED]
        rates = WORKLOADS[name].rates
        run = {each["arm"] for each in screened}
        cells = " | ".join(
            f"{best_rate(screened, arm, rates):g}" if arm in run else "" for arm in ("scratch", *TITLES)
        )
        lines.append(f"| {WORKLOADS[name].title} | {', '.join(f'{r:g}' for r in rates)} | {cells} |")
    return "\n".join(lines)


def extent_table(all_records: dict[str, list[Record]]) -> str:
    """How much of the whole has been run."""
    lines = ["| workload | jobs a seed | of | seeds | trainings |", "| --- |" + " ---: |" * 4]
    for name, found in all_records.items():
        seeds = sorted({each["seed"] for each in found})
        per = [len({e["job"] for e in found if e["seed"] == seed}) for seed in seeds]
        lines.append(
            f"| {WORKLOADS[name].title} | {', '.join(map(str, per))} | {WORKLOADS[name].count} | "
            f"{', '.join(map(str, seeds))} | {len(found)} |"
        )
    return "\n".join(lines)


def machine() -> str:
    """What all of it ran on."""
    import torch

    return (
        f"{os.cpu_count()} cores ({platform.machine()}), one thread a training, PyTorch {torch.__version__}"
    )


def main() -> None:
    """Tables and plots into the page; the numbers behind them into summary.json."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--records", type=Path, default=RESULTS)
    options.add_argument("--page", type=Path, default=PAGE)
    chosen = options.parse_args()
    found = {
        name: [each for path in sorted(chosen.records.glob(f"{name}-[0-9]*.jsonl")) for each in records(path)]
        for name in WORKLOADS
    }
    found = {name: these for name, these in found.items() if any(e["arm"] == "keeper" for e in these)}
    by_workload = {name: outcomes(these) for name, these in found.items()}
    parts = {
        "machine": machine(),
        "extent": extent_table(found),
        "rates": rate_table(by_workload, found),
        "speedup 99": main_table(by_workload, 0.99),
        "speedup 100": main_table(by_workload, 1.0),
        "kinds": kind_table(by_workload, found),
        "cluster": cluster_table(by_workload),
        "calibrated": calibrated_table(by_workload),
        **findings.parts(chosen.records),
    }
    text = TEMPLATE.read_text()
    for name in re.findall(r"{{([\w ]+)}}", text):
        text = text.replace("{{" + name + "}}", parts.get(name, "(not run)"))
    figures.draw(by_workload, found, chosen.records, chosen.page.parent / "images")
    for line in re.findall(r"^!.*$", text, re.MULTILINE):
        if not (chosen.page.parent / line.split("(")[1].rstrip(")")).exists():
            text = text.replace(line, "(not run)")
    chosen.page.write_text(text)
    numbers = {
        name: {arm: {str(share): summary(these, share) for share in (0.99, 1.0)} for arm, these in by.items()}
        for name, by in by_workload.items()
    }
    (chosen.records / "summary.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
