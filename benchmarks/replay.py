"""Do the spaces and degrees of a model hold? Widen it without its constructor, and compare. `make widen`

Every free space of a model gets more units (`widening`). A constructor could not build most of these models:
they have widths that no configuration offers. So what the model did is replayed, operation by operation
(`steps`), with the new tensors and sizes. If the outputs are the same, then every axis that has to change
did, and every share is where it belongs.

    python -m benchmarks.replay [--only TEXT] [--every N] [--factor 2]

For each model: whether the replay at the old sizes computes what the model does, by how much the outputs of
the wider ones differ (below 1e-6 counts as exact: everything runs in double precision), and how many of the
parameters' axes became wider. Beside it stands what rounding alone does: the change when the inputs move in
their last digit, with nothing widened. Kernels, and what the inputs and outputs decide, are not counted. The
table is written to benchmarks/results/replay.json, its summary to replay.md.
"""

import argparse
import json
import platform
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.helpers.catalogue import TRANSFORMERS, build, distinct_classifiers
from benchmarks.helpers.permutation import difference, randomise
from benchmarks.helpers.replayed import run_on_small, widened

RESULTS = Path(__file__).parent / "results"


def measure(name: str, factors: Sequence[float], most: int) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"name": name}
    try:
        size = sum(p.numel() for p in build(name, meta=name not in TRANSFORMERS).parameters())
        if size > most:
            return row | {"skipped": f"{size:,} parameters"}
        torch.manual_seed(0)  # the same weights every time: deep nets differ a lot in how rounding grows
        model = build(name).double()
    except Exception as error:  # noqa: BLE001 (a constructor that fails here is reported, whatever it raised)
        return row | {"skipped": f"not built: {type(error).__name__}: {error}"[:200]}
    began = time.perf_counter()
    randomise(model)
    inputs, outputs = run_on_small(model)
    found = widened(model, inputs, factors)
    row["replay"] = difference(outputs, found.before)  # some compute in single precision, whatever they get
    row["rounding"] = found.rounding
    for factor in factors:
        wider, counted = found.axes(factor)
        row[f"x{factor:g}"] = {
            "exact": found.exact(factor),
            "change": found.changes.get(factor),
            "wider": wider,
            "axes": counted,
        }
        if factor in found.failures:
            row[f"x{factor:g}"]["failure"] = found.failures[factor]
    row["parameters"] = size
    row["conflicts"] = [note.where for note in found.graph.notes if note.topic == "conflict"]
    row["pins"] = dict(Counter(_reason(str(pin)) for space in found.graph.spaces for pin in space.pins[:1]))
    row["seconds"] = round(time.perf_counter() - began, 1)
    return row


def _reason(pin: str) -> str:
    return pin.partition(" after ")[0]


def summary(rows: list[dict[str, Any]], factors: Sequence[float]) -> dict[str, Any]:
    """The figures that the project promises."""
    tried = [row for row in rows if "skipped" not in row]
    result: dict[str, Any] = {
        "models": len(tried),
        "skipped": len(rows) - len(tried),
        "replayed": sum(row["replay"] < 1e-4 for row in tried),
        "with_conflicts": sum(bool(row["conflicts"]) for row in tried),
    }
    for factor in factors:
        each = [row[f"x{factor:g}"] for row in tried]
        shares = [one["wider"] / max(1, one["axes"]) for one in each]
        result[f"x{factor:g}"] = {
            "exact": sum(one["exact"] for one in each),
            "exact_percent": round(100 * sum(one["exact"] for one in each) / max(1, len(each)), 1),
            "exact_and_85_percent_of_axes_wider": sum(
                one["exact"] and share >= 0.85 for one, share in zip(each, shares, strict=True)
            ),
            "axes_wider_percent": round(
                100 * sum(one["wider"] for one in each) / max(1, sum(one["axes"] for one in each)), 1
            ),
        }
    return result


def page(groups: dict[str, list[dict[str, Any]]], factors: Sequence[float], most: int) -> str:
    """The summary in Markdown, with every model that is not exact or stays narrow."""
    text = [
        "# Widening real models",
        "",
        "Made by `make widen`; every row is in replay.json. Skipped are models of",
    ]
    text += [f"more than {most:,} parameters: in double precision and wider, they take too long.", ""]
    for name, rows in groups.items():
        text += [f"## {name}", "", "```json", json.dumps(summary(rows, factors), indent=1), "```", ""]
        key = f"x{factors[0]:g}"
        text += [f"Not exact, or less than 85 % of axes wider at {key}:", ""]
        text += [f"| model | {key} | axes | conflicts, pins |", "| --- | ---: | ---: | --- |"]
        for row in rows:
            if "skipped" in row:
                continue
            one = row[key]
            if not one["exact"] or one["wider"] < 0.85 * one["axes"]:
                change = "failed" if one["change"] is None else f"{one['change']:.0e}"
                why = [*row["conflicts"][:2], *(f"{n} {pin}" for pin, n in row["pins"].items())]
                text.append(
                    f"| {row['name']} | {change} | {one['wider']}/{one['axes']} | {'; '.join(why)[:200]} |"
                )
        text.append("")
    return "\n".join(text)


def main() -> None:
    """Measure everything and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th classifier")
    parser.add_argument("--factor", type=float, nargs="+", default=[2.0, 1.5], help="how much wider")
    parser.add_argument("--most", type=int, default=30_000_000, help="skip models of more parameters")
    parser.add_argument("--dry-run", action="store_true", help="print, and write no files")
    options = parser.parse_args()
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine cost more than they give
    warnings.simplefilter("ignore")  # of the libraries that build the models
    names = [n for n in [*distinct_classifiers()[:: options.every], *TRANSFORMERS] if options.only in n]
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(names, 1):
        row = measure(name, options.factor, options.most)
        rows.append(row)
        state = row.get("skipped") or ", ".join(
            f"{key} {one.get('failure') or format(one['change'], '.0e')} {one['wider']}/{one['axes']}"
            for key, one in row.items()
            if isinstance(one, dict) and "exact" in one
        )
        notes = f" conflicts: {row['conflicts'][:2]}" if row.get("conflicts") else ""
        print(f"[{number}/{len(names)}] {name}: {state} ({row.get('seconds', 0)} s){notes}", flush=True)
    groups = {
        "pytorchcv": [row for row in rows if row["name"] not in TRANSFORMERS],
        "transformers": [row for row in rows if row["name"] in TRANSFORMERS],
    }
    groups = {name: group for name, group in groups.items() if group}
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        "most_parameters": options.most,
        "summary": {name: summary(group, options.factor) for name, group in groups.items()},
    }
    print(json.dumps(result, indent=1))
    if not options.dry_run:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "replay.json").write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
        (RESULTS / "replay.md").write_text(page(groups, options.factor, options.most))


if __name__ == "__main__":
    main()
