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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.training import figures, ladder, schedules, steady, studies, tables
from benchmarks.training.records import RESULTS, records
from benchmarks.training.sequence import CONSTANT
from benchmarks.training.tables import Results
from benchmarks.training.workloads import LONG, WORKLOADS

PAGE = Path(__file__).parent.parent.parent / "docs" / "evaluation.md"
TEMPLATE = Path(__file__).parent / "page.md"
TARGETS = {"all": 3.2, "worst": 1.8, "equal": 2.5, "harmed": 0.02, "steady": 4.3}


def load(folder: Path) -> tuple[list[Results], Results | None]:
    """The workloads that ModelKeeper has been run on, and the long sequence."""
    names = [name for name in WORKLOADS if (folder / f"{name}-0-warm.jsonl").exists()]
    found = [each for each in (Results(name, folder) for name in names) if each.of("keeper")]
    long = Results(LONG.name, folder) if (folder / f"{LONG.name}-0-warm.jsonl").exists() else None
    return found, long


def figures_of(results: Sequence[Results], long: Results | None) -> dict[str, Any]:
    """The numbers that the targets are held against, and the summaries of all workloads."""
    chance = tables.bands(results, CONSTANT)
    every = [one for each in results for one in each.outcomes("keeper")]
    by = {each.name: tables.summary(each.outcomes("keeper"), chance) for each in results}
    annealed = schedules.all_annealed(results)
    whole = tables.summary(every, chance)
    worst = min(by, key=lambda name: by[name].steps)
    jobs = sum(len(each.pairs) for each in annealed.values())
    steadily = long.outcomes("keeper")[steady.WINDOW :] if long else []
    cold = [one for one in every if not one.record["parents"]]
    warm = [one for one in every if one.record["parents"]]
    return {
        "workloads": {name: asdict(each) for name, each in by.items()},
        "jobs": whole.jobs,
        "all": whole.steps,
        "points": whole.gain,
        "cold share": sum(o.steps[0.99] for o in cold) / sum(o.steps[0.99] for o in every),
        "warm": steady.speedup(warm) if warm else 1.0,
        "worst": by[worst].steps,
        "worst workload": worst,
        "annealed points": mean(p for e in annealed.values() for p in e.points) if annealed else None,
        "equal": schedules.at_equal_score(annealed.values()) if annealed else None,
        "slower": whole.slower / whole.jobs,
        "below": sum(each.below for each in annealed.values()) / jobs if jobs else None,
        "steady": steady.speedup(steadily) if steadily else None,
    }


def _figure(value: Any) -> str:
    """For a sentence."""
    return f"{value:.2f}" if isinstance(value, float) else "?" if value is None else str(value)


def target_table(found: dict[str, Any]) -> str:
    """What was aimed at, and what came of it."""
    rows = [
        ("(a) all workloads, fewer steps", "≥ 3.2", found["all"], found["all"] >= TARGETS["all"]),
        (
            f"(a) the worst workload ({WORKLOADS[found['worst workload']].title.lower()})",
            "≥ 1.8",
            found["worst"],
            found["worst"] >= TARGETS["worst"],
        ),
        (
            "(b) all workloads, at equal score",
            "≥ 2.5",
            found["equal"],
            (found["equal"] or 0) >= TARGETS["equal"],
        ),
        ("(a) slower than the band allows", "≤ 2 %", found["slower"], found["slower"] <= TARGETS["harmed"]),
        ("(b) ends below the band", "≤ 2 %", found["below"], (found["below"] or 0) <= TARGETS["harmed"]),
        (
            "steady state of the long sequence",
            "≥ 4.3",
            found["steady"],
            (found["steady"] or 0) >= TARGETS["steady"],
        ),
    ]
    lines = ["| | target | measured | |", "| --- | ---: | ---: | --- |"]
    for title, aim, value, met in rows:
        shown = "not run" if value is None else f"{value:.1%}" if "%" in aim else f"{value:.2f}"
        lines.append(f"| {title} | {aim} | {shown} | {'' if value is None else 'met' if met else 'missed'} |")
    return "\n".join(lines)


def code(results: Sequence[Results], long: Results | None) -> str:
    """Which states of ModelKeeper the records are from."""
    found = sorted({state for each in [*results, *([long] if long else [])] for state in each.codes})
    which = ", ".join(f"`{state}`" for state in found)
    states = "one state" if len(found) == 1 else "these states"
    return f"All warm starts are from {states} of the sources ({which})."


def machine() -> str:
    """What all of it ran on."""
    import torch

    return (
        f"{os.cpu_count()} cores ({platform.machine()}), one thread a training, PyTorch {torch.__version__}"
    )


def parts(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """The tables by the name that the page gives them, and the numbers behind them."""
    results, long = load(folder)
    found = figures_of(results, long)
    every = [*results, *([long] if long else [])]
    rungs = records(folder / ladder.PATH)
    zoo, longer = records(folder / studies.PATH), records(folder / studies.LONGER)
    return {
        **{f"figure {name}": _figure(value) for name, value in found.items() if name != "workloads"},
        "machine": machine(),
        "code": code(results, long),
        "targets": target_table(found),
        "extent": tables.extent_table(every),
        "rates": tables.rate_table(every),
        "bands": tables.band_table(results),
        "constant 99": tables.constant_table(results),
        "constant 100": tables.constant_table(results, 1.0),
        "cosine": schedules.cosine_table(results),
        "ladder": ladder.table(rungs) if rungs else "",
        "advice": schedules.advice_table(results),
        "kinds": tables.kind_table(results),
        "calibrated": tables.calibrated_table(results),
        "two": tables.two_table(every),
        "long": steady.long_table(long) if long else "",
        "benefit": steady.benefit_table(results),
        "benefit by seed": steady.benefit_sentences(results),
        "zoo": studies.table(zoo) if zoo else "",
        "longer": studies.longer_table(longer) if longer else "",
    }, found


def main() -> None:
    """Tables and plots into the page; the numbers behind them into summary.json."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--records", type=Path, default=RESULTS)
    options.add_argument("--page", type=Path, default=PAGE)
    chosen = options.parse_args()
    made, numbers = parts(chosen.records)
    text = TEMPLATE.read_text()
    for name in re.findall(r"{{([\w ]+)}}", text):
        text = text.replace("{{" + name + "}}", made[name] or "(not run)")
    figures.draw(*load(chosen.records), chosen.page.parent / "images")
    for line in re.findall(r"^!.*$", text, re.MULTILINE):
        if not (chosen.page.parent / line.split("(")[1].rstrip(")")).exists():
            text = text.replace(line, "(not run)")
    chosen.page.write_text(text)
    (chosen.records / "summary.json").write_text(json.dumps(numbers, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
