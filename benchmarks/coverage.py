"""How many real architectures can be described, and how well? `make architectures`

Describes every classifier of pytorchcv and every tiny transformer of the catalogue, each in a worker
process, and writes the whole table to benchmarks/results/coverage.json and coverage.md.

An axis counts as opaque when an operation without a rule, or one that did not fit, decided its width.
With --verify, every free space is also put to the test (`permutation`): its units are shuffled on all its
axes, in double precision, and the change of the outputs is reported; it should be rounding.
"""

import argparse
import json
import platform
import statistics
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.helpers.catalogue import TRANSFORMERS, classifiers
from benchmarks.helpers.described import measure

RESULTS = Path(__file__).parent / "results"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the project promises."""
    built = [row for row in rows if row["built"]]
    good = [row for row in built if row["described"]]
    axes: Counter[str] = Counter()
    for row in good:
        axes.update(row["axes"])
    total = sum(axes.values())
    changes = [row["change"] for row in good if isinstance(row.get("change"), float)]
    tested = (
        {"shuffled": len(changes), "unchanged": sum(change < 1e-5 for change in changes)} if changes else {}
    )
    return {
        "names": len(rows),
        "built": len(built),
        "described": len(good),
        "described_percent": round(100 * len(good) / max(1, len(built)), 2),
        "axes": total,
        "axes_percent": {kind: round(100 * count / total, 2) for kind, count in sorted(axes.items())},
        "not_opaque_percent": round(100 * (1 - axes["opaque"] / total), 2),
        "on_shapes": sum(not any(note.startswith("fallback") for note in row["notes"]) for row in good),
        "largest_bytes": max(row["bytes"] for row in good),
        "median_compressed": round(statistics.median(row["compressed"] for row in good)),
        "fingerprints": len({row["fingerprint"] for row in good}),
        **tested,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = ["| model | layers | parameters | bytes | opaque axes | change | notes |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for row in rows:
        if not row.get("described"):
            problem = "FAILED" if row["built"] else "not built"
            lines.append(f"| {row['name']} | | | | | | {problem}: {row['error']} |")
            continue
        notes = "; ".join(row["notes"])[:160].replace("|", "/")
        opaque = f"{row['axes'].get('opaque', 0)}/{sum(row['axes'].values())}"
        change = f"{row['change']:.0e}" if isinstance(row.get("change"), float) else ""
        cells = [
            row["name"],
            row["layers"],
            f"{row['parameters']:,}",
            f"{row['bytes']:,}",
            opaque,
            change,
            notes,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th classifier")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    parser.add_argument(
        "--verify", type=int, default=0, metavar="N", help="shuffle models of up to N parameters"
    )
    parser.add_argument("--dry-run", action="store_true", help="print, and write no files")
    options = parser.parse_args()
    names = classifiers()[:: options.every] + list(TRANSFORMERS)
    names = [name for name in names if options.only in name]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for number, row in enumerate(pool.map(partial(measure, verify=options.verify), names), 1):
            rows.append(row)
            state = f"{row['layers']} layers" if row.get("described") else row["error"][:100]
            print(f"[{number}/{len(names)}] {row['name']}: {state}", flush=True)
    groups = {
        "pytorchcv": [row for row in rows if row["name"] not in TRANSFORMERS],
        "transformers": [row for row in rows if row["name"] in TRANSFORMERS],
    }
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        "summary": {name: summary(group) for name, group in groups.items() if group},
    }
    print(json.dumps(result, indent=1))
    if not options.dry_run:
        RESULTS.mkdir(exist_ok=True)
        result["rows"] = rows
        (RESULTS / "coverage.json").write_text(json.dumps(result, indent=1) + "\n")
        text = ["# Coverage of the PyTorch front end", "", "Made by `make architectures`.", ""]
        for name, group in groups.items():
            if group:
                text += [
                    f"## {name}",
                    "",
                    "```json",
                    json.dumps(result["summary"][name], indent=1),
                    "```",
                    "",
                    table(group),
                    "",
                ]
        (RESULTS / "coverage.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
