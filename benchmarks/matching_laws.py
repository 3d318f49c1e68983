"""Does every further difference lower the similarity? `make matching`, or: python -m benchmarks.matching_laws

Networks are made at random and changed step by step: a layer put in, an axis made different, a layer
taken out, each time at another place. After each step the network is aligned with the one it came from,
in both directions; the similarity must have fallen. Counts to benchmarks/results/matching-laws.md and
.json: how many steps, at how many it did not fall, and at how many of those the score itself rose (the
rest are due to how a score becomes a similarity).
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.helpers.differences import CHANGES, FAMILIES, STEPS, TANGLED, count

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Count, print and write down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=160, help="networks of each family and kind of change")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    report: dict[str, Any] = {"graphs": arguments.graphs, "families": {}}
    lines = [
        "# Does every further difference lower the similarity?",
        "",
        f"{arguments.graphs} networks of each family for each kind of change, up to {STEPS} changes each, "
        "aligned in both",
        "directions. Made by `python -m benchmarks.matching_laws`. Of so many steps: at how many the",
        "similarity did not fall (and at how many of those the score itself rose).",
        "",
        "| networks | " + " | ".join(CHANGES) + " |",
        "| --- |" + " --- |" * len(CHANGES),
    ]
    print("\n".join(lines[6:]))
    sums: dict[str, dict[str, dict[str, int]]] = {"series-parallel": {}, "tangled": {}}
    for family in FAMILIES:
        row = {change: count(family, change, arguments.graphs) for change in CHANGES}
        report["families"][family] = row
        of = sums["tangled" if family in TANGLED else "series-parallel"]
        for change, found in row.items():
            for key, value in found.items():
                of.setdefault(change, dict.fromkeys(found, 0))[key] += value
        lines.append(_line(family, row))
        print(lines[-1], flush=True)
    for title, row in sums.items():
        report[title] = row
        lines.append(_line(f"**{title}**", row))
        print(lines[-1])
    (arguments.out / "matching-laws.json").write_text(json.dumps(report, indent=1) + "\n")
    (arguments.out / "matching-laws.md").write_text("\n".join(lines) + "\n")


def _line(title: str, row: dict[str, dict[str, int]]) -> str:
    parts = [
        f"{found['not lower']} of {found['steps']:,}"
        + (f" ({found['score rose']})" if found["not lower"] else "")
        for found in row.values()
    ]
    return f"| {title} | " + " | ".join(parts) + " |"


if __name__ == "__main__":
    main()
