"""How good is a start before the first step? Scratch, plain and calibrated, on jobs that have been run.

    make starts ARGS="--workloads language --seeds 0 1 --weights FOLDER"

Each job of a sequence sees the models that the keeper had registered before it. Writes
benchmarks/results/starts.json and starts.md.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.training.arms import begin
from benchmarks.training.bench import Bench, benches
from benchmarks.training.run import CACHE, RESULTS
from benchmarks.training.tasks import task
from benchmarks.training.workloads import WORKLOADS

PAGES = RESULTS.parent
ARMS = ("scratch", "keeper", "calibrated")


def starts(bench: Bench) -> dict[str, Any]:
    """The scores of one job before it is trained, and what it starts from."""
    row: dict[str, Any] = {
        "workload": bench.sequence.workload.name,
        "seed": bench.sequence.seed,
        "job": bench.number,
        "spec": bench.job.spec,
    }
    for arm in ARMS:
        model = bench.fresh()
        start = begin(arm, bench.zoo, model, bench.job)
        row[arm] = {**asdict(start), "start": round(task(bench.job.data).score(model), 4)}
        if arm == "keeper" and (start.parent is None or start.exact):
            break
    parent = row["keeper"]["parent"]
    return row | {
        "parent": None if parent is None else {"job": parent, "spec": bench.parent(parent).job.spec},
        "target": bench.target,
    }


def page(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [
        "# Starts",
        "",
        "Made by `make starts`; every row is in starts.json. Scores before the first step "
        "(accuracy, or 1 / perplexity): as initialised, as the keeper starts it, and calibrated; the best "
        "that its run from scratch reached; seconds that the two queries took. Where the parent's function "
        "is taken over exactly, there is nothing to calibrate. Jobs without a parent are left out.",
        "",
        "| job | model | parent | scratch | plain | calibrated | trained | plain, s | calibrated, s |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row["parent"] is None:
            continue
        begun = [row.get(arm) for arm in ARMS]
        cells = [
            f"{row['workload']}-{row['seed']}, {row['job']}",
            _model(row["spec"]),
            f"{_model(row['parent']['spec'])} (job {row['parent']['job']})",
            *(f"{start['start']:.3f}" if start else "exact" for start in begun),
            f"{row['target']:.3f}",
            *(f"{start['seconds']:.2f}" if start else "" for start in begun[1:]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _model(spec: Any) -> str:
    return " ".join(str(value) for value in spec.values())


def main() -> None:
    """All jobs of the sequences that are named."""
    options = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    options.add_argument("--records", type=Path, default=RESULTS, help="of the runs")
    options.add_argument("--weights", type=Path, default=CACHE, help="that the runs have trained")
    options.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options.add_argument("--jobs", type=int, nargs="+", default=list(range(99)))
    options.add_argument("--dry-run", action="store_true", help="print, and write no files")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in chosen.workloads:
        for seed in chosen.seeds:
            for bench in benches(chosen.records, chosen.weights, name, seed, chosen.jobs):
                rows.append(starts(bench))
                print(json.dumps(rows[-1]), flush=True)
    print(page(rows))
    if not chosen.dry_run:
        (PAGES / "starts.json").write_text(json.dumps(rows, indent=1) + "\n")
        (PAGES / "starts.md").write_text(page(rows))


if __name__ == "__main__":
    main()
