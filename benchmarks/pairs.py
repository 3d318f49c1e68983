"""Does a child that contains its parent compute what the parent computes? Real pairs. `make pairs`

For each pair both models are built by their own constructors, the parent's weights (random, with norms that
matter) are transferred, and the outputs are compared in double precision before any training. The table says
what the plan promised and what was found; a promise that does not hold is an error. Then models of two
frameworks, PyTorch and Keras, in single precision. Then several parents side by side in one child, compared
with the mean of what they compute.
Writes benchmarks/results/pairs.json and pairs.md.
"""

import json
import sys
from pathlib import Path

from benchmarks.helpers.across_pairs import all_across, measure_across, measure_in_keras
from benchmarks.helpers.catalogue import TRANSFORMERS
from benchmarks.helpers.real_pairs import PAIRS, measure
from benchmarks.helpers.side_pairs import SIDE_BY_SIDE, WHY_NOT, measure_side_by_side
from tests.helpers import written_in_keras

PROMISE = 1e-6  # of outputs in double precision
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Measure all pairs, print and write the table, fail on a promise that does not hold."""
    assert set(TRANSFORMERS) >= {"gpt2", "llama", "bert", "vit", "t5"}
    rows = []
    for name in PAIRS:
        row = measure(name)
        rows.append(row)
        print(f"{name}: exact {row['exact']}, difference {row['difference']:.1e}", flush=True)
    for pair in all_across():
        row = measure_across(*pair)
        rows.append(row)
        print(f"{row['pair']}: exact {row['exact']}, difference {row['difference']:.1e}", flush=True)
    together = []
    for measured, names in (
        (measure_side_by_side, SIDE_BY_SIDE),
        (measure_in_keras, written_in_keras.NETWORKS),
    ):
        for name in names:
            row = measured(name)
            together.append(row)
            print(f"{row['pair']}: {row['plan']}, difference {row['difference']}", flush=True)
    lines = ["# Transfer between real models, before any training", "", "Made by `make pairs`.", ""]
    lines += ["| pair | similarity | plan | difference of outputs | percent of parameters |"]
    lines += ["| --- | ---: | --- | ---: | --- |"]
    for row in rows:
        what = ", ".join(f"{action} {percent:g}" for action, percent in row["summary"].items())
        plan = "exact" if row["exact"] else "approximate"
        lines.append(f"| {row['pair']} | {row['similarity']} | {plan} | {row['difference']:.0e} | {what} |")
    lines += [
        "",
        "## Parents side by side",
        "",
        "The difference is to the mean of what the parents compute.",
        "",
    ]
    lines += ["| parents and child | plan | difference of outputs | |", "| --- | --- | ---: | --- |"]
    for row in together:
        found = "" if row["difference"] is None else f"{row['difference']:.0e}"
        lines.append(f"| {row['pair']} | {row['plan']} | {found} | {WHY_NOT.get(row['pair'], '')} |")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pairs.json").write_text(json.dumps(rows + together, indent=1) + "\n")
    (RESULTS / "pairs.md").write_text("\n".join(lines) + "\n")
    wrong = [
        row["pair"]
        for row in rows + together
        if row["exact"] and row["difference"] > row.get("promise", PROMISE)
    ]
    contained = [row for row in rows if row["contains"]]
    print(f"exact: {sum(row['exact'] for row in contained)} of {len(contained)} that contain their parent")
    print(f"exact: {sum(row['exact'] for row in together)} of {len(together)} with several parents")
    if wrong:
        sys.exit(f"promised exact, but not: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
