"""What happens between models that nobody has paired on purpose? `make random-pairs`

Pairs are drawn from the real architectures: two classifiers for small images, two for large ones, or two
transformers; often a smaller and a larger one of a family, so that some contain each other. Weights are
transferred from one to the other. Nothing may crash, and where the plan promises that the child computes
what its parent computes, both are run in double precision and compared. Most pairs are approximate, and only
have to say so. Writes benchmarks/results/random_pairs.json and random_pairs.md.
"""

import argparse
import json
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.helpers.catalogue import TRANSFORMERS, build, cifar_classifiers, distinct_classifiers
from benchmarks.helpers.permutation import randomise
from modelkeeper import transfer
from modelkeeper.frontends.torch import difference

RESULTS = Path(__file__).parent / "results"
EXACT = 1e-6


def draw(count: int, most: int, seed: int) -> Iterator[tuple[str, str]]:
    """Different pairs, of each kind in turn; every other one is of relatives, the larger one the child."""
    rng = random.Random(seed)
    groups = [
        cifar_classifiers(),
        [name for name in distinct_classifiers() if "_cifar10" not in name],
        list(TRANSFORMERS),
    ]
    found: set[tuple[str, str]] = set()
    while len(found) < count:
        group = groups[len(found) % len(groups)]
        parent, child = rng.sample(group, 2)
        kin = [name for name in group if family(name) == family(parent)]
        related = rng.random() < 0.5 and len(kin) > 1
        if related:
            parent, child = rng.sample(kin, 2)
        sizes = parameters(parent), parameters(child)
        if max(sizes) > most or (related and sizes[0] > sizes[1]) or (parent, child) in found:
            continue
        found.add((parent, child))
        yield parent, child


def family(name: str) -> str:
    """The word that a name begins with."""
    return re.split(r"[\d_]", name)[0]


def parameters(name: str, known: dict[str, int] = {}) -> int:  # noqa: B006 (remembers)
    """How many a model has."""
    if name not in known:
        known[name] = sum(p.numel() for p in build(name, meta=name not in TRANSFORMERS).parameters())
    return known[name]


def measure(parent: str, child: str) -> dict[str, Any]:
    """One row: what was promised, what was found."""
    torch.manual_seed(0)
    lender, taker = build(parent).eval().double(), build(child).eval().double()
    randomise(lender)
    began = time.perf_counter()
    row: dict[str, Any] = {"parent": parent, "child": child}
    try:
        report = transfer(lender, taker)
        row |= {"similarity": round(report.similarity, 3), "exact": report.exact}
        row |= {"coverage": round(report.plan.coverage, 3), "doubt": next(iter(report.plan.doubts), "")}
        if report.exact:
            row["difference"] = difference(lender, taker)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what this looks for)
        row["crash"] = f"{type(error).__name__}: {error}"[:300]
    return row | {"seconds": round(time.perf_counter() - began, 1)}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many of each outcome."""
    promised = [row for row in rows if row.get("exact")]
    return {
        "pairs": len(rows),
        "crashed": sum("crash" in row for row in rows),
        "promised_exact": len(promised),
        "promised_in_vain": sum(row.get("difference", 1) > EXACT for row in promised),
        "why_not_exact": dict(
            Counter(
                re.sub(r"\S*\d\S*|\S+\.\S+", "..", row["doubt"]) for row in rows if row.get("doubt")
            ).most_common(8)
        ),
    }


def main() -> None:
    """Draw, measure, print and write the table; fail on a crash or a promise that does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--most", type=int, default=6_000_000, help="no models of more parameters")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the libraries that build the models
    rows = []
    for number, (parent, child) in enumerate(draw(options.pairs, options.most, options.seed), 1):
        row = measure(parent, child)
        rows.append(row)
        state = row.get("crash") or f"exact {row['exact']}, coverage {row['coverage']}"
        print(f"[{number}/{options.pairs}] {parent} to {child}: {state} ({row['seconds']} s)", flush=True)
    result = summary(rows)
    lines = ["# Transfer between real models, paired at random", "", "Made by `make random-pairs`.", ""]
    lines += ["```json", json.dumps(result, indent=1), "```", ""]
    lines += [
        "| parent | child | similarity | coverage | plan | difference |",
        "| --- | --- | ---: | ---: | --- | ---: |",
    ]
    for row in rows:
        plan = row.get("crash") or ("exact" if row["exact"] else "approximate")
        found = f"{row['difference']:.0e}" if "difference" in row else ""
        lines.append(
            f"| {row['parent']} | {row['child']} | {row.get('similarity', '')} | {row.get('coverage', '')} "
            f"| {plan} | {found} |"
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "random_pairs.json").write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
    (RESULTS / "random_pairs.md").write_text("\n".join(lines) + "\n")
    print(json.dumps(result, indent=1))
    if result["crashed"] or result["promised_in_vain"]:
        sys.exit("a transfer crashed, or promised to be exact and was not")


if __name__ == "__main__":
    main()
